"""Checks of what loaders are given, so that an error names the argument."""
import collections.abc

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


def begun(state):
    """The epoch and the position of what `state_dict` gave."""
    if not isinstance(state, collections.abc.Mapping):
        raise TypeError(f"`state` is {_state._kind(state)}, and not the dict that `state_dict()` of a loader has given")
    missing = [key for key in ("epoch", "pos") if key not in state]
    if missing:
        raise ValueError(f"`state` has no `{missing[0]}`, so it is not what `state_dict()` of a loader has given")
    return tuple(whole(f"state[{key!r}]", state[key]) for key in ("epoch", "pos"))
