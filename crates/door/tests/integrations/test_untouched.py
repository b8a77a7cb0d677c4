"""Scripts that know nothing of gradus, with the real frameworks and `gradus launch`: `cargo xtask wheel --integrations`."""
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

HERE = pathlib.Path(__file__).parent


class Untouched(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.temporary.name)

    def tearDown(self):
        self.temporary.cleanup()

    def launch(self, script, home, arguments=(), options=(), **environment):
        """What a launch has said."""
        work = self.folder / f"work-{home}"
        work.mkdir()
        shutil.copy(HERE / script, work / script)
        command = ["gradus", "launch", str(work / script), "--home", str(self.folder / home), "--max-restarts", "3", *options, "--", *arguments]
        variables = {**os.environ, "TOKENIZERS_PARALLELISM": "false", "NO_COLOR": "1", **environment}
        done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=300)
        said = done.stdout + done.stderr
        self.assertEqual(done.returncode, 0, said)
        return said

    def ended(self, said):
        return re.findall(r"ended at (\d+) with (\w+)", said)[-1]

    def resumed(self, said):
        return [text.rsplit("/", 1)[-1] for text in re.findall(r"resumes from (\S+)", said)]

    def test_the_trainer_of_hugging_face(self):
        arguments = [
            "--output_dir", "out", "--per_device_train_batch_size", "8", "--num_train_epochs", "4", "--save_steps", "4",
            "--logging_steps", "2", "--use_cpu", "True", "--seed", "3", "--disable_tqdm", "True", "--report_to", "none",
        ]
        said = self.launch("untouched_bert.py", "whole", arguments)
        expected = self.ended(said)
        self.assertEqual((expected[0], self.resumed(said)), ("24", ["None"]))
        # Read from `trainer_state.json`.
        self.assertRegex(said, r"step \d+/24 .* loss 1\.")
        said = self.launch("untouched_bert.py", "killed", arguments, DIE="10")
        self.assertEqual((self.ended(said), self.resumed(said)), (expected, ["None", "checkpoint-8"]))
        cut = {"DIE": "10", "CUT": "out/checkpoint-8/optimizer.pt"}
        said = self.launch("untouched_bert.py", "cut", arguments, **cut)
        self.assertEqual((self.ended(said), self.resumed(said)), (expected, ["None", "checkpoint-4"]))

    def test_the_trainer_of_lightning(self):
        said = self.launch("untouched_module.py", "whole")
        expected = self.ended(said)
        said = self.launch("untouched_module.py", "killed", DIE="15")
        self.assertEqual((self.ended(said), self.resumed(said)), (expected, ["None", "epoch=1-step=12.ckpt"]))

    def test_a_loop_with_distributed_checkpoints(self):
        progress = ["--progress", r"step (?<step>\d+)/(?<steps>\d+) loss (?<loss>\S+)", "--output", "saved"]
        said = self.launch("untouched_distributed.py", "whole", options=progress)
        expected = self.ended(said)
        said = self.launch("untouched_distributed.py", "killed", options=progress, DIE="11")
        self.assertEqual((self.ended(said), self.resumed(said)), (expected, ["None", "step-8"]))


if __name__ == "__main__":
    unittest.main()
