"""A run: what a program reports, saves, loads and is told."""
import atexit
import json
import math
import os
import signal
import sys
import threading
import time
import warnings

from . import _door, _restore, _shards, _state
from ._process import UNSAVED, _distributed, _environment, _Failing, _place, _uncaught
from ._profile import Profile
from ._settings import check_interval, check_mean_time, count, folder, whole

_current = None

# What `init()` is called with when nothing is said.
_DEFAULTS = (None, "", "auto", 3, "24h", 0, "30m")

# What `log` takes by these names; the trainers' callbacks log figures by any name.
_OWN = ("self", "step", "loss", "lr", "samples", "epoch")


class CheckpointWarning(UserWarning):
    """A state was not saved, or an older one was loaded; training continues."""


def init(
    *, checkpoints=None, program="", save_every="auto", keep=3, mtbf="24h", steps=0, hang_after="30m",
):
    """Begins the run of this process, or gives the one that has begun; without arguments, whatever that one's are.

    Below `gradus run` it finds who it is in the environment, and speaks to the agent. Anywhere else it is silent.

    checkpoints  the folder to save to, where `~` is the home folder; by default the run's own (`GRADUS_CHECKPOINTS`), and none
                 outside of gradus. An address is refused: `checkpoint_store` of the job file keeps checkpoints in a bucket
    program      a name that tells this program's checkpoints from those of another in the same folder
    save_every   when `should_save` says so: "auto" (the interval that loses least, from the measured cost of a save and
                 `mtbf`), a time such as "10m", or "500 steps"; a number without a unit is refused
    keep         how many of the newest checkpoints stay, at least 1; the disk needs space for `keep` + 1 of them
    mtbf         mean time between failures, for "auto", such as "24h"; above 0, and with its unit
    steps        how many steps there are, where that is known: for the time left
    hang_after   how long the program may be quiet (no `log`, `save` or `should_…`), after its first such call, until gradus
                 ends it as hung; three times the longest quiet time so far, if that is longer; at least "1s"; None for ever

    Raises ValueError for a value that is no time or number, and for a folder without a name, TypeError for a `program` that
    is no text, and CheckpointError when the folder cannot be used, or when outside of gradus another process that lives saves
    there.
    """
    global _current
    settings = (checkpoints, program, save_every, keep, mtbf, steps, hang_after)
    if _current is not None and _current._process == os.getpid() and not _current._finished:
        if settings not in (_current._settings, _DEFAULTS):
            raise RuntimeError("gradus.init() was called before with other settings; a process has one run")
        return _current
    _current = Run(settings)
    return _current


