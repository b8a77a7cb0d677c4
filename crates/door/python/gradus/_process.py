"""What a run knows of its process: its place among those that train together, what it computes with, and how it ends."""
import contextlib
import io
import sys

# The code that a process ends with when its last state was not saved; Python's own for what goes wrong while it ends.
UNSAVED = 120


def _distributed():
    """PyTorch, if processes train together by it."""
    torch = sys.modules.get("torch")
    is_used = torch is not None and torch.distributed.is_available() and torch.distributed.is_initialized()
    return torch if is_used else None


def _place(environment):
    """Rank, number of ranks, and how many of them are on this machine as far as that is known."""
    number = lambda name, default: int(environment.get(name) or default)  # noqa: E731
    rank, world, here = number("RANK", 0), number("WORLD_SIZE", 1), number("LOCAL_WORLD_SIZE", 1)
    torch = _distributed()
    if torch is not None:
        found = torch.distributed.get_rank(), torch.distributed.get_world_size()
        if found != (rank, world):
            # Spawned by the program itself: each process has the variables of its parent.
            (rank, world), is_local = found, environment.get("MASTER_ADDR") in ("localhost", "127.0.0.1", "::1")
            here = world if is_local else 1
    elif not environment.get("RANK") and number("NODE_RANK", 0) == 0 and 0 < number("LOCAL_RANK", 0) < world:
        # Lightning's launcher sets no RANK.
        rank = number("LOCAL_RANK", 0)
    return rank, world, here


def _environment():
    """Device, its name, version of PyTorch and threads, as far as they are known without importing anything."""
    torch = sys.modules.get("torch")
    if torch is None:
        return "", "", "", 0
    cuda = torch.cuda.is_available() and torch.cuda.is_initialized()
    device = f"cuda:{torch.cuda.current_device()}" if cuda else "cpu"
    name = torch.cuda.get_device_name() if cuda else ""
    return device, name, torch.__version__, torch.get_num_threads()


class _Failing:
    """Standard error at the end of a process that has failed while it ended. No exception of an exit handler changes the code of
    a process; but where its streams cannot be flushed at its very end, Python ends it with the code 120. What cannot be
    written, as to a log on the same full disk, is dropped: the code says that it failed.
    """

    def __init__(self, stream):
        self._stream = io.StringIO() if stream is None or getattr(stream, "closed", False) else stream

    def __getattr__(self, name):
        return getattr(self._stream, name)

    def write(self, text):
        with contextlib.suppress(OSError):
            self._stream.write(text)

    def flush(self):
        with contextlib.suppress(OSError):
            self._stream.flush()
        if sys.is_finalizing():
            raise OSError("the last checkpoint was not saved")


def _uncaught():
    """The error that ends this process, as a sentence; None if none does."""
    # Of a child of multiprocessing it is on its way still.
    error = getattr(sys, "last_value", None) or sys.exc_info()[1]
    if not isinstance(error, Exception):
        return None
    return f"{type(error).__name__}: {error}"[:2000].encode(errors="replace").decode()
