"""What the scripts of `cargo xtask gpu run` share: where the pack is, how a case is reported, how programs are asked.

The runner starts each script in a folder of its own, with SUITE_FOLDER, SUITE_DEVICE (`cuda`, or `cpu` to try a script out
with small networks) and SUITE_LIMIT in its environment. Each case is one line of JSON on stdout.
"""

import json
import os
import pathlib
import subprocess
import sys
import time

FOLDER = pathlib.Path(os.environ["SUITE_FOLDER"])
DEVICE = os.environ.get("SUITE_DEVICE", "cuda")
ON_CPU = DEVICE == "cpu"
BEGAN = time.monotonic()
LIMIT = float(os.environ.get("SUITE_LIMIT", "600"))
GRADUS, RANK = str(FOLDER / "bin/gradus"), str(FOLDER / "bin/gradus-rank")
# TFLOP/s of large matrix products by number format, which the section `device` leaves for those behind it.
CEILINGS = FOLDER / "work/ceilings.json"
VOCABULARY = 8000


def left():
    """Seconds until this script is ended."""
    return LIMIT - (time.monotonic() - BEGAN)


def case(name, ok=None, note="", /, **figures):
    """Reports a case: `ok` true or false, or none where there is no right and wrong."""
    print(json.dumps({"case": name, "ok": ok, "note": note, "figures": figures}), flush=True)


def attempt(name, work, *arguments, **keys):
    """Does the work of a case; what it raises is how the case failed."""
    try:
        return work(*arguments, **keys)
    except Exception as error:  # noqa: BLE001 - a case that fails must not end the section
        case(name, False, f"{type(error).__name__}: {error}"[:300])
        return None


def run(*words, **more):
    """Runs a program of the pack to its end; returns what it printed, and raises what it said where it failed."""
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False, **more)
    sys.stderr.write(done.stderr)
    if done.returncode != 0:
        raise RuntimeError(f"`{' '.join(map(str, words[:3]))}`: {done.stderr.strip()[-300:]}")
    return done.stdout


# Model, its samples per step, the height of images or the tokens of a row, classes; the usual sizes of training on a data
# centre's device, and small ones for a CPU.
SIZES = {
    "resnet50": (128, 224, 1000),
    "resnet18": (256, 224, 1000),
    "mobilenet_v3_large": (128, 224, 1000),
    "vit_s_16": (128, 224, 1000),
    "yolo_s": (32, 640, 80),
    "yolo_n": (32, 640, 80),
    "bert_mini": (64, 128, 10),
    "bert_base": (64, 128, 10),
    "gpt_tiny": (32, 256, 0),
    "gpt2": (8, 1024, 0),
    "gpt2_medium": (4, 1024, 0),
}


def described(model, precision, batch=None, channels_last=None, **keys):
    """A case as `gradus-rank bench` and `torch_step.py` take it."""
    usual, size, classes = SIZES[model]
    if ON_CPU:
        usual, size = 4, {224: 64, 640: 64}.get(size, 32)
    is_text = model.startswith(("bert", "gpt"))
    if channels_last is None:
        channels_last = not is_text and model != "vit_s_16" and precision in ("bf16", "fp16")
    adamw = is_text or model == "vit_s_16"
    train = {
        "model": model,
        "data": {"path": ""},
        "epochs": 1,
        "batch": batch or usual,
        "precision": "fp32" if ON_CPU and precision in ("tf32", "fp16") else precision,
        "memory_format": "channels_last" if channels_last else "contiguous",
        "optimizer": {"adamw": {"lr": 1e-4, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.01}}
        if adamw
        else {"sgd": {"lr": 0.01, "momentum": 0.9, "nesterov": False, "weight_decay": 5e-4}},
        "seed": 0,
        "deterministic": False,
    }
    if is_text:
        train["data"]["text"] = {"label": "class", "length": size, "vocabulary": VOCABULARY}
    train.update(keys)
    threads = os.cpu_count() or 1
    return {"train": train, "size": 0 if is_text else size, "vocabulary": VOCABULARY, "classes": classes or 10, "threads": threads}


class Asked:
    """A program that answers one line of JSON for each request."""

    def __init__(self, *words):
        self.child = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, request):
        self.send(request)
        return self.answer()

    def send(self, request):
        self.child.stdin.write(request + "\n")
        self.child.stdin.flush()

    def answer(self):
        line = self.child.stdout.readline()
        if not line:
            raise RuntimeError(f"it ended with {self.child.wait()}; the log says why")
        return json.loads(line)

    def end(self):
        self.child.stdin.close()
        try:
            self.child.wait(5)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()


def ours(description):
    return Asked(RANK, "bench", json.dumps(description))


def theirs(description, *how):
    return Asked(sys.executable, str(FOLDER / "peers/torch_step.py"), *how, json.dumps(description))


def reports(job, out, stop_at=None):
    """What a rank says that trains `job` without an agent; it is ended once it has said so much of its steps."""
    words = [RANK, "--job", job, "--out", out]
    child = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    said = []
    for line in child.stdout:
        said.append(json.loads(line))
        if said[-1].get("report") == "step" and said[-1]["step"] == stop_at:
            child.kill()
    child.wait()
    return said


def share_of_products(tflops, precision):
    """Percent of what large matrix products reach on this device; none where that was not measured."""
    ceilings = json.loads(CEILINGS.read_text()) if CEILINGS.exists() else {}
    return 100 * tflops / ceilings[precision] if tflops and precision in ceilings else None


def mean(numbers):
    return sum(numbers) / len(numbers)


def median(numbers):
    ordered = sorted(numbers)
    return ordered[len(ordered) // 2]


def device_memory_mib():
    """What all processes hold of the device, by its driver."""
    text = run("nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits")
    return int(text.split()[0])
