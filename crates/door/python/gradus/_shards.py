"""Tensors that several ranks hold parts of (`DTensor`, as of FSDP2 and tensor parallelism): whole in a checkpoint, so that
any number of ranks loads it, and divided again by the rank that loads.
"""
import itertools
import sys


def whole(state, is_kept):
    """The state with every `DTensor` gathered, a collective call of all ranks; where it is not kept, parts are dropped at
    once. Objects with `state_dict()` are replaced by what that returns, or by one that stands for it.
    """
    gathered, torch = {}, sys.modules.get("torch")
    # Of these none is shared. They come first, because a state may have thousands.
    usual = {type(None), bool, int, float, str, torch.Tensor, torch.nn.Parameter}

    def node(value, path):
        if type(value) in usual:
            return value
        refuse_flat(value, lambda: f"state{''.join(f'[{key!r}]' for key in path)}")
        name, stands_for = class_of(value), expanded(value)
        if name is not None and stands_for is not value:
            return Standing(node(stands_for, path), name)
        value = stands_for
        if isinstance(value, dict):
            made = {key: node(item, (*path, key)) for key, item in value.items()}
            return made if type(value) is dict else _same(value, made)
        if isinstance(value, (list, tuple)):
            items = [node(item, (*path, at)) for at, item in enumerate(value)]
            return items if isinstance(value, list) else tuple(items)
        if not is_shared(value):
            return value
        if id(value) not in gathered:
            full = value.detach().full_tensor()
            # The tensor itself is held too: its number would be given to another.
            gathered[id(value)] = (full.cpu() if is_kept else None, value)
        return gathered[id(value)][0]

    return {key: node(value, (key,)) for key, value in state.items()} if isinstance(state, dict) else state


class Standing:
    """What stands for an object of the class `name` whose state was gathered."""

    def __init__(self, state, name):
        self.state, self.name = state, name

    def state_dict(self):
        return self.state


def divided(saved, target):
    """What `target.load_state_dict` is given: whole tensors, divided as those of the target are."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(saved, dict):
        return saved
    if isinstance(target, torch.optim.Optimizer):
        return _of_optimizer(torch, saved, target)
    own = target.state_dict() if callable(getattr(target, "state_dict", None)) else None
    if not isinstance(own, dict) or not any(map(is_shared, own.values())):
        return saved
    return _same(saved, {name: _like(own.get(name), value) for name, value in saved.items()})


def _of_optimizer(torch, saved, optimizer):
    """States of parameters are numbered in the order of the groups; those of a parameter's shape are divided as it is."""
    parameters = list(itertools.chain.from_iterable(group["params"] for group in optimizer.param_groups))
    if not any(map(is_shared, parameters)) or "state" not in saved:
        return saved
    state = {}
    for number, values in saved["state"].items():
        own = parameters[number] if isinstance(number, int) and number < len(parameters) else None
        is_alike = lambda value: isinstance(value, torch.Tensor) and own is not None and value.shape == own.shape  # noqa: E731
        state[number] = {name: _like(own, value) if is_alike(value) else value for name, value in values.items()}
    return {**saved, "state": state}


def _like(own, value):
    """The part of a whole tensor that this rank holds, as a `DTensor` that is divided as `own` is."""
    if not is_shared(own):
        return value
    from torch.distributed.tensor import distribute_tensor

    here = value.detach().to(own.device_mesh.device_type)
    # Every rank has read the whole: nothing is sent.
    return distribute_tensor(here, own.device_mesh, own.placements, src_data_rank=None)


def is_shared(value):
    torch = sys.modules.get("torch")
    # NumPy refuses the `data` of an array of dates, or of bfloat16.
    if torch is None or not isinstance(value, torch.Tensor):
        return False
    return "DTensor" in (type(value).__name__, type(value.data).__name__)


def expanded(value):
    """An object with `state_dict()` stands for what that returns, and a random number generator for its state."""
    if isinstance(value, (dict, list, tuple)) or isinstance(value, type):
        return value
    kind = generator_of(value)
    if kind is not None:
        return kind[0](value)
    state_dict = getattr(value, "state_dict", None)
    return state_dict() if callable(state_dict) else value


def class_of(value):
    """The name of the class of an object with `state_dict()`, which another class does not understand; None for a module, which is
    wrapped and renamed, and whose tensors have names, and for a generator.
    """
    torch = sys.modules.get("torch")
    is_module = torch is not None and isinstance(value, torch.nn.Module)
    if is_module or isinstance(value, type) or not callable(getattr(value, "state_dict", None)) or generator_of(value) is not None:
        return None
    return value.name if isinstance(value, Standing) else type(value).__name__


def generator_of(value):
    """How the state of a generator of the program's own is read and set, such as that of a sampler; None for anything else."""
    torch, numpy, random = (sys.modules.get(name) for name in ("torch", "numpy", "random"))
    if torch is not None and isinstance(value, torch.Generator):
        return torch.Generator.get_state, lambda generator, state: generator.set_state(state.cpu())
    if numpy is not None and isinstance(value, numpy.random.Generator):
        return (lambda generator: generator.bit_generator.state), lambda generator, state: setattr(generator.bit_generator, "state", state)
    if random is not None and isinstance(value, random.Random):
        return random.Random.getstate, random.Random.setstate
    return None


def refuse_flat(value, path):
    """The first FSDP gives each rank's optimizer a part of one long vector, which belongs to no parameter by name. DeepSpeed's ZeRO
    leaves a rank its part of the optimizer's state, and in stage 3 empty parameters: neither is seen in what `state_dict()` gives.
    `path` says where the value is in the state.
    """
    kind, torch = type(value), sys.modules.get("torch")
    is_module = torch is not None and isinstance(value, torch.nn.Module)
    # Engines and optimizers, and modules whose parameters ZeRO has taken.
    is_taken = is_module and any(hasattr(parameter, "ds_id") for parameter in value.parameters())
    if kind.__module__.split(".")[0] == "deepspeed" or is_taken:
        raise TypeError(
            f"{path()} is {kind.__module__}.{kind.__qualname__}, whose state DeepSpeed has divided among ranks, and which is not saved\n"
            "hint: save with the engine's `save_checkpoint` into `$GRADUS_CHECKPOINTS`, or shard with "
            "`torch.distributed.fsdp.fully_shard` (FSDP2)"
        )
    for group in getattr(value, "param_groups", None) or []:
        for parameter in group.get("params", []) if isinstance(group, dict) else []:
            if hasattr(parameter, "_is_flat_param") or getattr(parameter, "_fsdp_flattened", False):
                raise TypeError(
                    f"{path()} is an optimizer of FullyShardedDataParallel, of whose state each rank has a part without names\n"
                    "hint: shard with `torch.distributed.fsdp.fully_shard` (FSDP2), or save what "
                    "`FullyShardedDataParallel.optim_state_dict(model, optimizer)` returns"
                )


def _same(value, made):
    """A dict of the class of `value`."""
    import collections

    return collections.OrderedDict(made) if isinstance(value, collections.OrderedDict) else made
