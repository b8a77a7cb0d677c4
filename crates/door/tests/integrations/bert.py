"""A tiny BERT and the Trainer of Hugging Face. `--die STEP` is a SIGKILL after that step, and `--stop STEP` a SIGTERM."""
import argparse
import hashlib
import os
import signal

import torch
import transformers

import gradus.huggingface


class Signals(transformers.TrainerCallback):
    def __init__(self, die, stop):
        self.signals = {die: signal.SIGKILL, stop: signal.SIGTERM}

    def on_step_end(self, args, state, control, **_):
        print(f"step {state.global_step}", flush=True)
        if state.global_step in self.signals:
            os.kill(os.getpid(), self.signals[state.global_step])


def trainer_of(folder, callbacks):
    """The Trainer of a tiny BERT for 24 steps."""
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    transformers.set_seed(3)
    config = transformers.BertConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, num_labels=3,
        attn_implementation="eager",
    )
    model = transformers.BertForSequenceClassification(config)
    generator = torch.Generator().manual_seed(7)
    ids = torch.randint(0, 50, (48, 12), generator=generator)
    data = [{"input_ids": row, "labels": row.sum() % 3} for row in ids]
    settings = transformers.TrainingArguments(
        output_dir=folder, per_device_train_batch_size=8, num_train_epochs=4, save_strategy="no", report_to=[],
        logging_steps=2, use_cpu=True, seed=3, disable_tqdm=True,
    )
    return transformers.Trainer(model=model, args=settings, train_dataset=data, callbacks=callbacks)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--die", type=int, default=-1)
    parser.add_argument("--stop", type=int, default=-1)
    args = parser.parse_args()
    callback = gradus.huggingface.GradusCallback(save_every="4 steps")
    trainer = trainer_of(args.folder, [callback, Signals(args.die, args.stop)])
    trainer.train(resume_from_checkpoint=callback.resume())
    sha = hashlib.sha256()
    for name, tensor in sorted(trainer.model.state_dict().items()):
        sha.update(name.encode() + tensor.contiguous().numpy().tobytes())
    print(f"ended at {trainer.state.global_step} with {sha.hexdigest()}")


if __name__ == "__main__":
    main()
