"""The configurations of the document with torchtitan and torchtune: `cargo xtask wheel --integrations`.

torchtitan trains on accelerators alone, so of it what gradus adds is tried: between its own parts, on the processor.
"""
import importlib.metadata
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import unittest

DOCUMENT = (pathlib.Path(__file__).parent / "../../../../docs/own-program.md").resolve().read_text()

TITAN = """
import sys, types, torch, warnings
from torchtitan.components import metrics
from torchtitan.config import JobConfig
from torchtitan.protocols.train_spec import get_train_spec

nothing = types.SimpleNamespace(max_active_gib=0.0, max_active_pct=0.0, max_reserved_gib=0.0, max_reserved_pct=0.0, num_alloc_retries=0, num_ooms=0)
metrics.build_device_memory_monitor = lambda: types.SimpleNamespace(
    device_name="H100", get_peak_stats=lambda: nothing, reset_peak_stats=lambda: None
)
import titan_gradus

spec = get_train_spec("llama3_gradus")
assert spec.model_args.keys() == get_train_spec("llama3").model_args.keys()
job = JobConfig()
job.training.steps, job.metrics.log_freq, job.checkpoint.enable = 100, 2, True
ranks = types.SimpleNamespace(pp_enabled=False, non_data_parallel_size=1)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    alone = spec.build_metrics_processor_fn(job, ranks)
assert ["last_save_model_only = false" in str(each.message) for each in caught] == [True], caught
alone.run._inner.ask_to_stop()
assert alone.should_log(1) and job.training.steps == 100
alone.run.finish()
job.checkpoint.last_save_model_only = False
found, said = spec.build_metrics_processor_fn(job, ranks), []
found.run.log = lambda step, **values: said.append((step, values))
found.num_flops_per_token = 1
for step in range(1, 6):
    found.ntokens_since_last_log += 8
    found.data_loading_times.append(0.1)
    if step == 4:
        found.run._inner.ask_to_stop()
    if found.should_log(step):
        found.log(step, 0.5, 0.6, 1.0, extra_metrics={"lr": 0.01, "n_tokens_seen": 8})
    if step == job.training.steps:
        break
found.log_validation(0.75, 4)
found.close()
assert [step for step, _ in said] == [1, 2, 4, 4], said
first, last = said[0][1], said[-1][1]
assert (first["loss"], first["lr"], first["grad_norm"], first["n_tokens_seen"]) == (0.5, 0.01, 1.0, 8), first
assert (last["loss"], last["validation_metrics/loss"]) == (None, 0.75), last
print("right")
"""

TUNE = """
import sys
import torch
from omegaconf import OmegaConf
from torchtune import config

settings = OmegaConf.load(sys.argv[1])
logger = config.instantiate(settings.metric_logger, log_dir="out")
logger.log_config(settings)
logger.log_dict({"loss": torch.tensor(0.5), "lr": 0.01, "tokens_per_second_per_gpu": 8.0, "step": 1.0}, step=7)
logger.log("val_loss", 0.25, 8)
logger.close()
"""


class Recipes(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def block(self, kind, name):
        """A block of the document, as a file by its name."""
        text = DOCUMENT.split(f"```{kind}\n# {name}\n")[1].split("```")[0]
        (self.folder / name).write_text(text)
        return self.folder / name

    def run_code(self, code, *arguments, **environment):
        path = os.pathsep.join([str(self.folder), os.environ.get("PYTHONPATH", "")])
        command = [sys.executable, "-W", "ignore", "-c", code, *map(str, arguments)]
        environment = {**os.environ, "PYTHONPATH": path, **environment}
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)

    def test_torchtitan_reports_and_stops_with_a_last_checkpoint(self):
        print(f"torchtitan {importlib.metadata.version('torchtitan')}")
        self.block("python", "titan_gradus.py")
        done = self.run_code(TITAN)
        self.assertEqual((done.returncode, done.stdout.splitlines()[-1:]), (0, ["right"]), done.stderr)

    def test_the_configuration_of_torchtitan_has_fields_that_it_knows(self):
        path = self.block("toml", "titan.toml")
        code = (
            "import sys\nfrom torchtitan.config import ConfigManager\n"
            "found = ConfigManager().parse_args(['--job.config_file', sys.argv[1]])\n"
            "print(found.model.name, found.experimental.custom_import, found.checkpoint.last_save_model_only, found.checkpoint.enable)\n"
        )
        done = self.run_code(code, path)
        self.assertEqual(done.stdout.splitlines()[-1:], ["llama3_gradus titan_gradus False True"], done.stderr)

    def test_torchtune_reports_through_its_configuration(self):
        print(f"torchtune {importlib.metadata.version('torchtune')}")
        path = self.block("yaml", "tune.yaml")
        listener = socket.socket(socket.AF_UNIX)
        self.addCleanup(listener.close)
        listener.bind(str(self.folder / "s"))
        listener.listen()
        done = self.run_code(TUNE, path, GRADUS_SOCKET=str(self.folder / "s"), GRADUS_RUN="own-1")
        self.assertEqual(done.returncode, 0, done.stderr)
        connection, _ = listener.accept()
        with connection, connection.makefile("r") as stream:
            reports = [json.loads(line) for line in stream]
        step, = (report for report in reports if report.get("report") == "step")
        self.assertEqual((step["step"], step["loss"], step["lr"]), (7, 0.5, 0.01))
        text = json.dumps([report for report in reports if report.get("report") == "metrics"])
        self.assertTrue("tokens_per_second_per_gpu" in text and "val_loss" in text, text)


if __name__ == "__main__":
    unittest.main()
