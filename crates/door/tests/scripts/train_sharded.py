"""A small network whose parameters are divided among ranks by FSDP2. `--until STEP` ends there, after a save."""
import argparse
import hashlib
import os

import gradus
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--until", type=int, default=12)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (int(os.environ["WORLD_SIZE"]),))
    torch.manual_seed(0)
    # 5 rows do not divide by 2.
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))
    for layer in (model[0], model[2]):
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    run = gradus.init(checkpoints=args.folder)
    state = {"model": model, "optimizer": optimizer}
    run.load(state)
    for step in range(run.step + 1, args.until + 1):
        # The same samples on every rank, so that the number of ranks does not show.
        x = torch.randn(8, 4, generator=torch.Generator().manual_seed(step))
        loss = (model(x) - x[:, :3]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    run.save(state, args.until, wait=True)
    sha = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        sha.update(name.encode() + tensor.full_tensor().numpy().tobytes())
    if run.rank == 0:
        print(f"step {run.step} weights {sha.hexdigest()}")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
