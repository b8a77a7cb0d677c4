"""gradus as a tracker of Hugging Face's accelerate: what `Accelerator.log` is given goes to the run.

    accelerator = Accelerator(log_with=gradus.accelerate.GradusTracker())
    accelerator.init_trackers("train")
    accelerator.log({"loss": loss, "lr": rate}, step=step)

Tried with accelerate 1.15.0.
"""
import numbers

from accelerate.tracking import GeneralTracker, on_main_process

from . import _trainers
from ._run import _named, init

__all__ = ["GradusTracker"]


class GradusTracker(GeneralTracker):
    """Logs metrics to the run: `loss`, `lr` (or `learning_rate`) and `epoch` as such, others by their names.

    settings  those of `gradus.init()`, such as `hang_after="1h"`

    What is no number is left out, as other trackers take text and tables too. Only the main process logs. The run itself,
    for `should_save` and `save`, is `tracker.run` and `gradus.init()`.
    """

    name = "gradus"
    requires_logging_directory = False
    main_process_only = True

    def __init__(self, **settings):
        super().__init__()
        self.run, self._step = init(**settings), 0

    @property
    def tracker(self):
        """The run."""
        return self.run

    @on_main_process
    def store_init_configuration(self, values):
        """Does nothing: the job file and its arguments are kept with the run."""

    @on_main_process
    def log(self, values, step=None, **_):
        """Logs the numbers among `values` for `step`, by default the one after the last."""
        self._step = self._step + 1 if step is None else int(step)
        found = {name: value for name, value in values.items() if _is_number(value)}
        rate = found.pop("learning_rate", None)
        rate = found.pop("lr", rate)
        epoch = max(0, int(found.get("epoch", 0)))
        # Scripts log their own `step` among the values, too.
        self.run.log(self._step, loss=found.get("loss"), lr=rate, epoch=epoch, **_named(found))

    @on_main_process
    def finish(self):
        """Waits for the last save. The run continues until the process ends."""
        _trainers.finish(self.run)


def _is_number(value):
    if isinstance(value, numbers.Real):
        return True
    return callable(getattr(value, "item", None)) and getattr(value, "ndim", None) == 0
