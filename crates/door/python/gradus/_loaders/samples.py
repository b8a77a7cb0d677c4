"""The loader of arbitrary samples: the bytes of files or members of tars, decoded by a callable of the program's."""
import os

from .. import _door
from .._loader import Loader
from .checks import whole
from .opening import opening, threads
from .ranks import share_of, warn_of_ranks
from .reading import Samples, listed


class SampleLoader(Loader):
    """Batches of what a callable makes of the bytes of each sample.

    A sample is a file below a folder, or a member of a tar; with `grouped`, all files whose paths are the same up to the first
    dot of the name, as in WebDataset. Files whose names begin with a dot are left out.

    Order, resume, `set_epoch` and ranks are those of `gradus.Loader`, with the same batches for any number of ranks and
    threads. Where the samples of a batch are fewer than the ranks, a rank without one gets another's.

    uri          a folder, a tar, a folder of tars, a file, or an address of these
    batch        samples in a batch, of all ranks together
    decode       gets the bytes of a sample, or with `grouped` a dict of bytes by extension, and returns what `collate` takes.
                 Parameters called `name` and `rng` get the sample's name and a NumPy generator that depends on seed, epoch and
                 position alone
    rank, world  which part of each batch comes here; by default all of it, with a warning where several ranks train
    shuffle      whether samples are shuffled by `seed` and epochs never end; without it, one pass in the order of the names
    workers      threads that read and decode
    collate      gets the list of a batch's samples; by default PyTorch's `default_collate`, or without PyTorch nothing is done

    A `decode` that raises is a RuntimeError that names the sample; who calls `next` again meets the same batch, and the
    threads live on.
    """

    def __init__(
        self, uri, batch, decode, rank=None, world=None, *, shuffle=True, seed=0, workers=None, grouped=False, collate=None,
        cache=None, device=None, pin_memory=False,
    ):
        if not callable(decode):
            raise TypeError(f"`decode` is a callable on bytes, not of the type `{type(decode).__name__}`")
        batch, seed = whole("batch", batch, 1), whole("seed", seed)
        uri, _, cache, environment = opening(uri, "folders", cache)
        path = os.fspath(_door.staged(uri, cache, environment))
        found = listed(path, grouped) if os.path.exists(path) else []
        if not found:
            raise RuntimeError(f"there is no sample at `{uri}`\nhint: name a folder with files, or a tar")
        shares = (batch, *share_of(rank, world))
        inner = Samples(found, decode, shares, seed, shuffle, max(1, threads(workers)), grouped)
        warn_of_ranks("SampleLoader", rank, world, inner)
        known = {"seed": seed, "shuffle": shuffle, "grouped": grouped}
        # The form of what `decode` returns is the program's own.
        self._collate = collate
        self._begin(inner, batch, known, None, device, pin_memory)

    def _made(self, values):
        (made,) = values
        if self._collate is not None:
            return self._collate(made)
        if self._tensors != "torch":
            return made
        import torch

        return torch.utils.data.default_collate(made)
