#!/usr/bin/env python3
"""Makes a set of photograph-like JPEG files: images.py FOLDER COUNT [QUALITY]

The same arguments give the same files, `FOLDER/cN/NNNNNN.jpg`. A picture is noise with the spectrum of photographs, over
which lie soft-edged discs and bars, and the grain of a sensor; most are 500x375, as ImageNet's are.
Needs numpy and pillow."""
import os
import sys
from concurrent.futures import ProcessPoolExecutor

import numpy as np
from PIL import Image

SHAPES = [(500, 375)] * 12 + [(375, 500)] * 3 + [(500, 333)] * 3 + [(640, 480), (400, 300)]


def clouds(rng, height, width, slope):
    """Noise whose amplitude falls with frequency to the power of `slope`; mean 0, deviation 1."""
    down, across = np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)[None, :]
    frequency = np.maximum(np.hypot(down, across), 1 / max(height, width))
    spectrum = (rng.standard_normal(frequency.shape) + 1j * rng.standard_normal(frequency.shape)) / frequency**slope
    field = np.fft.irfft2(spectrum, s=(height, width))
    return (field - field.mean()) / field.std()


def picture(number):
    rng = np.random.default_rng(number)
    width, height = SHAPES[number % len(SHAPES)]
    y, x = np.mgrid[0:height, 0:width].astype(np.float32)
    light = 128 + 42 * clouds(rng, height, width, rng.uniform(0.95, 1.3))
    warm, cold = (clouds(rng, height, width, rng.uniform(1.4, 1.8)) for _ in range(2))
    pixels = np.stack([light + 22 * warm, light - 10 * warm - 10 * cold, light + 22 * cold], -1)
    for _ in range(int(rng.integers(5, 14))):
        centre, turn, size = rng.uniform(0, 1, 2) * (height, width), rng.uniform(0, np.pi), rng.uniform(8, 110)
        along = (y - centre[0]) * np.sin(turn) + (x - centre[1]) * np.cos(turn)
        beside = (x - centre[1]) * np.sin(turn) - (y - centre[0]) * np.cos(turn)
        distance = np.hypot(along, beside) if rng.random() < 0.5 else np.maximum(np.abs(along) / 3, np.abs(beside))
        cover = np.clip((size - distance) / 1.5 + 0.5, 0, 1)[..., None] * rng.uniform(0.2, 0.7)
        pixels = pixels * (1 - cover) + rng.uniform(0, 255, 3) * cover
    pixels += rng.normal(0, rng.uniform(8, 15), (height, width, 1)) + rng.normal(0, 3, (height, width, 3))
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


def write(task):
    folder, number, quality = task
    target = os.path.join(folder, f"c{number % 10}")
    os.makedirs(target, exist_ok=True)
    picture(number).save(os.path.join(target, f"{number:06}.jpg"), quality=quality)


def main():
    folder, count = sys.argv[1], int(sys.argv[2])
    quality = int(sys.argv[3]) if len(sys.argv) > 3 else 90
    with ProcessPoolExecutor() as pool:
        list(pool.map(write, ((folder, number, quality) for number in range(count)), chunksize=16))


if __name__ == "__main__":
    main()
