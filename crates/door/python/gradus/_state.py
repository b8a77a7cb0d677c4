"""States taken apart into tensors and JSON, and put together again. No pickle: what is loaded runs no code.

A state is a tree of dicts, lists and tuples. Its leaves are tensors, arrays of NumPy and JAX, numbers, strings, bytes and None; an
object with `state_dict()` stands for what that returns.
"""
import base64
import collections
import math
import sys

from . import _jax
from ._shards import class_of, expanded, is_shared, refuse_flat

# Types that a safetensors file of ours holds as they are; others are held as their bytes.
PLAIN = {"float64", "int64", "float32", "int32", "bfloat16", "float16", "uint8", "bool"}

# In a place, what stands for a key itself.
_KEY = object()


class Apart:
    """A state taken apart: `tree` for JSON, and `tensors` by name, those of the model and the others.

    The program waits for this, and a state may have thousands of tensors: what is usual comes first, and the place of a value
    is a chain of keys that is written out only where it is needed.
    """

    def __init__(self, state):
        self.tensors = {True: {}, False: {}}
        self._names = {}
        torch, self._numpy = sys.modules.get("torch"), sys.modules.get("numpy")
        self._torch = torch
        self._usual = () if torch is None else (torch.Tensor, torch.nn.Parameter)
        self._dtypes = {} if torch is None else {getattr(torch, name): name for name in PLAIN}
        if not isinstance(state, dict):
            raise TypeError(f"a state is a dict such as {{\"model\": model}}, not {_kind(state)}")
        try:
            self.tree = self._dict(state, None)
        except RecursionError:
            text = "the state is too deep to be saved, as one that contains itself"
            raise TypeError(text) from None

    def _node(self, value, path):
        kind = type(value)
        if kind in self._usual:
            return self._tensor(value, path)
        if value is None or kind is bool:
            return value
        if kind is str:
            return value if value.isascii() else self._text(value, path)
        if kind is int:
            return value if abs(value) < 1 << 63 else {"int": str(value)}
        if kind is float:
            return value if math.isfinite(value) else {"float": repr(value)}
        if kind is dict or kind is collections.OrderedDict:
            return self._dict(value, path)
        if kind is list:
            return self._items(value, path)
        return self._other(value, path)

    def _other(self, value, path):
        """Objects, and what is seldom in a state."""
        refuse_flat(value, lambda: _place(path))
        stands_for = expanded(value)
        if stands_for is not value:
            return self._stood(stands_for, value, path)
        if isinstance(value, dict):
            return self._dict(value, path)
        if isinstance(value, (list, tuple)):
            items = self._items(value, path)
            return items if type(value) is list else {"tuple": items}
        if isinstance(value, (bytes, bytearray)):
            return {"bytes": base64.b64encode(bytes(value)).decode()}
        torch, numpy = self._torch, self._numpy
        if torch is not None and isinstance(value, torch.Tensor):
            return self._tensor(value, path)
        if torch is not None and isinstance(value, (torch.dtype, torch.device)):
            return {"torch": str(value), "is": type(value).__name__}
        if numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic)):
            return self._array(numpy, value, path)
        if _jax.is_array(value):
            return self._array_of_jax(value, path)
        raise TypeError(
            f"{_place(path)} is {_kind(value)}, which is not saved\n"
            "hint: save its `state_dict()`, or what of it are tensors, numbers, strings, lists and dicts"
        )

    def _stood(self, state, value, path):
        """What an object stands for, with the name of its class: no other is given it."""
        node, name = self._node(state, path), class_of(value)
        if name is not None and isinstance(node, dict) and ("dict" in node or "odict" in node):
            node["class"] = name
        return node

    def _text(self, value, path):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ValueError(
                f"{_place(path)} is {value!r}, which is no Unicode, as a name of a file may be, and not saved\n"
                "hint: save `os.fsencode(name)`, which are its bytes"
            ) from None
        return value

    def _items(self, values, path):
        return [self._node(item, (path, at)) for at, item in enumerate(values)]

    def _dict(self, value, path):
        pairs, node = [], self._node
        for key, item in value.items():
            if type(key) is str:
                pairs.append([key if key.isascii() else self._text(key, (path, _KEY)), node(item, (path, key))])
                continue
            if type(key) not in (int, float, bool, tuple, type(None)):
                raise TypeError(f"{_place(path)} has the key {key!r}, which is {_kind(key)}; keys are strings, numbers or tuples")
            pairs.append([node(key, (path, _KEY)), node(item, (path, key))])
        return {"odict" if isinstance(value, collections.OrderedDict) else "dict": pairs}

    def _tensor(self, value, path):
        torch = self._torch
        seen = self._names.get(id(value))
        if seen is not None and seen[1] is value:
            return seen[0]
        dtype = self._dtypes.get(value.dtype) if type(value) in self._usual else None
        is_plain = dtype is not None and value.layout is torch.strided and value.device.type == "cpu" and not value.is_neg()
        if is_plain and value.is_contiguous():
            here, node = value, {"shape": list(value.shape), "dtype": dtype}
        else:
            here, node = self._copied(value, path)
        if not _has_memory(here):
            raise TypeError(
                f"{_place(path)} is a {type(value).__name__} without memory of its own, such as one that a library has "
                "quantized, which is not saved\nhint: save the tensors that it is made of"
            )
        if node["dtype"] not in PLAIN:
            dtype, here = "uint8", here.reshape(-1).view(torch.uint8)
        node["tensor"] = self._keep(path, dtype or node["dtype"], here.shape, here.data_ptr(), here.nbytes, here)
        if isinstance(value, torch.nn.Parameter):
            node["parameter"] = value.requires_grad
        self._names[id(value)] = (node, value)
        return node

    def _copied(self, value, path):
        """A tensor that is elsewhere, or not one after another, as it is saved; and its node."""
        torch, kind = self._torch, type(value).__name__
        if kind == "ShardedTensor" or value.layout != torch.strided or value.is_quantized or value.is_meta:
            raise TypeError(
                f"{_place(path)} is a {kind} that is sharded, sparse, quantized or without memory, which is not saved yet\n"
                "hint: save a dense tensor; of a model that is sharded in another way than by `DTensor` the full state: "
                "torch.distributed.checkpoint.state_dict.get_state_dict with StateDictOptions(full_state_dict=True)"
            )
        if is_shared(value):
            raise TypeError(
                f"{_place(path)} is a part of a tensor that ranks share, and their process group has ended\n"
                "hint: save before `torch.distributed.destroy_process_group()`"
            )
        here = value.detach().resolve_conj().resolve_neg()
        node = {"shape": list(here.shape), "dtype": str(here.dtype)[len("torch."):]}
        strides = list(here.stride())
        if not here.is_contiguous() and _is_dense(here.shape, strides):
            node["strides"] = strides
        return here.cpu().contiguous(), node

    def _array(self, numpy, value, path):
        here = numpy.ascontiguousarray(value)
        if here.dtype.hasobject or here.dtype.names:
            raise TypeError(f"{_place(path)} is a NumPy array of {value.dtype}, which is not saved")
        is_scalar = isinstance(value, numpy.generic)
        node = {"shape": list(value.shape), "numpy": _written_type(numpy, here.dtype), "scalar": is_scalar}
        here = here.reshape(-1).view(numpy.uint8)
        node["tensor"] = self._keep(path, "uint8", here.shape, here.ctypes.data, here.nbytes, here)
        return node

    def _array_of_jax(self, value, path):
        node, here = _jax.taken(value, lambda: _place(path))
        is_plain = node["jax"] in PLAIN
        dtype, shape = (node["jax"], node["shape"]) if is_plain else ("uint8", [here.nbytes])
        node["tensor"] = self._keep(path, dtype, shape, here.ctypes.data, here.nbytes, here)
        return node

    def _keep(self, path, dtype, shape, address, size, held):
        name = []
        while path is not None and path[1] is not _KEY:
            path, key = path
            name.append(str(key))
        is_of_model = len(name) > 1 and name[-1] == "model"
        if is_of_model:
            name.pop()
        tensors, text = self.tensors[is_of_model], ".".join(reversed(name))
        # safetensors reserves one name.
        while text in tensors or text == "__metadata__":
            text += "'"
        tensors[text] = (dtype, list(shape), address, size, held)
        return [text, is_of_model]

    def handed(self):
        """What Rust copies; the tensors live as long as this."""
        return [
            (name, dtype, shape, address, size, is_of_model)
            for is_of_model, tensors in self.tensors.items()
            for name, (dtype, shape, address, size, _) in tensors.items()
        ]


