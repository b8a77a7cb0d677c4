"""Batches in pinned memory and on a device.

One thread takes the next batch from its loader, pins it and starts its copy on a stream of its own, while the program works
on the batch before. The copy is waited for by the program's stream and not by the program.
"""
import concurrent.futures


def copies(device, pin_memory, tensors):
    """What copies batches; None where they stay as the loader makes them."""
    if device is None and not pin_memory:
        return None
    if tensors == "numpy":
        raise ValueError("`device` and `pin_memory` are for PyTorch's tensors; leave `tensors` out")
    import torch

    device = None if device is None else torch.device(device)
    if device is not None and device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"`device` is {device}, and PyTorch finds no CUDA device\nhint: device=\"cpu\", or leave it out")
    has_cuda = torch.cuda.is_available()
    if device is None or device.type == "cpu":
        # Without CUDA there is nobody to pin memory for.
        return Ahead(lambda tensor: tensor.pin_memory()) if pin_memory and has_cuda else None
    if device.type == "cuda":
        return OnCuda(torch, device)
    return Ahead(lambda tensor: tensor.to(device))


class Ahead:
    """Prepares one batch ahead, in a thread. `place` is what becomes of each tensor."""

    def __init__(self, place):
        self._place, self._next = place, None
        self._threads = concurrent.futures.ThreadPoolExecutor(1, "gradus-copies")

    def begin(self, fetch):
        """Begins with the batch that `fetch` gives, unless one is under way."""
        if self._next is None:
            self._next = self._threads.submit(self._fetched, fetch)

    def take(self, fetch):
        """What `fetch` gives, with the batch placed."""
        self.begin(fetch)
        try:
            found = self._next.result()
        except KeyboardInterrupt:
            # Of the wait: the batch is still under way.
            raise
        except BaseException:
            self._next = None
            raise
        self._next = None
        return self._arrived(found)

    def discard(self):
        """Forgets the batch that is under way."""
        pending, self._next = self._next, None
        if pending is not None and not pending.cancel():
            concurrent.futures.wait([pending])

    def _fetched(self, fetch):
        found = fetch()
        return found if found is None else (each(found[0], self._place), *found[1:])

    def _arrived(self, found):
        return found


class OnCuda(Ahead):
    """The same for a CUDA device, without waiting for copies."""

    def __init__(self, torch, device):
        super().__init__(lambda tensor: tensor.pin_memory().to(self._device, non_blocking=True))
        index = torch.cuda.current_device() if device.index is None else device.index
        self._torch, self._device = torch, torch.device("cuda", index)
        self._stream = torch.cuda.Stream(self._device)

    def _fetched(self, fetch):
        # PyTorch lends the pinned memory to nobody else before the copy from it has ended.
        with self._torch.cuda.stream(self._stream):
            found = super()._fetched(fetch)
            return found, self._stream.record_event()

    def _arrived(self, found):
        found, copied = found
        if found is not None:
            current = self._torch.cuda.current_stream(self._device)
            current.wait_event(copied)
            # The memory was allocated on the other stream.
            each(found[0], lambda tensor: tensor.record_stream(current))
        return found


def each(batch, work):
    """The batch with each of its tensors as `work` returns it."""
    if isinstance(batch, dict):
        return {name: each(item, work) for name, item in batch.items()}
    if isinstance(batch, (list, tuple)):
        items = [each(item, work) for item in batch]
        return type(batch)(*items) if hasattr(batch, "_fields") else type(batch)(items)
    # Names and the like stay as they are.
    return work(batch) if hasattr(batch, "record_stream") else batch
