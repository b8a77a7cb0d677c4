"""A small module and the Trainer of Lightning, which know nothing of gradus. The environment says when it kills itself."""
import argparse
import hashlib
import os
import signal

import lightning
import torch


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(5, 1)

    def training_step(self, batch, _):
        return (self.layer(batch) - batch.sum(1, keepdim=True)).square().mean()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=0.01)


class Killed(lightning.Callback):
    def on_train_batch_start(self, trainer, module, batch, batch_index):
        if trainer.global_step == int(os.environ.get("DIE", -1)) and os.environ.get("GRADUS_ATTEMPT_NUMBER") == "1":
            os.kill(os.getpid(), signal.SIGKILL)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ckpt_path", default=None)
    args = parser.parse_args()
    torch.set_num_threads(1)
    lightning.seed_everything(3, verbose=False)
    module = Module()
    data = torch.randn(48, 5, generator=torch.Generator().manual_seed(7))
    save = lightning.pytorch.callbacks.ModelCheckpoint(every_n_epochs=1, save_top_k=-1)
    trainer = lightning.Trainer(
        max_epochs=4, accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False,
        default_root_dir="saved", callbacks=[save, Killed()],
    )
    print(f"resumes from {args.ckpt_path}", flush=True)
    trainer.fit(module, torch.utils.data.DataLoader(data, batch_size=8), ckpt_path=args.ckpt_path)
    sha = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        sha.update(name.encode() + tensor.contiguous().numpy().tobytes())
    print(f"ended at {trainer.global_step} with {sha.hexdigest()}")


if __name__ == "__main__":
    main()
