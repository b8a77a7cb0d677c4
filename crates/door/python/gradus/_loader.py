"""The loader for PyTorch loops.

    loader = gradus.Loader("images.tar", "imagenet-train", batch=256, rank=0, world=1)
    for x, y in loader:
        ...

The order, the cropping and every other draw follow from the seed, the epoch and the position alone. Neither the number
of threads nor that of ranks nor an interruption can be seen in the batches.
"""
import os

from . import _door
from ._loaders.checks import SIZES, augmented, begun, whole
from ._loaders.device import copies
from ._loaders.opening import opening, threads
from ._loaders.ranks import share_of, warn_of_ranks
from ._loaders.transform import ImageTransform


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
    batch          samples in a batch, of all ranks together; at least one for each rank
    rank, world    which part of each batch comes here; by default all of it, with a warning where several ranks train
    pad            of the last batch of an epoch, ranks for which there is no sample get its last one again, so that none has an
                   empty batch, whose mean is NaN and whose error leaves the other ranks waiting; False for evaluations that
                   count each sample once and can take an empty batch
    numbers        "f32", "bf16" (both normalised by `mean` and `std`, ImageNet's if not given) or "u8"
    channels_last  whether the channels of a pixel lie side by side; a torch tensor looks the same either way
    split, part    shares of training, validation and test, or "folders"; and which of them this is
    tensors        "torch", "numpy", or nothing: torch where it is installed
    augment        augmentations in place of the recipe's, as in a job file: `["random_resized_crop", "flip", {"rand_augment":
                   {"magnitude": 9}}, {"mixup": 0.2}]`; with mixup or cutmix, labels are N × classes, the share of each class
    transform      a callable on each image, after the recipe and `augment`: an array, height × width × 3, of `numbers` ("u8"
                   suits most libraries), which returns an array or a tensor; arrays of three dimensions are stacked as
                   N × channels × height × width. Called in `workers` threads; with a parameter `rng`, a NumPy generator that
                   depends on seed, epoch and position, batches are the same after an interruption
    device         where batches are to be, such as "cuda": copied from pinned memory, while the program works on the one before
    pin_memory     whether batches are in pinned memory, where there is CUDA

    An image that cannot be decoded, or a transform that raises, is a RuntimeError that names the sample; who calls `next`
    again meets the same batch. Images that are shown whole, as with small-images, are decoded when the loader is made, if all fit
    into 512 MiB: then that raises. With `skip_corrupt` images that cannot be decoded are left out. A number that is out of
    its range is a ValueError that names the argument; `size` is from 8 to 4096 pixels.
    """

    def __init__(
        self, uri, recipe, batch, rank=None, world=None, *, pad=True, seed=0, workers=None, size=None, numbers="f32",
        channels_last=False, part="train", split=(1.0, 0.0, 0.0), mean=None, std=None, skip_corrupt=False, cache=None,
        tensors=None, augment=None, transform=None, device=None, pin_memory=False,
    ):
        workers, augment = threads(workers), None if augment is None else augmented(augment)
        batch, seed, size = whole("batch", batch, 1), whole("seed", seed), None if size is None else whole("size", size, *SIZES)
        if transform is not None and numbers == "bf16":
            raise ValueError("`transform` gets NumPy arrays, which have no bf16; `numbers` is \"u8\" or \"f32\" with it")
        uri, shares, cache, environment = opening(uri, split, cache)
        own_rank, own_world = share_of(rank, world)
        inner = _door.Loader(
            uri, recipe, batch, rank=own_rank, world=own_world, pad=bool(pad), seed=seed, workers=workers, size=size,
            numbers=numbers,
            # A transform gets the channels of a pixel side by side.
            channels_last=channels_last or transform is not None, part=part, split=shares, mean=mean, std=std,
            skip_corrupt=skip_corrupt, augment=augment, cache=cache, environment=environment,
        )
        warn_of_ranks("Loader", rank, world, inner)
        known = {
            "seed": seed, "recipe": recipe, "size": size, "split": shares or "folders", "part": part, "augment": augment,
        }
        self._begin(inner, batch, known, tensors, device, pin_memory)
        self._channels_last, self._mixes, self._transform = channels_last, inner.mixes, None
        if transform is not None:
            if self._mixes:
                raise ValueError("`transform` gets images before they are mixed; mix them in the program, without mixup and cutmix")
            self._transform = ImageTransform(transform, seed, workers, self._tensors, channels_last)

    def _begin(self, inner, batch, known, tensors, device, pin_memory):
        """Stands before the first batch of `inner`; `known` is what positions depend on."""
        self._inner, self._batch, self._known = inner, batch, known
        self._process = os.getpid()
        self._epoch, self._pos, self._ended, self._resumed = 0, 0, False, False
        self._tensors, self._tensor = _maker(tensors)
        self._ahead = copies(device, pin_memory, self._tensors)

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
        """What was done since the start, or since `load_state_dict`; empty for text and for images with boxes."""
        if not hasattr(self._inner, "measured"):
            return {}
        samples, busy, read, ready = self._inner.measured
        return {"samples": samples, "busy_seconds": busy, "bytes_read": read, "batches_ready": ready}

    def __len__(self):
        """Batches of an epoch."""
        return -(-self._inner.samples // self._batch)

    def __iter__(self):
        self._check_process()
        self._ended = False
        if not self._inner.trains and self._pos != 0 and not self._resumed:
            self._go_to(0, 0)
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
            found = self._take() if self._ahead is None else self._ahead.take(self._take)
        except RuntimeError:
            # Whoever goes on meets the same image again, rather than an end that looks like that of an epoch.
            self._inner.go_to(self._epoch if self._inner.trains else 0, self._pos)
            raise
        if found is None:
            raise StopIteration
        batch, epoch, pos = found
        if pos == 0:
            self._ended = True
            if not self._inner.trains:
                self._inner.go_to(0, 0)
                epoch = self._epoch + 1
        elif not self._inner.trains:
            epoch = self._epoch
        self._epoch, self._pos = epoch, pos
        if self._ahead is not None and (self._inner.trains or not self._ended):
            self._ahead.begin(self._take)
        return batch

    def _take(self):
        """The next batch as the program gets it, and the cursor after it; None after the last one."""
        found = self._inner.next()
        if found is None:
            return None
        *values, epoch, pos = found
        try:
            return self._made(values), epoch, pos
        except BaseException:
            # A transform that raised, or Ctrl-C in one: the batch was not handed out, and is made again.
            self._inner.go_to(self._epoch if self._inner.trains else 0, self._pos)
            raise

    def _made(self, values):
        """The batch of what the native loader has made."""
        images, labels = values
        mixed = labels.mixed
        if self._transform is not None:
            x = self._transform(images, self._inner.name)
        else:
            x = self._tensor(images)
            if self._channels_last:
                x = x.permute(0, 3, 1, 2) if hasattr(x, "permute") else x.transpose(0, 3, 1, 2)
        y = self._tensor(labels)
        return x, _shares(y, mixed, len(self._inner.classes)) if self._mixes else y

    def _go_to(self, epoch, pos):
        if self._ahead is not None:
            self._ahead.discard()
        self._inner.go_to(epoch, pos)

    def set_epoch(self, epoch):
        """The next batch is the first of `epoch`, from 0, unless that epoch has begun already. Not needed: epochs follow one
        another; a loop that calls it, as with PyTorch's `DistributedSampler`, sees the same batches. In evaluation all epochs
        are alike.
        """
        epoch = int(epoch)
        if epoch < 0:
            raise ValueError(f"there is no epoch {epoch}; they count from 0")
        if self._inner.trains and epoch != self._epoch:
            self._go_to(epoch, 0)
            self._epoch, self._pos, self._ended, self._resumed = epoch, 0, False, False

    def state_dict(self):
        """Where the batch after the last one that was handed out begins, and what the numbers belong to."""
        return {
            "epoch": self._epoch, "pos": self._pos, **self._known, "samples": self._inner.samples,
            "trains": self._inner.trains, "identity": self._inner.identity,
        }

    def load_state_dict(self, state):
        """Resumes where `state` was taken, with any `world`, `workers` and `batch`.

        Raises ValueError for the state of a loader with other samples or another order, and for what is no such state.
        """
        epoch, pos = begun(state)
        known = self.state_dict()
        for key in (*self._known, "samples", "trains", "identity"):
            if state.get(key, known[key]) != known[key]:
                raise ValueError(
                    f"the state is of a loader whose {key} is {state[key]}, and this one's is {known[key]}; "
                    "its positions mean other samples here"
                )
        self._go_to(epoch, pos)
        self._epoch, self._pos, self._ended, self._resumed = epoch, pos, False, True


def _shares(labels, mixed, classes):
    """The share of each class in the images of a batch, N × classes; all of one class where nothing was mixed."""
    others, own = mixed if mixed is not None else (labels, 1.0)
    if hasattr(labels, "new_zeros"):
        import torch

        shares = torch.zeros(len(labels), classes)
        rows, others = torch.arange(len(labels)), torch.as_tensor(others, dtype=torch.int64)
    else:
        import numpy

        shares = numpy.zeros((len(labels), classes), numpy.float32)
        rows, others = numpy.arange(len(labels)), numpy.asarray(others, numpy.int64)
    shares[rows, labels] += own
    shares[rows, others] += 1 - own
    return shares


def _maker(tensors):
    """Whose tensors are made, and what makes them."""
    if tensors is None:
        try:
            import torch  # noqa: F401
        except ImportError:
            tensors = "numpy"
        else:
            tensors = "torch"
    if tensors == "torch":
        import torch

        return "torch", torch.from_dlpack
    if tensors == "numpy":
        import numpy

        if not hasattr(numpy, "from_dlpack"):
            raise ImportError("numpy 1.22 or later is needed")
        return "numpy", numpy.from_dlpack
    raise ValueError(f"tensors are `torch` or `numpy`, not `{tensors}`")
