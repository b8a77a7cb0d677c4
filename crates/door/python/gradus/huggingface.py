"""gradus for the `Trainer` of Hugging Face: metrics, verified checkpoints, exact resume, and stopping in time.

    callback = gradus.huggingface.GradusCallback()
    trainer = Trainer(model, args=TrainingArguments(..., save_strategy="no"), callbacks=[callback])
    trainer.train(resume_from_checkpoint=callback.resume())

Tried with transformers 5.23.0 and accelerate 1.15.0.
"""
import dataclasses
import json
import os
import random

import torch
import transformers

from . import _trainers
from ._run import _named, init

__all__ = ["GradusCallback"]


class GradusCallback(transformers.TrainerCallback):
    """Logs what the trainer logs, saves when gradus says so, and stops when gradus does.

    settings  those of `gradus.init()`, such as `save_every="500 steps"`

    A checkpoint has the model, optimizer, scheduler, the trainer's state and the random number generators. The trainer's own
    checkpoints (`save_strategy`) are not needed. Models that are sharded (FSDP, DeepSpeed) and the scaler of fp16 are not saved.

    A save that fails, as on a full disk, is a CheckpointWarning while the trainer trains. The last state is tried once more, and
    `train` raises CheckpointError if it cannot be saved. An exception of the program's own ends `train` as without this callback;
    what was saved before stays, and a save under way is waited for at the end of the process.
    """

    def __init__(self, **settings):
        self.run = init(**settings)
        self._folder, self._begun = _trainers.ResumeFolder(), 0

    def resume(self):
        """Loads the newest checkpoint that verifies, and gives a folder for `resume_from_checkpoint`; None at first. Raises
        CheckpointError for a checkpoint that was not saved by this callback.
        """
        state = self.run.load()
        if state is None:
            return None
        parts = {"model": dict, "optimizer": object, "scheduler": object, "trainer": str}
        _trainers.check_parts(self.run, state, parts, "gradus.huggingface.GradusCallback")
        with self._folder.filled() as folder:
            return self._written(os.path.join(folder, f"checkpoint-{self.run.step}"), state)

    def _written(self, path, state):
        """A checkpoint as the trainer's own."""
        os.mkdir(path)
        within = lambda name: os.path.join(path, name)  # noqa: E731
        torch.save(state["optimizer"], within("optimizer.pt"))
        torch.save(state["scheduler"], within("scheduler.pt"))
        with open(within("trainer_state.json"), "w", encoding="utf-8") as file:
            file.write(state["trainer"])
        torch.save(dict(state["model"]), within("pytorch_model.bin"))
        name = "rng_state.pth" if self.run.world == 1 else f"rng_state_{self.run.rank}.pth"
        torch.save(_generators(), within(name))
        return path

    def on_train_begin(self, args, state, control, model=None, **_):
        self._begun = state.global_step
        self.run._is_profiled({"model": model})
        if self.run.checkpoints is not None and self.run.step > state.global_step:
            raise ValueError(
                f"the trainer begins at step {state.global_step}, and the checkpoint of gradus is of step {self.run.step}\n"
                "hint: trainer.train(resume_from_checkpoint=callback.resume())"
            )

    def on_log(self, args, state, control, logs=None, **_):
        if not state.is_world_process_zero or not logs:
            return
        numbers = {name: value for name, value in logs.items() if isinstance(value, (int, float))}
        loss, rate = numbers.get("loss"), numbers.pop("learning_rate", None)
        epoch = int(numbers.get("epoch", 0))
        samples = args.train_batch_size * args.gradient_accumulation_steps * self.run.world if loss is not None else 0
        self.run.log(state.global_step, loss=loss, lr=rate, samples=samples, epoch=epoch, **_named(numbers))

    def on_step_end(self, args, state, control, model=None, optimizer=None, lr_scheduler=None, **_):
        self._folder.remove()
        step = state.global_step
        if self.run.should_save(step):
            self._save(step, state, model, optimizer, lr_scheduler)
        if self.run.should_stop():
            control.should_training_stop = True

    def on_train_end(self, args, state, control, model=None, optimizer=None, lr_scheduler=None, **_):
        self._folder.remove()
        if self.run.checkpoints is None:
            return
        # The trainer has put the best weights into the model by now, and the optimizer is of the last step.
        if args.load_best_model_at_end and state.best_model_checkpoint is not None:
            self.run.wait()
            return
        step = state.global_step
        save = lambda wait: self._save(step, state, model, optimizer, lr_scheduler, wait)  # noqa: E731
        _trainers.complete(self.run, step, self._begun, save)

    def _save(self, step, state, model, optimizer, lr_scheduler, wait=False):
        # The trainer may hand over an optimizer that accelerate has wrapped; its state is that of the one inside.
        parts = {"model": model, "optimizer": optimizer, "scheduler": lr_scheduler}
        self.run.save({**parts, "trainer": json.dumps(dataclasses.asdict(state))}, step, wait=wait)


def _generators():
    """The generators' states as the trainer stores them."""
    import numpy

    states = {"python": random.getstate(), "numpy": numpy.random.get_state(), "cpu": torch.random.get_rng_state()}
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.random.get_rng_state_all()
    return states
