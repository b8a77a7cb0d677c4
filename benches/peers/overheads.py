#!/usr/bin/env python3
"""What the Python package costs a program, each beside PyTorch in the same process: overheads.py FOLDER [MEGABYTES]

The time that a save keeps the program from training, beside `torch.save` of the same state to the same disk; the processor
time of `log`; and the time of a step with `log`, `should_save` and `should_stop`, beside the step alone. FOLDER is on the
disk that is saved to. Prints a line for each."""
import os
import statistics
import sys
import tempfile
import time

import torch

import gradus

ROUNDS = 5


def state(megabytes):
    """A model and Adam's two values for each weight, in 24 layers of equal size."""
    side = int((megabytes * 1e6 / 4 / 3 / 24) ** 0.5)
    model = torch.nn.Sequential(*(torch.nn.Linear(side, side, bias=False) for _ in range(24)))
    optimizer = torch.optim.AdamW(model.parameters())
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return {"model": model, "optimizer": optimizer}


def timed(work):
    began = time.perf_counter()
    work()
    return 1e3 * (time.perf_counter() - began)


def saves(run, folder, megabytes):
    objects = state(megabytes)
    path = os.path.join(folder, "theirs.pt")

    def theirs():
        torch.save({name: value.state_dict() for name, value in objects.items()}, path)

    def durable():
        theirs()
        with open(path, "rb") as file:
            os.fsync(file.fileno())

    ours, plain, synced, commits = [], [], [], []
    for turn in range(1, ROUNDS + 2):
        plain.append(timed(theirs))
        synced.append(timed(durable))
        ours.append(timed(lambda: run.save(objects, turn)))
        # The next one would wait for it.
        commits.append(timed(run.wait))
    first, ours, plain, synced = ours[0], ours[1:], plain[1:], synced[1:]
    own, other, other_synced = map(statistics.median, (ours, plain, synced))
    print(
        f"save of {megabytes} MB: the program waits {own:.0f} ms ({min(ours):.0f} to {max(ours):.0f}; the first time {first:.0f}); "
        f"torch.save {other:.0f} ms ({min(plain):.0f} to {max(plain):.0f}), with fsync {other_synced:.0f} ms: "
        f"{other / own:.1f} and {other_synced / own:.1f} times as long; ours is durable {statistics.median(commits):.0f} ms later"
    )


def logs(run):
    count = 50_000
    began = time.process_time()
    for step in range(1, count + 1):
        run.log(step, loss=0.5, lr=0.1, samples=32, accuracy=0.5)
    each = (time.process_time() - began) / count
    print(f"log: {1e6 * each:.1f} us of processor time, so a thousand a second take {100 * 1000 * each:.2f} % of a core")


def steps(run):
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(512, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 512))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x = torch.randn(256, 512)

    def step(number, is_reported):
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if is_reported:
            run.log(number, loss=loss, lr=0.01, samples=256)
            run.should_save(number)
            run.should_stop()

    times = {False: [], True: []}
    for number in range(1, 401):
        # In turns, so that other work of the machine meets both.
        for is_reported in (False, True):
            times[is_reported].append(timed(lambda: step(number, is_reported)))
    alone, reported = (statistics.median(times[kind][20:]) for kind in (False, True))
    pairs = [b / a - 1 for a, b in zip(times[False][20:], times[True][20:])]
    print(
        f"step: {alone:.2f} ms alone, {reported:.2f} ms with log, should_save and should_stop "
        f"({100 * (reported / alone - 1):+.2f} % of medians, {100 * statistics.median(pairs):+.2f} % of pairs)"
    )


def main():
    megabytes = int(sys.argv[2]) if len(sys.argv) > 2 else 500
    with tempfile.TemporaryDirectory(dir=sys.argv[1]) as folder:
        run = gradus.init(checkpoints=os.path.join(folder, "ours"), keep=1)
        saves(run, folder, megabytes)
        logs(run)
        steps(run)
        run.finish()


if __name__ == "__main__":
    main()
