"""Holds our networks against torchvision's and the `transformers` library's, number by number.

    parity.py PARITY MODEL…

PARITY is the built example `parity` of crates/train. For each model: the peer's random weights are saved as its users
save them (a state as safetensors, or `save_pretrained`), ours loads that file, and both see the same batch. Compared
are the scores without dropout, the loss, every gradient of a training pass (same seed before it, so the same dropout)
and all weights after 20 updates; then the peer loads our weights back by name, strictly. Prints one line of JSON each:
relative differences, of a tensor to its largest value; of a gradient to its largest value or, where that is next to
nothing, to a thousandth of the largest of all. A detector's line, and every line in another precision than fp32 or with
channels last, also says how far the peer lies from itself when each first weight is changed by about its last bit; in 16
bits and tf32, from itself in fp32. So much is rounding: deep networks with batch normalisation over few values enlarge it.
"""

import contextlib
import copy
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import torch
import torchvision
from safetensors.torch import load_file, save_file

import yolo

STEPS, SEED, THREADS = 20, 11, 1
CLASSES, SIZE, BATCH = 10, 64, 8
VOCABULARY, LENGTH, ROWS = 1000, 48, 4

# Tensors that are one in a file and have two names in a state.
TIED = {
    "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
    "lm_head.weight": "transformer.wte.weight",
}

# On a GPU in another precision, and with pictures pixel by pixel in memory, as `cargo xtask gpu run` asks.
DEVICE, PRECISION = os.environ.get("PARITY_DEVICE", "cpu"), os.environ.get("PARITY_PRECISION", "fp32")
MEMORY_FORMAT = os.environ.get("PARITY_MEMORY_FORMAT", "contiguous")
IS_EXACT = PRECISION == "fp32" and MEMORY_FORMAT == "contiguous"
HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(PRECISION)

binary, *names = sys.argv[1:]
torch.set_num_threads(THREADS)
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
torch.use_deterministic_algorithms(True)
torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = PRECISION == "tf32"


def autocast():
    return torch.autocast(DEVICE, dtype=HALF) if HALF else contextlib.nullcontext()


@contextlib.contextmanager
def in_fp32():
    """Whatever the precision, computes in 32 bits."""
    global HALF
    before, HALF = HALF, None
    allowed = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    yield
    HALF = before
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = allowed


class Basic(torch.nn.Module):
    """A block of the residual networks for small pictures, which torchvision does not have."""

    def __init__(self, inputs, outputs):
        super().__init__()
        stride = 1 if inputs == outputs else 2
        self.conv1 = torch.nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = torch.nn.BatchNorm2d(outputs)
        self.conv2 = torch.nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = torch.nn.BatchNorm2d(outputs)
        self.added = outputs - inputs

    def forward(self, x):
        out = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        if self.added:
            half = self.added // 2
            x = torch.nn.functional.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, half, self.added - half))
        return torch.relu(out + x)


class Small(torch.nn.Module):
    def __init__(self, blocks):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        self.bn1 = torch.nn.BatchNorm2d(16)
        for stage, (inputs, outputs) in enumerate([(16, 16), (16, 32), (32, 64)], 1):
            layers = [Basic(inputs if place == 0 else outputs, outputs) for place in range(blocks)]
            setattr(self, f"layer{stage}", torch.nn.Sequential(*layers))
        self.fc = torch.nn.Linear(64, CLASSES)

    def forward(self, x):
        x = torch.relu(self.bn1(self.conv1(x)))
        return self.fc(self.layer3(self.layer2(self.layer1(x))).mean((2, 3)))


class Module(torch.nn.Module):
    """What a user may bring along as TorchScript: of all that has a state, one."""

    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 16, 3, 2, 1)
        self.norm = torch.nn.BatchNorm2d(16)
        self.group = torch.nn.GroupNorm(4, 16)
        self.drop = torch.nn.Dropout(0.2)
        self.classify = torch.nn.Linear(16 * 64, CLASSES)

    def forward(self, x):
        x = torch.nn.functional.gelu(self.norm(self.conv(x)))
        # Not adaptively: CUDA devices have no deterministic backward pass of that.
        x = torch.nn.functional.avg_pool2d(self.group(x), 4).flatten(1)
        return self.classify(self.drop(x))


