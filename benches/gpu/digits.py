"""The example of the README on this machine's device; and the same run killed again and again, which must end with the
same bytes, as must that of a small BERT over texts of different lengths, whose attention has a mask.

    digits.py train|resume
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time

from suite import FOLDER, GRADUS, attempt, case, left, run


def job(name, **keys):
    """A job over the digits in this folder; returns its file."""
    shutil.copy(FOLDER / "examples/digits.csv.gz", ".")
    train = {
        "model": "cnn",
        "data": {"path": "digits.csv.gz"},
        "epochs": 30,
        "batch": 64,
        "threads": 1,
        "seed": 0,
        "deterministic": True,
        "optimizer": {"adamw": {"lr": 0.002}},
        "schedule": {"warmup": "2 epochs", "decay": "cosine"},
        "checkpoint": {"every": "20 steps"},
    } | keys
    with open(f"{name}.yaml", "w") as file:
        json.dump({"name": name, "train": train}, file)
    return f"{name}.yaml"


def result(home):
    """The outcome of the one run of a home."""
    row = json.loads(run(GRADUS, "--home", home, "status", "--json").strip().splitlines()[-1])
    return row["attempts"], row["state"].get("outcome", {}).get("model")


def undisturbed(name, **keys):
    began = time.monotonic()
    run(GRADUS, "--home", f"home-{name}", "run", job(name, **keys))
    attempts, model = result(f"home-{name}")
    return time.monotonic() - began, attempts, model


def train():
    seconds, _, model = undisturbed("digits")
    accuracy = model["test_accuracy"]
    case(
        "digits",
        accuracy > 0.95,
        "",
        test_accuracy=accuracy,
        seconds=seconds,
        peak_memory_mib=model["peak_memory"] / 2**20,
        sha256=model["model_sha256"][:12],
    )


def ranks(home):
    """Ranks whose specification lies in this home."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read().split(b"\0")
        except OSError:
            continue
        if words[0].endswith(b"gradus-rank") and any(word.startswith(os.fsencode(home)) for word in words[1:]):
            found.append(int(pid))
    return found


def killed(name, seed, most, **keys):
    home, random_ = os.path.abspath(f"home-{name}"), random.Random(seed)
    process = subprocess.Popen([GRADUS, "--home", home, "run", job(name, **keys)], stdout=subprocess.DEVNULL)
    kills = 0
    while process.poll() is None and left() > 5:
        if kills < most:
            time.sleep(random_.uniform(1.0, 4.0))
            for rank in ranks(home):
                os.kill(rank, signal.SIGKILL)
                kills += 1
        time.sleep(0.2)
    if process.poll() is None:
        process.kill()
        raise RuntimeError(f"not done after {kills} kills")
    attempts, model = result(home)
    return kills, attempts, model


def texts():
    """What a job says of texts that it learns to tell apart, in a file of this folder; a step of a device is short."""
    random_, words = random.Random(3), [f"word{number}" for number in range(200)]
    with open("texts.csv", "w") as file:
        file.write("text,class\n")
        for row in range(400):
            some = words[100 * (row % 2) : 150] if row % 3 else words
            file.write(f"{' '.join(random_.choices(some, k=random_.randint(3, 30)))},{row % 2}\n")
    data = {"path": "texts.csv", "text": {"columns": ["text"], "label": "class", "length": 32}}
    epochs = 60 if shutil.which("nvidia-smi") else 10
    return {"model": "bert_mini", "data": data, "batch": 8, "epochs": epochs, "precision": "bf16"}


def resumed(what, most, **keys):
    """A run that is killed some times, against one that is not."""
    _, _, model = undisturbed(f"whole-{what}", **keys)
    kills, attempts, again = killed(f"killed-{what}", 7, most, **keys)
    same = model["model_sha256"] == again["model_sha256"]
    case(
        f"{what}, killed",
        same and kills > 0,
        "the same bytes" if same else "other bytes",
        kills=kills,
        attempts=attempts,
        sha256=again["model_sha256"][:12],
    )


def resume():
    for precision in ("fp32", "bf16"):
        resumed(precision, 3, precision=precision, epochs=60)
    resumed("texts-bf16", 2, **texts())


if __name__ == "__main__":
    attempt(sys.argv[1], {"train": train, "resume": resume}[sys.argv[1]])
