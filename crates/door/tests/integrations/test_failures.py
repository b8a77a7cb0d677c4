"""What raises in a training with a callback of gradus, and what is left then: `cargo xtask wheel --integrations`."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).parent
TRAINERS = ("huggingface", "lightning")


class Failures(unittest.TestCase):
    """Each case with both trainers. They save after every fourth of 24 steps."""

    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.temporary.name)

    def tearDown(self):
        self.temporary.cleanup()

    def train(self, trainer, case, saved="saved"):
        """The exit code of a training, the lines that it has written and its errors; nothing is left below `TMPDIR` after it."""
        checkpoints, scratch = self.folder / f"{trainer}-{saved}", self.folder / f"{trainer}-tmp"
        scratch.mkdir(exist_ok=True)
        environment = {
            **os.environ, "GRADUS_CHECKPOINTS": str(checkpoints), "GRADUS_RUN": "own-1", "TMPDIR": str(scratch),
            "TOKENIZERS_PARALLELISM": "false",
        }
        command = [sys.executable, "-W", "ignore", str(HERE / "failing.py"), trainer, case, self.temporary.name]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
        self.assertEqual([path.name for path in scratch.glob("gradus-*")], [], "nothing to resume from is left")
        prefixes = ("resume", "raised ", "left ", "ended ", "step ")
        return done.returncode, [line for line in done.stdout.splitlines() if line.startswith(prefixes)], done.stderr

    def loaded(self, trainer, saved="saved"):
        """The step of the newest checkpoint, which loads without a warning: nothing that is not whole is met."""
        checkpoints = self.folder / f"{trainer}-{saved}"
        code = "import gradus, sys\nrun = gradus.init(checkpoints=sys.argv[1])\nrun.load()\nprint(run.step)\n"
        done = subprocess.run([sys.executable, "-W", "error", "-c", code, str(checkpoints)], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return int(done.stdout)

    def test_an_exception_of_the_program_appears_as_itself_and_what_was_saved_stays(self):
        for trainer in TRAINERS:
            with self.subTest(trainer=trainer):
                code, lines, said = self.train(trainer, "own")
                self.assertEqual((code, lines[:2]), (1, ["resumes from 0", "raised __main__.Own at 6"]), said)
                self.assertRegex(said.splitlines()[-1], r"^(__main__\.)?Own: of the program$")
                self.assertNotIn("During handling of the above exception", said)
                if trainer == "lightning":
                    self.assertEqual(lines[2], "left [], durable 4", "before `fit` has raised")
                self.assertEqual(self.loaded(trainer), 4)
                # Again, in the first step after it was resumed.
                code, lines, said = self.train(trainer, "at-once")
                self.assertEqual((code, lines[:2]), (1, ["resumes from 4", "raised __main__.Own at 5"]), said)
                self.assertEqual(self.loaded(trainer), 4)
                code, lines, said = self.train(trainer, "nothing")
                self.assertEqual((code, lines), (0, ["resumes from 4", "ended at 24, durable 24"]), said)

    def test_a_save_that_fails_meanwhile_does_not_take_its_place(self):
        for trainer in TRAINERS:
            with self.subTest(trainer=trainer):
                code, lines, said = self.train(trainer, "own-full")
                self.assertEqual((code, lines[1]), (1, "raised __main__.Own at 8"), said)
                self.assertIn("gradus: the last checkpoint was not saved: no space left", said)
                self.assertNotIn("During handling of the above exception", said)
                self.assertEqual(self.loaded(trainer), 4)

    def test_a_training_whose_last_state_was_not_saved_does_not_end_well(self):
        for trainer in TRAINERS:
            with self.subTest(trainer=trainer):
                code, lines, said = self.train(trainer, "full")
                self.assertEqual((code, lines[1]), (1, "raised gradus.CheckpointError at 24"), said)
                self.assertIn("free some space", said)
                self.assertEqual(self.loaded(trainer), 4)

    def test_a_last_state_that_was_refused_is_saved_at_the_end_if_it_can_be(self):
        for trainer in TRAINERS:
            with self.subTest(trainer=trainer):
                code, lines, said = self.train(trainer, "room-again")
                self.assertEqual((code, lines[1:]), (0, ["step 24 was not saved", "ended at 24, durable 24"]), said)
                self.assertEqual(self.loaded(trainer), 24)

    def test_an_error_within_the_callback_is_raised(self):
        for trainer in TRAINERS:
            for case, step in (("logging", 6), ("state", 8)):
                with self.subTest(trainer=trainer, case=case):
                    code, lines, said = self.train(trainer, case, case)
                    self.assertEqual((code, lines[1]), (1, f"raised __main__.Own at {step}"), said)
                    self.assertIn("Own: within the callback", said)
                    self.assertEqual(self.loaded(trainer, case), 4)

    def test_a_checkpoint_of_something_else_is_refused(self):
        for trainer, other in (TRAINERS, TRAINERS[::-1]):
            with self.subTest(trainer=trainer):
                self.assertEqual(self.train(trainer, "own")[0], 1)
                (self.folder / f"{trainer}-saved").rename(self.folder / f"{other}-of-another")
                code, lines, said = self.train(other, "nothing", "of-another")
                self.assertEqual((code, lines), (1, ["resume raised CheckpointError, and left []"]), said)
                self.assertRegex(said, rf"step 4 in `.*of-another` was not saved by gradus.{other}.GradusCallback")
                self.assertEqual(self.loaded(other, "of-another"), 4)

    def test_a_disk_without_room_to_resume_leaves_nothing(self):
        for trainer in TRAINERS:
            with self.subTest(trainer=trainer):
                self.assertEqual(self.train(trainer, "own")[0], 1)
                code, lines, said = self.train(trainer, "no-room-to-resume")
                self.assertEqual((code, len(lines)), (1, 1), said)
                self.assertRegex(lines[0], r"^resume raised \w+, and left \[\]$")
                self.assertEqual(self.train(trainer, "nothing")[1], ["resumes from 4", "ended at 24, durable 24"])


if __name__ == "__main__":
    unittest.main()
