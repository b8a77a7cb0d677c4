"""A small module and the Trainer of Lightning. `--die STEP` is a SIGKILL after that step, and `--stop STEP` a SIGTERM."""
import argparse
import hashlib
import os
import signal

import lightning
import torch

import gradus.lightning


class Batches:
    """A data loader that says where it stands, as Lightning asks of one that continues within an epoch."""

    def __init__(self):
        self.epoch = self.at = 0

    def __len__(self):
        return 6

    def __iter__(self):
        if self.at == len(self):
            self.epoch, self.at = self.epoch + 1, 0
        while self.at < len(self):
            generator = torch.Generator().manual_seed(100 * self.epoch + self.at)
            self.at += 1
            yield torch.randn(8, 5, generator=generator)

    def state_dict(self):
        return {"epoch": self.epoch, "at": self.at}

    def load_state_dict(self, state):
        self.epoch, self.at = state["epoch"], state["at"]


class Module(lightning.LightningModule):
    def __init__(self, loss=torch.nn.functional.mse_loss):
        super().__init__()
        # A function, which is no part of a state.
        self.save_hyperparameters()
        self.loss = loss
        self.layers = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.Dropout(0.2), torch.nn.Linear(8, 1))

    def training_step(self, batch, batch_index):
        loss = self.loss(self.layers(batch), batch.sum(1, keepdim=True))
        # Names that `run.log` has, too.
        self.log_dict({"mse": loss, "lr": 0.01, "epoch": 1.0, "step": 2.0})
        return loss

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.01)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)]


class Signals(lightning.Callback):
    def __init__(self, die, stop):
        self.signals = {die: signal.SIGKILL, stop: signal.SIGTERM}

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_index):
        print(f"step {trainer.global_step}", flush=True)
        if trainer.global_step in self.signals:
            os.kill(os.getpid(), self.signals[trainer.global_step])


def trainer_of(folder, callbacks):
    """A Trainer for 24 steps of `Batches`."""
    return lightning.Trainer(
        max_epochs=4, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, default_root_dir=folder, callbacks=callbacks,
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--die", type=int, default=-1)
    parser.add_argument("--stop", type=int, default=-1)
    args = parser.parse_args()
    torch.set_num_threads(1)
    lightning.seed_everything(3, verbose=False)
    module = Module()
    callback = gradus.lightning.GradusCallback(save_every="4 steps")
    trainer = trainer_of(args.folder, [callback, Signals(args.die, args.stop)])
    trainer.fit(module, Batches(), ckpt_path=callback.resume())
    sha = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        sha.update(name.encode() + tensor.contiguous().numpy().tobytes())
    print(f"ended at {trainer.global_step} with {sha.hexdigest()}")


if __name__ == "__main__":
    main()
