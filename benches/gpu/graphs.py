"""Steps with and without CUDA graphs, in turn: the same losses, and what a single launch is worth where a step is short."""

from suite import ON_CPU, attempt, case, described, left, mean, median, ours

CASES = [("bert_mini", 16), ("gpt_tiny", 8), ("resnet18", 16), ("bert_base", 16), ("gpt2", 4), ("resnet50", 64)]


def compare(model, batch):
    plain, recorded = (
        ours(described(model, "bf16", batch=batch, deterministic=True, cuda_graphs=graphs)) for graphs in (False, True)
    )
    losses = [program.ask("steps 8")["loss"] for program in (plain, recorded)]
    times = [[], []]
    for _ in range(7):
        for place, program in enumerate((plain, recorded)):
            answer = program.ask("steps 10")
            times[place].append(mean(answer["seconds"]))
            losses[place] = answer["loss"]
    peaks = [program.ask("steps 1")["peak_bytes"] / 2**20 for program in (plain, recorded)]
    plain.end()
    recorded.end()
    off, on = (1e3 * median(each) for each in times)
    apart = abs(losses[0] - losses[1]) / max(abs(losses[0]), 1e-9)
    # In training mode without dropout both compute the same; with it, the generators draw at other places.
    case(f"{model}, batch {batch}", apart < 0.05, "", off_ms=off, on_ms=on, speed_up=off / on, loss_apart=apart,
         peak_mib_off=peaks[0], peak_mib_on=peaks[1])


for model, batch in CASES[:0] if ON_CPU else CASES:
    if left() > 15:
        attempt(model, compare, model, batch)
