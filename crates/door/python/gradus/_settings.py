"""Checks of what `gradus.init()` is given, so that an error names the argument: a setting that is taken for another one is noticed
hours later.
"""
import os
import re

from . import _state

# The largest number that counts steps.
I63 = (1 << 63) - 1


def folder(checkpoints, environment):
    """The folder to save to, as an absolute path; None if there is none."""
    name, found = "`checkpoints`", checkpoints
    if checkpoints is None:
        # A variable that is set to nothing names no folder.
        name, found = "$GRADUS_CHECKPOINTS", environment.get("GRADUS_CHECKPOINTS") or None
        if found is None:
            return None
    found = os.fsdecode(found)
    if not found:
        raise ValueError(
            "`checkpoints` is empty, and names no folder\n"
            "hint: \".\" is the current one; with None a program saves where gradus says, and outside of gradus nowhere"
        )
    # `pathlib` makes one slash of two.
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:/", found):
        raise ValueError(
            f"{name} is {found!r}, which is an address, and a program saves to a folder of its machine\n"
            "hint: name a folder; or leave it out, and write `checkpoint_store: s3://BUCKET/PREFIX` into the job file: under "
            "gradus, checkpoints then go to that bucket"
        )
    return os.path.abspath(os.path.expanduser(found))


def check_interval(value):
    """Refuses a number without a unit: seconds to gradus, and steps to most who write one."""
    _check_unit("save_every", value, ("{} steps", "{}s", "{}m"))


def check_mean_time(value):
    """Refuses a number without a unit, as most count in hours, and no time at all."""
    _check_unit("mtbf", value, ("{}h", "{}m"))
    if re.match(r"\s*[0.]", str(value)) and not re.search("[1-9]", str(value)):
        raise ValueError(f"`mtbf` is {value!r}; the mean time between failures is more than 0, such as \"24h\"")


def _check_unit(name, value, forms):
    text = str(value).strip()
    if text.replace(".", "", 1).isdigit():
        *most, last = [f"\"{form.format(text)}\"" for form in forms]
        raise ValueError(f"`{name}` is {value!r}, which has no unit\nhint: write {', '.join(most)} or {last}")


def whole(name, value, most=I63):
    """A whole number that counts from 0."""
    try:
        found = value.__index__()
    except (AttributeError, TypeError):
        raise TypeError(f"`{name}` is {_state._kind(value)}, and not a whole number") from None
    if found < 0:
        raise ValueError(f"`{name}` is {found}, and counts from 0")
    if found > most:
        raise ValueError(f"`{name}` is {found}, and at most {most}")
    return found


def count(name, value, most=I63):
    """A setting that counts something; arguments of a program may come as text."""
    try:
        found = int(value)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"`{name}` is {value!r}, and not a number such as 3") from None
    if not isinstance(value, (str, bytes, bytearray)) and found != value:
        raise ValueError(f"`{name}` is {value!r}, and not a whole number such as {max(found, 1)}")
    return whole(name, found, most)
