"""What every loader opens data with."""
import os

from .. import _door
from .checks import whole


def opening(uri, split, cache):
    """Address, shares of the split, cache folder, and the environment of credentials."""
    if cache is None:
        parent = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        cache = os.path.join(parent, "gradus", "data")
    shares = None if isinstance(split, str) and split == "folders" else list(split)
    environment = {name: os.environ[name] for name in _door.variables() if name in os.environ}
    return os.fspath(uri), shares, cache, environment


def threads(workers):
    """How many threads make batches, if nothing else is asked for."""
    if workers is not None:
        return whole("workers", workers, most=4096)
    # The thread that asks for batches makes some too.
    return max(1, len(os.sched_getaffinity(0)) - 1) if hasattr(os, "sched_getaffinity") else 1
