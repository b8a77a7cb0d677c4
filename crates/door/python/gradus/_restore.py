"""A loaded state, put back into the objects that it was saved from. All of it is looked at before anything changes, and what
cannot be put back is an error that names its place: an object that silently keeps its fresh state is a wrong training.
"""
import functools
import itertools
import operator
import re
import sys
from collections.abc import Mapping

from . import _jax, _shards, _state


def check_tree(objects):
    """Refuses what is no tree, also where nothing was saved yet: a program is to fail at its start, and not when it resumes."""
    if objects is not None and not isinstance(objects, Mapping):
        raise ValueError(
            f"`load` takes a tree like the one that is saved, and not what is {_state._kind(objects)}; nothing was loaded\n"
            "hint: run.load({\"model\": …}), by the names that `save` is given"
        )
    if objects is not None:
        try:
            _check_takers(objects, "")
        except RecursionError:
            raise TypeError("the tree is too deep to be loaded, as one that contains itself; nothing was loaded") from None
        if isinstance(objects, dict):
            _state.Checked(objects)


def _check_takers(value, path):
    """Refuses what cannot be given a part of a state."""
    if _takes_state(value) or _shards.generator_of(value) is not None:
        return
    if isinstance(value, Mapping):
        for key, item in value.items():
            _check_takers(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, (list, tuple)):
        for at, item in enumerate(value):
            _check_takers(item, f"{path}[{at}]")
    elif not _is_plain(value) and not _has_values(value):
        raise _no_taker(value, path)


def _takes_state(value):
    return callable(getattr(value, "load_state_dict", None)) and not isinstance(value, type)


def _has_values(value):
    """Whether it is a tensor or an array."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    kinds = (() if torch is None else (torch.Tensor,)) + (() if numpy is None else (numpy.ndarray,))
    return isinstance(value, kinds) or _jax.is_array(value)


def _no_taker(value, path):
    if callable(getattr(value, "state_dict", None)):
        return TypeError(
            f"{path} is {_state._kind(value)}, which has no `load_state_dict()`; nothing was loaded\n"
            "hint: leave it out, and take its part from what `load` returns"
        )
    return TypeError(
        f"{path} is {_state._kind(value)}, which is neither saved nor loaded; nothing was loaded\n"
        "hint: leave it out of the state, or put in what of it are tensors, numbers, strings, lists and dicts"
    )


class _Steps(list):
    """What is to be done, and the names of the classes of saved objects by the number of the dict that is the state of each."""

    def __init__(self, classes):
        super().__init__()
        self.classes = classes


def restored(state, objects, classes):
    """Puts the parts of `state` into `objects`, a tree like the one that was saved, or a part of it: objects get theirs by
    `load_state_dict`, tensors and arrays are written to, and numbers, strings and the like are replaced in their dict or list.
    `classes` are those that `_state.together` has found.
    """
    steps = _Steps(classes)
    _dict(state, objects, "", steps)
    for step in steps:
        step()


def _node(saved, target, path, put, steps):
    """Plans what happens to `target`. `put` replaces it where it is; None where that cannot be."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if _takes_state(target):
        _check_class(steps.classes.get(id(saved)), target, path)
        _check_object(saved, target, path)
        steps.append(lambda: _given(saved, target, path))
    elif _shards.generator_of(target) is not None:
        if type(saved) is not type(_shards.expanded(target)):
            raise ValueError(f"{path} is {_state._kind(saved)} in the checkpoint, and {_state._kind(target)} in this program; nothing was loaded")
        steps.append(lambda: _shards.generator_of(target)[1](target, saved))
    elif _is_plain(target):
        _plain(saved, target, path, put, steps)
    elif isinstance(target, Mapping):
        _dict(saved, target, path, steps)
    elif isinstance(target, (list, tuple)):
        if not isinstance(saved, (list, tuple)) or len(saved) != len(target):
            found = f"{len(saved)} items" if isinstance(saved, (list, tuple)) else _state._kind(saved)
            raise ValueError(f"{path} is {found} in the checkpoint, and {len(target)} items in this program; nothing was loaded")
        for at, item in enumerate(target):
            inner = functools.partial(operator.setitem, target, at) if isinstance(target, list) else None
            _node(saved[at], item, f"{path}[{at}]", inner, steps)
    elif torch is not None and isinstance(target, torch.Tensor):
        _check_shape(saved, target, path, torch.Tensor)
        _check_type(_type(saved), _type(target), path)
        _check_writable(torch, target, path)
        steps.append(lambda: _written(torch, saved, target))
    elif numpy is not None and isinstance(target, numpy.ndarray):
        _check_shape(saved, target, path, numpy.ndarray)
        if not numpy.can_cast(saved.dtype, target.dtype, "safe"):
            _check_type(saved.dtype.name, target.dtype.name, path)
        if not target.flags.writeable:
            raise ValueError(f"{path} is an array that is read-only, and cannot be written to; nothing was loaded\nhint: `.copy()` it")
        steps.append(lambda: operator.setitem(target, ..., saved))
    elif _jax.is_array(target):
        _replaced(saved, target, path, put, steps)
    else:
        raise _no_taker(target, path)