def vision(name):
    if name == "torchscript":
        return Module(), "plain PyTorch"
    if name == "vit_s_16":
        model = torchvision.models.VisionTransformer(
            image_size=SIZE, patch_size=16, num_layers=12, num_heads=6, hidden_dim=384, mlp_dim=1536, num_classes=CLASSES
        )
        torch.nn.init.normal_(model.heads.head.weight, std=0.02)
        return model, "torchvision"
    if name == "vit_b_16":
        model = torchvision.models.vit_b_16(image_size=SIZE, num_classes=CLASSES)
        torch.nn.init.normal_(model.heads.head.weight, std=0.02)
        return model, "torchvision"
    if name.startswith("yolo"):
        return yolo.Yolo(CLASSES, {"yolo_n": 16, "yolo_s": 32}[name]), "plain PyTorch"
    if name in ("resnet20", "resnet56"):
        return Small({"resnet20": 3, "resnet56": 9}[name]), "plain PyTorch"
    outputs = 1 if name.endswith(":number") else CLASSES
    return getattr(torchvision.models, name.split(":")[0])(num_classes=outputs), "torchvision"


def text(name):
    import transformers

    task = name.split(":")[1] if ":" in name else ""
    sizes = {
        "bert_mini": (4, 256, 4),
        "bert_base": (12, 768, 12),
        "bert_large": (24, 1024, 16),
        "gpt_tiny": (4, 128, 4, 256),
        "gpt2": (12, 768, 12, 1024),
        "gpt2_medium": (24, 1024, 16, 1024),
    }
    size = sizes[name.split(":")[0]]
    if name.startswith("bert"):
        layers, width, heads = size
        config = transformers.BertConfig(
            vocab_size=VOCABULARY,
            hidden_size=width,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            intermediate_size=4 * width,
            num_labels=1 if task == "number" else CLASSES,
        )
        kind = transformers.BertForMaskedLM if task == "words" else transformers.BertForSequenceClassification
        return kind(config), "transformers"
    layers, width, heads, positions = size
    config = transformers.GPT2Config(
        vocab_size=VOCABULARY, n_embd=width, n_layer=layers, n_head=heads, n_positions=positions
    )
    config.bos_token_id = config.eos_token_id = VOCABULARY - 1
    return transformers.GPT2LMHeadModel(config), "transformers"


def scenes():
    """Pictures with up to three objects each, the last of them with none."""
    there = torch.full((BATCH, 3, 5), -1.0)
    for frame in range(BATCH - 1):
        for place in range(1 + frame % 3):
            corner, side = torch.rand(2) * (SIZE - 30), 12 + torch.rand(2) * 18
            there[frame, place] = torch.cat([torch.tensor([float((frame + place) % CLASSES)]), corner, corner + side])
    return {"values": torch.rand(BATCH, 3, SIZE, SIZE), "labels": there}


def targets(name, count):
    """One class per sample, or after a colon any number of labels, or a number."""
    if name.endswith(":labels"):
        return torch.rand(count, CLASSES) < 0.3
    if name.endswith(":number"):
        return torch.randn(count) * 2 + 1
    return torch.arange(count) % CLASSES


def batch(name):
    if name.startswith("yolo"):
        return scenes()
    if not name.startswith(("bert", "gpt")):
        return {"values": torch.randn(BATCH, 3, SIZE, SIZE), "labels": targets(name, BATCH)}
    tokens = torch.randint(5, VOCABULARY, (ROWS, LENGTH))
    if name.startswith("gpt"):
        labels = torch.randint(0, VOCABULARY, (ROWS, LENGTH))
        labels[1, -9:] = -100
        return {"values": tokens, "labels": labels}
    mask = torch.ones(ROWS, LENGTH, dtype=torch.uint8)
    mask[1, -7:] = 0
    mask[3, -20:] = 0
    tokens[mask == 0] = 0
    if name.endswith(":words"):
        labels = torch.where((torch.rand(ROWS, LENGTH) < 0.15) & (mask == 1), tokens, torch.tensor(-100))
        labels[:, 1] = tokens[:, 1]
    else:
        labels = targets(name, ROWS)
    return {"values": tokens, "labels": labels, "mask": mask}


