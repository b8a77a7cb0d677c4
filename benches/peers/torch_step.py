"""PyTorch's side of `cargo xtask bench train`: the step of the same model, timed in blocks on demand.

    torch_step.py [compiled|reduce-overhead|max-autotune] CASE

Takes the same case, and answers `steps N` in the same way, as `gradus-rank bench`. The models are torchvision's and the
`transformers` library's. Written as a PyTorch user writes it who wants it fast: fused optimiser, autocast, gradients
set to none; the loss is read at every step, as ours is. With `compiled`, the model goes through `torch.compile`, with
another word in that mode: `reduce-overhead` replays CUDA graphs, as ours does. On a GPU nothing is read until the last step of a block is over, by both, and the first answer
says how many operations a step takes.
"""

import contextlib
import json
import os
import resource
import sys
import time

import torch
import torchvision

import yolo

how = next(iter(sys.argv[1:-1]), "")
device = os.environ.get("SUITE_DEVICE", "cpu")
on_gpu = device != "cpu"
case = json.loads(sys.argv[-1])
train = case["train"]
name, count, classes = train["model"], train["batch"], case["classes"]

torch.set_num_threads(case["threads"])
torch.manual_seed(train["seed"])
torch.backends.cudnn.benchmark = not train.get("deterministic", False)
torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = train["precision"] == "tf32"
memory_format = torch.channels_last if train["memory_format"] == "channels_last" else torch.contiguous_format


def vision():
    if name == "resnet18" and case["size"] < 64:
        model = torchvision.models.resnet18(num_classes=classes)
        model.conv1 = torch.nn.Conv2d(3, 64, kernel_size=3, stride=1, padding=1, bias=False)
        model.maxpool = torch.nn.Identity()
    elif name == "vit_s_16":
        sizes = {"num_layers": 12, "num_heads": 6, "hidden_dim": 384, "mlp_dim": 1536}
        model = torchvision.models.VisionTransformer(case["size"], 16, num_classes=classes, **sizes)
    elif name.startswith("yolo"):
        model = yolo.Yolo(classes, {"yolo_n": 16, "yolo_s": 32}[name])
    else:
        model = getattr(torchvision.models, name)(num_classes=classes)
    images = torch.randn(count, 3, case["size"], case["size"]).to(memory_format=memory_format)
    if name.startswith("yolo"):
        # One object in the middle of each, half as wide and high.
        edges = torch.tensor([0.25, 0.25, 0.75, 0.75]) * case["size"]
        boxes = torch.cat([(torch.arange(count) % classes).float()[:, None], edges.expand(count, 4)], 1)
        return model.to(memory_format=memory_format), images, boxes[:, None]
    return model.to(memory_format=memory_format), images, torch.arange(count) % classes


def words():
    import transformers

    length, vocabulary = train["data"]["text"]["length"], case["vocabulary"]
    tokens = torch.randint(1, vocabulary, (count, length))
    if name.startswith("bert"):
        layers, width, heads = {"bert_mini": (4, 256, 4), "bert_base": (12, 768, 12)}[name]
        config = transformers.BertConfig(
            vocab_size=vocabulary,
            hidden_size=width,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            intermediate_size=4 * width,
            num_labels=classes,
        )
        return transformers.BertForSequenceClassification(config), tokens, torch.arange(count) % classes
    sizes = {"gpt_tiny": (4, 128, 4, 256), "gpt2": (12, 768, 12, 1024), "gpt2_medium": (24, 1024, 16, 1024)}
    layers, width, heads, positions = sizes[name]
    config = transformers.GPT2Config(
        vocab_size=vocabulary, n_positions=positions, n_embd=width, n_layer=layers, n_head=heads
    )
    return transformers.GPT2LMHeadModel(config), tokens, tokens


model, values, labels = words() if "text" in train["data"] else vision()
model, values, labels = model.to(device), values.to(device), labels.to(device)
model.train()
[(rule, constants)] = train["optimizer"].items()
if rule == "sgd":
    optimizer = torch.optim.SGD(model.parameters(), **constants, fused=True)
else:
    optimizer = torch.optim.AdamW(model.parameters(), **constants, fused=True)
half = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(train["precision"])
forward = model
if how:
    forward = torch.compile(model, mode=None if how == "compiled" else how)


def step():
    with torch.autocast(device, dtype=half, enabled=half is not None):
        scores = forward(values)
    scores = getattr(scores, "logits", scores).float()
    if name.startswith("yolo"):
        loss = yolo.loss(scores, labels, case["size"])
    else:
        loss = torch.nn.functional.cross_entropy(scores.flatten(0, -2), labels.flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss if on_gpu else loss.item()


def operations():
    """Floating-point operations of a step, where they can be counted."""
    if not on_gpu or how:
        return None
    from torch.utils.flop_counter import FlopCounterMode

    with contextlib.suppress(Exception), FlopCounterMode(display=False) as counted:
        step()
        return counted.get_total_flops()


def steps(times):
    """Seconds of each step, and the last loss; on a GPU each step of a block is said to take as long as any other."""
    seconds, loss, whole = [], 0.0, time.perf_counter()
    for _ in range(times):
        began = time.perf_counter()
        loss = step()
        seconds.append(time.perf_counter() - began)
    if not on_gpu:
        return {"seconds": seconds, "loss": loss}
    loss = loss.item()
    return {
        "seconds": [(time.perf_counter() - whole) / times] * times,
        "host_seconds": sum(seconds) / times,
        "loss": loss,
    }


def kernels(times):
    """What so many steps execute on the device, as `gradus-rank bench` says it of its own."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA if on_gpu else ProfilerActivity.CPU]) as profiler:
        for _ in range(times):
            step()
        if on_gpu:
            torch.cuda.synchronize()
    rows = [
        {"name": row.key, "count": row.count, "seconds": row.device_time_total / 1e6, "on_device": True}
        for row in profiler.key_averages()
        if row.device_type == torch.autograd.DeviceType.CUDA
    ]
    rows += [
        {"name": row.key, "count": row.count, "seconds": row.cpu_time_total / 1e6, "on_device": False}
        for row in profiler.key_averages()
        if row.device_type == torch.autograd.DeviceType.CPU
    ]
    return {"kernels": sorted(rows, key=lambda row: -row["seconds"])}


flops = operations()
for line in sys.stdin:
    request, times = line.split()
    if request == "kernels":
        print(json.dumps(kernels(int(times))), flush=True)
        continue
    assert request == "steps", line
    answer = steps(int(times))
    if on_gpu:
        answer["peak_bytes"] = torch.cuda.max_memory_allocated()
    else:
        answer["peak_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps(answer | ({"flops": flops} if flops else {})), flush=True)