def _dict(saved, target, path, steps):
    if not isinstance(saved, Mapping) or not isinstance(target, Mapping):
        raise ValueError(
            f"{path or 'the state'} is {_state._kind(saved)} in the checkpoint, and {_state._kind(target)} in this program; "
            "nothing was loaded"
        )
    for key, item in target.items():
        inner = f"{path}.{key}" if path else str(key)
        _check_key(key, saved, inner)
        _node(saved[key], item, inner, functools.partial(operator.setitem, target, key), steps)


def _check_key(key, saved, path):
    if key not in saved:
        raise KeyError(f"the checkpoint has no {path!r}; it has {', '.join(map(repr, saved))}")


def _plain(saved, target, path, put, steps):
    """Numbers, strings and the like; what the program holds of dicts and lists stays the same object."""
    if isinstance(target, dict) and isinstance(saved, dict):
        for key in target:
            _check_key(key, saved, f"{path}.{key}")
        steps.append(lambda: target.update(saved))
    elif isinstance(target, list) and isinstance(saved, list):
        steps.append(lambda: operator.setitem(target, slice(None), saved))
    elif put is not None:
        steps.append(lambda: put(saved))
    elif saved != target:
        raise TypeError(
            f"{path} is within a tuple, where it cannot be replaced; nothing was loaded\n"
            "hint: make it a list or a dict, or take it from what `load` returns"
        )


def _is_plain(value):
    """Whether a value has no object, tensor or array within."""
    if isinstance(value, dict):
        return all(map(_is_plain, value.values()))
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    kinds = (type(None), bool, int, float, str, bytes, bytearray)
    if torch is not None:
        kinds += (torch.dtype, torch.device)
    if numpy is not None:
        kinds += (numpy.generic,)
    return isinstance(value, kinds)


def _given(saved, target, path):
    """What its own code refuses is seen only now."""
    try:
        target.load_state_dict(_shards.divided(saved, target))
    except Exception as error:
        if hasattr(error, "add_note"):
            error.add_note(f"gradus: this is of `load_state_dict` of {path}; what comes before it in the tree is loaded already")
        raise


def _replaced(saved, target, path, put, steps):
    """An array of JAX, which cannot be written to."""
    if not _jax.is_array(saved):
        raise ValueError(f"{path} is {_state._kind(saved)} in the checkpoint, and an array of JAX in this program; nothing was loaded")
    if saved.shape != target.shape:
        raise _other_shape(path, saved.shape, target.shape)
    _check_type(str(saved.dtype), str(target.dtype), path)
    value = _jax.like(saved, target)
    if put is None:
        raise TypeError(
            f"{path} is within a tuple, where it cannot be replaced; nothing was loaded\n"
            "hint: save `jax.tree.leaves(…)`, and load into that list"
        )
    steps.append(lambda: put(value))


def _written(torch, saved, target):
    with torch.no_grad():
        target.copy_(_shards._like(target, saved))


def _check_shape(saved, target, path, kind):
    if not isinstance(saved, kind):
        raise ValueError(f"{path} is {_state._kind(saved)} in the checkpoint, and {_state._kind(target)} in this program; nothing was loaded")
    if tuple(saved.shape) != tuple(target.shape):
        raise _other_shape(path, saved.shape, target.shape)


def _type(tensor):
    return str(tensor.dtype).removeprefix("torch.")


def _check_type(found, expected, path):
    if not _holds(found, expected):
        raise ValueError(
            f"{path} is of {found} in the checkpoint, and of {expected} in this program; nothing was loaded\n"
            "hint: make it of the type that was saved, or convert what `load` returns"
        )


def _holds(found, expected):
    """Whether values of a type may become those of another, by their names: floats of any width, as PyTorch converts them, and
    integers where all of them fit.
    """
    kinds = [re.match(r"b?(float|complex)\d", name) for name in (found, expected)]
    whole = [re.fullmatch(r"(u?)int(\d+)", name) for name in (found, expected)]
    if all(kinds):
        return kinds[0][1] == kinds[1][1]
    if all(whole):
        (least, most), (lowest, highest) = map(_range, whole)
        return lowest <= least and most <= highest
    return found == expected


def _range(match):
    """The least integer of a type, and the first beyond its greatest."""
    bits = int(match[2])
    return (0, 1 << bits) if match[1] else (-1 << bits - 1, 1 << bits - 1)


def _check_writable(torch, target, path):
    if target.is_meta:
        why, hint = "has no memory", "move it to a device: `.to_empty(device=…)` of a module, or `torch.empty_like(…, device=…)`"
    elif target.layout is torch.strided and any(stride == 0 and size > 1 for stride, size in zip(target.stride(), target.shape)):
        why, hint = "is expanded: several of its values are one in memory", "`.clone()` it"
    elif target.is_inference() and not torch.is_inference_mode_enabled():
        why, hint = "was made in inference mode", "make it outside, or `.clone()` it there"
    else:
        return
    raise ValueError(f"{path} {why}, and cannot be written to; nothing was loaded\nhint: {hint}")