class Checked(Apart):
    """Raises what a save of a state would, as far as types tell it: no tensor is read, and one may have no values yet."""

    def _other(self, value, path):
        if callable(getattr(value, "load_state_dict", None)) and not isinstance(value, type):
            refuse_flat(value, lambda: _place(path))
            state_dict = getattr(value, "state_dict", None)
            is_module = self._torch is not None and isinstance(value, self._torch.nn.Module)
            # One without it is only given the state of another object. That of a module is tensors, which may have to be
            # gathered for it, and a loader that is asked may begin to read.
            if not callable(state_dict) or is_module or hasattr(value, "__iter__"):
                return None
            try:
                state = state_dict()
            except Exception:
                # It has no state yet, and a save is what needs one.
                return None
            return self._node(state, path)
        return super()._other(value, path)

    def _tensor(self, value, path):
        return None

    def _array(self, numpy, value, path):
        return super()._array(numpy, numpy.empty(0, value.dtype), path)

    def _array_of_jax(self, value, path):
        return None


def _place(path):
    """The place of a value in the state, as a program would write it."""
    text = ""
    while path is not None:
        path, key = path
        if key is _KEY:
            return f"a key of {_place(path)}{text}"
        text = f"[{key!r}]{text}"
    return f"state{text}"


def _has_memory(tensor):
    """Whether the values of a tensor are where it says; a subclass may hold them in other tensors."""
    try:
        return tensor.numel() == 0 or tensor.data_ptr() != 0
    except RuntimeError:
        return False


