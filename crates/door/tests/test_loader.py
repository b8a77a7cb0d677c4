"""The loader, from a PyTorch loop: `cargo xtask wheel --test`."""
import gc
import os
import pickle
import signal
import tempfile
import threading
import unittest
import unittest.mock
import warnings

import numpy as np
import torch
from PIL import Image

import gradus

COUNT = 53
OPTIONS = {"size": 32, "workers": 2, "seed": 5}


class Wrapped(torch.utils.data.IterableDataset):
    """The loader below a DataLoader; here, because spawned workers get it pickled by its name."""

    def __init__(self, loader):
        self.loader = loader

    def __iter__(self):
        return iter(self.loader)


class Loading(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        rng = np.random.default_rng(1)
        for number in range(COUNT):
            target = os.path.join(cls.folder.name, f"c{number % 3}")
            os.makedirs(target, exist_ok=True)
            pixels = rng.integers(0, 256, (48 + number % 5, 64, 3), np.uint8)
            Image.fromarray(pixels).save(os.path.join(target, f"{number:03}.jpg"), quality=95)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def loader(self, recipe="imagenet-train", batch=8, **options):
        return gradus.Loader(self.folder.name, recipe, batch, **{**OPTIONS, **options})

    def epoch(self, loader):
        return [(x.clone(), y.clone()) for x, y in loader]

    def same(self, one, other):
        self.assertEqual(len(one), len(other))
        for (a, b), (c, d) in zip(one, other):
            self.assertTrue(torch.equal(a, c) and torch.equal(b, d))

    def test_an_epoch_has_every_label_and_tensors_of_the_right_kind(self):
        loader = self.loader()
        self.assertEqual((len(loader), loader.classes), (7, ["c0", "c1", "c2"]))
        batches = self.epoch(loader)
        self.assertEqual([len(y) for _, y in batches], [8] * 6 + [5])
        self.assertEqual(batches[0][0].shape, (8, 3, 32, 32))
        self.assertEqual((batches[0][0].dtype, batches[0][1].dtype), (torch.float32, torch.int64))
        counts = torch.bincount(torch.cat([y for _, y in batches])).tolist()
        self.assertEqual(counts, [18, 18, 17])
        again = self.epoch(loader)
        self.assertFalse(torch.equal(again[0][0], batches[0][0]))
        self.same(self.epoch(self.loader()), batches)

    def test_an_epoch_can_be_named_as_with_a_sampler(self):
        one, other = self.loader(), self.loader()
        epochs = [self.epoch(one) for _ in range(3)]
        other.set_epoch(2)
        self.same(self.epoch(other), epochs[2])
        other.set_epoch(0)
        iterator = iter(other)
        first = next(iterator)
        # The epoch that has begun goes on.
        other.set_epoch(0)
        self.same([(first[0], first[1]), *self.epoch(other)], epochs[0])
        with self.assertRaisesRegex(ValueError, "no epoch -1"):
            other.set_epoch(-1)

    def test_nothing_is_copied_and_memory_outlives_the_loader(self):
        loader = self.loader()
        images, labels, _, _ = loader._inner.next()
        x, y = torch.from_dlpack(images), torch.from_dlpack(labels)
        self.assertEqual((x.data_ptr(), y.data_ptr()), (images.pointer, labels.pointer))
        kept, wanted = x, x.clone()
        del loader, images, labels, x, y
        gc.collect()
        self.assertTrue(torch.equal(kept, wanted))

    def test_memory_is_handed_over_once_and_may_be_written_to(self):
        images, labels, _, _ = self.loader()._inner.next()
        copy = torch.utils.dlpack.from_dlpack(images.__dlpack__(copy=True))
        x, y = torch.from_dlpack(images), torch.from_dlpack(labels)
        self.assertNotEqual(copy.data_ptr(), x.data_ptr())
        self.assertTrue(torch.equal(copy, x))
        for taken in (images, labels):
            for take in (torch.from_dlpack, np.from_dlpack):
                with self.assertRaisesRegex(BufferError, "handed over already"):
                    take(taken)
        before, wanted = copy.clone(), copy + 1
        x.add_(1)
        y.add_(1)
        self.assertTrue(torch.equal(x, wanted))
        self.assertTrue(torch.equal(copy, before))

    def test_writing_to_batches_changes_no_other(self):
        wanted = self.epoch(self.loader())
        found = []
        for x, y in self.loader():
            found.append((x.clone(), y.clone()))
            x.fill_(float("nan"))
            y.fill_(-1)
        self.same(found, wanted)

    def test_held_batches_are_not_written_to(self):
        held = [x for x, _ in self.loader()]
        self.same([(x, x) for x in held], [(x, x) for x, _ in self.epoch(self.loader())])

    def test_a_capsule_that_nobody_takes_is_freed(self):
        loader = self.loader(batch=16)
        for _ in range(200):
            images, labels, _, _ = loader._inner.next()
            images.__dlpack__(), labels.__dlpack__()
        pointers = set()
        for _ in range(100):
            images, _, _, _ = loader._inner.next()
            pointers.add(images.pointer)
        self.assertLess(len(pointers), 10)

    def test_a_run_goes_on_with_another_world(self):
        wanted = self.epoch(self.loader())
        loader = self.loader()
        batches = iter(loader)
        for _ in range(3):
            next(batches)
        state = loader.state_dict()
        ranks = [self.loader(rank=rank, world=3, workers=rank) for rank in range(3)]
        for rank in ranks:
            rank.load_state_dict(state)
        shares = [self.epoch(rank) for rank in ranks]
        joined = [(torch.cat([x for x, _ in parts]), torch.cat([y for _, y in parts])) for parts in zip(*shares)]
        self.same(joined, wanted[3:])
        self.assertEqual(ranks[0].state_dict(), {**state, "epoch": 1, "pos": 0})

    def test_a_rank_that_has_all_samples_is_told(self):
        with unittest.mock.patch.dict(os.environ, {"RANK": "1", "WORLD_SIZE": "2"}):
            with self.assertWarnsRegex(UserWarning, r"(?s)one of 2 ranks, .* rank=1, world=2"):
                self.loader()
            with self.assertWarnsRegex(UserWarning, r"(?s)one of 2 ranks, .* has rank 0's samples .* rank=1, world=2"):
                self.loader(world=2)
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                self.loader(world=1), self.loader(rank=1, world=2), self.loader("imagenet-val")

    def test_no_rank_has_an_empty_batch_or_fewer_batches(self):
        # The last of 7 batches has 5 samples.
        whole = self.epoch(self.loader())
        for recipe in ("imagenet-train", "imagenet-val"):
            shares = [self.epoch(self.loader(recipe, rank=rank, world=8)) for rank in range(8)]
            self.assertEqual([[len(y) for _, y in share] for share in shares], [[1] * 7] * 8)
            for share in shares[5:]:
                self.assertTrue(torch.equal(share[-1][0], shares[4][-1][0]))
            if recipe == "imagenet-train":
                joined = torch.cat([share[-1][0] for share in shares[:5]])
                self.assertTrue(torch.equal(joined, whole[-1][0]))
        shares = [self.epoch(self.loader("imagenet-val", rank=rank, world=8, pad=False)) for rank in range(8)]
        self.assertEqual([len(share[-1][1]) for share in shares], [1] * 5 + [0] * 3)

    def test_breaking_off_goes_on_where_it_was(self):
        loader, parts = self.loader(), []
        for stop in (2, 1, 4, 9):
            for x, y in loader:
                parts.append((x.clone(), y.clone()))
                stop -= 1
                if stop == 0:
                    break
        whole = self.loader()
        self.same(parts, (self.epoch(whole) + self.epoch(whole) + self.epoch(whole))[: len(parts)])

    def test_evaluation_is_the_same_every_time(self):
        loader = self.loader("imagenet-val")
        first = self.epoch(loader)
        self.assertEqual(sum(len(y) for _, y in first), COUNT)
        self.same(first, self.epoch(loader))
        self.same(first, self.epoch(self.loader("imagenet-val", seed=5, workers=0)))

    def test_a_look_at_the_first_batch_does_not_shorten_evaluation(self):
        loader = self.loader("imagenet-val")
        whole = self.epoch(loader)
        next(iter(loader))
        self.same(self.epoch(loader), whole)
        batches = iter(loader)
        next(batches), next(batches)
        state = loader.state_dict()
        self.same(self.epoch(loader), whole)
        other = self.loader("imagenet-val")
        other.load_state_dict(state)
        self.same(self.epoch(other), whole[2:])
        self.same(self.epoch(other), whole)

    def test_a_forked_child_is_refused_and_ends(self):
        loader = self.loader()
        batch = next(iter(loader))
        child = os.fork()
        if child == 0:
            code = 1
            try:
                next(loader)
            except RuntimeError as error:
                code = 0 if "make the loader in the process" in str(error) else 2
            del loader, batch
            gc.collect()
            os._exit(code)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        self.assertEqual(len(self.epoch(loader)), 6)
        with self.assertRaisesRegex(TypeError, "cannot be pickled"):
            pickle.dumps(loader)

    def test_workers_of_a_data_loader_are_refused(self):
        workers = {"batch_size": None, "num_workers": 2, "timeout": 60}
        with self.assertRaisesRegex(RuntimeError, "made in another process"):
            next(iter(torch.utils.data.DataLoader(Wrapped(self.loader()), multiprocessing_context="fork", **workers)))
        with self.assertRaisesRegex(TypeError, "cannot be pickled"):
            next(iter(torch.utils.data.DataLoader(Wrapped(self.loader()), multiprocessing_context="spawn", **workers)))

    def test_a_corrupt_image_is_met_again(self):
        with tempfile.TemporaryDirectory() as folder:
            for number in range(40):
                target = os.path.join(folder, f"c{number % 2}")
                os.makedirs(target, exist_ok=True)
                image = Image.fromarray(np.full((40, 40, 3), number, np.uint8))
                image.save(os.path.join(target, f"{number:03}.png"))
            with open(os.path.join(folder, "c0", "038.png"), "wb") as file:
                file.write(b"no image")
            loader = gradus.Loader(folder, "imagenet-val", 8, **OPTIONS)
            for _ in range(3):
                with self.assertRaisesRegex(RuntimeError, "(?s)038.png.*skip_corrupt=True"):
                    self.epoch(loader)
            # Decoded when it is made.
            with self.assertRaisesRegex(RuntimeError, "(?s)038.png.*skip_corrupt=True"):
                gradus.Loader(folder, "small-images", 8, **OPTIONS)
            self.assertEqual(len(gradus.Loader(folder, "small-images", 13, skip_corrupt=True, **OPTIONS)), 3)

    def test_an_interrupt_ends_the_wait_for_a_large_batch_and_loses_nothing(self):
        with tempfile.TemporaryDirectory() as folder:
            rng = np.random.default_rng(2)
            for number in range(300):
                target = os.path.join(folder, f"c{number % 2}")
                os.makedirs(target, exist_ok=True)
                pixels = rng.integers(0, 256, (1200, 1200, 3), np.uint8)
                Image.fromarray(pixels).save(os.path.join(target, f"{number:03}.jpg"), quality=95)
            expected, _ = next(gradus.Loader(folder, "imagenet-train", 300, **OPTIONS))
            loader = gradus.Loader(folder, "imagenet-train", 300, **OPTIONS)
            timer = threading.Timer(0.3, os.kill, [os.getpid(), signal.SIGINT])
            # A shell ignores the signal in what it runs in the background.
            before = signal.signal(signal.SIGINT, signal.default_int_handler)
            self.addCleanup(signal.signal, signal.SIGINT, before)
            timer.start()
            with self.assertRaises(KeyboardInterrupt):
                next(loader)
            self.assertTrue(0 < loader.measured["samples"] < 300, "it waits for no whole batch")
            found, _ = next(loader)
            self.assertTrue(torch.equal(found, expected))

    def test_a_state_knows_what_it_is_of(self):
        loader = self.loader()
        state = loader.state_dict()
        with self.assertRaisesRegex(ValueError, "recipe is imagenet-val"):
            loader.load_state_dict({**state, "recipe": "imagenet-val"})
        with self.assertRaisesRegex(ValueError, "identity is other"):
            loader.load_state_dict({**state, "identity": "other"})
        # States of earlier versions know less, or hold another kind of hash.
        loader.load_state_dict({**{key: state[key] for key in state if key != "identity"}, "data": "1f2e"})
        loader.load_state_dict({key: state[key] for key in ("epoch", "pos", "seed", "samples", "trains")})

    def test_numbers_and_layouts_agree(self):
        (x, _), (u8, _), (bf16, _) = (next(iter(self.loader(numbers=numbers))) for numbers in ("f32", "u8", "bf16"))
        mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]))
        self.assertTrue(torch.allclose((u8.float() / 255 - mean) / std, x, atol=1e-5))
        self.assertTrue(torch.equal(x.to(torch.bfloat16), bf16))
        last, _ = next(iter(self.loader(channels_last=True)))
        self.assertTrue(torch.equal(last, x) and last.is_contiguous(memory_format=torch.channels_last))
        array, labels = next(iter(self.loader(tensors="numpy")))
        self.assertTrue(np.array_equal(array, x.numpy()) and labels.dtype == np.int64)

    def test_what_is_wrong_is_said(self):
        for options, words in [
            ({"recipe": "imagenet"}, "imagenet-train"), ({"rank": 2, "world": 2}, "ranks count from 0"),
            ({"batch": 0}, "`batch` is 0"), ({"batch": -1}, "`batch` is -1"), ({"workers": -1}, "`workers` is -1"),
            ({"seed": -1}, "`seed` is -1"), ({"size": 0}, "`size` is 0, and must be at least 8"), ({"size": -4}, "`size` is -4"),
            ({"rank": -1, "world": 2}, "`rank` is -1"), ({"world": 0}, "`world` is 0"), ({"size": 5000}, "at most 4096"),
            ({"batch": 4, "world": 8}, "samples of all ranks together"), ({"numbers": "f64"}, "bf16"), ({"part": "all"}, "val"),
            ({"mean": [0.5]}, "together"), ({"tensors": "jax"}, "numpy"),
        ]:
            with self.assertRaisesRegex(ValueError, words):
                self.loader(**options)
        with self.assertRaisesRegex(RuntimeError, "nowhere"):
            gradus.Loader("/nowhere/at/all", "imagenet-train", 8)
        loader = self.loader()
        with self.assertRaisesRegex(ValueError, "seed is 6"):
            loader.load_state_dict({**loader.state_dict(), "seed": 6})
        with self.assertRaisesRegex(ValueError, "not among"):
            loader.load_state_dict({**loader.state_dict(), "pos": COUNT})
        for state, kind, words in [
            (None, TypeError, "`state` is"), ({}, ValueError, "has no `epoch`"), ({"epoch": 1}, ValueError, "has no `pos`"),
            ({**loader.state_dict(), "pos": -1}, ValueError, r"`state\['pos'\]` is -1"),
        ]:
            with self.assertRaisesRegex(kind, words):
                loader.load_state_dict(state)


if __name__ == "__main__":
    unittest.main()
