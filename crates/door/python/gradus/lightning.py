"""gradus for the `Trainer` of Lightning: metrics, verified checkpoints, resume, and stopping in time.

    callback = gradus.lightning.GradusCallback()
    trainer = lightning.Trainer(callbacks=[callback], enable_checkpointing=False)
    trainer.fit(model, data, ckpt_path=callback.resume())

`GradusCheckpointIO` has Lightning's own `ModelCheckpoint` write checkpoints that are verified:

    trainer = lightning.Trainer(plugins=[gradus.lightning.GradusCheckpointIO()])

Tried with lightning 2.6.6.
"""
import contextlib
import json
import os
import re
import shutil
import warnings

import lightning
import torch
from lightning.fabric.plugins.io.torch_io import TorchCheckpointIO

from . import _door, _state, _trainers
from ._run import CheckpointWarning, _named, init

__all__ = ["GradusCallback", "GradusCheckpointIO"]


class GradusCallback(lightning.Callback):
    """Logs what the module logs, saves when gradus says so, and stops when gradus does.

    settings  those of `gradus.init()`, such as `save_every="500 steps"`

    A checkpoint is what Lightning itself would save, and the random number generators. Within an epoch Lightning continues at
    the next batch only with a data loader that has `state_dict`, such as `gradus.Loader`; otherwise save at the ends of epochs
    (`at_epoch_ends=True`). Strategies that shard the model are not saved.

    A save that fails, as on a full disk, is a CheckpointWarning while the trainer trains. The last state is tried once more, and
    `fit` raises CheckpointError if it cannot be saved. When an exception of the program's own ends `fit`, a save under way is
    waited for first, and that exception is raised.
    """

    def __init__(self, *, at_epoch_ends=False, **settings):
        self.run = init(**settings)
        self.at_epoch_ends = at_epoch_ends
        self._folder, self._begun = _trainers.ResumeFolder(), 0
        self._generators, self._is_due, self._has_warned = None, False, False

    def resume(self):
        """Loads the newest checkpoint that verifies, and gives a file for `ckpt_path`; None at first. Raises CheckpointError for a
        checkpoint that was not saved by this callback.
        """
        state = self.run.load()
        if state is None:
            return None
        _trainers.check_parts(self.run, state, {"model": dict, "trainer": dict}, "gradus.lightning.GradusCallback")
        self._generators = _state.generators()
        checkpoint = {**state["trainer"], "state_dict": state["model"]}
        with self._folder.filled() as folder:
            path = os.path.join(folder, f"step-{self.run.step}.ckpt")
            torch.save(checkpoint, path)
        return path

    def on_train_start(self, trainer, module):
        self.run._is_profiled({"model": module})
        if self._generators is not None:
            # What set up the trainer has drawn is not part of the run.
            _state.restore_generators(self._generators)
            self._generators = None
        self._folder.remove()
        self._begun = trainer.global_step
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
            self._save_if_due(trainer)
        if self.run.should_stop():
            self._is_due = True
            self._save_if_due(trainer)
            # Lightning would train on until these are met, and be ended in the middle.
            trainer.fit_loop.min_epochs, trainer.fit_loop.epoch_loop.min_steps = None, None
            trainer.should_stop = True

    def on_train_epoch_end(self, trainer, module):
        self._save_if_due(trainer)

    def on_train_end(self, trainer, module):
        if self.run.checkpoints is not None:
            _trainers.complete(self.run, trainer.global_step, self._begun, lambda wait: self._save(trainer, wait))

    def on_exception(self, trainer, module, exception):
        self._folder.remove()
        _trainers.settle(self.run)

    def _log(self, trainer, outputs):
        metrics = {name: value.item() for name, value in trainer.callback_metrics.items() if value.numel() == 1}
        loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
        rates = [group["lr"] for optimizer in trainer.optimizers for group in optimizer.param_groups]
        self.run.log(
            trainer.global_step, loss=None if loss is None else float(loss), lr=rates[0] if rates else None,
            epoch=trainer.current_epoch, **_named(metrics),
        )

    def _save_if_due(self, trainer):
        if self._is_due and self.run.checkpoints is not None and self.run.step != trainer.global_step:
            self._save(trainer)

    def _save(self, trainer, wait=False):
        self._is_due = False
        checkpoint = trainer._checkpoint_connector.dump_checkpoint(weights_only=False)
        model = checkpoint.pop("state_dict")
        lost = _leave_out(checkpoint)
        if lost and not self._has_warned:
            self._has_warned = True
            _warn(lost)
        self.run.save({"model": model, "trainer": checkpoint}, trainer.global_step, wait=wait)