def _check_class(name, target, path):
    own = _shards.class_of(target)
    if None not in (name, own) and name != own:
        raise ValueError(
            f"{path} is the state of a `{name}` in the checkpoint, and a `{own}` in this program; nothing was loaded\n"
            "hint: build it as it was saved; or leave it out, and give it what `load` returns by its `load_state_dict()`"
        )


def _other_shape(path, found, expected):
    return ValueError(
        f"{path} has the shape {list(found)} in the checkpoint, and {list(expected)} in this program\n"
        "hint: load into the model that was saved, or name another folder; nothing was loaded"
    )


def _check_object(saved, target, path):
    """Says which tensor has another shape than that of the same name in the object, and which groups an optimizer lacks."""
    torch = sys.modules.get("torch")
    if saved is None:
        raise ValueError(f"{path} is None in the checkpoint, and {_state._kind(target)} in this program; nothing was loaded")
    if not isinstance(saved, Mapping):
        return
    if torch is not None and isinstance(target, torch.optim.Optimizer):
        _check_optimizer(saved, target, path)
        return
    own = target.state_dict() if callable(getattr(target, "state_dict", None)) else None
    for name, tensor in saved.items() if isinstance(own, Mapping) else ():
        shape, expected = getattr(tensor, "shape", None), getattr(own.get(name), "shape", None)
        if shape is not None and expected is not None and tuple(shape) != tuple(expected):
            raise _other_shape(f"{path}.{name}", shape, expected)
    if torch is not None and isinstance(target, torch.nn.Module) and _is_strict(torch, target):
        _check_names(saved, own, path)
        for name, tensor in saved.items():
            if isinstance(tensor, torch.Tensor) and isinstance(own.get(name), torch.Tensor):
                _check_type(_type(tensor), _type(own[name]), f"{path}.{name}")
                if not own[name].is_meta:
                    _check_writable(torch, own[name], f"{path}.{name}")


def _is_strict(torch, module):
    """Whether a module takes the names that it gives, and no code of its own translates others."""
    plain = torch.nn.Module
    return type(module).load_state_dict is plain.load_state_dict and not any(
        each._load_state_dict_pre_hooks
        # These may drop names from what PyTorch complains about.
        or getattr(each, "_load_state_dict_post_hooks", None)
        or type(each)._load_from_state_dict is not plain._load_from_state_dict and not type(each).__module__.startswith("torch.nn.")
        for each in module.modules()
    )


def _check_names(saved, own, path):
    """PyTorch refuses other names as well, but after it has loaded those that are right."""
    # Later versions of PyTorch's modules have these, and do without them.
    is_needed = lambda name: not name.endswith(("num_batches_tracked", "_extra_state"))  # noqa: E731
    missing = [name for name in own if name not in saved and is_needed(name)]
    unknown = [name for name in saved if name not in own and is_needed(name)]
    if not missing and not unknown:
        return
    bare = {name.removeprefix("module.") for name in saved}
    is_wrapped = bare != set(saved) and bare == set(own) or {f"module.{name}" for name in saved} == set(own)
    hint = "save and load the module inside of the wrapper: `model.module`" if is_wrapped else "load into the model that was saved"
    lists = [(what, names) for what, names in (("lacks", missing), ("has", unknown)) if names]
    found = ", and ".join(f"{what} {', '.join(names[:3])}{' …' if names[3:] else ''}" for what, names in lists)
    raise ValueError(f"{path} in the checkpoint {found}, unlike this program's\nhint: {hint}; nothing was loaded")


def _check_optimizer(saved, optimizer, path):
    """An optimizer refuses other groups, but only after the model was loaded, and takes moments of another shape."""
    torch = sys.modules["torch"]
    has_own_form = type(optimizer).load_state_dict is not torch.optim.Optimizer.load_state_dict
    if has_own_form or getattr(optimizer, "_optimizer_load_state_dict_pre_hooks", None):
        # Such as an optimizer around another one, or one whose hooks translate older states.
        return
    found = [len(group.get("params", ())) for group in saved.get("param_groups", ())]
    own = [len(group["params"]) for group in optimizer.param_groups]
    if found != own:
        raise ValueError(
            f"{path} has groups of {found} parameters in the checkpoint, and of {own} in this program\n"
            "hint: build the optimizer as it was saved; nothing was loaded"
        )
    if not type(optimizer).__module__.startswith("torch.optim"):
        return
    parameters = list(itertools.chain.from_iterable(group["params"] for group in optimizer.param_groups))
    for number, values in saved.get("state", {}).items():
        for name in ("exp_avg", "momentum_buffer") if isinstance(values, Mapping) and number in range(len(parameters)) else ():
            shape, expected = getattr(values.get(name), "shape", None), parameters[number].shape
            if shape is not None and tuple(shape) != tuple(expected):
                raise _other_shape(f"{path}.state[{number}].{name}", shape, expected)
