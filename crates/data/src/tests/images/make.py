#!/usr/bin/env python3
"""Makes the picture corpus beside this file, and `expected.txt`: what Pillow (libjpeg-turbo) decodes each picture to.

Needs numpy, pillow 13 and simplejpeg 1.9 (for 4:4:0 and 4:1:1, which Pillow does not write). Usage: make.py
A line of `expected.txt`: file, width, height, CRC-32 of the RGB bytes."""
import os
import zlib

import numpy as np
import simplejpeg
from PIL import Image

HERE = os.path.dirname(os.path.abspath(__file__))


def picture(width, height, seed):
    """Waves, an edge and grain, so that all coefficients are used."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width].astype(float)
    channels = [128 + 60 * np.sin(x / (3 + c) + seed) + 50 * np.cos(y / (4 + c)) + 30 * (x > width * y / height) for c in range(3)]
    pixels = np.stack(channels, -1) + rng.normal(0, 12, (height, width, 3))
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


def path(name):
    return os.path.join(HERE, name + ".jpg")


def main():
    sizes = [(1, 1), (2, 3), (3, 2), (7, 9), (16, 16), (17, 33), (40, 25)]
    for number, (width, height) in enumerate(sizes):
        for name, subsampling in [("444", 0), ("422", 1), ("420", 2)]:
            picture(width, height, number).save(path(f"{name}-{width}x{height}"), quality=88, subsampling=subsampling)
        for name in ["440", "411"]:
            pixels = np.ascontiguousarray(np.asarray(picture(width, height, number)))
            with open(path(f"{name}-{width}x{height}"), "wb") as file:
                file.write(simplejpeg.encode_jpeg(pixels, quality=85, colorsubsampling=name))
    large = picture(53, 39, 99)
    large.save(path("quality-100"), quality=100, subsampling=2)
    large.save(path("quality-5"), quality=5)
    large.save(path("restart-blocks"), quality=80, restart_marker_blocks=3)
    large.save(path("restart-rows"), quality=80, restart_marker_rows=1)
    large.save(path("optimised"), quality=80, optimize=True)
    large.save(path("progressive-420"), quality=80, progressive=True)
    large.save(path("progressive-444"), quality=95, progressive=True, subsampling=0)
    large.save(path("progressive-restart"), quality=80, progressive=True, restart_marker_blocks=5)
    large.convert("L").save(path("grey"), quality=80)
    large.convert("L").save(path("grey-progressive"), quality=80, progressive=True)
    large.convert("CMYK").save(path("cmyk"), quality=80)
    large.save(path("rgb"), quality=80, keep_rgb=True)
    # Of several strips when they are packed.
    tall = picture(72, 600, 7)
    tall.save(path("tall-420"), quality=50, subsampling=2)
    tall.convert("L").save(path("tall-grey"), quality=50)
    exif = Image.Exif()
    exif[0x0112] = 6
    large.save(path("turned"), quality=80, exif=exif)
    with open(os.path.join(HERE, "expected.txt"), "w") as expected:
        for name in sorted(os.listdir(HERE)):
            if name.endswith(".jpg"):
                pixels = np.asarray(Image.open(os.path.join(HERE, name)).convert("RGB"))
                expected.write(f"{name} {pixels.shape[1]} {pixels.shape[0]} {zlib.crc32(pixels.tobytes()):08x}\n")


if __name__ == "__main__":
    main()
