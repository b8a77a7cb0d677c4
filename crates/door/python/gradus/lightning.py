"""gradus for the `Trainer` of Lightning: metrics, verified checkpoints, resume, and stopping in time.

    callback = gradus.lightning.GradusCallback()
    trainer = lightning.Trainer(callbacks=[callback], enable_checkpointing=False)
    trainer.fit(model, data, ckpt_path=callback.resume())

Tried with lightning 2.6.6.
"""
import atexit
import os
import shutil
import tempfile
import warnings

import lightning
import torch

from . import _state
from ._run import CheckpointWarning, _named, init

__all__ = ["GradusCallback"]


class GradusCallback(lightning.Callback):
    """Logs what the module logs, saves when gradus says so, and stops when gradus does.

    settings  those of `gradus.init()`, such as `save_every="500 steps"`

    A checkpoint is what Lightning itself would save, and the random number generators. Within an epoch Lightning continues at
    the next batch only with a data loader that has `state_dict`, such as `gradus.Loader`; otherwise save at the ends of epochs
    (`at_epoch_ends=True`). Strategies that shard the model are not saved.
    """

    def __init__(self, *, at_epoch_ends=False, **settings):
        self.run = init(**settings)
        self.at_epoch_ends = at_epoch_ends
        self._folder, self._generators, self._is_due, self._has_warned = None, None, False, False

    def resume(self):
        """Loads the newest checkpoint that verifies, and gives a file for `ckpt_path`; None at first."""
        state = self.run.load()
        if state is None:
            return None
        self._generators = _state.generators()
        checkpoint = {**state["trainer"], "state_dict": state["model"]}
        self._folder = tempfile.mkdtemp(prefix="gradus-resume-")
        # Also of a training that fails before its first step.
        atexit.register(shutil.rmtree, self._folder, ignore_errors=True)
        path = os.path.join(self._folder, f"step-{self.run.step}.ckpt")
        torch.save(checkpoint, path)
        return path

    def on_train_start(self, trainer, module):
        self.run._is_profiled({"model": module})
        if self._generators is not None:
            # What set up the trainer has drawn is not part of the run.
            _state.restore_generators(self._generators)
            self._generators = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
        if self.run.checkpoints is not None and self.run.step > trainer.global_step:
            raise ValueError(
                f"the trainer begins at step {trainer.global_step}, and the checkpoint of gradus is of step {self.run.step}\n"
                "hint: trainer.fit(model, ckpt_path=callback.resume())"
            )

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        step = trainer.global_step
        if (batch_idx + 1) % trainer.accumulate_grad_batches and not trainer.is_last_batch:
            return
        if trainer.is_global_zero:
            self._log(trainer, outputs)
        self._is_due |= self.run.should_save(step)
        if not self.at_epoch_ends:
            self._save(trainer)
        if self.run.should_stop():
            self._is_due = True
            self._save(trainer)
            trainer.should_stop = True

    def on_train_epoch_end(self, trainer, module):
        self._save(trainer)

    def on_train_end(self, trainer, module):
        self._is_due |= self.run.step != trainer.global_step
        self._save(trainer)
        if self.run.checkpoints is not None:
            self.run.wait()

    def _log(self, trainer, outputs):
        metrics = {name: value.item() for name, value in trainer.callback_metrics.items() if value.numel() == 1}
        loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
        rates = [group["lr"] for optimizer in trainer.optimizers for group in optimizer.param_groups]
        self.run.log(
            trainer.global_step, loss=None if loss is None else float(loss), lr=rates[0] if rates else None,
            epoch=trainer.current_epoch, **_named(metrics),
        )

    def _save(self, trainer):
        if not self._is_due or self.run.checkpoints is None or self.run.step == trainer.global_step:
            return
        self._is_due = False
        checkpoint = trainer._checkpoint_connector.dump_checkpoint(weights_only=False)
        model = checkpoint.pop("state_dict")
        self._leave_out(checkpoint)
        self.run.save({"model": model, "trainer": checkpoint}, trainer.global_step)

    def _leave_out(self, checkpoint):
        """Leaves out hyperparameters that are no plain values, such as a loss or a function: resuming does not read them."""
        for place in ("hyper_parameters", "datamodule_hyper_parameters"):
            values = checkpoint.get(place)
            if values is None:
                continue
            kept = {name: value for name, value in dict(values).items() if _is_saved(name, value)}
            lost = sorted(str(name) for name in values if name not in kept)
            if lost and not self._has_warned:
                self._has_warned = True
                text = f"hyperparameters that are no numbers, strings, lists or dicts are not in checkpoints: {', '.join(lost)}"
                warnings.warn(text, CheckpointWarning, stacklevel=2)
            checkpoint[place] = kept
        for place in ("hparams_type", "datamodule_hparams_type"):
            checkpoint.pop(place, None)


def _is_saved(name, value):
    try:
        _state.Apart({"value": {name: value}})
    except TypeError:
        return False
    # What has `state_dict()` would come back as a dict.
    return not callable(getattr(value, "state_dict", None))
