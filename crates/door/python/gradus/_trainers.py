"""What the callbacks of trainers share: the folder that a trainer resumes from, the state at the end of a training, and what is
left to do when an exception ends one. That exception is the program's to see, and none of ours takes its place.
"""
import atexit
import contextlib
import os
import shutil
import sys
import tempfile

from ._door import CheckpointError


class ResumeFolder:
    """A temporary folder with the checkpoint that a trainer resumes from. It is gone when the process ends, at the latest."""

    def __init__(self):
        self._path = self._process = None

    @contextlib.contextmanager
    def filled(self):
        """The folder, new, for a checkpoint to be written to. What is not written as a whole is removed."""
        self.remove()
        self._path, self._process = tempfile.mkdtemp(prefix="gradus-resume-"), os.getpid()
        # Also of a training that fails before its first step.
        atexit.register(self.remove)
        try:
            yield self._path
        except BaseException:
            self.remove()
            raise

    def remove(self):
        """Removes it, if this process has made it."""
        if self._path is not None and os.getpid() == self._process:
            shutil.rmtree(self._path, ignore_errors=True)
            self._path = None


def check_parts(run, state, parts, callback):
    """Refuses the loaded state of something else than `callback`. `parts` has the type of each part that is needed."""
    for name, kind in parts.items():
        if name in state and isinstance(state[name], kind):
            continue
        found = "has another" if name in state else f"has {', '.join(map(repr, state))} and no"
        raise CheckpointError(
            f"the checkpoint of step {run.step} in `{run.checkpoints}` was not saved by {callback}: it {found} {name!r}\n"
            "hint: name another folder, or continue with the program that has saved it"
        )


def complete(run, step, begun, save):
    """Returns when the state after the last step is durable. `begun` is the step at which this training began, and `save` saves
    that state, and waits until it is durable if its argument is true.

    While a program trains, a save that failed is a warning, as the next one may succeed. At the end there is no next one: it is
    tried once more, and then is an error, lest a training end well whose result was not saved.
    """
    if run.step != step:
        save(False)
    failed = None
    try:
        run.wait()
    except CheckpointError as error:
        failed = error
    # Only rank 0 knows what is durable.
    is_lost = run.rank == 0 and step != begun and run.saved_step != step
    if run._agreed(is_lost):
        save(True)
    elif failed is not None:
        raise failed


def finish(run):
    """Waits for the save under way, also when a trainer is closed because of an exception."""
    if sys.exc_info()[1] is not None:
        settle(run)
    elif run.checkpoints is not None:
        run.wait()


def settle(run):
    """The same while an exception is on its way to the program: a save that failed is said, and does not replace it."""
    if run.checkpoints is None:
        return
    try:
        run.wait()
    except CheckpointError as error:
        print(f"gradus: the last checkpoint was not saved: {error}", file=sys.stderr)
    except RuntimeError:
        # The run is finished, or that of the process from which this one was forked.
        pass