class Run:
    """The run of this process; made by `gradus.init()`.

    id            name of the run, the same for all of its attempts; "local" outside of gradus
    attempt       number of the attempt, from 1; 0 where nothing is saved
    rank, world   this process among all that train together, as `torch.distributed` says where it is initialised, else
                  torchrun's variables; 0 and 1 for one alone
    checkpoints   the folder of checkpoints, or None
    step          the step that `load` has restored, or whose state `save` has copied last, also if writing it fails (`saved_step`
                  is durable); 0 at first
    budget        the job's budget in dollars, or None
    deadline      the job's deadline in seconds from its submission, or None
    stall_ms      for how many milliseconds the last `save` kept the program from training
    """

    def __init__(self, settings):
        checkpoints, program, save_every, keep, mtbf, steps, hang_after = self._settings = settings
        environment = os.environ
        number = lambda name, default: int(environment.get(name) or default)  # noqa: E731
        self.id = environment.get("GRADUS_RUN") or "local"
        self.rank, self.world, here = _place(environment)
        if not 0 <= self.rank < self.world:
            raise ValueError(f"RANK is {self.rank}, and WORLD_SIZE {self.world}; ranks count from 0")
        keep, steps = count("keep", keep, (1 << 32) - 1), count("steps", steps)
        if keep < 1:
            raise ValueError("`keep`: at least one checkpoint stays")
        if not isinstance(program, str):
            raise TypeError(f"`program` is {program!r}, and not a name such as \"bert\"; \"\" for none")
        check_interval(save_every)
        check_mean_time(mtbf)
        self._profile = Profile.asked(environment, self.rank, steps)
        checkpoints = folder(checkpoints, environment)
        # A few steps are timed, of which nothing stays.
        self.checkpoints = None if environment.get("GRADUS_PROFILE") else checkpoints
        inside = self.checkpoints is not None and environment.get("GRADUS_CHECKPOINTS") == self.checkpoints
        self.budget = float(environment["GRADUS_BUDGET"]) if environment.get("GRADUS_BUDGET") else None
        self.deadline = float(environment["GRADUS_DEADLINE"]) if environment.get("GRADUS_DEADLINE") else None
        self.step, self.stall_ms = 0, 0.0
        self._inner = _door.ProgramRun(
            run=self.id, attempt=number("GRADUS_ATTEMPT_NUMBER", 0) if inside else 0, rank=self.rank, world=self.world,
            ranks_here=here if here == self.world else 1, checkpoints=self.checkpoints,
            socket=environment.get("GRADUS_SOCKET") or None, program=program, keep=keep, every=str(save_every),
            mtbf=str(mtbf), hang_after=None if hang_after is None else str(hang_after), steps=steps,
            environment=_environment(),
        )
        self.attempt = self._inner.attempt
        self._process, self._finished, self._listens, self._is_unsaved = os.getpid(), False, False, False
        # The step that was restored, until steps are seen to be made again; and why the last save was found to be lost.
        self._restored, self._lost = None, None
        atexit.register(self._at_exit)
        util, process = sys.modules.get("multiprocessing.util"), sys.modules.get("multiprocessing.process")
        if util is not None and process is not None and process.parent_process() is not None:
            # A child of multiprocessing, as `torch.multiprocessing.spawn` starts, ends without what `atexit` knows.
            util.Finalize(None, self._at_exit, exitpriority=10)
            # After all else that ends with the process.
            util.Finalize(None, self._end_as_unsaved, exitpriority=-1_000_000)

    @property
    def is_attended(self):
        """Whether an agent of gradus hears this run."""
        return self._inner.attended

    @property
    def saved_step(self):
        """The newest step that this process has saved and whose state is durable, or None."""
        return self._inner.durable

    def log(self, step, *, loss=None, lr=None, samples=0, epoch=0, **metrics):
        """Reports what a step has measured: for status, progress line, report and TensorBoard. Only rank 0 is shown.

        step     from 1
        loss     mean loss of the batch; without it the step has no point in the loss curve
        lr       learning rate
        samples  samples in the batch, for samples per second
        epoch    from 0
        metrics  further numbers by any name, such as `**{"val/f1": 0.9}`

        Numbers may be Python's, NumPy's, or tensors and arrays of one element; one on a GPU is waited for. What is NaN or
        infinite is noted once and not drawn; such a loss is shown as `loss NaN` or `loss inf`, and the program continues.
        Raises TypeError for anything else, and ValueError for a number that no float holds and for a name that is no Unicode.

        A step with a loss that is not after the one that `load` has restored is a `CheckpointWarning`, once: the loop starts at
        `run.step + 1`. So is an earlier one without a loss, or in `save`.
        """
        others = {_name(name): _number(name, value) for name, value in metrics.items()}
        loss = None if loss is None else _number("loss", loss)
        lr = None if lr is None else _number("lr", lr)
        step, most = whole("step", step), (1 << 32) - 1
        epoch, samples = whole("epoch", epoch, most), whole("samples", samples, most)
        # Without a loss it may be the restored step, evaluated.
        self._warn(self._repeated(step, is_made=loss is not None))
        self._warn(self._inner.log(step, epoch, loss, lr, samples, others))
        if self._profile is not None:
            self._profile.logged(step, samples)

    def should_save(self, step):
        """Whether the state after `step` is to be saved: it is due, gradus asks for it, or the program is to stop.

        With several ranks, every rank calls it at the same steps: where `torch.distributed` is initialised they agree.
        """
        self._listen()
        due, complaints = self._inner.should_save(whole("step", step))
        self._warn(complaints)
        # Without a folder nothing can be saved, however long ago the last time was.
        return self._agreed(due and self.checkpoints is not None)

    def should_stop(self):
        """Whether the program is to save its state and end: `gradus stop`, Ctrl-C in `gradus run`, the budget, the deadline.

        It then has 60 seconds, or the job's `stop_grace`, or what the budget leaves. From the first call on, SIGTERM sets
        this in place of ending the process, unless the program handles it itself. With several ranks as `should_save`.
        """
        self._listen()
        return self._agreed(self._inner.should_stop())

    def save(self, state, step, *, rng=True, wait=False):
        """Saves the state after `step`: copies it, and returns while native threads hash and write it.

        state  a dict of tensors, arrays of NumPy and JAX, numbers, strings, bytes, lists, tuples and dicts, in any depth; of an object
               with `state_dict()`, such as a module or an optimizer, that is saved, and of a generator (`torch.Generator`,
               `numpy.random.Generator`, `random.Random`) its state. What is below "model" is a safetensors file by itself, with
               the names of the module.
        rng    whether the random number generators of Python, NumPy and PyTorch are saved
        wait   whether to wait until the state is durable; only rank 0, which writes, waits and raises

        With several ranks, every rank calls it; rank 0 writes. Tensors that ranks share (`DTensor`, as of FSDP2) are gathered
        there one by one, and any number of ranks loads them. Only a save under way is waited for; `stall_ms` says how long.
        A full disk is a `CheckpointWarning`, and an error with `wait`: what was durable before still is. If the last save of the
        program has failed, also if it has caught the error, its process ends with the code 120, and the run fails instead of
        ending well. Raises TypeError for a state that cannot be saved, ValueError for text in it that is no Unicode, and
        CheckpointError when another process saves there, a later attempt has taken over, or `load` has found that no
        checkpoint there verifies.
        """
        began = time.monotonic()
        step = whole("step", step)
        if self._is_profiled(state):
            return
        # The restored step itself is saved again where nothing was left to train.
        self._warn(self._repeated(step, is_made=False))
        generators = json.dumps(_state.generators()) if rng else None
        if _distributed() is not None:
            state = _shards.whole(state, self.rank == 0)
        if self.rank == 0:
            apart = _state.Apart(state)
            tensors, tree = apart.handed(), json.dumps(apart.tree)
        else:
            apart, tensors, tree = None, [], "null"
        is_handed, stall, complaints = self._inner.save(step, tensors, tree, generators, time.monotonic() - began)
        del apart
        self.stall_ms = stall / 1000
        self._warn(complaints)
        if is_handed:
            self.step = step
        elif wait:
            raise _door.CheckpointError(complaints[-1])
        if wait:
            self._inner.wait()

    def load(self, objects=None, *, rng=True):
        """Loads the newest checkpoint that verifies, and gives its state; None where nothing was saved yet.

        objects  a tree like that which is saved, or a part of it: what has `load_state_dict()` gets its part, on the device where
                 it is; tensors and arrays are written to, floats of another width converted as PyTorch does; numbers, strings
                 and the like, and arrays of JAX, are replaced in their dict or list
        rng      whether the random number generators continue as they were saved; on another number of ranks those of new
                 ranks do not

        Tensors of the returned state are in the processor's memory. `run.step` is the step that was restored. A damaged
        checkpoint is passed over with a `CheckpointWarning`. Raises CheckpointError when the newest one is of another
        program, or none verifies, and ValueError for a tensor of another shape or kind of number (integers for floats, int8 for
        int64), for one that cannot be written to, and for an optimizer or the like of another class; KeyError for what the
        checkpoint has not, and TypeError for an object that cannot be given its part; each with its place in the tree. Then
        nothing was changed. What an object's own `load_state_dict` refuses is known only after what comes before it was loaded.

        Also where nothing was saved yet, TypeError or ValueError for what `save` would refuse: a program fails at its start.
        """
        _restore.check_tree(objects)
        if self._is_profiled(objects):
            return None
        found = self._inner.load()
        if found is None:
            return None
        step, tree, generators, _world, complaints, model, others = found
        self._warn(complaints)
        classes = {}
        state = _state.together(json.loads(tree), model, others, classes)
        if objects is not None:
            _restore.restored(state, objects, classes)
        if rng and generators is not None:
            _state.restore_generators(json.loads(generators))
        self.step = self._restored = step
        return state

    def wait(self):
        """Waits until what rank 0 has saved is durable; other ranks have nothing to wait for. Raises CheckpointError if it is not."""
        self._inner.wait()

    def finish(self):
        """Waits for the last save and hangs up. Called at the end of the process if it was not before. Raises CheckpointError if
        the last save has failed, also if that was raised before.
        """
        self._close(self._inner.finish)

    def _close(self, close):
        if not self._finished:
            self._finished = True
            try:
                close()
            except _door.CheckpointError as error:
                self._lost = error
                raise
            finally:
                # Only now: until here the last save was waited for.
                is_main = threading.current_thread() is threading.main_thread()
                if self._listens and is_main and signal.getsignal(signal.SIGTERM) == self._signalled:
                    signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def _is_profiled(self, objects):
        """Whether steps are only timed: then nothing is saved or loaded."""
        if self._profile is not None and isinstance(objects, dict):
            self._profile.saw(objects)
        return bool(os.environ.get("GRADUS_PROFILE"))

    def _at_exit(self):
        if os.getpid() == self._process:
            try:
                if self._profile is not None:
                    self._profile.write()
            finally:
                raised = _uncaught()
                try:
                    if raised is not None and not self._finished:
                        self._inner.fail(raised)
                    self._close(self._inner.end)
                except _door.CheckpointError:
                    # It is `_lost`, as is that of a `finish` of the program's own, which may have caught it.
                    pass
                if self._lost is not None and raised is None:
                    # The process would end well, though its result is lost.
                    self._is_unsaved = True
                    sys.stderr = _Failing(sys.stderr)
                if self._lost is not None and str(self._lost) not in (raised or ""):
                    print(f"gradus: the last checkpoint was not saved: {self._lost}", file=sys.stderr)

    def _end_as_unsaved(self):
        """The last word of a child of multiprocessing, whose code does not depend on its streams."""
        if self._is_unsaved and os.getpid() == self._process:
            raise SystemExit(UNSAVED)

    def _listen(self):
        """From the first question on, a signal is an answer and not an end."""
        if self._listens:
            return
        self._listens = True
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and os.getpid() == self._process and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._signalled)

    def _signalled(self, _signal, _frame):
        if os.getpid() == self._process:
            # While it finishes, it is about to end anyway.
            if not self._finished:
                self._inner.ask_to_stop()
        else:
            # A forked worker ends as it would have.
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)

    def _agreed(self, answer):
        """Yes if any rank says yes, where ranks can ask each other."""
        torch = _distributed()
        # Launchers that set no variables, such as Lightning's own, are known by this alone.
        if torch is None or torch.distributed.get_world_size() == 1:
            return answer
        device = "cuda" if torch.distributed.get_backend() == "nccl" else "cpu"
        flag = torch.tensor([int(answer)], dtype=torch.int32, device=device)
        torch.distributed.all_reduce(flag, torch.distributed.ReduceOp.MAX)
        return bool(flag.item())

    def _repeated(self, step, is_made):
        """A complaint, once, if a loop that was resumed counts from an earlier step. `is_made`: `step` has just been trained."""
        restored = self._restored
        if restored is None or step > restored or step == restored and not is_made or self.rank > 0:
            return []
        self._restored = None
        return [
            f"training was restored at step {restored}, and this is step {step}: to save it replaces later checkpoints\n"
            "hint: start the loop at `run.step + 1`"
        ]

    def _warn(self, complaints):
        for text in complaints:
            warnings.warn(text, CheckpointWarning, stacklevel=3)

    def __reduce__(self):
        raise TypeError("a gradus run cannot be pickled\nhint: call `gradus.init()` in the process that trains")