def _is_dense(shape, strides):
    """Whether each value has one place in memory, without gaps."""
    expected = 1
    for stride, length in sorted((stride, length) for stride, length in zip(strides, shape) if length > 1):
        if stride != expected:
            return False
        expected *= length
    return True


def together(tree, model, others, classes=None):
    """The state of a tree and its tensors, all of them in the processor's memory. `classes` gets the name of the class of each
    object whose state a dict is, by the number of that dict; older checkpoints have none.
    """
    tensors = {True: model, False: others}
    made = {}

    def node(value):
        if isinstance(value, list):
            return [node(item) for item in value]
        if not isinstance(value, dict):
            return value
        if "dict" in value or "odict" in value:
            pairs = ((node(key), node(item)) for key, item in value.get("dict") or value.get("odict") or ())
            state = dict(pairs) if "dict" in value else collections.OrderedDict(pairs)
            if classes is not None and "class" in value:
                classes[id(state)] = value["class"]
            return state
        if "tensor" in value:
            name, is_of_model = value["tensor"]
            if (name, is_of_model) not in made:
                make = _array if "numpy" in value else _array_of_jax if "jax" in value else _tensor
                made[name, is_of_model] = make(value, *tensors[is_of_model][name])
            return made[name, is_of_model]
        if "tuple" in value:
            return tuple(node(item) for item in value["tuple"])
        if "bytes" in value:
            return base64.b64decode(value["bytes"])
        if "int" in value:
            return int(value["int"])
        if "float" in value:
            return float(value["float"])
        if "torch" in value:
            import torch

            text = value["torch"]
            return torch.device(text) if value["is"] == "device" else getattr(torch, text[len("torch."):])
        raise ValueError(f"the state has a node that this version does not know: {sorted(value)}")

    return node(tree)


def _tensor(node, _dtype, _shape, held):
    import torch

    dtype, shape = getattr(torch, node["dtype"]), node["shape"]
    tensor = torch.frombuffer(held, dtype=dtype).reshape(shape) if len(held) else torch.empty(shape, dtype=dtype)
    if "strides" in node:
        tensor = torch.empty_strided(shape, node["strides"], dtype=dtype).copy_(tensor)
    return torch.nn.Parameter(tensor, node["parameter"]) if "parameter" in node else tensor


def _array(node, _dtype, _shape, held):
    import numpy

    array = numpy.frombuffer(held, _read_type(numpy, node["numpy"])).reshape(node["shape"])
    return array[()] if node["scalar"] else array


def _written_type(numpy, dtype):
    """How a type is written. Those of `ml_dtypes`, such as Keras's and JAX's bfloat16, have only a name: NumPy's code of theirs
    is that of bytes that mean nothing.
    """
    return dtype.str if numpy.dtype(dtype.str) == dtype else dtype.name


def _read_type(numpy, text):
    try:
        return numpy.dtype(text)
    except TypeError:
        # To import it makes its names known.
        import ml_dtypes  # noqa: F401

        return numpy.dtype(text)


def _array_of_jax(node, _dtype, _shape, held):
    return _jax.made(node, held)


def generators():
    """The states of the random number generators of Python, and of NumPy and PyTorch where they are imported."""
    import random

    version, words, gauss = random.getstate()
    found = {"python": [version, _packed(words), gauss]}
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None:
        name, words, at, has_gauss, gauss = numpy.random.get_state()
        found["numpy"] = [name, _packed(words.tolist()), int(at), int(has_gauss), float(gauss)]
    if torch is not None:
        found["torch"] = base64.b64encode(bytes(torch.get_rng_state().tolist())).decode()
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            states = torch.cuda.get_rng_state_all()
            found["cuda"] = [base64.b64encode(bytes(state.tolist())).decode() for state in states]
    return found


def restore_generators(found):
    import random

    version, words, gauss = found["python"]
    random.setstate((version, tuple(_unpacked(words)), gauss))
    if "numpy" in found:
        import numpy

        name, words, at, has_gauss, gauss = found["numpy"]
        numpy.random.set_state((name, numpy.array(_unpacked(words), numpy.uint32), at, has_gauss, gauss))
    if "torch" in found:
        import torch

        tensor = lambda text: torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.uint8)  # noqa: E731
        torch.set_rng_state(tensor(found["torch"]))
        states = found.get("cuda", [])
        if states and torch.cuda.is_available():
            for device, text in enumerate(states[: torch.cuda.device_count()]):
                torch.cuda.set_rng_state(tensor(text), device)


def _packed(words):
    return base64.b64encode(b"".join(word.to_bytes(4, "little") for word in words)).decode()


def _unpacked(text):
    data = base64.b64decode(text)
    return [int.from_bytes(data[at : at + 4], "little") for at in range(0, len(data), 4)]


def _kind(value):
    return f"of the type `{type(value).__module__}.{type(value).__qualname__}`"
