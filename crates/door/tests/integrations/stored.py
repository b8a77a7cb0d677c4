"""Lightning's own `ModelCheckpoint`, whose checkpoints gradus writes: they resume as Lightning's do, and a flipped bit is met."""
import pathlib
import sys

import lightning
import torch
from lightning.fabric.plugins.io.torch_io import TorchCheckpointIO
from module import Batches
from safetensors.torch import load_file

import gradus.lightning


class Layer(lightning.LightningModule):
    def __init__(self, rate=0.01):
        super().__init__()
        self.save_hyperparameters()
        self.layer = torch.nn.Linear(5, 1)

    def training_step(self, batch, batch_index):
        return (self.layer(batch) - batch.sum(1, keepdim=True)).square().mean()

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.rate)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)]


def train(folder, epochs, stored, path=None):
    lightning.seed_everything(3, verbose=False)
    module = Layer()
    save = lightning.pytorch.callbacks.ModelCheckpoint(dirpath=folder, every_n_epochs=1, save_last=True)
    trainer = lightning.Trainer(
        max_epochs=epochs, accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False,
        callbacks=[save], plugins=[stored],
    )
    trainer.fit(module, Batches(), ckpt_path=path)
    return module.state_dict()


def raises(kind, call):
    try:
        call()
    except kind as error:
        return str(error)
    raise AssertionError(f"no {kind}")


def main():
    folder, stored = pathlib.Path(sys.argv[1]), gradus.lightning.GradusCheckpointIO()
    ended = []
    for name, plugin in [("own", TorchCheckpointIO()), ("ours", stored)]:
        train(folder / name, 2, plugin)
        ended.append(train(folder / name, 4, plugin, str(folder / name / "last.ckpt")))
    own, ours = ended
    assert all(torch.equal(own[name], ours[name]) for name in own), "other weights"
    # Replaced and removed as files would be.
    names = [sorted(path.name for path in (folder / name).iterdir()) for name in ("own", "ours")]
    assert names[0] == names[1], names
    last = folder / "ours/last.ckpt"
    found = stored.load_checkpoint(last)
    assert (found["global_step"], found["hyper_parameters"]) == (24, {"rate": 0.01}), found
    assert stored.load_checkpoint(folder / "own/last.ckpt")["global_step"] == 24, "a file of Lightning"
    model, = last.glob("step-*/model.safetensors")
    assert all(torch.equal(ours[name], tensor) for name, tensor in load_file(model).items())
    # A file of Lightning's own stays until the folder that takes its place is durable.
    file, aside = folder / "own/last.ckpt", folder / "own/last.ckpt.gradus"
    before = file.read_bytes()
    aside.write_text("no folder")
    raises(gradus.CheckpointError, lambda: stored.save_checkpoint(found, file))
    assert file.read_bytes() == before
    aside.unlink()
    stored.save_checkpoint(found, file)
    assert file.is_dir() and stored.load_checkpoint(file)["global_step"] == 24
    assert sorted(path.name for path in file.parent.iterdir()) == names[1], "something was left"
    # A training that began anew writes an earlier step to the same name.
    stored.save_checkpoint({**found, "global_step": 6}, last)
    assert stored.load_checkpoint(last)["global_step"] == 6
    model, = last.glob("step-*/model.safetensors")
    data = bytearray(model.read_bytes())
    data[-1] ^= 1
    model.write_bytes(data)
    assert "checksum" in raises(gradus.CheckpointError, lambda: stored.load_checkpoint(last))
    raises(FileNotFoundError, lambda: stored.load_checkpoint(folder / "nothing.ckpt"))
    raises(ValueError, lambda: stored.save_checkpoint({"state_dict": {}}, "s3://bucket/a.ckpt"))
    stored.remove_checkpoint(last)
    assert not last.exists()
    print("right")


if __name__ == "__main__":
    main()
