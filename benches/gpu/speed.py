"""Our step against PyTorch's, eager and compiled, on one device: all are started and warmed up together, then make blocks
of steps in turn, so that whatever the device does hits all alike.

    speed.py [--autotune] MODEL…
"""

import sys

from suite import ON_CPU, attempt, case, described, left, mean, median, ours, share_of_products, theirs

PAIRS, STEPS, WARM_UP = (2, 1, 1) if ON_CPU else (7, 10, 12)


def compare(model, hows):
    precision = "bf16"
    description = described(model, precision)
    # As a run does it, and with every kernel launched by itself.
    programs = {"ours": ours(description)}
    if not model.startswith("yolo") and not ON_CPU:
        programs["launched"] = ours(described(model, precision, cuda_graphs=False))
    programs |= {how or "eager": theirs(description, *([how] if how else [])) for how in hows}
    # What compiles does so beside the others.
    for program in programs.values():
        program.send(f"steps {WARM_UP}")
    first, failed = {}, {}
    for name, program in list(programs.items()):
        try:
            first[name] = program.answer()
        except RuntimeError as error:
            failed[name] = str(error)
            del programs[name]
    blocks = {name: [] for name in programs}
    for _ in range(PAIRS):
        if left() < 5:
            break
        for name, program in programs.items():
            answer = program.ask(f"steps {STEPS}")
            blocks[name].append(mean(answer["seconds"]))
            first[name]["peak_bytes"] = max(first[name]["peak_bytes"], answer["peak_bytes"])
            first[name]["host"] = answer.get("host_seconds")
    for program in programs.values():
        program.end()
    if "ours" not in blocks or not blocks["ours"]:
        return case(model, False, failed.get("ours", "no block was timed"))
    batch, ours_s = description["train"]["batch"], median(blocks["ours"])
    flops = next((answer["flops"] for answer in first.values() if answer.get("flops")), None)
    tflops = flops / ours_s / 1e12 if flops else None
    figures = {
        "batch": batch,
        "samples_per_s": batch / ours_s,
        "step_ms": 1e3 * ours_s,
        "host_ms": 1e3 * first["ours"]["host"] if first["ours"].get("host") else None,
        "tflops": tflops,
        "percent_of_products": share_of_products(tflops, precision),
        "peak_mib": first["ours"]["peak_bytes"] / 2**20,
    }
    passed = True
    for name, seconds in blocks.items():
        if name == "ours" or not seconds:
            continue
        # Of each pair, so that a slow minute of the device counts for nobody.
        ratio = median([b / a for a, b in zip(blocks["ours"], seconds)])
        figures[f"over_{name}"] = ratio
        if name != "launched":
            figures[f"peak_mib_{name}"] = first[name]["peak_bytes"] / 2**20
            passed = passed and ratio >= (1.0 if name == "eager" else 0.95)
    return case(f"{model} {precision}", passed, "; ".join(f"{key}: {why}" for key, why in failed.items()), **figures)


arguments = sys.argv[1:]
hows = ["max-autotune"] if "--autotune" in arguments else ["", "compiled", "reduce-overhead"]
models = [name for name in arguments if not name.startswith("-")]
for model in ["resnet18", "bert_mini"] if ON_CPU else models:
    if left() < 20:
        case(model, None, "no time left")
    else:
        attempt(model, compare, model, [""] if ON_CPU else hows)