def largest(tensor):
    return tensor.abs().max().item() if tensor.numel() else 0.0


def relative(ours, theirs, floor=0.0):
    ours, theirs = ours.cpu(), theirs.cpu()
    return largest(ours.double() - theirs.double()) / max(largest(theirs.double()), floor, 1e-30)


def distance(losses, others):
    """How far losses lie from others at most, beside these."""
    return ((losses - others).abs() / others.abs().clamp_min(1e-3)).max().item()


def nudged(model):
    """The same model with each weight changed by about its last bit."""
    other, random = copy.deepcopy(model), torch.Generator().manual_seed(5)
    with torch.no_grad():
        for tensor in other.parameters():
            tensor.mul_((1 + 6e-8 * torch.randn(tensor.shape, generator=random)).to(DEVICE))
    return other


def compare(name, work):
    torch.manual_seed(0)
    is_text = name.startswith(("bert", "gpt"))
    model, peer = text(name) if is_text else vision(name)
    given = batch(name)
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            # In place, a CUDA device draws other random numbers.
            module.inplace = False
    with torch.no_grad():
        # Fresh biases and statistics are zeros and ones, which would hide one taken for another.
        for key, tensor in model.state_dict().items():
            if tensor.dim() == 1 and tensor.is_floating_point():
                tensor.add_(torch.rand_like(tensor) * 0.02)
    folder = pathlib.Path(work)
    if is_text:
        model.save_pretrained(folder, safe_serialization=True)
    else:
        save_file(model.state_dict(), folder / "model.safetensors")
    save_file(given, folder / "batch.safetensors")

    adamw = is_text or name.startswith(("vit", "convnext"))
    rate = 1e-4 if adamw else 0.01
    if name.endswith(":number"):
        # The gradient of a squared error has no bound: at the others' rate both sides diverge within 20 steps.
        rate /= 20
    # Key biases have no gradient but rounding, since a softmax does not see them. Divided by its own size, as Adam does,
    # rounding becomes a step of full length; of this much it becomes none.
    eps = 1e-6
    rule = {"adamw": {"lr": rate, "eps": eps}} if adamw else {"sgd": {"lr": rate, "momentum": 0.9, "weight_decay": 5e-4}}
    case = {
        "train": {
            "model": name.split(":")[0],
            "weights": str(folder / "model.safetensors"),
            "data": {"path": ""},
            "epochs": 1,
            "batch": len(given["labels"]),
            "threads": THREADS,
            "precision": PRECISION,
            "memory_format": MEMORY_FORMAT,
            "optimizer": rule,
        },
        "batch": str(folder / "batch.safetensors"),
        "steps": STEPS,
        "seed": SEED,
    }
    if DEVICE != "cpu":
        case["device"] = DEVICE
    if name == "torchscript":
        torch.jit.script(model).save(folder / "module.pt")
        case["train"] |= {"model": {"torchscript": str(folder / "module.pt")}, "loss": "cross_entropy"}
        del case["train"]["weights"]
    words = is_text and (name.startswith("gpt") or name.endswith(":words"))
    if is_text:
        case["text"] = [VOCABULARY, LENGTH]
    else:
        case["size"] = SIZE
    if not words:
        case["classes"] = CLASSES
    kinds = {"labels": "multi_label", "number": "number"}
    case["train"]["data"]["labels"] = kinds.get(name.split(":")[-1], "class")
    out = folder / "answer.safetensors"
    done = subprocess.run([binary, json.dumps(case), out], stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{name}: {done.stderr}")
    ours = load_file(out)
    model.to(DEVICE)
    given = {key: tensor.to(DEVICE) for key, tensor in given.items()}
    if MEMORY_FORMAT == "channels_last":
        model.to(memory_format=torch.channels_last)
        given["values"] = given["values"].contiguous(memory_format=torch.channels_last)

    def scores(model):
        with autocast():
            if is_text:
                more = {"attention_mask": given["mask"].long()} if "mask" in given else {}
                found = model(input_ids=given["values"], **more).logits
            else:
                found = model(given["values"])
        return found.float()

    def loss(model):
        found = scores(model)
        if name.startswith("yolo"):
            return yolo.loss(found, given["labels"], SIZE)
        if name.endswith(":labels"):
            return torch.nn.functional.binary_cross_entropy_with_logits(found, given["labels"].float())
        if name.endswith(":number"):
            return torch.nn.functional.mse_loss(found.squeeze(-1), given["labels"])
        return torch.nn.functional.cross_entropy(found.reshape(-1, found.shape[-1]), given["labels"].reshape(-1))

    def updated(model):
        parameters = list(model.parameters())
        if adamw:
            optimizer = torch.optim.AdamW(parameters, lr=rate, eps=eps, weight_decay=0.01, fused=True)
        else:
            optimizer = torch.optim.SGD(parameters, lr=rate, momentum=0.9, weight_decay=5e-4, fused=True)
        scaler = torch.amp.GradScaler(DEVICE, enabled=PRECISION == "fp16")
        losses = []
        for number in range(STEPS):
            torch.manual_seed(SEED + number)
            value = loss(model)
            scaler.scale(value).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad(set_to_none=True)
            losses.append(value.item())
        return torch.tensor(losses, dtype=torch.float64)

    model.eval()
    with torch.no_grad():
        logits = relative(ours["logits"], scores(model))
    model.train()
    torch.manual_seed(SEED)
    loss(model).backward()
    gradients = {key: tensor.grad.clone() for key, tensor in model.named_parameters()}
    floor = 1e-3 * max(largest(tensor) for tensor in gradients.values())
    worst = max((relative(ours["grad." + TIED.get(key, key)], tensor, floor), key) for key, tensor in gradients.items())
    model.zero_grad(set_to_none=True)

    itself = {}
    changed = nudged(model) if name.startswith("yolo") or not IS_EXACT else None
    if not IS_EXACT:
        with in_fp32():
            torch.manual_seed(SEED)
            loss(changed).backward()
        there = dict(changed.named_parameters())
        itself["gradients"] = max(relative(there[key].grad, tensor, floor) for key, tensor in gradients.items())
        changed = nudged(model)
    losses = updated(model)
    state = {key: tensor for key, tensor in model.state_dict().items() if "after." + key in ours}
    after = max((relative(ours["after." + key].float(), tensor.float()), key) for key, tensor in state.items())
    if changed is not None:
        with contextlib.nullcontext() if IS_EXACT else in_fp32():
            others = updated(changed)
        again = changed.state_dict()
        itself["loss"] = (abs(others[0] - losses[0]) / abs(losses[0])).item()
        itself["curve"] = distance(others, losses)
        itself["weights"] = max(relative(again[key].float(), tensor.float()) for key, tensor in state.items())
        itself = {"itself": itself}
    back = {key.removeprefix("after."): tensor for key, tensor in ours.items() if key.startswith("after.")}
    missing, unexpected = model.load_state_dict(back, strict=not is_text)
    assert set(missing) <= set(TIED) and not unexpected, (missing, unexpected)
    return {
        "model": name,
        "peer": peer,
        "tensors": len(back),
        "logits": logits,
        "loss": abs(ours["losses"][0].item() - losses[0].item()) / abs(losses[0].item()),
        "gradients": worst[0],
        "worst_gradient": worst[1],
        "curve": distance(ours["losses"], losses),
        "weights": after[0],
        "worst_weight": after[1],
    } | itself


for name in names:
    with tempfile.TemporaryDirectory() as work:
        print(json.dumps(compare(name, work)), flush=True)
