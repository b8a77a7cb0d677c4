"""The callbacks with the real packages: `cargo xtask wheel --test-integrations`."""
import importlib.metadata
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).parent
STEPS = 24


class Integrations(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()

    def tearDown(self):
        self.temporary.cleanup()

    def run_script(self, script, folder, *arguments):
        path = os.path.join(self.temporary.name, folder)
        environment = {**os.environ, "GRADUS_CHECKPOINTS": path, "GRADUS_RUN": "own-1", "TOKENIZERS_PARALLELISM": "false"}
        command = [sys.executable, "-W", "ignore", str(HERE / script), self.temporary.name, *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        lines = [line for line in done.stdout.splitlines() if line.startswith(("step ", "ended "))]
        return done.returncode, lines, done.stderr

    def check(self, script):
        code, lines, said = self.run_script(script, "undisturbed")
        self.assertEqual(code, 0, said)
        self.assertEqual(len(lines), STEPS + 1)
        for die in (2, 4, 5, 11, 12, 23):
            with self.subTest(die=die):
                self.assertEqual(self.run_script(script, f"die-{die}", "--die", str(die))[0], -9)
                code, resumed, said = self.run_script(script, f"die-{die}")
                self.assertEqual(code, 0, said)
                self.assertEqual(resumed[-1], lines[-1])
                # A save is asynchronous, so the newest may not have been durable.
                first = int(resumed[0].split()[1])
                self.assertIn(first, (die - die % 4 + 1, max(0, die - die % 4 - 4) + 1))
        return lines

    def check_sigterm(self, script, lines):
        code, stopped, said = self.run_script(script, "stop", "--stop", "9")
        self.assertEqual(code, 0, said)
        self.assertIn(stopped[-1].split()[2], ("9", "10"))
        code, resumed, said = self.run_script(script, "stop")
        self.assertEqual((code, resumed[-1]), (0, lines[-1]), said)
        self.assertEqual(resumed[0], f"step {int(stopped[-1].split()[2]) + 1}")

    def test_the_trainer_of_hugging_face_resumes_to_the_same_weights(self):
        print(f"transformers {importlib.metadata.version('transformers')}")
        self.check_sigterm("bert.py", self.check("bert.py"))

    def test_the_trainer_of_lightning_resumes_to_the_same_weights(self):
        print(f"lightning {importlib.metadata.version('lightning')}")
        # Lightning handles SIGTERM itself; gradus tells the callback to stop without it.
        self.check("module.py")

    def test_lightning_stops_when_it_is_told_whatever_its_minimum(self):
        code = (
            "import lightning, gradus.lightning, sys\n"
            "from module import Batches, Module\n"
            "callback = gradus.lightning.GradusCallback(checkpoints=sys.argv[1])\n"
            "class Told(lightning.Callback):\n"
            "    def on_train_batch_start(self, trainer, module, batch, batch_index):\n"
            "        trainer.global_step == 3 and callback.run._inner.ask_to_stop()\n"
            "trainer = lightning.Trainer(min_epochs=3, min_steps=15, max_epochs=4, accelerator='cpu', logger=False,\n"
            "    enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, callbacks=[Told(), callback])\n"
            "trainer.fit(Module(), Batches())\n"
            "print('stopped', trainer.global_step, callback.run.saved_step)\n"
        )
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])}
        command = [sys.executable, "-W", "ignore", "-c", code, self.temporary.name]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        self.assertEqual(done.stdout.splitlines()[-1:], ["stopped 4 4"], done.stderr)

    def test_checkpoints_of_lightning_are_written_by_gradus(self):
        command = [sys.executable, "-W", "ignore", str(HERE / "stored.py"), self.temporary.name]
        done = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout.splitlines()[-1:]), (0, ["right"]), done.stderr)

    def test_the_tracker_of_accelerate_logs_numbers_alone(self):
        print(f"accelerate {importlib.metadata.version('accelerate')}")
        code = (
            "import accelerate, torch, gradus.accelerate\n"
            "tracker = gradus.accelerate.GradusTracker()\n"
            "said = []\n"
            "tracker.run.log = lambda step, **values: said.append((step, values))\n"
            "accelerator = accelerate.Accelerator(log_with=tracker, cpu=True)\n"
            "accelerator.init_trackers('train', config={'lr': 0.1})\n"
            "accelerator.log({'loss': torch.tensor(0.5), 'lr': 0.1, 'epoch': 2, 'f1': 0.25, 'text': 'x', 'step': 3}, step=7)\n"
            "accelerator.log({'loss': 0.25})\n"
            "accelerator.end_training()\n"
            "print('said', [(step, {k: None if v is None else float(v) for k, v in values.items()}) for step, values in said])\n"
        )
        done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True)
        expected = [(7, {"loss": 0.5, "lr": 0.1, "epoch": 2.0, "f1": 0.25}), (8, {"loss": 0.25, "lr": None, "epoch": 0.0})]
        self.assertIn(f"said {expected}", done.stdout, done.stderr)


if __name__ == "__main__":
    unittest.main()
