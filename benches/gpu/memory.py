"""What a checkpoint stops the step for; what offloading, recomputation and a loss in chunks save and cost; the largest batch
that fits."""

from suite import ON_CPU, attempt, case, described, left, mean, median, ours

MODEL = "bert_mini" if ON_CPU else "bert_base"


def steps(description):
    program = ours(description)
    try:
        program.ask("steps 3")
        answer = program.ask("steps 8")
        return mean(answer["seconds"]), answer["peak_bytes"]
    finally:
        program.end()


def snapshot(model):
    program = ours(described(model, "bf16"))
    program.ask("steps 3")
    step = mean(program.ask("steps 10")["seconds"])
    answer = program.ask("snapshots 5")
    program.end()
    stall = median(answer["snapshots"])
    # A checkpoint every 100 steps, as a job that states nothing else would have at most.
    share = 100 * stall / (100 * step)
    case(f"checkpoint of {model}", share <= 1, "", stall_ms=1e3 * stall, state_mib=answer["bytes"] / 2**20,
         gb_per_s=answer["bytes"] / stall / 1e9, step_ms=1e3 * step, percent_at_every_100_steps=share)  # fmt: skip


def savings():
    plain_s, plain = steps(described(MODEL, "bf16"))
    case("plain", None, MODEL, step_ms=1e3 * plain_s, peak_mib=plain / 2**20)
    for name, keys in (
        ("recompute: blocks", {"recompute": "blocks"}),
        ("offload: optimizer", {"offload": "optimizer"}),
        ("accumulate: 4", {"accumulate": 4}),
    ):
        seconds, peak = steps(described(MODEL, "bf16", **keys))
        case(name, peak < plain or ON_CPU, MODEL, step_ms=1e3 * seconds, peak_mib=peak / 2**20,
             times_as_long=seconds / plain_s, share_of_memory=peak / plain)  # fmt: skip


def chunked():
    """The loss of a GPT-2 with all of its tokens, at once and in chunks; neither with CUDA graphs, which exclude chunks."""

    def measured(**keys):
        description = described("gpt_tiny" if ON_CPU else "gpt2", "bf16", **keys)
        description["vocabulary"] = 2000 if ON_CPU else 50257
        description["train"]["data"]["text"]["vocabulary"] = description["vocabulary"]
        program = ours(description)
        try:
            loss = program.ask("steps 3")["loss"]
            answer = program.ask("steps 8")
            return loss, mean(answer["seconds"]), answer["peak_bytes"]
        finally:
            program.end()

    whole_loss, whole_s, whole = measured(cuda_graphs=False)
    loss, seconds, peak = measured(chunked_loss=True)
    apart = abs(loss - whole_loss) / abs(whole_loss)
    case("chunked_loss: true", apart < 0.01 and (peak < whole or ON_CPU), "gpt_tiny" if ON_CPU else "gpt2", step_ms=1e3 * seconds,
         peak_mib=peak / 2**20, times_as_long=seconds / whole_s, share_of_memory=peak / whole, loss_apart=apart)  # fmt: skip


def fits(batch, **keys):
    try:
        steps(described(MODEL, "bf16", batch=batch, **keys))
        return True
    except (RuntimeError, BrokenPipeError):
        return False


def largest(name, **keys):
    """Doubled until it does not fit, and half as much again."""
    batch = 64
    while left() > 40 and batch < 1 << 16 and fits(2 * batch, **keys):
        batch *= 2
    if left() > 25 and fits(batch * 3 // 2, **keys):
        batch = batch * 3 // 2
    case(f"largest batch, {name}", None, MODEL, batch=batch)


for model in [MODEL] if ON_CPU else ["resnet50", "bert_base", "gpt2"]:
    attempt(model, snapshot, model)
attempt("savings", savings)
attempt("chunked_loss: true", chunked)
if not ON_CPU:
    attempt("largest batch", largest, "plain")
    attempt("largest batch", largest, "recompute: blocks", recompute="blocks")
