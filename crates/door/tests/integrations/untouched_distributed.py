"""A loop that saves with torch.distributed.checkpoint, and knows nothing of gradus. The environment says when it dies."""
import argparse
import hashlib
import os
import signal

import torch
import torch.distributed.checkpoint as dcp


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", default="saved")
    parser.add_argument("--resume", type=str, default=None)
    args = parser.parse_args()
    torch.manual_seed(0)
    state = {"weight": torch.zeros(4), "step": 0}
    print(f"resumes from {args.resume}", flush=True)
    if args.resume:
        dcp.load(state, checkpoint_id=args.resume)
    for step in range(state["step"] + 1, 25):
        state["weight"] += torch.randn(4, generator=torch.Generator().manual_seed(step))
        state["step"] = step
        print(f"step {step}/24 loss {state['weight'].sum().item():.6f}", flush=True)
        if step % 4 == 0:
            dcp.save(state, checkpoint_id=f"{args.folder}/step-{step}")
        if step == int(os.environ.get("DIE", -1)) and os.environ.get("GRADUS_ATTEMPT_NUMBER") == "1":
            os.kill(os.getpid(), signal.SIGKILL)
    print(f"ended at {state['step']} with {hashlib.sha256(state['weight'].numpy().tobytes()).hexdigest()}")


if __name__ == "__main__":
    main()
