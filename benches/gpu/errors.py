"""Memory that runs out on the device: is it said, is the advice right; and what a killed rank leaves behind."""

import json
import os
import pathlib
import re
import signal
import subprocess
import time

from suite import FOLDER, ON_CPU, attempt, case, device_memory_mib, reports


def job(name, **keys):
    pathlib.Path("texts.csv").write_text("text,class\n" + "".join(f"{'word ' * 500},{row % 2}\n" for row in range(4000)))
    train = {
        "model": "bert_large",
        "data": {"path": "texts.csv", "text": {"columns": ["text"], "label": "class", "length": 512}},
        "epochs": 1,
        "batch": 2048,
        "precision": "bf16",
        "optimizer": {"adamw": {"lr": 1e-4}},
    } | keys
    pathlib.Path(f"{name}.yaml").write_text(json.dumps({"name": name, "train": train}))
    return f"{name}.yaml"


def finding(said):
    """Why a rank failed; none if it did not."""
    return next((report for report in said if report["report"] == "failed"), None)


def out_of_memory():
    why = finding(reports(job("large"), "out-large", stop_at=1))
    text = json.dumps(why)
    case("a batch that does not fit", why is not None and "OutOfMemory" in text.replace("_", "").title().replace(" ", "")
         or "memory ran out" in text, (why or {}).get("message", "it fits")[:200])  # fmt: skip
    advice = re.search(r"accumulate: (\d+)", (why or {}).get("hint") or "")
    accumulate, tries = int(advice[1]) if advice else 0, 0
    while accumulate and tries < 5:
        tries += 1
        again = finding(reports(job("fits", accumulate=accumulate), f"out-{accumulate}", stop_at=2))
        if again is None:
            break
        advice = re.search(r"accumulate: (\d+)", again.get("hint") or "")
        accumulate = int(advice[1]) if advice else 0
    hint = (why or {}).get("hint") or "none"
    case("the advice", accumulate > 0 and tries == 1, f"{hint}; after {tries} tries",
         accumulate=accumulate)  # fmt: skip


def freed():
    before = device_memory_mib()
    description = {"train": {"model": "bert_base", "data": {"path": "", "text": {"label": "class", "length": 128}},
                             "epochs": 1, "batch": 64, "optimizer": {"adamw": {"lr": 1e-4}}, "seed": 0},
                   "size": 0, "vocabulary": 8000, "classes": 10, "threads": 4}  # fmt: skip
    words = [str(FOLDER / "bin/gradus-rank"), "bench", json.dumps(description)]
    child = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    child.stdin.write("steps 3\n")
    child.stdin.flush()
    child.stdout.readline()
    during = device_memory_mib()
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    began = time.monotonic()
    while device_memory_mib() > before + 100 and time.monotonic() - began < 10:
        time.sleep(0.1)
    after = device_memory_mib()
    case("a killed rank frees the device", after <= before + 100 < during, "", before_mib=before, during_mib=during,
         after_mib=after, seconds=time.monotonic() - began)  # fmt: skip


if not ON_CPU:
    attempt("out of memory", out_of_memory)
    attempt("freed", freed)
