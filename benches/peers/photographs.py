#!/usr/bin/env python3
"""Cuts the photographs that come with scikit-image and scikit-learn: photographs.py FOLDER

Writes 198 JPEG files, `FOLDER/NAME-NN.jpg`: of each of 11 photographs 18 crops of the proportions of a camera, whose longer
side becomes 500 pixels at most, at qualities of 75 to 95 and with 4:2:0, as ImageNet's mostly are. The same versions of
these packages and of pillow give the same files. Neither package is imported, for what they need is not installed."""
import os
import random
import sys

from PIL import Image

PHOTOGRAPHS = {
    "skimage/data": ["astronaut.png", "chelsea.png", "coffee.png", "hubble_deep_field.jpg", "ihc.png",
                     "motorcycle_left.png", "motorcycle_right.png", "retina.jpg", "rocket.jpg"],
    "sklearn/datasets/images": ["china.jpg", "flower.jpg"],
}
CROPS = 18
LONGER = 500


def found(name):
    for folder in sys.path:
        if os.path.isfile(os.path.join(folder, name)):
            return os.path.join(folder, name)
    raise SystemExit(f"there is no `{name}` in `PYTHONPATH`")


def crop(image, draws):
    """A crop of three quarters of the sides at least, upright or across."""
    across = draws.choice([4 / 3, 3 / 2, 3 / 4])
    width = min(image.width, image.height * across) * draws.uniform(0.75, 1.0)
    height = width / across
    x, y = draws.uniform(0, image.width - width), draws.uniform(0, image.height - height)
    scale = min(1.0, LONGER / max(width, height))
    size = (round(width * scale), round(height * scale))
    return image.resize(size, Image.LANCZOS, box=(x, y, x + width, y + height))


def main():
    folder = sys.argv[1]
    os.makedirs(folder, exist_ok=True)
    for package, names in PHOTOGRAPHS.items():
        for name in names:
            image = Image.open(found(f"{package}/{name}")).convert("RGB")
            draws = random.Random(name)
            for number in range(CROPS):
                target = os.path.join(folder, f"{name.split('.')[0]}-{number:02}.jpg")
                crop(image, draws).save(target, quality=draws.choice([75, 85, 90, 95]), subsampling="4:2:0")


if __name__ == "__main__":
    main()
