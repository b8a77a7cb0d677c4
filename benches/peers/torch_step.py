"""PyTorch's side of `cargo xtask bench train`: the step of the same model, timed in blocks on demand.

    torch_step.py [compiled] CASE

Takes the same case, and answers `steps N` in the same way, as `gradus-rank bench`. The models are torchvision's and the
`transformers` library's. Written as a PyTorch user writes it who wants it fast: fused optimiser, autocast, gradients
set to none; the loss is read at every step, as ours is. With `compiled`, the model goes through `torch.compile`.
"""

import json
import resource
import sys
import time

import torch
import torchvision

compiled = "compiled" in sys.argv[1:-1]
case = json.loads(sys.argv[-1])
train = case["train"]
name, count, classes = train["model"], train["batch"], case["classes"]

torch.set_num_threads(case["threads"])
torch.manual_seed(train["seed"])
memory_format = torch.channels_last if train["memory_format"] == "channels_last" else torch.contiguous_format


def vision():
    if name == "resnet18":
        assert case["size"] < 64, "the stem below is that of small pictures"
        model = torchvision.models.resnet18(num_classes=classes)
        model.conv1 = torch.nn.Conv2d(3, 64, kernel_size=3, stride=1, padding=1, bias=False)
        model.maxpool = torch.nn.Identity()
    else:
        model = getattr(torchvision.models, name)(num_classes=classes)
    images = torch.randn(count, 3, case["size"], case["size"]).to(memory_format=memory_format)
    return model.to(memory_format=memory_format), images, torch.arange(count) % classes


def words():
    import transformers

    length, vocabulary = train["data"]["text"]["length"], case["vocabulary"]
    tokens = torch.randint(1, vocabulary, (count, length))
    if name == "bert_mini":
        config = transformers.BertConfig(
            vocab_size=vocabulary,
            hidden_size=256,
            num_hidden_layers=4,
            num_attention_heads=4,
            intermediate_size=1024,
            num_labels=classes,
        )
        return transformers.BertForSequenceClassification(config), tokens, torch.arange(count) % classes
    assert name == "gpt_tiny", name
    config = transformers.GPT2Config(vocab_size=vocabulary, n_positions=256, n_embd=128, n_layer=4, n_head=4)
    return transformers.GPT2LMHeadModel(config), tokens, tokens


model, values, labels = words() if "text" in train["data"] else vision()
model.train()
[(rule, constants)] = train["optimizer"].items()
if rule == "sgd":
    optimizer = torch.optim.SGD(model.parameters(), **constants, fused=True)
else:
    optimizer = torch.optim.AdamW(model.parameters(), **constants, fused=True)
bf16 = train["precision"] == "bf16"
forward = torch.compile(model) if compiled else model


def step():
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
        scores = forward(values)
    scores = getattr(scores, "logits", scores).float()
    loss = torch.nn.functional.cross_entropy(scores.flatten(0, -2), labels.flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss.item()


for line in sys.stdin:
    request, times = line.split()
    assert request == "steps", line
    seconds, loss = [], 0.0
    for _ in range(int(times)):
        began = time.perf_counter()
        loss = step()
        seconds.append(time.perf_counter() - began)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"seconds": seconds, "loss": loss, "peak_bytes": peak}), flush=True)
