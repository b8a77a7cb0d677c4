"""Collectives on device tensors: one rank over NCCL; two ranks through the host, for NCCL refuses two on one device; a job
of two ranks, which must train as one rank does; and one whose ranks shard the parameters, which must train as one whose
ranks have all of them."""

import json
import shutil
import socket
import subprocess

from suite import FOLDER, ON_CPU, Asked, attempt, case, described, mean


def port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def collectives(name, program, ranks, expected):
    at, answers = str(port()), []
    words = [[program, str(rank), str(ranks), at] for rank in range(ranks)]
    children = [subprocess.Popen(one, stdout=subprocess.PIPE, text=True) for one in words]
    for child in children:
        output, _ = child.communicate(timeout=60)
        if child.returncode != 0:
            raise RuntimeError(f"rank ended with {child.returncode}; the log says why")
        answers.append(json.loads(output))
    way = answers[0]["transport"]
    wrong = sorted({key for answer in answers for key, fits in answer["right"].items() if not fits})
    note = "; ".join(wrong) if wrong else way
    case(name, not wrong and way.startswith(expected), note, **answers[0]["gb_per_s"])


def without_library():
    """A copy that does not find the library for CUDA, and so exchanges through the host."""
    folder = FOLDER / "work/bin-host"
    folder.mkdir(parents=True, exist_ok=True)
    for program in ("gradus-rank", "collectives"):
        shutil.copy(FOLDER / "bin" / program, folder / program)
    return folder


def trained(precision, **keys):
    """The loss of the fifth step of a small BERT, and seconds of the steps after it."""
    # Without the library: over NCCL, each rank has a device of its own.
    case_ = json.dumps(described("bert_mini", precision, batch=16, deterministic=True, **keys))
    program = Asked(str(without_library() / "gradus-rank"), "bench", case_)
    try:
        return program.ask("steps 5")["loss"], mean(program.ask("steps 5")["seconds"])
    finally:
        program.end()


def sharded(precision, most):
    """Losses of two ranks on one device that have all parameters, and of two that gather them around each block."""
    whole, _ = trained(precision, processes=2)
    loss, seconds = trained(precision, processes=2, parallel={"shard": "parameters"})
    apart = abs(loss - whole) / abs(whole)
    case(f"two ranks that shard parameters, {precision}", apart <= most, "", loss_whole=whole, loss_sharded=loss,
         loss_apart=apart, step_ms=1e3 * seconds)  # fmt: skip


def two_ranks():
    """Losses of the same batches with one rank, and with two that share one device."""
    losses = []
    for ranks in (1, 2):
        loss, seconds = trained("fp32", processes=ranks)
        losses.append(loss)
    case("two ranks on one device", abs(losses[0] - losses[1]) < 0.5, "each draws samples of its own",
         loss_1=losses[0], loss_2=losses[1], step_ms=1e3 * seconds)  # fmt: skip


host = "NCCL" if not ON_CPU else "host"
attempt("one rank", collectives, "one rank", str(FOLDER / "bin/collectives"), 1, host)
attempt("two ranks", collectives, "two ranks, through the host", str(without_library() / "collectives"), 2, "host")
attempt("two ranks on one device", two_ranks)
for precision, most in (("fp32", 1e-4), ("bf16", 1e-2)):
    attempt(f"two ranks that shard parameters, {precision}", sharded, precision, most)
