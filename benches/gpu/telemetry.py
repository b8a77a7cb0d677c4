"""The profile of a run, what NVML says of the device meanwhile, and whether kernel messages can be read for Xid errors."""

import json
import pathlib
import subprocess
import sys
import time

from digits import job
from suite import GRADUS, ON_CPU, attempt, case, reports, run


def profile():
    said = reports(job("profiled", profile=True, precision="auto", epochs=5), "out")
    [path] = pathlib.Path("out").glob("**/profile/rank-0.json")
    sums = json.loads(path.read_text())["otherData"]
    phases = {key.replace(" ", "_") + "_ms": value / 1e3 for key, value in sums["sums_us"].items() if value}
    note = next((report["text"] for report in said if "bottleneck" in report.get("text", "")), "")
    # A replayed graph counts as a forward pass.
    case("profile", sums["steps"] > 0 and "forward_ms" in phases, note[-80:], steps=sums["steps"], **phases)


def telemetry():
    child = subprocess.Popen([GRADUS, "--home", "home-b", "run", job("watched", epochs=600)], stdout=subprocess.DEVNULL)
    try:
        time.sleep(20)
        status = json.loads(run(GRADUS, "--home", "home-b", "status", "last", "--json").strip().splitlines()[-1])
        device = (status.get("devices") or [{}])[0]
        print(json.dumps(status)[:2000] if not device else "", file=sys.stderr)
        case("NVML in the status", bool(device), "" if device else "the status says nothing of the device", **{
            key: value for key, value in device.items() if isinstance(value, (int, float, str))
        })  # fmt: skip
    finally:
        run(GRADUS, "--home", "home-b", "stop", "last")
        child.wait(30)


def messages():
    done = subprocess.run(["dmesg"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    xids = [line for line in done.stdout.splitlines() if "NVRM: Xid" in line]
    case("kernel messages", None, done.stderr.strip()[:100], lines=len(done.stdout.splitlines()), xid=len(xids))


attempt("profile", profile)
if not ON_CPU:
    attempt("NVML in the status", telemetry)
attempt("kernel messages", messages)
