"""Whether our loader feeds the device: a run of a ResNet-50 over JPEG files, decoded, cropped and flipped, and what of its
steps waited for data."""

import json
import os
import pathlib
import sys

from suite import FOLDER, ON_CPU, attempt, case, reports, run

COUNT = 40 if ON_CPU else 3000


def images():
    if not pathlib.Path("images").exists():
        run(sys.executable, FOLDER / "peers/images.py", "images", str(COUNT))


def feeds(model, batch, epochs):
    images()
    train = {
        "model": model,
        "data": {
            "path": "images",
            "size": 64 if ON_CPU else 224,
            "workers": max(1, (os.cpu_count() or 2) - 2),
            "augment": ["random_resized_crop", "flip"],
        },
        "epochs": epochs,
        "batch": batch,
        "precision": "auto",
        "deterministic": False,
        "memory_format": "channels_last",
        "optimizer": {"sgd": {"lr": 0.01}},
    }
    with open(f"{model}.yaml", "w") as file:
        json.dump({"name": model.replace("_", "-"), "train": train}, file)
    # The first step of a run waits for the first batch.
    said = reports(f"{model}.yaml", f"out-{model}")
    measured = [report for report in said if report["report"] == "step"][5:]
    total = sum(step["step_us"] for step in measured)
    waited = 100 * sum(step["data_wait_us"] for step in measured) / max(total, 1)
    rate = 1e6 * sum(step["samples"] for step in measured) / max(total, 1)
    case(model, bool(measured) and waited < 1, "", batch=batch, steps=len(measured), samples_per_s=rate, data_wait_percent=waited)


attempt("resnet50", feeds, "resnet18" if ON_CPU else "resnet50", 8 if ON_CPU else 128, 2 if ON_CPU else 6)
if not ON_CPU:
    attempt("mobilenet_v3_large", feeds, "mobilenet_v3_large", 128, 6)
