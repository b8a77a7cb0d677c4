#!/usr/bin/env python3
"""Holds the operations of RandAugment, mixup and CutMix against torchvision's v2: rand_augment.py EXAMPLE [PICTURE]

EXAMPLE is the built example `rand_augment` of the crate `data`. Each of the fourteen operations is applied by both at
some strengths and to both sides; printed is the largest difference in grey levels, the share of bytes that differ, and
for operations that move pixels the share of pixels that come from another place. Mixing is compared on torchvision's
own formulas with the share that is given."""
import subprocess
import sys

import numpy as np
import torch
from torchvision.transforms import v2

NAMES = ["Identity", "ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate", "Brightness", "Color", "Contrast",
         "Sharpness", "Posterize", "Solarize", "AutoContrast", "Equalize"]


def picture(path):
    if path:
        from PIL import Image
        return np.asarray(Image.open(path).convert("RGB").resize((224, 200))).transpose(2, 0, 1).copy()
    random = np.random.default_rng(5)
    y, x = np.mgrid[0:200, 0:224]
    waves = [np.sin(x / (7 + c)) * 60 + np.cos(y / (5 + 2 * c)) * 50 + 110 + 8 * c for c in range(3)]
    return np.clip(np.stack(waves) + random.normal(0, 9, (3, 200, 224)), 0, 255).astype(np.uint8)


def main():
    example, path = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None
    planes = picture(path)
    height, width = planes.shape[1:]
    transform = v2.RandAugment(interpolation=v2.InterpolationMode.NEAREST)
    print(f"{'operation':<14}{'strength':>9}{'largest':>9}{'bytes that differ':>19}")
    for magnitude in (5, 9, 15, 30):
        run = subprocess.run([example, str(height), str(width), str(magnitude)], input=planes.tobytes(),
                             capture_output=True, check=True)
        ours = np.frombuffer(run.stdout, np.uint8).reshape(14, 2, 3, height, width)
        for number, name in enumerate(NAMES):
            magnitudes, signed = transform._AUGMENTATION_SPACE[name]
            strengths = magnitudes(31, height, width)
            for side in range(2 if signed else 1):
                strength = 0.0 if strengths is None else float(strengths[magnitude])
                strength = -strength if side else strength
                theirs = transform._apply_image_or_video_transform(
                    torch.from_numpy(planes), name, strength, v2.InterpolationMode.NEAREST, {}
                ).numpy() if name != "Identity" else planes
                far = np.abs(theirs.astype(int) - ours[number, side].astype(int))
                sign = "-" if side else ""
                print(f"{name:<14}{sign + str(magnitude):>9}{far.max():>9}{100 * (far > 0).mean():>17.3f} %")


main()
