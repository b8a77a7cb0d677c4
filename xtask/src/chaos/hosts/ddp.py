"""Stock PyTorch, data parallel on every machine of a job: saves every second, and resumes from what it saved last.

Weights depend on the number of processes and on nothing else, so that a run in which machines were lost ends with those of
one that nothing happened to.
"""
import os
import pathlib
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS = 600
PAUSE = 0.02
EVERY = 1.0


def batch(step, rank, world):
    """Images of 64 pixels and classes, as a process has them in a step."""
    draws = torch.Generator().manual_seed(step * world + rank)
    images = torch.randn(32, 64, generator=draws)
    return images, (images[:, :10].argmax(dim=1) + images[:, 10].gt(1).long()) % 10


def saved(path, state):
    """Writes a state under its name once it is whole."""
    partial = path.with_suffix(".part")
    torch.save(state, partial)
    os.replace(partial, path)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(7)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    path = pathlib.Path(os.environ["GRADUS_CHECKPOINTS"]) / "state.pt"
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    # What the others find may be older.
    found = [torch.load(path) if rank == 0 and path.exists() else None]
    dist.broadcast_object_list(found)
    first = 0
    if found[0] is not None:
        first = found[0]["step"]
        model.load_state_dict(found[0]["model"])
        optimizer.load_state_dict(found[0]["optimizer"])
    parallel = DistributedDataParallel(model)
    last_save = time.monotonic()
    for step in range(first, STEPS):
        images, classes = batch(step, rank, world)
        loss = torch.nn.functional.cross_entropy(parallel(images), classes)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 9:
            print(f"step {step + 1}/{STEPS} loss {loss.item():.4f}", flush=True)
        if rank == 0 and time.monotonic() - last_save >= EVERY:
            saved(path, {"step": step + 1, "model": model.state_dict(), "optimizer": optimizer.state_dict()})
            last_save = time.monotonic()
        time.sleep(PAUSE)
    if rank == 0:
        out = pathlib.Path("out")
        out.mkdir(exist_ok=True)
        (out / "weights").write_bytes(b"".join(value.numpy().tobytes() for value in model.state_dict().values()))
    # A DDP model that outlives its process group can wait for ever in Gloo (PyTorch 2.11).
    del parallel
    dist.destroy_process_group()


main()
