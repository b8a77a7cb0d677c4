"""What an installed package must do, with or without PyTorch beside it: save, load and log, from the environment's own files."""
import os
import sys

import gradus

STEPS = 3


def main():
    prefix = os.path.realpath(sys.prefix)
    for path in (gradus.__file__, gradus._door.__file__):
        assert os.path.realpath(path).startswith(prefix + os.sep), f"`{path}` is not of the environment `{prefix}`"
    state = {"step": 0, "text": "ä", "bytes": b"\0\xff", "list": [1, 2.5, None]}
    try:
        import torch
    except ImportError:
        torch = None
    else:
        state["tensor"] = torch.arange(6.0).reshape(2, 3)
    run = gradus.init(checkpoints=sys.argv[1])
    assert run.load() is None, "the folder is new"
    for step in range(1, STEPS + 1):
        run.log(step, loss=1 / step, lr=0.1, samples=8, **{"val/f1": 0.5})
        assert not run.should_stop()
        run.save({**state, "step": step}, step)
    run.wait()
    found = run.load()
    assert (run.step, run.saved_step, found["step"]) == (STEPS, STEPS, STEPS), (run.step, run.saved_step, found["step"])
    if torch is not None:
        assert torch.equal(found.pop("tensor"), state.pop("tensor"))
    assert {**found, "step": 0} == state, found
    run.finish()


if __name__ == "__main__":
    main()