def _name(text):
    """The name of a metric, which is a text of files and messages."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ValueError(f"the name of the metric {text!r} is no Unicode, as a name of a file may be") from None
    return text


def _number(name, value):
    """A number as a float. Text is no number, even if it reads like one."""
    shape, kind = getattr(value, "shape", None), getattr(getattr(value, "dtype", None), "kind", None)
    if not isinstance(value, (str, bytes, bytearray)) and value is not None and kind not in ("S", "U"):
        try:
            # A loss that still has its graph is read without a word from PyTorch.
            bare = value.detach() if hasattr(value, "detach") else value
            return float(bare.reshape(()) if isinstance(shape, tuple) and shape and math.prod(shape) == 1 else bare)
        except OverflowError:
            raise ValueError(f"`{name}` is larger than any float") from None
        except (TypeError, ValueError, RuntimeError, AttributeError):
            pass
    if isinstance(shape, tuple) and math.prod(shape) != 1:
        raise TypeError(
            f"`{name}` has the shape {list(shape)}; a metric is a number, or a tensor of one element\n"
            "hint: log its mean, or each value by a name of its own"
        )
    raise TypeError(f"`{name}` is {_state._kind(value)}; a metric is a number, or a tensor of one element")


def _named(metrics):
    """Figures that a trainer logs by any name, without those that `log` takes by itself."""
    return {name: value for name, value in metrics.items() if name not in _OWN}
