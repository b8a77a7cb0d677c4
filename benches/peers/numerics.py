#!/usr/bin/env python3
"""Holds prepared pictures against torchvision's: numerics.py GRADUS FOLDER COUNT

For each recipe, `GRADUS data dump` writes COUNT pictures as bytes; torchvision's v2 functions (antialiased, on tensors)
prepare the same parts of them. Which part is shown is drawn here a second time, from the rules that are written down:
SplitMix64 with a key of (seed, epoch, picture, place in the list of changes), and torchvision's own way to choose.
Prints one JSON object a recipe: the largest and the mean difference in grey levels, and the largest at the border."""
import glob
import json
import math
import os
import subprocess
import sys
import tempfile

import numpy as np
import torch
from PIL import Image
from torchvision.transforms.v2 import functional as v2

BITS = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15
AUGMENT = 3
SEED = 7


def mix(z):
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & BITS
    z = (z ^ z >> 27) * 0x94D049BB133111EB & BITS
    return z ^ z >> 31


class Draws:
    def __init__(self, epoch, sample, place):
        self.counter = mix(mix(AUGMENT ^ GOLDEN) ^ SEED)
        for part in (epoch, sample, place):
            self.counter = mix((self.counter + GOLDEN & BITS) ^ part)

    def next(self):
        self.counter = self.counter + GOLDEN & BITS
        return mix(self.counter)

    def below(self, bound):
        return self.next() * bound >> 64

    def between(self, low, high):
        return low + (high - low) * ((self.next() >> 11) / 2**53)


def area(height, width, draws):
    low, high = math.log(3 / 4), math.log(4 / 3)
    for _ in range(10):
        target = height * width * draws.between(0.08, 1.0)
        aspect = math.exp(draws.between(low, high))
        w, h = round(math.sqrt(target * aspect)), round(math.sqrt(target / aspect))
        if 0 < w <= width and 0 < h <= height:
            top = draws.below(height - h + 1)
            return top, draws.below(width - w + 1), h, w
    if width / height < 3 / 4:
        w, h = width, round(width / (3 / 4))
    elif width / height > 4 / 3:
        w, h = round(height * 4 / 3), height
    else:
        w, h = width, height
    return (height - h) // 2, (width - w) // 2, h, w


def imagenet_train(picture, sample):
    draws = Draws(0, sample, 0)
    top, left, h, w = area(*picture.shape[1:], draws)
    shown = v2.resized_crop(picture, top, left, h, w, [224, 224], antialias=True)
    return v2.horizontal_flip(shown) if draws.below(2) else shown


def imagenet_val(picture, _sample):
    return v2.center_crop(v2.resize(picture, [256], antialias=True), [224, 224])


def random_crop(picture, sample):
    draws = Draws(0, sample, 0)
    large = v2.resize(picture, [256], antialias=True)
    height, width = large.shape[1:]
    top = draws.below(height - 223)
    shown = v2.crop(large, top, draws.below(width - 223), 224, 224)
    return v2.horizontal_flip(shown) if draws.below(2) else shown


def small_pictures(picture, sample):
    small = v2.pad(v2.resize(picture, [32, 32], antialias=True), [4])
    draws = Draws(0, sample, 0)
    top, left = draws.below(9), draws.below(9)
    shown = v2.crop(small, top, left, 32, 32)
    return v2.horizontal_flip(shown) if Draws(0, sample, 1).below(2) else shown


RECIPES = {
    "imagenet-train": imagenet_train,
    "imagenet-val": imagenet_val,
    "resize256-randomcrop224": random_crop,
    "small-pictures": small_pictures,
}


def main():
    gradus, folder, count = sys.argv[1:]
    names = sorted(glob.glob(os.path.join(folder, "**", "*.jpg"), recursive=True))
    step = max(1, len(names) // int(count))
    worst = 0
    for recipe, prepare in RECIPES.items():
        largest, border, means = 0, 0, []
        for sample in range(0, len(names), step)[: int(count)]:
            with tempfile.TemporaryDirectory() as place:
                out = os.path.join(place, "sample.npy")
                told = subprocess.run(
                    [gradus, "data", "dump", folder, "--recipe", recipe, "--index", str(sample), "--out", out]
                    + ["--numbers", "u8", "--seed", str(SEED), "--json"],
                    check=True, capture_output=True, text=True,
                )
                ours = np.load(out).astype(int)
            name = json.loads(told.stdout)["name"]
            assert names[sample].endswith(name), f"picture {sample} is {name} and not {names[sample]}"
            theirs = prepare(v2.pil_to_tensor(Image.open(names[sample]).convert("RGB")), sample)
            difference = np.abs(ours - theirs.numpy().astype(int))
            edge = np.ones(difference.shape[1:], bool)
            edge[1:-1, 1:-1] = False
            largest, border = max(largest, difference.max()), max(border, difference[:, edge].max())
            means.append(difference.mean())
        found = {"recipe": recipe, "pictures": len(means), "max": int(largest), "max_at_border": int(border)}
        print(json.dumps({**found, "mean": round(float(np.mean(means)), 4)}), flush=True)
        worst = max(worst, largest, np.mean(means) / 0.3)
    if worst > 1:
        sys.exit("a recipe is further than 1 grey level from torchvision, or than 0.3 in the mean")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
