"""Where the time of a step goes on the device: what each kernel takes, of ours and of PyTorch's, eager and compiled.

    step_kernels.py MODEL…

The tables go to the log; each case says what the kernels of a step take together, what launching them takes, and which of
the library's kernels compute attention.
"""

import sys

from suite import ON_CPU, attempt, case, described, left, ours, theirs

STEPS, SHOWN = 3, 25
# What the names of PyTorch's fused kernels contain.
ATTENTION = {"flash": "flash", "fmha_cutlass": "memory-efficient", "sdpa": "cuDNN"}


def attention(model, kernels):
    """Which fused kernels compute attention, or that none does; nothing for networks without it."""
    if not model.startswith(("bert", "gpt", "vit")):
        return {}
    found = {kind for kernel in kernels for part, kind in ATTENTION.items() if part in kernel["name"]}
    return {"attention": ", ".join(sorted(found)) or "not fused"}


def sums(model, name, program):
    program.ask(f"steps {1 if ON_CPU else 12}")
    kernels = program.ask(f"kernels {STEPS}")["kernels"]
    on_device = [kernel for kernel in kernels if kernel["on_device"]]
    launches = sum(kernel["count"] for kernel in kernels if "Launch" in kernel["name"] and not kernel["on_device"])
    print(f"-- {name}", file=sys.stderr)
    for kernel in (on_device or kernels)[:SHOWN]:
        milliseconds, count = 1e3 * kernel["seconds"] / STEPS, kernel["count"] / STEPS
        print(f"{milliseconds:8.3f} ms {count:6.1f} {kernel['name'][:150]}", file=sys.stderr)
    busy = 1e3 * sum(kernel["seconds"] for kernel in on_device) / STEPS
    count = sum(kernel["count"] for kernel in on_device) / STEPS
    return {"busy_ms": busy, "kernels": count, "launches": launches / STEPS, **attention(model, on_device)}


def compare(model):
    description = described(model, "bf16")
    programs = {"ours": ours(description), "eager": theirs(description)}
    if not ON_CPU:
        programs["compiled"] = theirs(description, "compiled")
    for how, program in programs.items():
        found = sums(model, f"{model}, {how}", program)
        program.end()
        is_right = found["kernels"] > 0 and (how != "ours" or found.get("attention") != "not fused")
        case(f"{model}, {how}", is_right or ON_CPU, "", **found)


for model in ["resnet18"] if ON_CPU else sys.argv[1:]:
    if left() > 20:
        attempt(model, compare, model)
