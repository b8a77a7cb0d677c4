"""What a program's callable takes."""
import inspect


def parameters(function):
    """The names of its parameters, as far as they are known."""
    try:
        return set(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        # Of some builtins nothing is known.
        return set()
