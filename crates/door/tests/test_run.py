"""A program's run beside real PyTorch: `cargo xtask wheel --test`.

`GRADUS_KILLS` is how many times a training is killed in each test that does, and `GRADUS_SEED` where the draws begin.
"""
import collections
import contextlib
import difflib
import json
import math
import multiprocessing
import os
import pathlib
import random
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import unittest.mock
import warnings

import numpy as np
import torch
from PIL import Image

import gradus
from gradus import _profile, _run, _shards, _state

HERE = pathlib.Path(__file__).parent
KILLS = int(os.environ.get("GRADUS_KILLS", 12))
SEED = int(os.environ.get("GRADUS_SEED", 1))
STEPS = 60


class Fresh(unittest.TestCase):
    """A folder of its own, and a process that has begun no run."""

    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = self.temporary.name
        self.begun = []

    def tearDown(self):
        for run in self.begun:
            run.finish()
        self.temporary.cleanup()

    def run_of(self, **settings):
        """A run that begins as if in a new process."""
        _run._current = None
        run = gradus.init(**{"checkpoints": self.folder, **settings})
        self.begun.append(run)
        return run


class States(unittest.TestCase):
    def back(self, state):
        apart = _state.Apart(state)
        given = {
            kind: {name: (dtype, shape, bytearray(_bytes(held))) for name, (dtype, shape, _, _, held) in tensors.items()}
            for kind, tensors in apart.tensors.items()
        }
        return _state.together(json.loads(json.dumps(apart.tree)), given[True], given[False]), apart

    def test_a_tree_of_everything_comes_back(self):
        state = {
            "none": None, "yes": True, "int": -3, "large": 1 << 90, "float": 0.1 + 0.2, "zero": -0.0, "inf": math.inf,
            "text": "tä\n", "bytes": b"\x00\xff", "list": [1, [2.5, None]], "tuple": (1, ("a",)), "empty": [{}, (), []],
            3: {"keys": {0: "zero", "0": "text", (1, 2): "pair", None: 1, True: 2}}, "dtype": torch.bfloat16,
            "device": torch.device("cuda", 1), "array": np.arange(6.0).reshape(2, 3), "scalar": np.float32(0.5),
            "ordered": collections.OrderedDict([("b", 1), ("a", 2)]),
        }
        found, _ = self.back(state)
        self.assertEqual(list(found), list(state))
        self.assertEqual(list(found["ordered"]), ["b", "a"])
        self.assertTrue(np.array_equal(found.pop("array"), state.pop("array")))
        self.assertEqual(type(found["scalar"]), np.float32)
        self.assertEqual(found, state)
        self.assertEqual(math.copysign(1, found["zero"]), -1)
        self.assertEqual(math.isnan(self.back({"nan": math.nan})[0]["nan"]), True)

    def test_tensors_of_every_type_and_layout_come_back(self):
        types = [
            torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8,
            torch.uint8, torch.bool, torch.complex64, torch.float8_e4m3fn,
        ]
        base = torch.arange(24).reshape(2, 3, 2, 2) % 2
        for dtype in types:
            for tensor in (base.to(dtype), base.to(dtype)[0, 0, 0, 0], base.to(dtype)[:0], base.to(dtype).transpose(0, 1)):
                found = self.back({"t": tensor})[0]["t"]
                self.assertEqual((found.dtype, found.shape), (tensor.dtype, tensor.shape))
                self.assertTrue(torch.equal(found.reshape(-1).view(torch.uint8), tensor.reshape(-1).view(torch.uint8)))
        last = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
        self.assertEqual(self.back({"t": last})[0]["t"].stride(), last.stride())
        slices = torch.randn(4, 6)[:, ::2]
        self.assertTrue(torch.equal(self.back({"t": slices})[0]["t"], slices))
        parameter = torch.nn.Parameter(torch.ones(2), requires_grad=False)
        self.assertEqual(type(self.back({"p": parameter})[0]["p"]), torch.nn.Parameter)

    def test_one_tensor_in_two_places_is_stored_once(self):
        shared = torch.ones(3)
        found, apart = self.back({"a": shared, "b": [shared]})
        self.assertEqual(len(apart.tensors[False]), 1)
        self.assertIs(found["a"], found["b"][0])

    def test_a_model_has_the_names_of_its_module(self):
        model = torch.nn.Linear(2, 2)
        _, apart = self.back({"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.1)})
        self.assertEqual(sorted(apart.tensors[True]), ["bias", "weight"])

    def test_tensors_are_read_where_they_are_and_copied_only_if_they_must_be(self):
        plain, turned = torch.randn(3, 4), torch.randn(3, 4).t()
        imaginary = torch.randn(3, dtype=torch.complex64).conj().imag
        state = {"plain": plain, "parameter": torch.nn.Parameter(plain), "turned": turned, "imaginary": imaginary}
        found, apart = self.back(state)
        addresses = {name: address for name, (_, _, address, _, _) in apart.tensors[False].items()}
        self.assertEqual((addresses["plain"], addresses["parameter"]), (plain.data_ptr(), plain.data_ptr()))
        self.assertNotEqual(addresses["turned"], turned.data_ptr())
        self.assertTrue(all(torch.equal(found[name], tensor) for name, tensor in state.items()))

    def test_an_object_may_stand_for_any_value(self):
        class Standing:
            def __init__(self, value):
                self.value = value

            def state_dict(self):
                return self.value

        values = [None, True, 3, 1 << 70, 0.5, math.inf, "a", b"b", (1, 2), [Standing(4)], {"c": 5}]
        found, _ = self.back({"values": [Standing(value) for value in values]})
        self.assertEqual(found["values"], [*values[:-2], [4], values[-1]])

    def test_the_class_of_an_object_is_kept_with_its_state(self):
        model = torch.nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        state = {"model": model, "parts": [optimizer], "bare": optimizer.state_dict(), "draws": np.random.default_rng(1)}
        # As one rank saves it, and where several have gathered it.
        for each in (state, _shards.whole(state, True)):
            apart, classes = _state.Apart(each), {}
            given = {
                kind: {name: (dtype, shape, bytearray(_bytes(held))) for name, (dtype, shape, _, _, held) in tensors.items()}
                for kind, tensors in apart.tensors.items()
            }
            found = _state.together(json.loads(json.dumps(apart.tree)), given[True], given[False], classes)
            self.assertEqual(classes, {id(found["parts"][0]): "SGD"})
            self.assertEqual(found["parts"][0], found["bare"])

    def test_names_that_meet_are_told_apart(self):
        found, _ = self.back({"a": {"b.c": torch.zeros(1), "b": {"c": torch.ones(1)}}})
        self.assertEqual([found["a"]["b.c"].item(), found["a"]["b"]["c"].item()], [0, 1])

    def test_a_name_that_safetensors_reserves_is_given_another(self):
        state = {"__metadata__": torch.zeros(1), "__metadata__'": torch.ones(1), "model": {"__metadata__": torch.full((1,), 2.0)}}
        found, apart = self.back(state)
        self.assertEqual([found["__metadata__"].item(), found["__metadata__'"].item(), found["model"]["__metadata__"].item()], [0, 1, 2])
        self.assertNotIn("__metadata__", {**apart.tensors[True], **apart.tensors[False]})
        with tempfile.TemporaryDirectory() as folder:
            _run._current = None
            run = gradus.init(checkpoints=folder)
            run.save(state, 1, wait=True)
            self.assertEqual(run.load(), state)
            run.finish()

    def test_what_cannot_be_saved_is_named(self):
        for state, words in [
            ({"a": [object()]}, r"state\['a'\]\[0\] is of the type `builtins.object`"), ([1], "a state is a dict"),
            ({"a": {1, 2}}, "builtins.set"), ({"a": lambda: 0}, "function"),
            ({"a": torch.ones(2, 2).to_sparse()}, "full_state_dict"), ({"a": torch.ones(1, device="meta")}, "without memory"),
            ({b"a": 1}, "the key b'a'"), ({"a": np.array([object()])}, "NumPy array of object"),
            ({"a": [{("b", object()): 1}]}, r"a key of state\['a'\]\[0\]\[1\] is of the type `builtins.object"),
        ]:
            with self.assertRaisesRegex(TypeError, words):
                _state.Apart(state)

    def test_text_that_is_no_unicode_is_named(self):
        name = os.fsdecode(b"caf\xe9.jpg")
        for state, place in [
            ({"files": ["ä", name]}, r"state\['files'\]\[1\]"), ({"a": {name: 1}}, r"a key of state\['a'\]"),
        ]:
            with self.assertRaisesRegex(ValueError, rf"(?s)^{place} is 'caf.udce9.jpg', which is no Unicode.*os.fsencode"):
                _state.Apart(state)
        self.assertEqual(self.back({"ä": "\U0001f600", "b": os.fsencode(name)})[0], {"ä": "\U0001f600", "b": b"caf\xe9.jpg"})

    def test_a_state_that_contains_itself_is_refused(self):
        state = {"a": []}
        state["a"].append(state)
        with self.assertRaisesRegex(TypeError, "too deep to be saved, as one that contains itself"):
            _state.Apart(state)

    def test_a_tensor_that_is_made_of_others_is_refused(self):
        class Wrapped(torch.Tensor):
            @staticmethod
            def __new__(cls, inner):
                made = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)
                made.inner = inner
                return made

            @classmethod
            def __torch_dispatch__(cls, function, types, arguments=(), keywords=None):
                bare = [item.inner if isinstance(item, Wrapped) else item for item in arguments]
                made = function(*bare, **(keywords or {}))
                return Wrapped(made) if isinstance(made, torch.Tensor) else made

        with self.assertRaisesRegex(TypeError, r"state\['a'\] is a Wrapped without memory of its own"):
            _state.Apart({"a": Wrapped(torch.ones(3))})

    def test_generators_continue(self):
        random.seed(3), np.random.seed(4), torch.manual_seed(5)
        random.gauss(0, 1), np.random.randn()
        found = json.loads(json.dumps(_state.generators()))
        draw = lambda: (random.random(), random.gauss(0, 1), np.random.randn(3).tolist(), torch.randn(3).tolist())  # noqa: E731
        expected = draw()
        draw()
        _state.restore_generators(found)
        self.assertEqual(draw(), expected)


def _bytes(held):
    return held.reshape(-1).view(torch.uint8).numpy().tobytes() if isinstance(held, torch.Tensor) else held.tobytes()


class Saving(Fresh):
    def test_a_state_is_loaded_into_what_it_was_saved_from(self):
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
        optimizer = torch.optim.AdamW(model.parameters())
        model(torch.randn(8, 4)).sum().backward()
        optimizer.step()
        run = self.run_of()
        self.assertIsNone(run.load({"model": model}))
        run.save({"model": model, "optimizer": optimizer, "note": "n"}, 7)
        run.wait()
        self.assertEqual((run.saved_step, run.step), (7, 7))
        self.assertGreater(run.stall_ms, 0)
        other = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
        fresh = torch.optim.AdamW(other.parameters())
        run = self.run_of()
        state = run.load({"model": other, "optimizer": fresh})
        self.assertEqual((run.step, state["note"], run.attempt), (7, "n", 2))
        for name, tensor in model.state_dict().items():
            self.assertTrue(torch.equal(tensor, other.state_dict()[name]), name)
        self.assertEqual(str(fresh.state_dict()), str(optimizer.state_dict()))

    def test_the_model_is_a_safetensors_file_that_others_read(self):
        from safetensors.torch import load_file

        model = torch.nn.Linear(3, 2)
        self.run_of().save({"model": model}, 1, wait=True)
        path, = pathlib.Path(self.folder).glob("step-*/model.safetensors")
        torch.nn.Linear(3, 2).load_state_dict(load_file(path))

    def test_a_later_change_is_not_in_what_was_saved(self):
        tensor = torch.zeros(1 << 20)
        run = self.run_of()
        for step in range(1, 6):
            tensor.fill_(step)
            run.save({"t": tensor}, step)
            tensor.fill_(-1)
        run.wait()
        self.assertTrue(torch.equal(self.run_of().load()["t"], torch.full((1 << 20,), 5.0)))
        self.assertEqual(len(list(pathlib.Path(self.folder).glob("manifest-*"))), 3)

    def test_another_shape_is_refused_before_anything_changes(self):
        self.run_of().save({"model": torch.nn.Linear(3, 2), "optimizer": {"lr": 1}}, 1, wait=True)
        model = torch.nn.Linear(3, 4)
        before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        with self.assertRaisesRegex(ValueError, r"model.weight has the shape \[2, 3\] in the checkpoint, and \[4, 3\]"):
            self.run_of().load({"model": model})
        self.assertTrue(all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items()))
        with self.assertRaisesRegex(KeyError, "no 'ema'; it has 'model', 'optimizer'"):
            self.run_of().load({"ema": model})

    def test_a_tree_is_put_back_at_every_depth(self):
        def tree(seed):
            torch.manual_seed(seed)
            model = torch.nn.Linear(3, 2)
            optimizer = torch.optim.AdamW(model.parameters())
            model(torch.randn(4, 3)).sum().backward()
            optimizer.step()
            schedulers = [torch.optim.lr_scheduler.StepLR(optimizer, 2 + seed), {"turn": seed}]
            return {
                "model": model, "train": {"optimizer": optimizer, "schedulers": schedulers}, "ema": torch.randn(3),
                "array": np.arange(3.0) + seed, "best": 0.5 * seed, "history": [0.25] * seed,
            }

        saved, fresh = tree(1), tree(2)
        self.run_of().save(saved, 5, wait=True)
        ema, history = fresh["ema"], fresh["history"]
        self.run_of().load(fresh)
        self.assertEqual(str(fresh["train"]["optimizer"].state_dict()), str(saved["train"]["optimizer"].state_dict()))
        self.assertEqual(fresh["train"]["schedulers"][0].step_size, 3)
        self.assertEqual((fresh["train"]["schedulers"][1], fresh["best"], history), ({"turn": 1}, 0.5, [0.25]))
        self.assertTrue(torch.equal(ema, saved["ema"]) and np.array_equal(fresh["array"], saved["array"]))

    def test_generators_of_the_programs_own_continue(self):
        own = {"a": torch.Generator().manual_seed(3), "b": [np.random.default_rng(4), random.Random(5)]}
        draw = lambda state: (  # noqa: E731
            torch.rand(2, generator=state["a"]).tolist(), state["b"][0].random(2).tolist(), state["b"][1].gauss(0, 1)
        )
        draw(own)
        self.run_of().save(own, 1, wait=True)
        expected = draw(own)
        fresh = {"a": torch.Generator(), "b": [np.random.default_rng(), random.Random()]}
        self.run_of().load(fresh)
        self.assertEqual(draw(fresh), expected)
        with self.assertRaisesRegex(ValueError, r"b\[0\] is of the type `builtins.dict` in the checkpoint"):
            self.run_of().load({"b": [torch.Generator(), random.Random()]})

    def test_what_cannot_be_put_back_is_named_before_anything_changes(self):
        class Odd:
            def state_dict(self):
                return {"a": 1}

        model = torch.nn.Linear(3, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        model(torch.ones(1, 3)).sum().backward()
        optimizer.step()
        state = {"model": model, "train": {"optimizer": optimizer, "parts": [Odd()]}, "none": None}
        self.run_of().save(state, 1, wait=True)
        other, wide = torch.nn.Linear(3, 2), torch.nn.Linear(2, 3)
        before = other.weight.clone()
        for objects, kind, words in [
            ({"train": {"parts": [Odd()]}}, TypeError, r"train.parts\[0\] is of the type .*Odd`, which has no `load_state_dict"),
            ({"train": {"optimizer": object()}}, TypeError, "train.optimizer is of the type `builtins.object`"),
            ({"train": {"ema": other}}, KeyError, "no 'train.ema'; it has 'optimizer', 'parts'"),
            ({"train": {"turn": 1}}, KeyError, "no 'train.turn'"),
            ({"train": {"optimizer": torch.optim.SGD([other.weight], lr=0.1)}}, ValueError, r"groups of \[2\] .* of \[1\]"),
            ({"train": {"optimizer": torch.optim.SGD(wide.parameters(), lr=0.1)}}, ValueError, r"momentum_buffer has the shape"),
            ({"model": torch.nn.Linear(3, 2, bias=False)}, ValueError, "model in the checkpoint has bias, unlike"),
            ({"model": torch.nn.ModuleDict({"module": other})}, ValueError, r"(?s)model in the checkpoint lacks module.w.*`model.module`"),
            ({"none": other}, ValueError, "none is None in the checkpoint"),
            ({"train": {"parts": [other, other]}}, ValueError, "train.parts is 1 items"),
        ]:
            with self.assertRaisesRegex(kind, words):
                self.run_of().load({"model": other, **objects})
            self.assertTrue(torch.equal(other.weight, before))

    def test_a_program_whose_state_cannot_be_saved_fails_at_its_start(self):
        class Odd:
            def state_dict(self):
                return {"a": 1}

        class Scheduler(Odd):
            def state_dict(self):
                return {"rule": self.state_dict}

            def load_state_dict(self, state):
                pass

        class Later(Scheduler):
            def state_dict(self):
                raise RuntimeError("there is none yet")

        class Taker:
            def load_state_dict(self, state):
                pass

        class Reader(Taker):
            def __iter__(self):
                return iter(())

            def state_dict(self):
                begun.append("a loader that is asked may begin to read")

        begun, deep = [], {"a": []}
        deep["a"].append(deep)
        model = torch.nn.Linear(3, 2)
        for state, kind, words in [
            ({"model": model, "f": lambda: 0}, TypeError, r"(?s)f is of the type .*function`, which is neither saved.*leave it out"),
            ({"a": [{1, 2}]}, TypeError, r"a\[0\] is of the type `builtins.set`"), ({"a": Odd()}, TypeError, "no `load_state_dict"),
            ({"a": {b"a": 1}}, TypeError, "the key b'a'"), ({"a": np.array([object()])}, TypeError, "NumPy array of object"),
            ({"a": Scheduler()}, TypeError, r"state\['a'\]\['rule'\] is of the type `builtins.method`"),
            ({"a": "\udce9"}, ValueError, r"state\['a'\] is .* no Unicode"), (deep, TypeError, "as one that contains itself"),
        ]:
            with self.assertRaisesRegex(kind, words):
                self.run_of().load(state)
        # What may have its values, or its state, later on.
        lazy = {"a": torch.nn.LazyLinear(2), "b": Later(), "c": Taker(), "r": Reader(), "d": torch.ones(2, device="meta"), "e": [None, 1, ()]}
        self.assertIsNone(self.run_of().load({"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.1), **lazy}))
        self.assertEqual(begun, [])

    def test_a_type_that_cannot_hold_what_was_saved_is_refused(self):
        saved = {
            "whole": torch.tensor([0, 1000, 2000]), "real": torch.tensor([1.7, 2.9]), "small": torch.tensor([7], dtype=torch.int8),
            "array": np.array([1.7]), "names": np.array(["abc"]), "model": torch.nn.Linear(1, 1).double(),
        }
        self.run_of().save(saved, 1, wait=True)
        narrow = torch.nn.Linear(1, 1)
        narrow.register_parameter("bias", torch.nn.Parameter(torch.zeros(1, dtype=torch.int64), requires_grad=False))
        for objects, words in [
            ({"whole": torch.zeros(3, dtype=torch.int8)}, "whole is of int64 in the checkpoint, and of int8 in this program"),
            ({"whole": torch.zeros(3, dtype=torch.float32)}, "whole is of int64 in the checkpoint, and of float32"),
            ({"real": torch.zeros(2, dtype=torch.int64)}, "real is of float32 in the checkpoint, and of int64"),
            ({"small": torch.zeros(1, dtype=torch.uint8)}, "small is of int8 in the checkpoint, and of uint8"),
            ({"array": np.zeros(1, "i8")}, "array is of float64 in the checkpoint, and of int64"),
            ({"names": np.array(["a"])}, "names is of str96 in the checkpoint, and of str32"),
            ({"model": narrow}, "model.bias is of float64 in the checkpoint, and of int64"),
        ]:
            with self.assertRaisesRegex(ValueError, words):
                self.run_of().load(objects)
        # Those of another width, and larger integers.
        wide = {"real": torch.zeros(2, dtype=torch.bfloat16), "small": torch.zeros(1, dtype=torch.int32), "array": np.zeros(1, "f4")}
        model = torch.nn.Linear(1, 1)
        self.run_of().load({"model": model, **wide})
        self.assertEqual((wide["small"].item(), wide["array"].tolist()), (7, [np.float32(1.7)]))
        self.assertTrue(torch.equal(wide["real"], torch.tensor([1.7, 2.9]).bfloat16()))
        self.assertTrue(torch.equal(model.weight, saved["model"].weight.float()))

    def test_what_cannot_be_written_to_is_named_before_anything_changes(self):
        self.run_of().save({"model": torch.nn.Linear(3, 2), "n": np.ones(3), "t": torch.ones(3)}, 1, wait=True)
        model, array = torch.nn.Linear(3, 2), np.zeros(3)
        array.setflags(write=False)
        tied = torch.nn.Linear(3, 2)
        tied.weight = torch.nn.Parameter(torch.zeros(1, 1).expand(2, 3))
        with torch.inference_mode():
            inferred = torch.zeros(3)
        before = model.weight.clone()
        for objects, words in [
            ({"n": array}, "n is an array that is read-only"), ({"t": torch.zeros(1).expand(3)}, "t is expanded"),
            ({"t": torch.zeros(3, device="meta")}, "t has no memory"), ({"t": inferred}, "t was made in inference mode"),
            ({"model": tied}, "model.weight is expanded"),
        ]:
            with self.assertRaisesRegex(ValueError, words):
                self.run_of().load({"model": model, **objects})
            self.assertTrue(torch.equal(model.weight, before))

    def test_the_state_of_another_class_is_refused(self):
        class Around:
            """Takes the state of any other object."""

            def load_state_dict(self, state):
                self.state = state

        model = torch.nn.Linear(3, 2)
        adam = lambda: torch.optim.AdamW(model.parameters(), lr=0.25)  # noqa: E731
        scheduler = torch.optim.lr_scheduler.StepLR(adam(), 3)
        self.run_of().save({"optimizer": adam(), "parts": [scheduler], "state": adam().state_dict()}, 1, wait=True)
        sgd = torch.optim.SGD(model.parameters(), lr=0.1)
        for objects, words in [
            ({"optimizer": sgd}, "optimizer is the state of a `AdamW` in the checkpoint, and a `SGD` in this program"),
            ({"parts": [torch.optim.lr_scheduler.ExponentialLR(adam(), 0.9)]}, r"parts\[0\] is the state of a `StepLR`"),
        ]:
            with self.assertRaisesRegex(ValueError, words):
                self.run_of().load(objects)
        self.assertEqual(sgd.param_groups[0]["lr"], 0.1)
        # Of a state of no object nothing is known, as of older checkpoints.
        other, around = adam(), Around()
        other.param_groups[0]["lr"] = 0.5
        self.run_of().load({"optimizer": around, "state": other})
        self.assertEqual((around.state["param_groups"][0]["lr"], other.param_groups[0]["lr"]), (0.25, 0.25))

    def test_what_an_object_refuses_by_itself_says_which_it_was(self):
        class Odd:
            def state_dict(self):
                return {"a": 1}

            def load_state_dict(self, state):
                raise KeyError("b")

        self.run_of().save({"parts": [Odd()]}, 1, wait=True)
        with self.assertRaisesRegex(KeyError, "b") as raised:
            self.run_of().load({"parts": [Odd()]})
        if sys.version_info >= (3, 11):
            self.assertRegex(raised.exception.__notes__[0], r"`load_state_dict` of parts\[0\]")

    def test_what_is_no_tree_is_refused_with_what_to_write(self):
        model = torch.nn.Linear(3, 2)
        for is_saved in (False, True):
            for objects in (model, [model]):
                with self.assertRaisesRegex(ValueError, r'(?s)takes a tree .*run.load\(\{"model": …\}\)'):
                    self.run_of().load(objects)
            if not is_saved:
                self.run_of().save({"model": model}, 1, wait=True)

    def test_what_code_of_the_programs_own_accepts_is_not_refused(self):
        class Around(torch.optim.SGD):
            def state_dict(self):
                return {"inner": super().state_dict(), "slow": torch.ones(2)}

            def load_state_dict(self, state):
                super().load_state_dict(state["inner"])

        class Odd:
            def parameters(self, kind):
                raise AssertionError("they are not asked for")

            def state_dict(self):
                return {"a": 1}

        model, wide = torch.nn.Linear(3, 2, bias=False), torch.nn.Linear(3, 2)
        wide.register_load_state_dict_post_hook(lambda module, keys: keys.missing_keys.clear())
        optimizer = Around(model.parameters(), lr=0.5)
        self.run_of().save({"model": model, "optimizer": optimizer, "odd": Odd()}, 1, wait=True)
        other = Around(model.parameters(), lr=0.1)
        self.run_of().load({"model": wide, "optimizer": other})
        self.assertEqual(other.param_groups[0]["lr"], 0.5)
        self.assertTrue(torch.equal(wide.weight, model.weight))

    def test_a_checkpoint_of_another_program_is_refused(self):
        self.run_of(program="gan").save({"a": 1}, 3, wait=True)
        with self.assertRaisesRegex(gradus.CheckpointError, "step 3 .* is of `gan`, and this is `bert`"):
            self.run_of(program="bert").load()
        with self.assertRaisesRegex(gradus.CheckpointError, "step 3 .* is of `gan`, and this is `bert`"):
            self.run_of(program="bert").save({"a": 2}, 3)
        self.assertEqual(self.run_of(program="gan").load(), {"a": 1})

    def test_a_damaged_checkpoint_is_passed_over_with_a_warning(self):
        run = self.run_of()
        run.save({"t": torch.ones(4)}, 1)
        run.save({"t": torch.zeros(4)}, 2, wait=True)
        path, = pathlib.Path(self.folder).glob("step-00000002-*/training.safetensors")
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)
        with self.assertWarnsRegex(gradus.CheckpointWarning, "step 2 is not used: .* checksum"):
            state = self.run_of().load()
        self.assertTrue(torch.equal(state["t"], torch.ones(4)))

    def test_another_process_that_saves_is_refused(self):
        run = self.run_of()
        run.save({"a": 1}, 1, wait=True)
        code = (
            "import gradus, sys\n"
            "try:\n    gradus.init(checkpoints=sys.argv[1])\nexcept gradus.CheckpointError as error:\n    print(error)\n"
        )
        said = subprocess.run([sys.executable, "-c", code, self.folder], capture_output=True, text=True, check=True).stdout
        self.assertIn(f"another process (pid {os.getpid()}) saves to", said)
        self.assertIn("hint: one process saves for all ranks", said)
        # The training that was there first continues.
        run.save({"a": 3}, 2, wait=True)
        self.assertEqual(run.saved_step, 2)

    def test_later_steps_are_not_put_aside_unseen(self):
        self.run_of().save({"a": 1}, 100, wait=True)
        with self.assertRaisesRegex(gradus.CheckpointError, r"step 100, which this program has not loaded"):
            self.run_of().save({"a": 2}, 10)
        self.assertEqual(self.run_of().load(), {"a": 1})

    def test_a_loop_that_starts_over_after_it_was_resumed_is_said_once(self):
        def resumed(*calls):
            """What is warned of in a training that was resumed at step 20 and then makes these calls."""
            folder = tempfile.mkdtemp(dir=self.folder)
            self.run_of(checkpoints=folder).save({"a": 1}, 20, wait=True)
            run = self.run_of(checkpoints=folder)
            run.load()
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                for name, step, values in calls:
                    run.log(step, **values) if name == "log" else run.save({"a": 2}, step, wait=True)
            for each in caught:
                self.assertEqual((each.category, each.filename), (gradus.CheckpointWarning, __file__))
            return [str(each.message).split(": to save")[0] for each in caught]

        said = "training was restored at step 20, and this is step {}"
        loss = {"loss": 1.0}
        self.assertEqual(resumed(("log", 1, loss), ("log", 2, loss), ("save", 2, {})), [said.format(1)])
        self.assertEqual(resumed(("save", 5, {}), ("log", 6, loss)), [said.format(5)])
        self.assertEqual(resumed(("log", 20, loss)), [said.format(20)])
        self.assertEqual(resumed(("log", 19, {"f1": 1.0})), [said.format(19)])
        # It is evaluated as it was restored, and a training that had ended is saved once more.
        self.assertEqual(resumed(("log", 20, {"f1": 1.0}), ("save", 20, {}), ("log", 21, loss), ("save", 21, {})), [])
        run = self.run_of(checkpoints=tempfile.mkdtemp(dir=self.folder))
        self.assertIsNone(run.load())
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            run.log(1, loss=1.0)

    def test_a_full_disk_is_said_and_what_was_durable_stays(self):
        code = (
            "import gradus, resource, signal, sys, torch, warnings\n"
            "warnings.simplefilter('always')\n"
            "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
            "run = gradus.init(checkpoints=sys.argv[1])\n"
            "run.save({'t': torch.ones(10)}, 1, wait=True)\n"
            "resource.setrlimit(resource.RLIMIT_FSIZE, (200000, resource.RLIM_INFINITY))\n"
            "try:\n    run.save({'t': torch.ones(1 << 18)}, 2, wait=True)\n"
            "except gradus.CheckpointError as error:\n    print('error', error)\n"
            "run.save({'t': torch.ones(1 << 18)}, 3)\n"
            "while run.saved_step == 1 and not run.should_stop():\n"
            "    with warnings.catch_warnings(record=True) as caught:\n        warnings.simplefilter('always')\n"
            "        run.log(3, loss=1.0)\n"
            "    if caught:\n        print('warning', caught[0].category.__name__)\n        break\n"
            "resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))\n"
            "print(run.load()['t'].numel())\n"
            "run.save({'t': torch.ones(20)}, 4, wait=True)\nprint(run.saved_step)\n"
        )
        done = subprocess.run([sys.executable, "-c", code, self.folder], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = done.stdout.splitlines()
        self.assertTrue(lines[0].startswith("error "), lines)
        self.assertIn("free some space", done.stdout)
        self.assertIn("`keep=3` needs disk space for 4 states, and `keep=2` for 3", done.stdout)
        self.assertIn("warning CheckpointWarning", lines)
        self.assertEqual(lines[-2:], ["10", "4"])

    def test_a_last_save_that_fails_is_no_good_end(self):
        begin = (
            "import gradus, resource, signal, sys, numpy as np\n"
            "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
            "run = gradus.init(checkpoints=sys.argv[1])\n"
            "run.load()\n"
            "run.save({'a': 5}, 5, wait=True)\n"
            "resource.setrlimit(resource.RLIMIT_FSIZE, (200000, resource.RLIM_INFINITY))\n"
            "run.save({'a': np.ones(1 << 20)}, 10)\n"
        )
        after = "import time\nwhile not caught:\n    time.sleep(0.01)\n    run.log(10, loss=1.0)\n"
        noticed = f"import warnings\nwith warnings.catch_warnings(record=True) as caught:\n    {after.replace(chr(10), chr(10) + '    ')}\n"
        caught = "try:\n    {}\nexcept gradus.CheckpointError as error:\n    assert 'free some space' in str(error)\n"
        waited, waits = caught.format("run.wait()"), caught.format("run.save({'a': np.ones(1 << 20)}, 11, wait=True)")
        finished = caught.format("run.finish()")
        again = "resource.setrlimit(resource.RLIMIT_FSIZE, (-1, -1))\nrun.save({'a': 11}, 11)\n"
        for number, (end, code, step) in enumerate([
            ("", _run.UNSAVED, 5), ("sys.exit(0)", _run.UNSAVED, 5), (noticed, _run.UNSAVED, 5), ("1 / 0", 1, 5),
            ("run.finish()", 1, 5), (noticed + again, 0, 11), (waited, _run.UNSAVED, 5), (waits, _run.UNSAVED, 5),
            (finished, _run.UNSAVED, 5), (waited + finished, _run.UNSAVED, 5), (waited + again, 0, 11), (waited + "1 / 0", 1, 5),
            ("run.wait()", 1, 5),
        ]):
            folder = os.path.join(self.folder, str(number))
            text = f"{begin}print('trained', flush=True)\n{end}\n"
            done = subprocess.run([sys.executable, "-c", text, folder], capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stdout), (code, "trained\n"), (end, done.stderr))
            if code == _run.UNSAVED:
                self.assertRegex(done.stderr, "(?s)gradus: the last checkpoint was not saved: .*free some space.*resume the run")
                self.assertNotIn("Traceback", done.stderr)
                self.assertNotIn("Exception ignored", done.stderr)
            if code == 1:
                # What ends the program by itself is not said twice.
                self.assertEqual(done.stderr.count("no space left"), 1, (end, done.stderr))
            run = self.run_of(checkpoints=folder)
            run.load()
            self.assertEqual(run.step, step, end)

    def test_a_last_save_that_fails_ends_a_spawned_process_too(self):
        limit = 200_000

        def work(log):
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            run = self.run_of()
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
            run.save({"a": np.ones(1 << 20)}, 1)

        # The second log is full, as it is on the disk that the checkpoint does not fit on.
        for written in (0, 2 * limit):
            with self.subTest(written=written), tempfile.TemporaryFile("a+") as log:
                log.write("." * written)
                log.flush()
                child = multiprocessing.get_context("fork").Process(target=work, args=(log,))
                child.start()
                child.join()
                self.assertEqual(child.exitcode, _run.UNSAVED)
                log.seek(written)
                message = "the last checkpoint was not saved" if written == 0 else "^$"
                self.assertRegex(log.read(), message)

    def test_checkpoints_that_were_all_found_damaged_stay(self):
        self.run_of().save({"t": torch.ones(3)}, 1, wait=True)
        path, = pathlib.Path(self.folder).glob("step-*/training.safetensors")
        path.write_bytes(path.read_bytes()[:-1] + b"!")
        run = self.run_of()
        with self.assertRaisesRegex(gradus.CheckpointError, "is as it was written"):
            run.load()
        for step in (2, 3, 4, 5):
            with self.assertRaisesRegex(gradus.CheckpointError, "is as it was written"):
                run.save({"t": torch.ones(3)}, step, wait=True)
        self.assertTrue(path.exists() and pathlib.Path(self.folder, "manifest-00000001.json").exists())

    def test_files_of_others_in_the_folder_stay(self):
        notes = pathlib.Path(self.folder, "notes.tmp")
        notes.write_text("another's")
        run = self.run_of()
        for step in (1, 2):
            run.save({"a": 1}, step, wait=True)
        self.assertEqual(notes.read_text(), "another's")

    def test_a_run_that_is_finished_leaves_signals_to_the_next(self):
        for _ in range(2):
            run = self.run_of()
            self.assertFalse(run.should_stop())
            os.kill(os.getpid(), signal.SIGTERM)
            self.assertTrue(run.should_stop())
            run.finish()
            self.assertEqual(signal.getsignal(signal.SIGTERM), signal.SIG_DFL)

    def test_a_forked_child_has_no_run_and_ends(self):
        run = self.run_of()
        run.save({"a": 1}, 1)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                run.log(1, loss=1.0)
            except RuntimeError as error:
                code = 0 if "begun in another process" in str(error) else 2
            del run
            os._exit(code)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        run.wait()
        self.assertEqual(run.saved_step, 1)

    def test_the_last_save_of_a_spawned_process_is_durable(self):
        def work():
            # 256 MB, which are not written yet when the process ends.
            self.run_of().save({"a": np.ones(1 << 25)}, 1)

        child = multiprocessing.get_context("fork").Process(target=work)
        child.start()
        child.join()
        self.assertEqual(child.exitcode, 0)
        self.assertEqual(self.run_of().load()["a"].shape, (1 << 25,))

    def test_workers_of_a_data_loader_live_beside_a_run(self):
        run = self.run_of()
        data = torch.utils.data.TensorDataset(torch.arange(40.0))
        for step, (x,) in enumerate(torch.utils.data.DataLoader(data, batch_size=4, num_workers=2), 1):
            run.log(step, loss=x.sum())
            run.save({"x": x}, step)
        run.wait()
        self.assertEqual(run.saved_step, 10)

    def test_what_is_no_number_is_refused(self):
        run = self.run_of()
        for value in ("0.5", None, [1], {}, b"1", 1j):
            with self.assertRaisesRegex(TypeError, "`f1` is of the type .*a metric is a number"):
                run.log(1, loss=0.5, f1=value)
        for value, shape in [(torch.ones(2), "2"), (np.ones((3, 1)), "3, 1"), (torch.ones(0), "0")]:
            with self.assertRaisesRegex(TypeError, rf"`f1` has the shape \[{shape}\]; .*\n.*log its mean"):
                run.log(1, loss=0.5, f1=value)
        for value in (1, 0.5, np.float32(2), torch.tensor(3.0), torch.tensor([[4]]), True, float("nan")):
            run.log(1, loss=value, f1=value)
        for value in (np.array([0.5]), np.array([[0.5]]), np.array(0.5), torch.tensor([0.5], requires_grad=True)):
            self.assertEqual(_run._number("f1", value), 0.5)
        for value in (np.array(["0.5"]), np.array("0.5"), np.array([None])):
            with self.assertRaisesRegex(TypeError, "`f1` is of the type"):
                run.log(1, f1=value)
        with self.assertRaisesRegex(ValueError, "`loss` is larger than any float"):
            run.log(1, loss=10**400)
        with self.assertRaisesRegex(ValueError, r"the name of the metric 'caf.udce9' is no Unicode"):
            run.log(1, loss=0.5, **{os.fsdecode(b"caf\xe9"): 1.0})
        run.log(1, loss=0.5, **{"Genauigkeit \u00e4": 1.0})
        self.assertEqual(_run._named({"f1": 1, "step": 2, "lr": 3, "epoch": 4, "samples": 5, "loss": 6}), {"f1": 1})
        for large in ({"samples": 1 << 32}, {"epoch": 1 << 32}):
            with self.assertRaisesRegex(ValueError, "at most 4294967295"):
                run.log(1, loss=1.0, **large)
        for step, words in [("1", "not a whole number"), (1.5, "not a whole number"), (-1, "counts from 0")]:
            with self.assertRaisesRegex((TypeError, ValueError), words):
                run.log(step, loss=1.0)

    def test_settings_that_mean_nothing_are_refused(self):
        for settings, words in [
            ({"save_every": "often"}, "save_every"), ({"mtbf": "x"}, "mtbf"), ({"hang_after": "soon"}, "hang_after"),
            ({"keep": 0}, "at least one"), ({"keep": "many"}, "`keep` is 'many', and not a number"),
            ({"keep": math.inf}, "`keep` is inf"), ({"keep": 1 << 32}, "`keep` is 4294967296, and at most 4294967295"),
            ({"steps": None}, "`steps` is None"), ({"steps": -1}, "`steps` is -1, and counts from 0"),
            ({"save_every": 5}, '(?s)`save_every` is 5, which has no unit.*"5 steps", "5s" or "5m"'),
            ({"save_every": "0.5"}, "`save_every` is '0.5', which has no unit"), ({"hang_after": "0s"}, "(?s)`hang_after`.*`1s`"),
            ({"hang_after": "999ms"}, "`hang_after`"), ({"checkpoints": ""}, "`checkpoints` is empty"),
            ({"mtbf": 24}, '(?s)`mtbf` is 24, which has no unit.*"24h" or "24m"'), ({"mtbf": "0h"}, "`mtbf` is '0h'; .* more than 0"),
            ({"mtbf": "0.0h"}, "more than 0"), ({"keep": 1.5}, "`keep` is 1.5, and not a whole number"), ({"keep": "1.5"}, "`keep`"),
        ]:
            with self.assertRaisesRegex(ValueError, words):
                self.run_of(**settings)
        for program in (None, 5):
            with self.assertRaisesRegex(TypeError, f"`program` is {program}, and not a name"):
                self.run_of(program=program)
        self.assertEqual(self.run_of(keep=2.0, mtbf="1h")._settings[3:5], (2.0, "1h"))
        run = self.run_of()
        self.assertIs(gradus.init(checkpoints=self.folder), run)
        self.assertIs(gradus.init(), run)
        with self.assertRaisesRegex(RuntimeError, "a process has one run"):
            gradus.init(checkpoints=self.folder, keep=1)
        with self.assertRaisesRegex(TypeError, "cannot be pickled"):
            import pickle
            pickle.dumps(run)

    def test_an_address_is_no_folder_and_a_home_folder_is_found(self):
        place = unittest.mock.patch.dict(os.environ, {"HOME": self.folder})
        with place, contextlib.chdir(self.folder) if hasattr(contextlib, "chdir") else contextlib.nullcontext():
            for checkpoints in ("s3://my-bucket/run1", "gs://b", pathlib.Path("s3://my-bucket/run1"), b"https://host/a"):
                with self.assertRaisesRegex(ValueError, "(?s)`checkpoints` is '.*', which is an address.*checkpoint_store: s3://"):
                    self.run_of(checkpoints=checkpoints)
            with unittest.mock.patch.dict(os.environ, {"GRADUS_CHECKPOINTS": "s3://my-bucket/run1"}):
                with self.assertRaisesRegex(ValueError, r"^\$GRADUS_CHECKPOINTS is 's3://my-bucket/run1', which is an address"):
                    self.run_of(checkpoints=None)
            self.assertEqual(os.listdir(self.folder), [])
            for checkpoints, name in [("~/ck", "ck"), ("a:b", "a:b"), (pathlib.Path("c"), "c"), (b"d", "d")]:
                found = self.run_of(checkpoints=checkpoints).checkpoints
                self.assertEqual(os.path.realpath(found), os.path.realpath(os.path.join(os.getcwd(), name)))
            with unittest.mock.patch.dict(os.environ, {"GRADUS_CHECKPOINTS": "~/e"}):
                self.assertEqual(self.run_of(checkpoints=None).checkpoints, os.path.join(self.folder, "e"))

    def test_the_place_of_a_process_is_found_without_torchrun(self):
        for environment, place in [
            ({}, (0, 1, 1)), ({"RANK": "1", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "4"}, (1, 4, 4)),
            # Lightning's own launcher, and Slurm's second node, of which nothing is known.
            ({"LOCAL_RANK": "1", "NODE_RANK": "0", "WORLD_SIZE": "2"}, (1, 2, 1)),
            ({"LOCAL_RANK": "1", "NODE_RANK": "1", "WORLD_SIZE": "4"}, (0, 4, 1)),
        ]:
            self.assertEqual(_run._place(environment), place)
        store = torch.distributed.FileStore(os.path.join(self.folder, "store"), 1)
        torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
        self.addCleanup(torch.distributed.destroy_process_group)
        # Spawned by a program below `gradus run`, which said what it knows of the parent.
        said = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
        self.assertEqual(_run._place(said), (0, 1, 1))
        self.assertFalse(self.run_of().should_save(1))

    def test_outside_of_gradus_it_is_silent(self):
        code = (
            "import gradus\nrun = gradus.init(save_every='1 steps')\nassert run.load() is None\nrun.log(1, loss=0.5)\n"
            "assert not run.should_save(1) and not run.should_stop() and not run.is_attended\n"
            "assert (run.id, run.rank, run.world, run.budget, run.checkpoints) == ('local', 0, 1, None, None)\n"
        )
        environment = {name: value for name, value in os.environ.items() if not name.startswith("GRADUS_")}
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))


class Attended(Fresh):
    """An agent's end of the socket, in this process."""

    def test_a_program_reports_and_stops_when_it_is_told(self):
        path = os.path.join(self.folder, "s")
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        listener.listen()
        environment = {
            **os.environ, "GRADUS_SOCKET": path, "GRADUS_RUN": "own-1", "GRADUS_ATTEMPT_NUMBER": "3",
            "GRADUS_CHECKPOINTS": os.path.join(self.folder, "c"), "GRADUS_BUDGET": "12.500000", "GRADUS_DEADLINE": "60",
        }
        code = (
            "import gradus\nrun = gradus.init()\n"
            "assert (run.id, run.attempt, run.budget, run.deadline, run.is_attended) == ('own-1', 3, 12.5, 60.0, True)\n"
            "run.load()\nstep = 0\n"
            "while not run.should_stop():\n    step += 1\n    run.log(step, loss=0.5, samples=8, **{'val/f1': 0.25})\n"
            "run.save({'a': step}, step)\n"
        )
        program = subprocess.Popen([sys.executable, "-c", code], env=environment)
        connection = listener.accept()[0]
        # Only read: a write to the same text stream would drop what it has read ahead.
        stream = connection.makefile("r")
        reports, listens = [], False
        while not listens or not any(report.get("report") == "metrics" for report in reports):
            reports.append(json.loads(stream.readline()))
            listens |= reports[-1].get("listens", False)
        connection.sendall(b'{"order":"stop"}\n')
        reports += [json.loads(line) for line in stream]
        self.assertEqual(program.wait(), 0)
        kinds = [report.get("report") for report in reports if "report" in report]
        self.assertEqual((kinds[:3], kinds[-1]), (["hello", "ready", "step"], "checkpointed"))
        last = [report for report in reports if report.get("report") == "step"][-1]
        saved = [report for report in reports if report.get("report") == "checkpointed"][-1]
        self.assertEqual((last["loss"], last["samples"], last["step"]), (0.5, 8, saved["step"]))
        # Its last line, after which the connection stays until the process is gone.
        self.assertTrue(reports[-1].get("is_ending"), reports[-1])

    def test_a_program_that_fails_in_its_last_save_says_so(self):
        path = os.path.join(self.folder, "s")
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        listener.listen()
        environment = {**os.environ, "GRADUS_SOCKET": path, "GRADUS_RUN": "own-1", "GRADUS_ATTEMPT_NUMBER": "3"}
        environment["GRADUS_CHECKPOINTS"] = os.path.join(self.folder, "c")
        code = "import gradus\nrun = gradus.init()\nwhile not run.should_stop():\n    pass\nrun.save({'f': print}, 7)\n"
        program = subprocess.Popen([sys.executable, "-c", code], env=environment, stderr=subprocess.PIPE, text=True)
        connection = listener.accept()[0]
        connection.sendall(b'{"order":"stop"}\n')
        reports = [json.loads(line) for line in connection.makefile("r")]
        said = program.communicate()[1]
        self.assertEqual(program.returncode, 1, said)
        last = [report for report in reports if "report" in report][-1]
        self.assertEqual((last["report"], last["cause"]), ("failed", "exit_code"))
        self.assertRegex(last["message"], r"^TypeError: state\['f'\] is of the type .*, which is not saved$")
        self.assertTrue(last["hint"].startswith("save its `state_dict()`"))

    def test_sigterm_is_an_answer_once_the_program_asks(self):
        code = (
            "import gradus, sys\nrun = gradus.init(checkpoints=sys.argv[1])\nrun.should_stop()\nprint('up', flush=True)\n"
            "while not run.should_stop():\n    pass\nrun.save({'a': 1}, 5)\n"
        )
        program = subprocess.Popen([sys.executable, "-c", code, self.folder], stdout=subprocess.PIPE, text=True)
        program.stdout.readline()
        program.terminate()
        self.assertEqual(program.wait(), 0)
        program.stdout.close()
        self.assertEqual(self.run_of().load(), {"a": 1})


class Forks:
    """Processes that `scripts/forks.py` forks, each with its output as a file."""

    def __init__(self, folder):
        self.folder, self.count = folder, 0
        command = [sys.executable, "-W", "ignore", str(HERE / "scripts" / "forks.py")]
        self.server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def start(self, script, arguments, environment):
        self.count += 1
        out = os.path.join(self.folder, f"out-{self.count}")
        os.mkfifo(out)
        request = {"script": str(HERE / "scripts" / script), "arguments": arguments, "environment": environment, "out": out}
        self.server.stdin.write(json.dumps(request) + "\n")
        self.server.stdin.flush()
        number = int(self.server.stdout.readline())
        lines = open(out, encoding="utf-8")
        os.unlink(out)
        return number, lines

    def close(self):
        self.server.stdin.close()
        self.server.wait()
        self.server.stdout.close()


class Killed(Fresh):
    """Trainings that SIGKILL ends at random instants, and that end with the same bits."""

    def setUp(self):
        super().setUp()
        self.forks = Forks(self.folder)
        images = os.path.join(self.folder, "images")
        draws = np.random.default_rng(5)
        patterns = draws.integers(0, 200, (10, 8, 8, 3))
        for number in range(200):
            label = number % 10
            os.makedirs(os.path.join(images, f"c{label}"), exist_ok=True)
            pixels = (patterns[label] + draws.integers(0, 56, (8, 8, 3))).astype(np.uint8)
            Image.fromarray(pixels).save(os.path.join(images, f"c{label}", f"{number:03}.png"))
        self.images = images

    def tearDown(self):
        self.forks.close()
        super().tearDown()

    def start(self, script, folder, world, model):
        port = free_port()
        processes = []
        for rank in range(world):
            environment = {
                "RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(world), "LOCAL_RANK": str(rank),
                "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GRADUS_RUN": "own-1", "GLOO_SOCKET_IFNAME": "lo",
                "OWN_IMAGES": self.images,
            }
            if folder:
                environment["OWN_CHECKPOINTS"] = folder
            processes.append(self.forks.start(script, ["--steps", str(STEPS), "--model", model], environment))
        return processes

    def end(self, processes):
        """Kills what still runs, and reads what each has written."""
        for number, _ in processes:
            try:
                os.kill(number, signal.SIGKILL)
            except ProcessLookupError:
                pass
        return [self.read(lines) for _, lines in processes]

    def read(self, lines):
        with lines:
            return lines.read().splitlines()

    def ended(self, processes, before=()):
        """The lines of rank 0 of processes that end by themselves, of which those `before` were read already."""
        outputs = [self.read(lines) for _, lines in processes]
        outputs[0] = [*before, *outputs[0]]
        self.assertEqual([lines[-1] for lines in outputs], ["exit 0"] * len(outputs))
        return outputs[0][:-1]

    def undisturbed(self, script, world, model):
        lines = self.ended(self.start(script, None, world, model))
        self.assertEqual(len(lines), STEPS + 2)
        if script == "train.py":
            # Of the images that are held out; those of the loader are others.
            self.assertGreater(float(lines[-2].split()[1]), 0.2, "it learns")
        return lines

    def check(self, script, world, model, kills, seed):
        plain = "train.py" if script == "train_saved.py" else script
        expected = self.undisturbed(plain, world, model)
        draws = random.Random(seed)
        print(f"{script} {model}, seed {seed}: {kills} kills of {world} processes")
        killed, made, repeated = 0, 0, 0
        while killed < kills:
            folder = os.path.join(self.folder, f"{script}-{model}-w{world}-{made}")
            made, reached = made + 1, 0
            while True:
                processes = self.start(script, folder, world, model)
                # After so many lines of this attempt, and a fraction of a step.
                left, beyond = draws.randrange(0, STEPS // 2), draws.random() * 0.004
                lines = []
                while killed < kills and len(lines) < left and (line := processes[0][1].readline()):
                    lines.append(line.rstrip())
                is_killed = killed < kills and len(lines) == left
                if is_killed:
                    time.sleep(beyond)
                    lines += self.end(processes)[0]
                    killed += 1
                else:
                    lines = self.ended(processes, lines)
                first, last = self.steps(lines, expected)
                if first is not None:
                    repeated = max(repeated, reached + 1 - first)
                    reached = max(reached, last)
                if not is_killed:
                    break
            self.assertEqual(lines[-1], expected[-1], f"the weights of an undisturbed run; seed {seed}")
        # It saves after every seventh step, and the newest save may not have been durable.
        self.assertLessEqual(repeated, 14)
        print(f"{script} {model}: at most {repeated} steps were repeated")

    def steps(self, lines, expected):
        """Each step that was made again had the same loss; the first and the last step."""
        steps = [line for line in lines if line.startswith("step ")]
        for line in steps:
            # The last line may be cut.
            known = expected[int(line.split()[1]) - 1] if len(line.split()) == 4 else line
            self.assertTrue(known.startswith(line), (line, known))
        numbers = [int(line.split()[1]) for line in steps if len(line.split()) == 4]
        return (numbers[0], numbers[-1]) if numbers else (None, None)

    def test_the_weights_at_the_end_are_those_of_an_undisturbed_run(self):
        self.check("train_saved.py", 1, "cnn", KILLS, SEED)

    def test_the_same_of_a_transformer(self):
        self.check("train_saved.py", 1, "transformer", max(1, KILLS // 3), SEED + 2)

    def test_the_same_with_two_processes(self):
        self.check("train_saved.py", 2, "cnn", max(1, KILLS // 3), SEED + 1)

    def test_the_same_with_the_loader(self):
        self.check("train_loaded.py", 1, "cnn", max(1, KILLS // 3), SEED + 3)

    def test_the_same_with_the_loader_and_two_processes(self):
        self.check("train_loaded.py", 2, "cnn", max(1, KILLS // 6), SEED + 4)

    def test_the_scripts_differ_by_the_lines_that_are_added(self):
        texts = [(HERE / "scripts" / name).read_text().splitlines() for name in ("train.py", "train_saved.py")]
        added = [line for line in difflib.ndiff(*texts) if line.startswith("+ ")]
        removed = [line for line in difflib.ndiff(*texts) if line.startswith("- ")]
        self.assertEqual((len(removed), len(added)), (2, 10), "a docstring and the `for`; import, begin, load, log, save, stop")


class Sharded(Fresh):
    """Parameters that FSDP2 divides among ranks."""

    def train(self, folder, world, until):
        forks = Forks(self.folder)
        port = free_port()
        processes = []
        for rank in range(world):
            environment = {
                "RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(world), "LOCAL_RANK": str(rank),
                "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo",
            }
            arguments = [os.path.join(self.folder, folder), "--until", str(until)]
            processes.append(forks.start("train_sharded.py", arguments, environment))
        outputs = []
        for _, lines in processes:
            with lines:
                outputs.append(lines.read().splitlines())
        forks.close()
        self.assertEqual([lines[-1] for lines in outputs], ["exit 0"] * world, outputs)
        return outputs[0][0]

    def test_any_number_of_ranks_continues_with_the_same_bits(self):
        expected = self.train("undisturbed", 2, 12)
        self.train("resumed", 2, 4)
        self.train("resumed", 1, 8)
        self.assertEqual(self.train("resumed", 2, 12), expected)

    def test_ranks_that_save_by_the_clock_save_as_often_as_one(self):
        code = (
            "import gradus, os, sys, time, torch\n"
            "torch.distributed.init_process_group('gloo')\n"
            "run, saved = gradus.init(checkpoints=sys.argv[1], save_every='1s'), 0\n"
            "for step in range(1, 121):\n"
            "    time.sleep(0.02)\n"
            "    if run.should_save(step):\n        saved += 1\n        run.save({'a': step}, step)\n"
            "run.finish()\nprint(saved, flush=True)\nos._exit(0)\n"
        )
        port, processes = free_port(), []
        for rank in range(2):
            environment = {
                **os.environ, "RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "LOCAL_RANK": str(rank),
                "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo",
            }
            command = [sys.executable, "-c", code, self.folder]
            processes.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True))
        saved = [process.communicate()[0].strip() for process in processes]
        self.assertEqual(saved[0], saved[1])
        # 120 steps take 2.4 seconds and more; after the first second each was saved.
        self.assertIn(int(saved[0]), range(1, 20))
        self.assertEqual(sorted(self.run_of().load()), ["a"])

    def test_parts_without_a_process_group_are_refused_and_not_saved_as_the_whole(self):
        from torch.distributed.tensor import Shard, distribute_tensor

        torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
        try:
            mesh = torch.distributed.init_device_mesh("cpu", (1,))
            shared = distribute_tensor(torch.ones(4), mesh, [Shard(0)])
            others = np.ones(2), np.array(["2026-11-27"], "M8[D]")
            self.run_of().save({"a": shared, "b": (shared, *others)}, 1, wait=True)
        finally:
            torch.distributed.destroy_process_group()
        self.assertTrue(torch.equal(self.run_of().load()["b"][0], torch.ones(4)))
        with self.assertRaisesRegex(TypeError, r"state\['a'\] is a part of a tensor that ranks share, and .* has ended"):
            self.run_of().save({"a": shared}, 2)

    def test_what_zero_has_divided_is_refused_and_not_saved_in_part(self):
        model = torch.nn.Linear(2, 2)
        model.weight.ds_id = 0
        engine = type("DeepSpeedZeroOptimizer", (), {"__module__": "deepspeed.runtime.zero", "state_dict": lambda self: {}})()
        for state, words in [({"model": model}, r"state\['model'\] is .*Linear, whose state DeepSpeed"), ({"a": [engine]}, r"state\['a'\]\[0\]")]:
            with self.assertRaisesRegex(TypeError, words):
                self.run_of().save(state, 1)

    def test_the_first_fsdp_is_refused_and_not_saved_in_part(self):
        parameter = torch.nn.Parameter(torch.ones(3))
        parameter._fsdp_flattened = True
        optimizer = torch.optim.SGD([parameter], lr=0.1)
        with self.assertRaisesRegex(TypeError, r"state\['optimizer'\] is an optimizer of FullyShardedDataParallel"):
            self.run_of().save({"optimizer": optimizer}, 1)


class Profiled(Fresh):
    def profiled(self, rest):
        """What is written for a plan from three steps after the first, of a program whose steps have no loss."""
        to = os.path.join(self.folder, "profile.json")
        code = f"import sys, gradus\nrun = gradus.init()\nfor step in range(1, 9):\n    run.log(step, acc=0.5)\n{rest}"
        environment = {**os.environ, "GRADUS_PROFILE": "3", "GRADUS_PROFILE_TO": to}
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
        found = json.loads(pathlib.Path(to).read_text())
        self.assertTrue(os.path.exists(to + ".first"))
        return done.returncode, [step for step, _ in found["steps"]], found["failed"]

    def test_the_newest_step_is_noted_once_a_second(self):
        path = os.path.join(self.folder, "profile.json")
        profile, noted = _profile.Profile(9, path, 0), []
        for step, now in [(1, 10.0), (2, 10.5), (3, 11.0), (4, 11.2)]:
            with unittest.mock.patch("gradus._profile.time.monotonic", return_value=now):
                profile.logged(step, 0)
            noted.append(pathlib.Path(path + ".first").read_text())
        self.assertEqual(noted, ["1", "1", "3", "3"])

    def test_any_log_of_a_step_counts(self):
        self.assertEqual(self.profiled(""), (0, [1, 2, 3, 4], False))

    def test_a_program_that_raises_says_so(self):
        self.assertEqual(self.profiled("    if step == 2: raise KeyError(step)"), (1, [1, 2], True))
        self.assertEqual(self.profiled("    if step == 2: sys.exit(4)"), (4, [1, 2], False))


class Documented(Fresh):
    def test_the_script_of_the_document_runs_and_resumes(self):
        text = (HERE / "../../../docs/own-program.md").resolve().read_text()
        code = text.split("```python\n# train.py\n")[1].split("```")[0]
        environment = {**os.environ, "GRADUS_CHECKPOINTS": self.folder, "GRADUS_RUN": "doc-1"}
        code = code.replace("gradus.init()", 'gradus.init(save_every="50 steps")')
        for attempt in ("1", "3"):
            environment["GRADUS_ATTEMPT_NUMBER"] = attempt
            done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
            run = self.run_of()
            self.assertEqual(sorted(run.load()), ["model", "optimizer"])
            self.assertEqual(run.step, 200)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


if __name__ == "__main__":
    unittest.main()
