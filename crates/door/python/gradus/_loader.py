"""The loader for PyTorch loops.

    loader = gradus.Loader("images.tar", "imagenet-train", batch=256, rank=0, world=1)
    for x, y in loader:
        ...

The order, the cropping and every other draw follow from the seed, the epoch and the position alone. Neither the number
of threads nor that of ranks nor an interruption can be seen in the batches.
"""
import os

from . import _door

class Loader:
    """Batches of images and labels.

    In training, one `for` is one epoch, or the rest of it after a `break` or `load_state_dict`: no sample is skipped. In
    evaluation each `for` is all of it, also after a look at the first batch with `next(iter(loader))`; only the first
    one after `load_state_dict` is the rest.

    It prefetches with threads of its own, so it takes the place of a `DataLoader`. A process needs its own: it cannot be
    used in a forked child, nor be sent to another process.

    uri            a folder, a tar, packed shards, Parquet, TFRecords …, or an address (`s3://bucket/images`), which is
                   fetched into `cache` first
    recipe         imagenet-train, imagenet-val, resize256-randomcrop224 or small-images
    batch          samples in a batch, of all ranks together
    rank, world    which part of each batch comes here
    numbers        "f32", "bf16" (both normalised by `mean` and `std`, ImageNet's if not given) or "u8"
    channels_last  whether the channels of a pixel lie side by side; a torch tensor looks the same either way
    split, part    shares of training, validation and test, or "folders"; and which of them this is
    tensors        "torch", "numpy", or nothing: torch where it is installed
    """

    def __init__(
        self, uri, recipe, batch, rank=0, world=1, *, seed=0, workers=None, size=None, numbers="f32",
        channels_last=False, part="train", split=(1.0, 0.0, 0.0), mean=None, std=None, skip_corrupt=False, cache=None,
        tensors=None,
    ):
        if workers is None:
            # The thread that asks for batches makes some too.
            workers = max(1, len(os.sched_getaffinity(0)) - 1) if hasattr(os, "sched_getaffinity") else 1
        if cache is None:
            parent = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
            cache = os.path.join(parent, "gradus", "data")
        shares = None if isinstance(split, str) and split == "folders" else list(split)
        environment = {name: os.environ[name] for name in _door.variables() if name in os.environ}
        self._inner = _door.Loader(
            os.fspath(uri), recipe, batch, rank=rank, world=world, seed=seed, workers=workers, size=size,
            numbers=numbers, channels_last=channels_last, part=part, split=shares, mean=mean, std=std,
            skip_corrupt=skip_corrupt, cache=cache, environment=environment,
        )
        self._process = os.getpid()
        self._recipe, self._size, self._split, self._part = recipe, size, shares or "folders", part
        self._batch, self._seed, self._channels_last = batch, seed, channels_last
        self._epoch, self._pos, self._ended, self._resumed = 0, 0, False, False
        self._tensor = _maker(tensors)

    @property
    def classes(self):
        """Names of the classes, in the order of their labels."""
        return self._inner.classes

    @property
    def epoch(self):
        """The epoch that the next batch is of, from 0."""
        return self._epoch

    @property
    def measured(self):
        """What was done since the start, or since `load_state_dict`."""
        samples, busy, read, ready = self._inner.measured
        return {"samples": samples, "busy_seconds": busy, "bytes_read": read, "batches_ready": ready}

    def __len__(self):
        """Batches of an epoch."""
        return -(-self._inner.samples // self._batch)

    def __iter__(self):
        self._check_process()
        self._ended = False
        if not self._inner.trains and self._pos != 0 and not self._resumed:
            self._inner.go_to(0, 0)
            self._pos = 0
        self._resumed = False
        return self

    def _check_process(self):
        if os.getpid() != self._process:
            raise RuntimeError(
                "this gradus.Loader was made in another process, and its threads are not in a forked child\n"
                "hint: make the loader in the process that uses it, each with its `rank` and `world`; in place of a "
                "DataLoader with workers use it alone, as it prefetches with threads"
            )

    def __reduce__(self):
        raise TypeError(
            "a gradus.Loader cannot be pickled\n"
            "hint: make one in each process, with its `rank` and `world`; in place of a DataLoader with workers use it "
            "alone, as it prefetches with threads"
        )

    def __next__(self):
        self._check_process()
        if self._ended:
            self._ended = False
            raise StopIteration
        try:
            found = self._inner.next()
        except RuntimeError:
            # Whoever goes on meets the same image again, rather than an end that looks like that of an epoch.
            self._inner.go_to(self._epoch if self._inner.trains else 0, self._pos)
            raise
        if found is None:
            raise StopIteration
        images, labels, epoch, pos = found
        if pos == 0:
            self._ended = True
            if not self._inner.trains:
                self._inner.go_to(0, 0)
                epoch = self._epoch + 1
        elif not self._inner.trains:
            epoch = self._epoch
        self._epoch, self._pos = epoch, pos
        x, y = self._tensor(images), self._tensor(labels)
        if self._channels_last:
            x = x.permute(0, 3, 1, 2) if hasattr(x, "permute") else x.transpose(0, 3, 1, 2)
        return x, y

    def set_epoch(self, epoch):
        """The next batch is the first of `epoch`, from 0, unless that epoch has begun already. Not needed: epochs follow one
        another; a loop that calls it, as with PyTorch's `DistributedSampler`, sees the same batches. In evaluation all epochs
        are alike.
        """
        epoch = int(epoch)
        if epoch < 0:
            raise ValueError(f"there is no epoch {epoch}; they count from 0")
        if self._inner.trains and epoch != self._epoch:
            self._inner.go_to(epoch, 0)
            self._epoch, self._pos, self._ended, self._resumed = epoch, 0, False, False

    def state_dict(self):
        """Where the batch after the last one that was handed out begins, and what the numbers belong to."""
        return {
            "epoch": self._epoch, "pos": self._pos, "seed": self._seed, "samples": self._inner.samples,
            "trains": self._inner.trains, "recipe": self._recipe, "size": self._size, "split": self._split,
            "part": self._part, "identity": self._inner.identity,
        }

    def load_state_dict(self, state):
        """Resumes where `state` was taken, with any `world`, `workers` and `batch`."""
        known = self.state_dict()
        for key in ("seed", "samples", "trains", "recipe", "size", "split", "part", "identity"):
            if state.get(key, known[key]) != known[key]:
                raise ValueError(
                    f"the state is of a loader whose {key} is {state[key]}, and this one's is {known[key]}; "
                    "its positions mean other samples here"
                )
        epoch, pos = int(state["epoch"]), int(state["pos"])
        self._inner.go_to(epoch, pos)
        self._epoch, self._pos, self._ended, self._resumed = epoch, pos, False, True


def _maker(tensors):
    if tensors is None:
        try:
            import torch  # noqa: F401
        except ImportError:
            tensors = "numpy"
        else:
            tensors = "torch"
    if tensors == "torch":
        import torch

        return torch.from_dlpack
    if tensors == "numpy":
        import numpy

        if not hasattr(numpy, "from_dlpack"):
            raise ImportError("numpy 1.22 or later is needed")
        return numpy.from_dlpack
    raise ValueError(f"tensors are `torch` or `numpy`, not `{tensors}`")
