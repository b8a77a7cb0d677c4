"""PyTorch's side of `cargo xtask bench train`: the step of torchvision's resnet18, timed in blocks on demand.

Takes the same case, and answers `steps N` in the same way, as `crates/train/examples/bench.rs`. Written as a PyTorch
user writes it who wants it fast: fused optimiser, autocast, gradients set to none; the loss is read at every step, as
ours is.
"""

import json
import resource
import sys
import time

import torch
import torchvision

case = json.loads(sys.argv[1])
train = case["train"]
sgd = train["optimizer"]["sgd"]
assert train["model"] == "resnet18" and case["size"] < 64, "the stem below is that of small pictures"

torch.set_num_threads(case["threads"])
torch.manual_seed(train["seed"])
memory_format = torch.channels_last if train["memory_format"] == "channels_last" else torch.contiguous_format
model = torchvision.models.resnet18(num_classes=case["classes"])
model.conv1 = torch.nn.Conv2d(3, 64, kernel_size=3, stride=1, padding=1, bias=False)
model.maxpool = torch.nn.Identity()
model = model.to(memory_format=memory_format)
optimizer = torch.optim.SGD(
    model.parameters(),
    lr=sgd["lr"],
    momentum=sgd["momentum"],
    nesterov=sgd["nesterov"],
    weight_decay=sgd["weight_decay"],
    fused=True,
)
images = torch.randn(train["batch"], 3, case["size"], case["size"]).to(memory_format=memory_format)
labels = torch.arange(train["batch"]) % case["classes"]
bf16 = train["precision"] == "bf16"


def step():
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
        scores = model(images)
    loss = torch.nn.functional.cross_entropy(scores.float(), labels)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss.item()


for line in sys.stdin:
    name, count = line.split()
    assert name == "steps", line
    seconds, loss = [], 0.0
    for _ in range(int(count)):
        began = time.perf_counter()
        loss = step()
        seconds.append(time.perf_counter() - began)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"seconds": seconds, "loss": loss, "peak_bytes": peak}), flush=True)
