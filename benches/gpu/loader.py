"""Whether our loader feeds the device: what copies of batches add to a step that computes beside them; and a run of a
ResNet-50 over JPEG files, decoded, cropped and flipped, and what of its steps waited for data."""

import json
import os
import pathlib
import sys

from suite import FOLDER, ON_CPU, attempt, case, described, mean, median, ours, reports, run

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


def copies(model):
    """Blocks of steps on a batch that is on the device, and of steps whose batch is copied there before each, in turn."""
    blocks, steps = (2, 2) if ON_CPU else (5, 10)
    program = ours(described(model, "bf16"))
    try:
        program.ask(f"steps {steps}")
        program.ask(f"fed {steps}")
        there, fed, host = [], [], []
        for _ in range(blocks):
            there.append(mean(program.ask(f"steps {steps}")["seconds"]))
            answer = program.ask(f"fed {steps}")
            fed.append(mean(answer["seconds"]))
            host.append(answer.get("host_seconds", 0.0))
    finally:
        program.end()
    added = 100 * (median([copied / step for step, copied in zip(there, fed)]) - 1)
    case(f"copies beside the step of {model}", None if ON_CPU else added < 1, "", step_ms=1e3 * median(there),
         copied_step_ms=1e3 * median(fed), host_ms=1e3 * median(host), added_percent=added)  # fmt: skip


attempt("copies", copies, "resnet18" if ON_CPU else "resnet50")
attempt("resnet50", feeds, "resnet18" if ON_CPU else "resnet50", 8 if ON_CPU else 128, 2 if ON_CPU else 6)
if not ON_CPU:
    attempt("mobilenet_v3_large", feeds, "mobilenet_v3_large", 128, 6)
