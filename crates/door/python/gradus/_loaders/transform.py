"""Callables of a program's own on the images of a batch."""
import concurrent.futures

from .parameters import parameters


class ImageTransform:
    """Calls a function with each image of a batch, and stacks what it returns.

    The function gets a NumPy array, height × width × 3, of which it may keep or change anything; `rng`, if it has such a
    parameter, is a `numpy.random.Generator` that depends on the seed, the epoch and the position of the image alone.
    """

    def __init__(self, function, seed, workers, tensors, channels_last):
        if not callable(function):
            raise TypeError(f"`transform` is a callable on an array, not of the type `{type(function).__name__}`")
        self._function, self._seed, self._channels_last = function, seed, channels_last
        self._is_torch = tensors == "torch"
        self._draws = "rng" in parameters(function)
        self._threads = concurrent.futures.ThreadPoolExecutor(workers, "gradus-transform") if workers > 1 else None

    def __call__(self, images, name):
        """The batch of these images; `name` gives a sample's name by epoch and position."""
        epoch, first = images.begins
        pixels = self._writable(images)

        def changed(at):
            try:
                if not self._draws:
                    return self._function(pixels[at])
                import numpy

                return self._function(pixels[at], rng=numpy.random.default_rng([self._seed, epoch, first + at]))
            except Exception as error:
                sample = name(epoch, first + at)
                raise RuntimeError(f"the transform failed for the sample `{sample}`: {type(error).__name__}: {error}") from error

        run = map if self._threads is None else self._threads.map
        made = list(run(changed, range(len(pixels))))
        for at, other in enumerate(made):
            found, expected = tuple(getattr(other, "shape", ())), tuple(getattr(made[0], "shape", ()))
            if found == expected and found:
                continue
            also = f", and the shape {expected} for the first of its batch" if found else ", and no array"
            raise RuntimeError(
                f"the transform returned {_form(other)} for the sample `{name(epoch, first + at)}`{also}\n"
                "hint: return arrays or tensors of one shape"
            )
        return self._stacked(made, pixels)

    def _writable(self, images):
        import numpy

        if self._is_torch:
            import torch

            return torch.from_dlpack(images).numpy()
        pixels = numpy.from_dlpack(images)
        return pixels if pixels.flags.writeable else pixels.copy()

    def _stacked(self, made, pixels):
        import numpy

        if self._is_torch:
            import torch

            if made and isinstance(made[0], torch.Tensor):
                return torch.stack(made)
        stacked = numpy.stack([numpy.asarray(item) for item in made]) if made else pixels
        if stacked.ndim == 4:
            # As torchvision's `ToTensor`: height × width × channels becomes channels × height × width.
            stacked = stacked.transpose(0, 3, 1, 2)
        if not self._channels_last:
            stacked = numpy.ascontiguousarray(stacked)
        return torch.from_numpy(stacked) if self._is_torch else stacked


def _form(value):
    shape = tuple(getattr(value, "shape", ()))
    return f"the shape {shape}" if shape else f"a value of the type `{type(value).__name__}`"
