"""What loaders take besides a recipe: transforms, mixed labels, devices, texts and boxes: `cargo xtask wheel --test`."""
import json
import os
import re
import tempfile
import threading
import unittest
import unittest.mock
import warnings

import numpy as np
import torch
from PIL import Image

import gradus
from gradus._loaders import checks
from gradus._loaders.device import Ahead

COUNT = 29
OPTIONS = {"size": 32, "workers": 2, "seed": 5}


class Folder(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.cache = os.path.join(cls.folder.name, "cache")
        cls.images = os.path.join(cls.folder.name, "images")
        rng = np.random.default_rng(1)
        for number in range(COUNT):
            target = os.path.join(cls.images, f"c{number % 3}")
            os.makedirs(target, exist_ok=True)
            pixels = rng.integers(0, 256, (48 + number % 5, 64, 3), np.uint8)
            Image.fromarray(pixels).save(os.path.join(target, f"{number:03}.jpg"), quality=95)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def loader(self, recipe="imagenet-train", batch=8, **options):
        return gradus.Loader(self.images, recipe, batch, **{**OPTIONS, **options})

    def same(self, one, other):
        self.assertEqual(len(one), len(other))
        for (a, b), (c, d) in zip(one, other):
            self.assertTrue(torch.equal(a, c) and torch.equal(b, d))


class Ranks:
    """Mixed into tests of a loader, as a program of several ranks makes one."""

    def check_ranks(self, name, make, evaluation):
        """`make` makes a loader for training with these keywords, and `evaluation` are keywords that make it one for evaluation."""
        with unittest.mock.patch.dict(os.environ, {"RANK": "1", "WORLD_SIZE": "2"}):
            words = rf"(?s)one of 2 ranks, and its gradus.{name} has all samples .* gradus.{name}\(…, rank=1, world=2\)"
            with self.assertWarnsRegex(UserWarning, words) as warned:
                make()
            self.assertEqual(warned.filename, __file__, "the line of the program")
            with self.assertWarnsRegex(UserWarning, rf"(?s)its gradus.{name} has rank 0's samples .* rank=1, world=2"):
                make(world=2)
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                make(world=1), make(rank=1, world=2), make(**evaluation)
        with warnings.catch_warnings(), unittest.mock.patch.dict(os.environ, {"WORLD_SIZE": "1"}):
            warnings.simplefilter("error")
            make()


class Transforming(Folder):
    def test_it_gets_each_image_as_others_do_and_its_results_are_the_batch(self):
        forms = []

        def inverted(image):
            forms.append((image.shape, image.dtype, image.flags.c_contiguous, image.flags.writeable))
            return 255 - image

        plain = list(self.loader(numbers="u8"))
        found = list(self.loader(numbers="u8", transform=inverted))
        self.same(found, [(255 - x, y) for x, y in plain])
        self.assertEqual(set(forms), {((32, 32, 3), np.dtype("uint8"), True, True)})
        self.assertTrue(all(x.is_contiguous() for x, _ in found))
        floats = list(self.loader(transform=lambda image: image))
        self.same(floats, list(self.loader()))
        last = next(iter(self.loader(transform=lambda image: image, channels_last=True)))[0]
        self.assertTrue(torch.equal(last, floats[0][0]) and last.is_contiguous(memory_format=torch.channels_last))

    def test_a_sample_that_is_kept_in_memory_is_named_too(self):
        with self.assertRaisesRegex(RuntimeError, r"failed for the sample `.*c\d/\d{3}\.jpg`: ZeroDivisionError"):
            next(iter(self.loader("small-images", transform=lambda image: 1 / 0)))

    def test_other_forms_and_numpy_are_stacked_as_they_are(self):
        tensors = next(iter(self.loader(transform=lambda image: torch.from_numpy(image).permute(2, 0, 1)[:1])))[0]
        self.assertEqual(tensors.shape, (8, 1, 32, 32))
        means = next(iter(self.loader(transform=lambda image: image.mean((0, 1)))))[0]
        self.assertEqual(means.shape, (8, 3))
        array, labels = next(iter(self.loader(transform=lambda image: image, tensors="numpy")))
        self.assertTrue(np.array_equal(array, next(iter(self.loader()))[0].numpy()) and labels.dtype == np.int64)

    def test_draws_are_the_same_for_any_threads_and_ranks_and_after_a_resume(self):
        def noisy(image, rng):
            return image + rng.normal(size=image.shape).astype(np.float32)

        wanted = list(self.loader(transform=noisy))
        self.same(list(self.loader(transform=noisy, workers=0)), wanted)
        loader = self.loader(transform=noisy)
        batches = iter(loader)
        next(batches), next(batches)
        ranks = [self.loader(transform=noisy, rank=rank, world=2) for rank in range(2)]
        for rank in ranks:
            rank.load_state_dict(loader.state_dict())
        joined = [(torch.cat([x for x, _ in parts]), torch.cat([y for _, y in parts])) for parts in zip(*ranks)]
        self.same(joined, wanted[2:])
        again = self.loader(transform=noisy)
        list(again)
        self.assertFalse(torch.equal(next(iter(again))[0], wanted[0][0]))

    def test_the_sample_that_failed_is_named_and_met_again(self):
        fails, seen = [True], []

        def picky(image):
            seen.append(1)
            if fails[0] and len(seen) > 10:
                raise KeyError("no such mask")
            return image

        loader = self.loader("imagenet-val", transform=picky, workers=1)
        wanted, found = list(self.loader("imagenet-val")), []
        batches = iter(loader)
        found.append(next(batches))
        for _ in range(2):
            with self.assertRaisesRegex(RuntimeError, r"failed for the sample `.*c\d/\d{3}\.jpg`: KeyError: 'no such mask'"):
                next(batches)
        fails[0] = False
        # A `for` would begin the evaluation again.
        found.extend(iter(lambda: next(batches, None), None))
        self.same(found, wanted)
        with self.assertRaisesRegex(RuntimeError, r"returned the shape .* for the first of its batch"):
            next(iter(self.loader(transform=lambda image: image[: 1 + int(image[0, 0, 0] > 0)])))
        with self.assertRaisesRegex(RuntimeError, "a value of the type `NoneType` .*, and no array"):
            next(iter(self.loader(transform=lambda image: None)))

    def test_what_is_wrong_is_said(self):
        for options, kind, words in [
            ({"transform": 3}, TypeError, "a callable on an array"),
            ({"transform": abs, "numbers": "bf16"}, ValueError, "no bf16"),
            ({"transform": abs, "augment": [{"mixup": 0.2}]}, ValueError, "before they are mixed"),
            ({"augment": ["blur"]}, ValueError, "unknown variant `blur`"),
            ({"augment": "flip"}, ValueError, r"(?s)`augment` is 'flip', and takes a list.*`augment=\[\"flip\"\]`; there are random_"),
            ({"augment": {"mixup": 0.2}}, ValueError, r"(?s)takes a list.*`augment=\[\{\"mixup\": 0.2\}\]`"),
            ({"augment": 5}, ValueError, r"(?s)`augment` is 5, and takes a list.*`augment=\[\"random_resized_crop\"\]`"),
            ({"augment": [{"rand_augment": {"magnitude": 31}}]}, ValueError, "0 to 30"),
            ({"augment": [{"mixup": 0}]}, ValueError, "above 0"),
            ({"augment": ["mosaic"]}, ValueError, "DetectionLoader"),
            ({"augment": ["flip"], "recipe": "imagenet-val"}, ValueError, "for evaluation"),
        ]:
            with self.assertRaisesRegex(kind, words):
                self.loader(**options)
        # The names are those that are taken.
        with self.assertRaises(ValueError) as raised:
            self.loader(augment=["blur"])
        taken = re.findall("`([a-z_]+)`", str(raised.exception).split("expected one of ")[1].split(" at line")[0])
        self.assertEqual(sorted([*checks._AUGMENTATIONS, "mosaic"]), sorted(taken))


class Mixing(Folder):
    def test_labels_are_shares_of_classes(self):
        augment = ["random_resized_crop", "flip", {"rand_augment": {}}, {"mixup": 0.4}, {"cutmix": 1.0}]
        wanted = list(self.loader(augment=augment))
        for x, y in wanted:
            self.assertEqual((x.shape[1:], y.shape, y.dtype), ((3, 32, 32), (len(x), 3), torch.float32))
            self.assertTrue(torch.allclose(y.sum(1), torch.ones(len(x))))
        self.assertTrue(any((0 < y).logical_and(y < 1).any() for _, y in wanted))
        ranks = [self.loader(augment=augment, rank=rank, world=2) for rank in range(2)]
        joined = [(torch.cat([x for x, _ in parts]), torch.cat([y for _, y in parts])) for parts in zip(*ranks)]
        self.same(joined, wanted)
        shares = next(iter(self.loader(augment=augment, tensors="numpy")))[1]
        self.assertTrue(np.array_equal(shares, wanted[0][1].numpy()))

    def test_a_recipes_own_augmentations_can_be_named(self):
        self.same(list(self.loader(augment=["random_resized_crop", "flip"])), list(self.loader()))
        state = self.loader(augment=["random_resized_crop"]).state_dict()
        with self.assertRaisesRegex(ValueError, "whose augment is"):
            self.loader().load_state_dict(state)
        self.loader().load_state_dict({name: value for name, value in self.loader().state_dict().items() if name != "augment"})


class Copied(Folder):
    """Batches that a thread prepares ahead, as for a GPU; on a GPU itself where there is one."""

    def ahead(self, recipe="imagenet-train", **options):
        loader = self.loader(recipe, **options)
        loader._ahead = Ahead(lambda tensor: tensor.clone())
        return loader

    def test_they_are_the_same_and_so_is_the_position(self):
        for recipe in ("imagenet-train", "imagenet-val"):
            plain, ahead = self.loader(recipe), self.ahead(recipe)
            for stop in (2, 1, 9, 3):
                pairs = []
                for loader in (plain, ahead):
                    taken = []
                    for batch in loader:
                        taken.append(batch)
                        if len(taken) == stop:
                            break
                    pairs.append((taken, loader.state_dict()))
                self.same(pairs[0][0], pairs[1][0])
                self.assertEqual(pairs[0][1], pairs[1][1])
            state = plain.state_dict()
            other = self.ahead(recipe)
            next(iter(other))
            for loader in (plain, other):
                loader.load_state_dict(state)
            self.same(list(other), list(plain))
        ahead = self.ahead()
        next(iter(ahead))
        ahead.set_epoch(2)
        plain = self.loader()
        plain.set_epoch(2)
        self.same(list(ahead), list(plain))

    def test_an_error_is_that_of_its_batch_and_comes_again(self):
        fails = [True]

        def picky(image):
            if fails[0] and threading.current_thread() is not threading.main_thread():
                raise ValueError("not now")
            return image

        loader = self.ahead("imagenet-val", transform=picky)
        for _ in range(2):
            with self.assertRaisesRegex(RuntimeError, "ValueError: not now"):
                next(iter(loader))
        fails[0] = False
        self.same(list(loader), list(self.loader("imagenet-val")))

    def test_devices(self):
        self.same(list(self.loader(device="cpu")), list(self.loader()))
        self.same(list(self.loader(pin_memory=True)), list(self.loader()))
        with self.assertRaisesRegex(ValueError, "for PyTorch's tensors"):
            self.loader(device="cpu", tensors="numpy")
        if torch.cuda.is_available():
            found = list(self.loader(device="cuda"))
            self.assertTrue(all(x.is_cuda and y.is_cuda for x, y in found))
            self.same([(x.cpu(), y.cpu()) for x, y in found], list(self.loader()))
            self.assertTrue(next(iter(self.loader(pin_memory=True)))[0].is_pinned())
        else:
            with self.assertRaisesRegex(ValueError, "no CUDA device"):
                self.loader(device="cuda")


class Texts(Folder, Ranks):
    def loader_of(self, name, text, batch=4, length=16, **options):
        path = os.path.join(self.folder.name, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return gradus.TextLoader(path, batch, length, **{"vocabulary": 300, "cache": self.cache, "seed": 3, **options})

    def equal(self, one, other):
        self.assertEqual(len(one), len(other))
        for found, wanted in zip(one, other):
            self.assertEqual(sorted(found), sorted(wanted))
            self.assertTrue(all(torch.equal(found[name], wanted[name]) for name in found))

    TEXT = "".join(f"The number {number} is followed by {number + 1}, and so on.\n" for number in range(120))
    ROWS = "text,kind\n" + "".join(f"number {number} is {number % 2},{'odd' if number % 2 else 'even'}\n" for number in range(30))

    def test_each_token_is_predicted_once(self):
        loader = self.loader_of("next.txt", self.TEXT)
        batches = list(loader)
        self.assertEqual(len(batches), len(loader))
        rows = 0
        for batch in batches:
            ids, targets = batch["input_ids"], batch["targets"]
            mask = batch.get("attention_mask", torch.ones_like(ids))
            self.assertEqual((ids.dtype, ids.shape), (torch.int64, targets.shape))
            self.assertTrue(0 <= ids.min() and ids.max() < loader.vocabulary)
            for row, next_ones, tokens in zip(ids, targets, mask):
                kept = (next_ones[:-1] != -100) & (tokens[1:] == 1)
                self.assertTrue(torch.equal(row[1:][kept], next_ones[:-1][kept]))
            rows += len(ids)
        self.assertEqual(rows, loader.state_dict()["samples"])
        self.assertIn("model", json.loads(loader.tokenizer))

    def test_order_resume_and_ranks_are_those_of_images(self):
        wanted = list(self.loader_of("next.txt", self.TEXT))
        loader = self.loader_of("next.txt", self.TEXT)
        batches = iter(loader)
        next(batches), next(batches)
        state = loader.state_dict()
        self.equal(list(loader), wanted[2:])
        ranks = [self.loader_of("next.txt", self.TEXT, rank=rank, world=2) for rank in range(2)]
        for rank in ranks:
            rank.load_state_dict(state)
        rows = [row for rank in ranks for row in next(iter(rank))["input_ids"]]
        self.assertEqual(len(rows), 4)
        for row, expected in zip(rows, wanted[2]["input_ids"]):
            self.assertTrue(torch.equal(row, expected[: len(row)]))
        again = self.loader_of("next.txt", self.TEXT)
        again.set_epoch(1)
        second = next(iter(again))["input_ids"]
        self.assertTrue(torch.equal(second, next(iter(loader))["input_ids"]))
        self.assertFalse(torch.equal(second, wanted[0]["input_ids"]))
        with self.assertRaisesRegex(ValueError, "whose length is 16, and this one's is 8"):
            self.loader_of("next.txt", self.TEXT, length=8).load_state_dict(state)

    def test_a_rank_that_has_all_rows_is_told(self):
        path = os.path.join(self.folder.name, "ranks.txt")
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.TEXT)

        def make(**options):
            return gradus.TextLoader(path, 4, 16, **{"vocabulary": 300, "cache": self.cache, "split": (0.5, 0.5, 0.0), **options})

        self.check_ranks("TextLoader", make, {"part": "val"})

    def test_a_class_or_masked_tokens_per_row(self):
        loader = self.loader_of("rows.csv", self.ROWS, goal="class", label="kind", length=24)
        self.assertEqual(loader.classes, ["even", "odd"])
        labels = torch.cat([batch["targets"] for batch in loader])
        self.assertEqual(torch.bincount(labels).tolist(), [15, 15])
        masked = next(iter(self.loader_of("rows.csv", self.ROWS, goal="masked", length=24)))
        hidden = masked["targets"] != -100
        self.assertTrue(hidden.any(1).all() and not hidden.all())
        if "attention_mask" in masked:
            self.assertTrue((masked["targets"][masked["attention_mask"] == 0] == -100).all())

    def test_evaluation_is_every_row_once_and_resumes(self):
        options = {"goal": "class", "label": "kind", "length": 24, "part": "val", "split": (0.5, 0.5, 0.0)}
        loader = self.loader_of("rows.csv", self.ROWS, **options)
        whole = list(loader)
        self.equal(list(loader), whole)
        batches = iter(loader)
        next(batches)
        other = self.loader_of("rows.csv", self.ROWS, **options)
        other.load_state_dict(loader.state_dict())
        self.equal(list(other), whole[1:])

    def test_what_is_wrong_is_said(self):
        for options, words in [
            ({"goal": "previous"}, "next, masked, class"), ({"goal": "class"}, "names the column"),
            ({"documents": "mixed"}, "together, apart"), ({"length": 1}, "at least 2"), ({"batch": 0}, "`batch` is 0"), ({"length": -1}, "`length` is -1"),
        ]:
            with self.assertRaisesRegex(ValueError, words):
                self.loader_of("next.txt", self.TEXT, **options)
        with self.assertRaisesRegex(RuntimeError, "nowhere.txt"):
            gradus.TextLoader("/nowhere.txt", 8)


class Boxes(Folder, Ranks):
    def setUp(self):
        self.coco = tempfile.TemporaryDirectory()
        rng = np.random.default_rng(4)
        images, annotations = [], []
        for number in range(11):
            pixels = rng.integers(0, 256, (64, 64, 3), np.uint8)
            Image.fromarray(pixels).save(os.path.join(self.coco.name, f"{number:02}.png"))
            images.append({"id": number, "file_name": f"{number:02}.png", "width": 64, "height": 64})
            for at in range(number % 3):
                annotations.append({
                    "id": len(annotations), "image_id": number, "category_id": 7 if at else 3, "iscrowd": 0,
                    "bbox": [8 * at, 4, 16, 32], "area": 512,
                })
        categories = [{"id": 3, "name": "cat"}, {"id": 7, "name": "dog"}]
        with open(os.path.join(self.coco.name, "instances.json"), "w") as file:
            json.dump({"images": images, "annotations": annotations, "categories": categories}, file)

    def tearDown(self):
        self.coco.cleanup()

    def boxes(self, batch=4, **options):
        return gradus.DetectionLoader(self.coco.name, batch, **{"workers": 2, "seed": 2, "augment": (), **options})

    def equal(self, one, other):
        self.assertEqual(len(one), len(other))
        for (images, targets), (expected, others) in zip(one, other):
            self.assertTrue(torch.equal(images, expected))
            for target, wanted in zip(targets, others):
                self.assertTrue(torch.equal(target["boxes"], wanted["boxes"]))
                self.assertTrue(torch.equal(target["labels"], wanted["labels"]))

    def test_images_come_with_their_boxes(self):
        loader = self.boxes()
        self.assertEqual((loader.classes, loader.size, len(loader)), (["cat", "dog"], 64, 3))
        counts = []
        for images, targets in loader:
            self.assertEqual((images.shape, images.dtype), ((len(targets), 3, 64, 64), torch.float32))
            self.assertTrue(0 <= images.min() and images.max() < 1.001)
            for target in targets:
                self.assertEqual((target["boxes"].dtype, target["labels"].dtype), (torch.float32, torch.int64))
                self.assertEqual(target["boxes"].shape, (len(target["labels"]), 4))
                expected = torch.tensor([[8.0 * at, 4, 8 * at + 16, 36] for at in range(len(target["labels"]))])
                self.assertTrue(torch.allclose(target["boxes"], expected.reshape(-1, 4)))
                self.assertEqual(target["labels"].tolist(), [0, 1][: len(target["labels"])])
                counts.append(len(target["labels"]))
        self.assertEqual(sorted(counts), sorted(number % 3 for number in range(11)))

    def test_a_rank_that_has_all_images_is_told(self):
        def make(**options):
            return gradus.DetectionLoader(self.coco.name, 4, **{"augment": (), "split": (0.5, 0.5, 0.0), **options})

        self.check_ranks("DetectionLoader", make, {"part": "val"})

    def test_order_and_resume_are_those_of_images(self):
        for options in ({"augment": ["flip", "mosaic"]}, {"part": "val", "split": (0.2, 0.8, 0.0)}):
            wanted = list(self.boxes(batch=3, **options))
            loader = self.boxes(batch=3, workers=1, **options)
            next(iter(loader))
            state = loader.state_dict()
            self.equal([next(loader)], wanted[1:2])
            other = self.boxes(batch=3, **options)
            other.load_state_dict(state)
            self.equal(list(other), wanted[1:])

    def test_what_is_wrong_is_said(self):
        with self.assertRaisesRegex(ValueError, r"(?s)`augment` is 'mosaic', and takes a list.*there are flip, mosaic$"):
            self.boxes(augment="mosaic")
        with self.assertRaisesRegex(ValueError, "`flip` and `mosaic`"):
            self.boxes(augment=["random_resized_crop"])
        with self.assertRaisesRegex(ValueError, "32 to 4096"):
            self.boxes(size=8)
        os.unlink(os.path.join(self.coco.name, "03.png"))
        with self.assertRaisesRegex(RuntimeError, "03.png"):
            self.boxes()


if __name__ == "__main__":
    unittest.main()
