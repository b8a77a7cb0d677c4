"""Checks of what loaders are given, so that an error names the argument."""
import collections.abc
import json

from .. import _state

# The largest numbers that native loaders take.
U32, U64 = (1 << 32) - 1, (1 << 64) - 1

# Sides of images in pixels.
SIZES = (8, 4096)


def whole(name, value, least=0, most=U64):
    """A whole number within limits.

    Raises TypeError for what is no whole number, and ValueError for one outside of the limits.
    """
    try:
        found = value.__index__()
    except (AttributeError, TypeError):
        raise TypeError(f"`{name}` is {_state._kind(value)}, and not a whole number") from None
    if least <= found <= most:
        return found
    raise ValueError(f"`{name}` is {found}, and must be " + (f"at least {least}" if found < least else f"at most {most}"))


# The augmentations of images with a class, as in a job file.
_AUGMENTATIONS = (
    "random_resized_crop", "resize_crop", "flip", "pad_crop", "color_jitter", "auto_augment", "trivial_augment",
    "random_erasing", "rand_augment", "mixup", "cutmix",
)


def augmented(augment, known=_AUGMENTATIONS):
    """A list of augmentations as JSON. What is in it is checked as in a job file; text would be a list of its letters."""
    if isinstance(augment, (str, bytes, collections.abc.Mapping)) or not isinstance(augment, collections.abc.Iterable):
        example = json.dumps([augment if isinstance(augment, (str, dict)) else known[0]], default=repr)
        raise ValueError(
            f"`augment` is {augment!r}, and takes a list of augmentations\n"
            f"hint: write `augment={example}`; there are {', '.join(known)}"
        )
    return json.dumps(list(augment))


def begun(state):
    """The epoch and the position of what `state_dict` gave."""
    if not isinstance(state, collections.abc.Mapping):
        raise TypeError(f"`state` is {_state._kind(state)}, and not the dict that `state_dict()` of a loader has given")
    missing = [key for key in ("epoch", "pos") if key not in state]
    if missing:
        raise ValueError(f"`state` has no `{missing[0]}`, so it is not what `state_dict()` of a loader has given")
    return tuple(whole(f"state[{key!r}]", state[key]) for key in ("epoch", "pos"))