class GradusCheckpointIO(TorchCheckpointIO):
    """Writes the checkpoints that Lightning decides on into gradus' store: each is a folder of that name with the model as a
    safetensors file, the rest of the state, and a manifest with the SHA-256 of both. No pickle.

    It is complete or absent: its name appears when it is durable, and a checkpoint that is replaced stays until then. A save that
    fails leaves nothing behind. Loading verifies every byte.
    Checkpoints of Lightning itself, which are files, are loaded as Lightning loads them. Whole states only: strategies that shard
    the model write checkpoints of their own. `LightningModule.load_from_checkpoint` reads files only: load the model's part of
    what `load_checkpoint(path)["state_dict"]` gives.
    """

    def __init__(self):
        super().__init__()
        self._has_warned = False

    def save_checkpoint(self, checkpoint, path, storage_options=None):
        """Saves, and returns once the checkpoint is durable. Raises CheckpointError if it is not, as on a full disk, TypeError
        for a state that cannot be saved, and ValueError for an address or `storage_options`: folders of this machine only.
        """
        path = _local(path)
        if storage_options is not None:
            raise ValueError("`storage_options` mean nothing to gradus.lightning.GradusCheckpointIO, which writes to local folders")
        rest = dict(checkpoint)
        lost = _leave_out(rest)
        if lost and not self._has_warned:
            self._has_warned = True
            _warn(lost)
        apart = _state.Apart({"model": rest.pop("state_dict"), "trainer": rest})
        step = int(checkpoint.get("global_step", 0))
        if os.path.isdir(path):
            _write(path, step, apart)
            return
        # A new name, or that of a file of Lightning's own: the folder takes it when it is durable.
        draft = f"{path}.gradus"
        _remove_folder(draft)
        try:
            _write(draft, step, apart)
            _rename(draft, path)
        except BaseException:
            _remove_folder(draft)
            raise

    def load_checkpoint(self, path, map_location=None, weights_only=None):
        """Loads what was saved, with tensors in the processor's memory. Raises CheckpointError if it does not verify, and
        FileNotFoundError if there is none.
        """
        if not os.path.isdir(path):
            own = {} if map_location is None else {"map_location": map_location}
            return super().load_checkpoint(path, weights_only=weights_only, **own)
        store = _store(_local(path), 1)
        try:
            found = store.load()
        finally:
            store.finish()
        if found is None:
            raise FileNotFoundError(f"`{os.fspath(path)}` holds no checkpoint of gradus")
        _, tree, _, _, complaints, model, others = found
        for text in complaints:
            warnings.warn(text, CheckpointWarning, stacklevel=2)
        state = _state.together(json.loads(tree), model, others)
        return {**state["trainer"], "state_dict": state["model"]}


def _store(path, rank):
    """The store in a folder; rank 0 writes, and any other only reads."""
    return _door.ProgramRun(
        run="local", attempt=0, rank=rank, world=rank + 1, ranks_here=1, checkpoints=path, socket=None, program="lightning",
        keep=1, every="auto", mtbf="24h", hang_after=None, steps=0, environment=("", "", "", 0),
    )


def _write(folder, step, apart):
    """Saves into a folder, and returns once that is durable."""
    store = _store(folder, 0)
    try:
        # A name such as `last.ckpt` is written to again, maybe by a training that began anew: the newest is what counts.
        step = max([step, *(number + 1 for number in _numbers(folder))])
        is_handed, _, complaints = store.save(step, apart.handed(), json.dumps(apart.tree), None, 0.0)
        if not is_handed:
            raise _door.CheckpointError(complaints[-1])
    except BaseException:
        # What has ended the save is raised, such as Ctrl-C, and not what follows from it.
        with contextlib.suppress(_door.CheckpointError):
            store.finish()
        raise
    # Raises what the thread that writes has met.
    store.finish()


def _rename(draft, path):
    """Gives a folder its name. A file that has it stays until then, and if that fails."""
    if os.path.lexists(path):
        aside = f"{path}.replaced"
        os.replace(path, aside)
        try:
            os.rename(draft, path)
        except OSError:
            os.replace(aside, path)
            raise
        os.remove(aside)
    else:
        os.rename(draft, path)
    parent = os.open(os.path.dirname(os.path.abspath(path)), os.O_RDONLY)
    try:
        os.fsync(parent)
    finally:
        os.close(parent)


def _remove_folder(path):
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, ignore_errors=True)


def _local(path):
    path = os.fspath(path)
    if "://" in path:
        raise ValueError(
            f"`{path}` is an address, and gradus.lightning.GradusCheckpointIO writes to local folders\n"
            "hint: name a folder below `$GRADUS_CHECKPOINTS`, which gradus brings to where the run is kept"
        )
    return os.path.abspath(path)


def _numbers(path):
    """The steps of the checkpoints in a folder."""
    names = (re.fullmatch(r"manifest-(\d+)\.json", name) for name in os.listdir(path))
    return [int(name[1]) for name in names if name]


def _leave_out(checkpoint):
    """Leaves out hyperparameters that are no plain values, such as a loss or a function: resuming does not read them. Returns
    their names.
    """
    lost = set()
    for place in ("hyper_parameters", "datamodule_hyper_parameters"):
        values = checkpoint.get(place)
        if values is not None:
            checkpoint[place] = {name: value for name, value in dict(values).items() if _is_saved(name, value)}
            lost |= {str(name) for name in values if name not in checkpoint[place]}
    for place in ("hparams_type", "datamodule_hparams_type"):
        checkpoint.pop(place, None)
    return sorted(lost)


def _warn(lost):
    text = f"hyperparameters that are no numbers, strings, lists or dicts are not in checkpoints: {', '.join(lost)}"
    warnings.warn(text, CheckpointWarning, stacklevel=3)


def _is_saved(name, value):
    try:
        _state.Apart({"value": {name: value}})
    except (TypeError, ValueError):
        return False
    # What has `state_dict()` would come back as a dict.
    return not callable(getattr(value, "state_dict", None))
