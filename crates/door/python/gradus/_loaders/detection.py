"""The loader of images with boxes."""
from .. import _door
from .._loader import Loader
from .checks import U32, augmented, whole
from .opening import opening, threads
from .ranks import share_of, warn_of_ranks


class DetectionLoader(Loader):
    """Batches of images with boxes, as detectors of torchvision take them.

    A batch is `images, targets`. `images` is a float tensor, N × 3 × size × size, of values from 0 to 1 unless `mean` and
    `std` are given; each image is resized until it fits and centred on grey. `targets` is a list of N dicts:

    boxes   a float tensor, n × 4: left, top, right and bottom edge in pixels of the resized image
    labels  a tensor of n classes, indices into `classes`; add 1 for a model whose class 0 is the background

    Order, resume, `set_epoch`, ranks and errors are those of `gradus.Loader`. Regions marked `iscrowd` are left out. Where the
    images of a batch are fewer than the ranks, a rank without one gets an image of another's.

    uri          a COCO .json or a folder with one, a folder with `images` and `labels` in YOLO's format, or an address of these
    batch        images in a batch, of all ranks together
    size         height and width of every image in pixels; by default the longer side of the first one, 640 at most
    rank, world  which part of each batch comes here; by default all of it, with a warning where several ranks train
    augment      "flip" and "mosaic", for training
    """

    def __init__(
        self, uri, batch, size=None, rank=None, world=None, *, augment=("flip",), seed=0, workers=None, part="train",
        split=(1.0, 0.0, 0.0), mean=None, std=None, skip_corrupt=False, cache=None, tensors=None, device=None,
        pin_memory=False,
    ):
        uri, shares, cache, environment = opening(uri, split, cache)
        augment = augmented(augment, ("flip", "mosaic"))
        batch, seed, size = whole("batch", batch, 1), whole("seed", seed), None if size is None else whole("size", size, most=U32)
        own_rank, own_world = share_of(rank, world)
        inner = _door.DetectionLoader(
            uri, batch, rank=own_rank, world=own_world, seed=seed, workers=threads(workers), size=size, augment=augment,
            part=part, split=shares, mean=mean, std=std, skip_corrupt=skip_corrupt, cache=cache, environment=environment,
        )
        warn_of_ranks("DetectionLoader", rank, world, inner)
        known = {"seed": seed, "size": inner.size, "augment": augment, "split": shares or "folders", "part": part}
        self._begin(inner, batch, known, tensors, device, pin_memory)

    @property
    def size(self):
        """Height and width of every image, in pixels."""
        return self._inner.size

    def _made(self, values):
        images, boxes, labels, counts = values
        images, boxes, labels = self._tensor(images), self._tensor(boxes), self._tensor(labels)
        targets, start = [], 0
        for count in counts:
            targets.append({"boxes": boxes[start : start + count], "labels": labels[start : start + count]})
            start += count
        return images, targets
