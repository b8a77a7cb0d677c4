"""gradus for torchtitan: its metrics go to the run, and a run that is told to stop saves and ends.

    # titan_gradus.py
    import gradus.torchtitan

    gradus.torchtitan.register("llama3")

    torchtitan … --experimental.custom_import titan_gradus --model.name llama3_gradus

Checkpoints stay torchtitan's own. Tried with torchtitan 0.2.2; later versions are configured in another way.
"""
import dataclasses
import warnings

from torchtitan.components.metrics import BaseLogger, LoggerContainer, MetricsProcessor
from torchtitan.protocols.train_spec import get_train_spec, register_train_spec

from . import _trainers
from ._run import CheckpointWarning, _named, init

__all__ = ["GradusMetrics", "register"]


def register(model, name=None, **settings):
    """Registers the model of torchtitan under another name, by default MODEL_gradus, with the metrics of the run.

    model     a name that torchtitan knows, such as "llama3"
    settings  those of `gradus.init()`, such as `hang_after="1h"`

    Raises ValueError for a model that torchtitan does not know, and for a name that is taken.
    """
    spec = get_train_spec(model)

    def built(job_config, parallel_dims, model_args=None, tag=None):
        return GradusMetrics(job_config, parallel_dims, tag, **settings)

    register_train_spec(name or f"{model}_gradus", dataclasses.replace(spec, build_metrics_processor_fn=built))


class GradusMetrics(MetricsProcessor):
    """torchtitan's metrics, which go to the run as well; only rank 0 is shown, so a pipeline, whose last stage knows the loss,
    shows none.

    On a notice, `gradus stop`, the budget or the deadline, the step under way is the last one, whose checkpoint torchtitan
    writes. Where that would be the model alone (`checkpoint.last_save_model_only`), nothing could resume from it: then there is
    a CheckpointWarning, and the program gets SIGTERM in place of that.
    """

    def __init__(self, job_config, parallel_dims, tag=None, **settings):
        super().__init__(job_config, parallel_dims, tag)
        self.run = init(steps=job_config.training.steps, **settings)
        container = LoggerContainer()
        container.add_logger(self.logger)
        container.add_logger(_Logger(self.run))
        self.logger = container
        self._stops = not (job_config.checkpoint.enable and job_config.checkpoint.last_save_model_only)
        if not self._stops:
            text = "a run that is stopped makes no last checkpoint\nhint: set `last_save_model_only = false` below `[checkpoint]`"
            warnings.warn(text, CheckpointWarning, stacklevel=2)

    def should_log(self, step):
        """Whether torchtitan reports this step. It asks on every rank after each step, so ranks agree here on the last one."""
        if self._stops and self.run.should_stop():
            # torchtitan saves after the last step, and trains no further.
            self.job_config.training.steps = step
        return super().should_log(step)


class _Logger(BaseLogger):
    def __init__(self, run):
        self._run = run

    def log(self, metrics, step):
        found = dict(metrics)
        loss, rate = found.pop("loss_metrics/global_avg_loss", None), found.pop("lr", None)
        self._run.log(step, loss=loss, lr=rate, **_named(found))

    def close(self):
        _trainers.finish(self._run)
