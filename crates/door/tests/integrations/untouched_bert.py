"""A tiny BERT and the Trainer of Hugging Face, which know nothing of gradus. The environment says when it kills itself."""
import hashlib
import os
import signal

import torch
from transformers import (
    BertConfig, BertForSequenceClassification, HfArgumentParser, Trainer, TrainerCallback, TrainingArguments, set_seed,
)


class Killed(TrainerCallback):
    """A SIGKILL at a step of the first attempt; `CUT` is a file of a checkpoint that it cuts short."""

    def on_step_begin(self, args, state, control, **_):
        if state.global_step == int(os.environ.get("DIE", -1)) and os.environ.get("GRADUS_ATTEMPT_NUMBER") == "1":
            if os.environ.get("CUT"):
                os.truncate(os.environ["CUT"], os.path.getsize(os.environ["CUT"]) - 1)
            os.kill(os.getpid(), signal.SIGKILL)


def main():
    args, = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    set_seed(args.seed)
    config = BertConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, num_labels=3,
        attn_implementation="eager",
    )
    model = BertForSequenceClassification(config)
    ids = torch.randint(0, 50, (48, 12), generator=torch.Generator().manual_seed(7))
    data = [{"input_ids": row, "labels": row.sum() % 3} for row in ids]
    trainer = Trainer(model=model, args=args, train_dataset=data, callbacks=[Killed()])
    print(f"resumes from {args.resume_from_checkpoint}", flush=True)
    trainer.train(resume_from_checkpoint=args.resume_from_checkpoint)
    sha = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        sha.update(name.encode() + tensor.contiguous().numpy().tobytes())
    print(f"ended at {trainer.state.global_step} with {sha.hexdigest()}")


if __name__ == "__main__":
    main()
