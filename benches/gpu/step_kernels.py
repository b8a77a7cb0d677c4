"""Where the time of a step goes on the device: what each kernel takes, of ours and of PyTorch's, eager and compiled.

    step_kernels.py MODEL…

The tables go to the log; each case says what the kernels of a step take together, and what launching them takes.
"""

import sys

from suite import ON_CPU, attempt, case, described, left, ours, theirs

STEPS, SHOWN = 3, 25


def sums(name, program):
    program.ask(f"steps {1 if ON_CPU else 12}")
    kernels = program.ask(f"kernels {STEPS}")["kernels"]
    on_device = [kernel for kernel in kernels if kernel["on_device"]]
    launches = sum(kernel["count"] for kernel in kernels if "Launch" in kernel["name"] and not kernel["on_device"])
    print(f"-- {name}", file=sys.stderr)
    for kernel in (on_device or kernels)[:SHOWN]:
        milliseconds, count = 1e3 * kernel["seconds"] / STEPS, kernel["count"] / STEPS
        print(f"{milliseconds:8.3f} ms {count:6.1f} {kernel['name'][:150]}", file=sys.stderr)
    busy = 1e3 * sum(kernel["seconds"] for kernel in on_device) / STEPS
    return {"busy_ms": busy, "kernels": sum(kernel["count"] for kernel in on_device) / STEPS, "launches": launches / STEPS}


def compare(model):
    description = described(model, "bf16")
    programs = {"ours": ours(description), "eager": theirs(description)}
    if not ON_CPU:
        programs["compiled"] = theirs(description, "compiled")
    for how, program in programs.items():
        found = sums(f"{model}, {how}", program)
        program.end()
        case(f"{model}, {how}", found["kernels"] > 0 or ON_CPU, "", **found)


for model in ["resnet18"] if ON_CPU else sys.argv[1:]:
    if left() > 20:
        attempt(model, compare, model)
