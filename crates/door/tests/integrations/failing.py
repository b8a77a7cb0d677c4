"""A training in which something raises: `failing.py huggingface|lightning CASE FOLDER`. It says what it saw, and ends as it ends."""
import os
import resource
import signal
import sys
import tempfile

import gradus

TRAINER, CASE, FOLDER = sys.argv[1:]


class Own(Exception):
    """An exception of the program's own."""


def full(is_full):
    """A disk on which no file of a checkpoint has room, or one with room again."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    most = 1000 if is_full else resource.RLIM_INFINITY
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))


def after(step, run):
    """What happens after a step, behind the callback of gradus. It saves after every fourth."""
    if CASE == "own" and step == 6:
        raise Own("of the program")
    if CASE == "at-once":
        raise Own("before the second step")
    if CASE in ("own-full", "full", "room-again") and step == 5:
        run.wait()
        full(True)
    if CASE == "own-full" and step == 8:
        # The save of this step is under way.
        raise Own("of the program")
    if CASE == "room-again" and step == 24:
        try:
            run.wait()
        except gradus.CheckpointError:
            print("step 24 was not saved")
        full(False)
    if CASE == "logging" and step == 5:
        run.log = raises
    if CASE == "state" and step == 5:
        run._inner = Refusing(run._inner)


def raises(*_, **__):
    raise Own("within the callback")


class Refusing:
    """The native run, but for a save that raises in the middle."""

    def __init__(self, inner):
        self._inner = inner

    def __getattr__(self, name):
        return raises if name == "save" else getattr(self._inner, name)


def hugging_face():
    import transformers
    from bert import trainer_of

    from gradus.huggingface import GradusCallback

    class After(transformers.TrainerCallback):
        def on_step_end(self, args, state, control, **_):
            after(state.global_step, callback.run)

    callback = GradusCallback(save_every="4 steps")
    trainer = trainer_of(os.path.join(FOLDER, "out"), [callback, After()])
    return callback, lambda path: trainer.train(resume_from_checkpoint=path), trainer


def of_lightning():
    import lightning
    from module import Batches, Module, trainer_of

    from gradus.lightning import GradusCallback

    class After(lightning.Callback):
        def on_train_batch_end(self, trainer, module, outputs, batch, batch_index):
            after(trainer.global_step, callback.run)

    callback = GradusCallback(save_every="4 steps")
    trainer = trainer_of(os.path.join(FOLDER, "out"), [callback, After()])
    return callback, lambda path: trainer.fit(Module(), Batches(), ckpt_path=path), trainer


def left():
    """Folders to resume from that are still there."""
    return [name for name in os.listdir(tempfile.gettempdir()) if name.startswith("gradus-resume-")]


def main():
    callback, train, trainer = hugging_face() if TRAINER == "huggingface" else of_lightning()
    if CASE == "no-room-to-resume":
        full(True)
    try:
        path = callback.resume()
    except Exception as error:
        print(f"resume raised {type(error).__name__}, and left {left()}")
        raise
    print(f"resumes from {callback.run.step}")
    step = lambda: trainer.state.global_step if TRAINER == "huggingface" else trainer.global_step  # noqa: E731
    try:
        train(path)
    except BaseException as error:
        print(f"raised {type(error).__module__}.{type(error).__name__} at {step()}")
        if TRAINER == "lightning":
            print(f"left {left()}, durable {callback.run.saved_step}")
        raise
    print(f"ended at {step()}, durable {callback.run.saved_step}")


if __name__ == "__main__":
    main()
