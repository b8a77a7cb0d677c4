"""Arbitrary samples, from a PyTorch loop: `cargo xtask wheel --test`."""
import os
import tarfile
import tempfile
import unittest
import unittest.mock
import warnings

import torch

import gradus


class Arbitrary(unittest.TestCase):
    """Bytes of files and of members of tars."""

    COUNT = 23

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.files = os.path.join(self.folder.name, "files")
        os.makedirs(os.path.join(self.files, "a"))
        for number in range(self.COUNT):
            for extension, content in (("txt", f"text {number}"), ("cls", str(number % 3))):
                with open(os.path.join(self.files, "a", f"{number:02}.{extension}"), "w") as file:
                    file.write(content)
        self.tar = os.path.join(self.folder.name, "all.tar")
        with tarfile.open(self.tar, "w") as tar:
            tar.add(self.files, arcname="")

    def tearDown(self):
        self.folder.cleanup()

    @staticmethod
    def pair(found):
        return found["txt"].decode(), int(found["cls"])

    def loader(self, uri=None, decode=None, batch=4, **options):
        options = {"grouped": True, "collate": list, "seed": 3, "workers": 2, **options}
        return gradus.SampleLoader(uri or self.files, batch, decode or self.pair, **options)

    def test_a_rank_that_has_all_samples_is_told(self):
        with unittest.mock.patch.dict(os.environ, {"RANK": "1", "WORLD_SIZE": "2"}):
            words = r"(?s)its gradus.SampleLoader has all samples .* gradus.SampleLoader\(…, rank=1, world=2\)"
            with self.assertWarnsRegex(UserWarning, words) as warned:
                self.loader()
            self.assertEqual(warned.filename, __file__, "the line of the program")
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                self.loader(world=1), self.loader(rank=1, world=2), self.loader(shuffle=False)

    def test_folders_and_tars_have_the_same_samples(self):
        expected = [(f"text {number}", number % 3) for number in range(self.COUNT)]
        for uri in (self.files, self.tar):
            loader = self.loader(uri, shuffle=False)
            self.assertEqual(len(loader), 6)
            for _ in range(2):
                self.assertEqual([sample for batch in loader for sample in batch], expected)
        self.assertEqual(sorted(sample for batch in self.loader() for sample in batch), sorted(expected))
        alone = self.loader(decode=lambda data, name: (name, data), grouped=False, shuffle=False)
        self.assertEqual(next(iter(alone))[0], ("a/00.cls", b"0"))
        self.assertEqual(len(alone), -(-2 * self.COUNT // 4))

    def test_order_resume_and_ranks_are_those_of_images(self):
        wanted = list(self.loader())
        loader = self.loader(workers=1)
        self.assertEqual(list(loader), wanted)
        self.assertNotEqual(list(loader), wanted)
        loader.set_epoch(0)
        batches = iter(loader)
        next(batches), next(batches)
        state = loader.state_dict()
        ranks = [self.loader(rank=rank, world=2) for rank in range(2)]
        for rank in ranks:
            rank.load_state_dict(state)
        self.assertEqual([one + other for one, other in zip(*ranks)], wanted[2:])
        with self.assertRaisesRegex(ValueError, "whose seed is 3"):
            self.loader(seed=4).load_state_dict(state)
        os.unlink(os.path.join(self.files, "a", "00.txt"))
        with self.assertRaisesRegex(ValueError, "whose identity is"):
            self.loader().load_state_dict(state)

    def test_draws_depend_on_the_position_alone(self):
        draw = lambda found, rng: float(rng.random())  # noqa: E731
        wanted = list(self.loader(decode=draw))
        loader = self.loader(decode=draw)
        next(iter(loader))
        other = self.loader(decode=draw, workers=1)
        other.load_state_dict(loader.state_dict())
        self.assertEqual(list(other), wanted[1:])
        self.assertEqual(len({value for batch in wanted for value in batch}), self.COUNT)

    def test_the_sample_that_failed_is_named_and_the_threads_live_on(self):
        fails = [True]

        def picky(found):
            if fails[0] and found["txt"] == b"text 5":
                raise KeyError("mask")
            return self.pair(found)

        loader = self.loader(decode=picky, shuffle=False)
        batches, found = iter(loader), []
        found.append(next(batches))
        for _ in range(3):
            with self.assertRaisesRegex(RuntimeError, "`decode` failed for the sample `a/05`: KeyError: 'mask'"):
                next(batches)
        fails[0] = False
        found.extend(iter(lambda: next(batches, None), None))
        self.assertEqual(found, list(self.loader(shuffle=False)))
        loader = self.loader(shuffle=False)
        os.unlink(os.path.join(self.files, "a", "02.cls"))
        with self.assertRaisesRegex(RuntimeError, "cannot read the sample `a/02`"):
            next(iter(loader))

    def test_samples_become_tensors(self):
        numbers = self.loader(decode=lambda found: (torch.full((3,), int(found["cls"])), int(found["cls"])), collate=None)
        x, y = next(iter(numbers))
        self.assertEqual((x.shape, x.dtype, y.dtype), ((4, 3), torch.int64, torch.int64))
        self.assertTrue(torch.equal(x[:, 0], y))

    def test_what_is_wrong_is_said(self):
        for options, kind, words in [
            ({"decode": 3}, TypeError, "a callable on bytes"), ({"batch": 0}, ValueError, "`batch` is 0"),
            ({"rank": 2, "world": 2}, ValueError, "ranks count from 0"),
            ({"uri": os.path.join(self.folder.name, "nowhere")}, RuntimeError, "nowhere"),
        ]:
            with self.assertRaisesRegex(kind, words):
                self.loader(**options)
        empty = os.path.join(self.folder.name, "empty")
        os.makedirs(empty)
        with self.assertRaisesRegex(RuntimeError, "there is no sample at"):
            self.loader(empty)
        with open(os.path.join(empty, "a.tar"), "wb") as file:
            file.write(b"no tar" * 200)
        with self.assertRaisesRegex(RuntimeError, "a.tar` is no tar"):
            self.loader(empty)
        os.rename(os.path.join(empty, "a.tar"), os.path.join(empty, "a.tar.gz"))
        with self.assertRaisesRegex(RuntimeError, "is compressed"):
            self.loader(empty)


if __name__ == "__main__":
    unittest.main()
