"""gradus for PyTorch programs: a loader with exact order and resume, and a run that reports, saves and stops.

    run = gradus.init()
    state = {"model": model, "optimizer": optimizer}
    run.load(state)
    for step in range(run.step + 1, 1001):
        ...
        run.log(step, loss=loss.item())
        if run.should_save(step):
            run.save(state, step)
        if run.should_stop():
            break

`gradus.huggingface` and `gradus.lightning` have callbacks that do the same for these trainers.

Everything works outside of gradus, too: `init(checkpoints="folder")` saves there, and without it nothing is saved.
"""
from ._door import CheckpointError
from ._loader import Loader
from ._loaders.detection import DetectionLoader
from ._loaders.samples import SampleLoader
from ._loaders.text import TextLoader
from ._run import CheckpointWarning, Run, init

__all__ = ["CheckpointError", "CheckpointWarning", "DetectionLoader", "Loader", "Run", "SampleLoader", "TextLoader", "init"]
