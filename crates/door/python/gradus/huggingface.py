"""gradus for the `Trainer` of Hugging Face: metrics, verified checkpoints, exact resume, and stopping in time.

    callback = gradus.huggingface.GradusCallback()
    trainer = Trainer(model, args=TrainingArguments(..., save_strategy="no"), callbacks=[callback])
    trainer.train(resume_from_checkpoint=callback.resume())

Tried with transformers 5.23.0 and accelerate 1.15.0.
"""
import atexit
import dataclasses
import json
import os
import random
import shutil
import tempfile

import torch
import transformers

from ._run import _named, init

__all__ = ["GradusCallback"]


class GradusCallback(transformers.TrainerCallback):
    """Logs what the trainer logs, saves when gradus says so, and stops when gradus does.

    settings  those of `gradus.init()`, such as `save_every="500 steps"`

    A checkpoint has the model, optimizer, scheduler, the trainer's state and the random number generators. The trainer's own
    checkpoints (`save_strategy`) are not needed. Models that are sharded (FSDP, DeepSpeed) and the scaler of fp16 are not saved.
    """

    def __init__(self, **settings):
        self.run = init(**settings)
        self._folder = None

    def resume(self):
        """Loads the newest checkpoint that verifies, and gives a folder for `resume_from_checkpoint`; None at first."""
        state = self.run.load()
        if state is None:
            return None
        self._folder = tempfile.mkdtemp(prefix="gradus-resume-")
        # Also of a training that fails before its first step.
        atexit.register(shutil.rmtree, self._folder, ignore_errors=True)
        path = os.path.join(self._folder, f"checkpoint-{self.run.step}")
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
        self._forget()
        step = state.global_step
        if self.run.should_save(step):
            self._save(step, state, model, optimizer, lr_scheduler)
        if self.run.should_stop():
            control.should_training_stop = True

    def on_train_end(self, args, state, control, model=None, optimizer=None, lr_scheduler=None, **_):
        self._forget()
        # The trainer has put the best weights into the model by now, and the optimizer is of the last step.
        is_best = args.load_best_model_at_end and state.best_model_checkpoint is not None
        if self.run.checkpoints is not None and self.run.step != state.global_step and not is_best:
            self._save(state.global_step, state, model, optimizer, lr_scheduler)
        if self.run.checkpoints is not None:
            self.run.wait()

    def _save(self, step, state, model, optimizer, lr_scheduler):
        # The trainer may hand over an optimizer that accelerate has wrapped; its state is that of the one inside.
        parts = {"model": model, "optimizer": optimizer, "scheduler": lr_scheduler}
        self.run.save({**parts, "trainer": json.dumps(dataclasses.asdict(state))}, step)

    def _forget(self):
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None


def _generators():
    """The generators' states as the trainer stores them."""
    import numpy

    states = {"python": random.getstate(), "numpy": numpy.random.get_state(), "cpu": torch.random.get_rng_state()}
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.random.get_rng_state_all()
    return states
