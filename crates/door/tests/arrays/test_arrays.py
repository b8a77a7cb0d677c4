"""Programs of JAX and Keras: `cargo xtask wheel --integrations`."""
import importlib.metadata
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import jax
import jax.numpy as jnp
import numpy as np

import gradus
from gradus import _run

HERE = pathlib.Path(__file__).parent

# Says each step, and kills after one.
BEFORE = """
import os, signal
import gradus._run
plain = gradus._run.Run.log
def log(self, step, **metrics):
    plain(self, step, **metrics)
    print("step", step, flush=True)
    if step == int(os.environ.get("DIE", -1)):
        os.kill(os.getpid(), signal.SIGKILL)
gradus._run.Run.log = log
"""
AFTER = {
    "train_jax.py": "arrays = [*jax.tree.leaves(state[:2]), jax.random.key_data(state[2])]\n",
    "train_keras.py": "arrays = [keras.ops.convert_to_numpy(variable) for variable in variables]\n",
}
DIGEST = (
    "import hashlib, numpy\n"
    "print('ended', hashlib.sha256(b''.join(numpy.asarray(array).tobytes() for array in arrays)).hexdigest(), flush=True)\n"
)


class Documented(unittest.TestCase):
    """The programs of the document, killed."""

    def run_program(self, name, folder, **environment):
        text = (HERE / "../../../../docs/own-program.md").resolve().read_text()
        code = text.split(f"```python\n# {name}\n")[1].split("```")[0]
        code = BEFORE + code.replace("gradus.init()", 'gradus.init(save_every="3 steps")') + AFTER[name] + DIGEST
        environment = {**os.environ, "GRADUS_CHECKPOINTS": folder, "GRADUS_RUN": "own-1", "JAX_PLATFORMS": "cpu", **environment}
        command = [sys.executable, "-W", "ignore", "-c", code]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
        lines = [line for line in done.stdout.splitlines() if line.startswith(("step ", "ended "))]
        return done.returncode, lines, done.stderr

    def check(self, name, **environment):
        with tempfile.TemporaryDirectory() as folder:
            code, lines, said = self.run_program(name, os.path.join(folder, "undisturbed"), **environment)
            self.assertEqual((code, lines[:1]), (0, ["step 1"]), said)
            for die in (2, 7, len(lines) - 2):
                with self.subTest(die=die):
                    again = os.path.join(folder, f"die-{die}")
                    code, killed, said = self.run_program(name, again, DIE=str(die), **environment)
                    self.assertEqual((code, killed), (-9, lines[:die]), said)
                    code, resumed, said = self.run_program(name, again, **environment)
                    self.assertEqual((code, resumed[-1]), (0, lines[-1]), said)
                    # A save is asynchronous, so the newest may not have been durable.
                    first, newest = int(resumed[0].split()[1]), (die - 1) // 3 * 3
                    self.assertIn(first, (newest + 1, max(0, newest - 3) + 1, die // 3 * 3 + 1))

    def test_a_program_of_jax_resumes_to_the_same_weights(self):
        print(f"jax {importlib.metadata.version('jax')}, optax {importlib.metadata.version('optax')}")
        self.check("train_jax.py")

    def test_a_program_of_keras_resumes_to_the_same_weights(self):
        print(f"keras {importlib.metadata.version('keras')}")
        for backend in ("jax", "torch"):
            with self.subTest(backend=backend):
                self.check("train_keras.py", KERAS_BACKEND=backend)


class Arrays(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.begun = []

    def tearDown(self):
        for run in self.begun:
            run.finish()
        self.temporary.cleanup()

    def run_of(self):
        _run._current = None
        self.begun.append(gradus.init(checkpoints=self.temporary.name))
        return self.begun[-1]

    def test_arrays_of_every_type_come_back(self):
        types = ("float32", "bfloat16", "float16", "int32", "uint32", "int8", "bool", "complex64", "float8_e4m3fn")
        state = {name: jnp.arange(6).reshape(2, 3).astype(name) for name in types}
        state |= {"none": jnp.zeros((0, 3)), "weak": jnp.asarray(0.5), "whole": jnp.int32(3), "keys": jax.random.split(jax.random.key(1), 2)}
        self.run_of().save({"model": state, "again": [state["float32"]]}, 1, wait=True)
        found = self.run_of().load()
        self.assertEqual(list(found["model"]), list(state))
        for name, array in state.items():
            here = found["model"][name]
            found_as, saved_as = ((each.dtype, each.shape, getattr(each, "weak_type", None)) for each in (here, array))
            self.assertEqual(found_as, saved_as, name)
            bits = jax.random.key_data if name == "keys" else lambda value: value
            self.assertEqual(np.asarray(bits(here)).tobytes(), np.asarray(bits(array)).tobytes(), name)
        self.assertEqual(jax.random.normal(found["model"]["keys"][1]), jax.random.normal(state["keys"][1]))

    def test_arrays_of_numpy_keep_the_types_that_keras_gives_them(self):
        types = ("bfloat16", "float8_e4m3fn", "int4", "float32", "S3")
        state = {name: np.arange(6, dtype="uint8").reshape(2, 3).astype(name) for name in types}
        state |= {"V2": np.zeros(2, "V2"), "M8[D]": np.array(["2026-11-27"], "M8[D]"), "scalar": state["bfloat16"][1, 2]}
        self.run_of().save(state, 1, wait=True)
        # Where the program has not imported what knows these types.
        read = (
            "import gradus, numpy, sys\n"
            f"found = gradus.init(checkpoints={self.temporary.name!r}).load()\n"
            "print(*(f'{name} {array.dtype.name} {array.tobytes().hex()}' for name, array in found.items()), sep='\\n')"
        )
        self.begun.pop().finish()
        done = subprocess.run([sys.executable, "-c", read], capture_output=True, text=True, timeout=300)
        expected = [f"{name} {array.dtype.name} {array.tobytes().hex()}" for name, array in state.items()]
        self.assertEqual(done.stdout.splitlines(), expected, done.stderr)

    def test_arrays_go_where_the_program_has_them(self):
        # The weights are put nowhere: they go along with a batch that is spread over devices.
        program = (
            "import gradus, jax, sys\n"
            "import jax.numpy as jnp\n"
            "devices = jax.devices()\n"
            "jax.config.update('jax_default_device', devices[1])\n"
            "mesh = jax.sharding.Mesh(devices, ('data',))\n"
            "spread = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec('data'))\n"
            "state = {'weights': jnp.ones(4), 'key': jax.random.key(0), 'spread': jax.device_put(jnp.arange(4.0), spread)}\n"
            "run = gradus.init(checkpoints=sys.argv[1])\n"
            "found = run.load(state)\n"
            "if found is None:\n"
            "    run.save(state, 1, wait=True)\n"
            "else:\n"
            "    state |= {'found': found['weights'], 'keys': found['key']}\n"
            "for array in state.values():\n"
            "    print(array.committed, sorted(device.id for device in array.devices()))\n"
            "print(jax.jit(lambda weights, batch: weights @ batch)(state['weights'], state['spread']))\n"
        )
        environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
        put = ["False [1]", "False [1]", "True [0, 1]"]
        for expected in ([*put, "6.0"], [*put, "False [0]", "False [0]", "6.0"]):
            command = [sys.executable, "-W", "ignore", "-c", program, self.temporary.name]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
            self.assertEqual(done.stdout.splitlines(), expected, done.stderr)

    def test_what_cannot_be_saved_is_named(self):
        deleted = jnp.ones(3)
        deleted.delete()
        with self.assertRaisesRegex(TypeError, r"state\['a'\]\[0\] is an array of JAX that was deleted"):
            self.run_of().save({"a": [deleted]}, 1)
        with self.assertRaisesRegex(TypeError, r"state\['a'\] is traced by JAX"):
            jax.jit(lambda value: self.run_of().save({"a": value}, 1))(jnp.ones(3))

    def test_arrays_are_put_in_their_places_or_nothing_is(self):
        self.run_of().save({"a": {"w": jnp.ones((2, 3)), "n": 1}, "b": [jnp.zeros(2, jnp.bfloat16), jax.random.key(5)]}, 1, wait=True)
        fresh = {"a": {"w": jnp.zeros((2, 3)), "n": 0}, "b": [jnp.ones(2), jax.random.key(0)]}
        self.run_of().load(fresh)
        self.assertEqual((fresh["a"]["n"], float(fresh["a"]["w"].sum()), fresh["b"][0].dtype), (1, 6.0, jnp.float32))
        self.assertEqual(fresh["b"][1], jax.random.key(5))
        for objects, kind, words in [
            ({"a": {"w": jnp.zeros((3, 2))}}, ValueError, r"a.w has the shape \[2, 3\] in the checkpoint, and \[3, 2\]"),
            ({"a": {"n": jnp.zeros(1)}}, ValueError, "a.n is of the type `builtins.int` in the checkpoint, and an array of JAX"),
            ({"b": (jnp.zeros(2), jax.random.key(0))}, TypeError, r"b\[0\] is within a tuple, .*\n.*jax.tree.leaves"),
            ({"b": [jnp.zeros(2), jnp.zeros(())]}, ValueError, r"b\[1\] is of key<.*> in the checkpoint, and of float32"),
        ]:
            other = jnp.full(2, 7.0)
            tree = {"b": [other, jax.random.key(0)], **objects}
            with self.assertRaisesRegex(kind, words):
                self.run_of().load(tree)
            self.assertTrue("b" in objects or tree["b"][0] is other)


if __name__ == "__main__":
    unittest.main()
