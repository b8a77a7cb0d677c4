"""Which part of each batch comes to this rank, and what is said where nobody has said it."""
import os
import warnings

from .._run import _place
from .checks import U32, whole


def share_of(rank, world):
    """Rank and world of a loader; those that nobody has named are those of one process."""
    return 0 if rank is None else whole("rank", rank, most=U32), 1 if world is None else whole("world", world, 1, U32)


def warn_of_ranks(loader, rank, world, inner):
    """A program that comes from one process trains each rank on the same samples without a sign of it. `loader` is the name of
    its class, and `inner` what makes its batches. Called by `__init__`, so that the warning has the line of the program.

    The rank is not taken by itself: ranks that share a model (tensor and pipeline parallelism) need the same samples.
    """
    if rank is not None or world == 1 or not inner.trains:
        return
    own, ranks, _ = _place(os.environ)
    if ranks > 1:
        what = "all samples" if world is None else "rank 0's samples"
        warnings.warn(
            f"this is one of {ranks} ranks, and its gradus.{loader} has {what} of each batch, as those of the other ranks do\n"
            f"hint: gradus.{loader}(…, rank={own}, world={ranks}), or world=1 if that is meant",
            stacklevel=3,
        )
