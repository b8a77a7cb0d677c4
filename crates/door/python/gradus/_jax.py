"""Arrays of JAX in a state, and its typed keys of random numbers. In the processor's memory they are read where they are. What is
loaded is there, and JAX moves it when it is used; or it is where the program has what it replaces.
"""
import contextlib
import sys


def is_array(value):
    """Whether a value is an array of JAX, as far as the program has imported it."""
    return isinstance(value, getattr(sys.modules.get("jax"), "Array", ()))


def taken(value, place):
    """The node of an array, and its values as an array of NumPy's. `place` says where it is in the state."""
    import jax
    import numpy

    if isinstance(value, jax.core.Tracer):
        raise TypeError(f"{place()} is traced by JAX, and has no values yet\nhint: save outside of `jax.jit`")
    if not value.is_fully_addressable:
        raise TypeError(
            f"{place()} is an array of JAX that other processes have parts of, which is not saved\n"
            "hint: gather it first: jax.experimental.multihost_utils.process_allgather(…, tiled=True)"
        )
    if value.is_deleted():
        raise TypeError(f"{place()} is an array of JAX that was deleted or donated\nhint: save what the step has returned")
    # A number without a type of its own, which takes that of the other side.
    extra = {"weak": True} if getattr(value, "weak_type", False) and not value.shape else {}
    if jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
        extra, value = {"key": str(jax.random.key_impl(value))}, jax.random.key_data(value)
    here = numpy.ascontiguousarray(value)
    return {"shape": list(value.shape), "jax": here.dtype.name, **extra}, here


def made(node, held):
    """The array of a node and its bytes."""
    import jax

    try:
        # A state that is spread over several GPUs has no place in the first one's memory.
        here = jax.default_device(jax.local_devices(backend="cpu")[0])
    except RuntimeError:
        # `JAX_PLATFORMS` leaves the processor out.
        here = contextlib.nullcontext()
    with here:
        return _array(jax, node, held)


def _array(jax, node, held):
    import numpy

    array = numpy.frombuffer(held, numpy.dtype(node["jax"])).reshape(node["shape"])
    if node.get("weak"):
        return jax.numpy.asarray(array.item())
    found = jax.numpy.array(array)
    if found.dtype != array.dtype:
        raise ValueError(
            f"the checkpoint has an array of {array.dtype}, which JAX would make one of {found.dtype}\n"
            "hint: jax.config.update(\"jax_enable_x64\", True), as where it was saved"
        )
    return jax.random.wrap_key_data(found, impl=node["key"]) if "key" in node else found


def like(saved, target):
    """A loaded array of the type of the target, and where that is; None if it cannot be of that type. What the program has put
    nowhere (`committed`) stays free to go along with arrays on other devices.
    """
    import jax

    if saved.dtype != target.dtype:
        if any(jax.dtypes.issubdtype(each.dtype, jax.dtypes.prng_key) for each in (saved, target)):
            return None
        saved = saved.astype(target.dtype)
    return jax.device_put(saved, target.sharding) if getattr(target, "committed", True) else jax.numpy.copy(saved)
