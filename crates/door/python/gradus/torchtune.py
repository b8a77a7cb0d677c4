"""gradus as a metric logger of torchtune:

    metric_logger:
      _component_: gradus.torchtune.GradusLogger

Checkpoints stay torchtune's own. Tried with torchtune 0.6.1.
"""
from torchtune.training.metric_logging import MetricLoggerInterface

from . import _trainers
from ._run import _named, init

__all__ = ["GradusLogger"]


class GradusLogger(MetricLoggerInterface):
    """Logs what a recipe logs: `loss` and `lr` as such, others by their names. Recipes log on rank 0 alone.

    settings  those of `gradus.init()`, such as `hang_after: 1h`; `log_dir`, which other loggers need, is left out of them

    A recipe is not asked to stop: it gets SIGTERM.
    """

    def __init__(self, log_dir=None, **settings):
        self.run = init(**settings)

    def log(self, name, data, step):
        """Logs one number."""
        self.log_dict({name: data}, step)

    def log_config(self, config):
        """Does nothing: the job file and its arguments are kept with the run."""

    def log_dict(self, payload, step):
        """Logs numbers for a step."""
        found = dict(payload)
        loss, rate = found.pop("loss", None), found.pop("lr", None)
        self.run.log(int(step), loss=loss, lr=rate, **_named(found))

    def close(self):
        """Waits for the last save. The run continues until the process ends."""
        _trainers.finish(self.run)
