"""A CNN or a small transformer on synthetic digits: plain PyTorch, on one process or several."""
import argparse
import hashlib
import os
import random

import torch
from torch import nn
from torch.nn.functional import cross_entropy


class Net(nn.Module):
    def __init__(self, classes=10):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        )
        self.dropout = nn.Dropout(0.2)
        self.head = nn.Linear(16 * 2 * 2, classes)

    def forward(self, x):
        return self.head(self.dropout(self.features(x).flatten(1)))


class Rows(nn.Module):
    """The rows of an image as a sequence."""

    def __init__(self, classes=10, width=16):
        super().__init__()
        self.embed, self.place = nn.Linear(8, width), nn.Parameter(torch.zeros(8, width))
        layer = nn.TransformerEncoderLayer(width, 2, 32, dropout=0.1, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        return self.head(self.layers(self.embed(x.squeeze(1)) + self.place).mean(1))


def digits(count, classes=10):
    """Noisy copies of one 8 by 8 pattern for each class."""
    generator = torch.Generator().manual_seed(7)
    patterns = torch.randn(classes, 1, 8, 8, generator=generator)
    labels = torch.randint(0, classes, (count,), generator=generator)
    return patterns[labels] + 0.8 * torch.randn(count, 1, 8, 8, generator=generator), labels


def augmented(images):
    """Shifted by a pixel at random, and mirrored at times."""
    images = torch.roll(images, (random.randint(-1, 1), random.randint(-1, 1)), (2, 3))
    return images + 0.05 * torch.randn_like(images)


def accuracy(model, images, labels):
    model.eval()
    with torch.no_grad():
        share = (model(images).argmax(1) == labels).float().mean().item()
    model.train()
    return share


def digest(model):
    """SHA-256 of all weights and buffers."""
    sha = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        sha.update(name.encode() + tensor.contiguous().numpy().tobytes())
    return sha.hexdigest()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--model", choices=["cnn", "transformer"], default="cnn")
    args = parser.parse_args()

    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(0)
    net = Net() if args.model == "cnn" else Rows()
    model = net
    if world > 1:
        torch.distributed.init_process_group("gloo")
        model = nn.parallel.DistributedDataParallel(net)
    torch.manual_seed(rank)
    random.seed(rank)
    images, labels = digits(2000)
    held_out = digits(2400)[0][2000:], digits(2400)[1][2000:]

    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3, weight_decay=0.01)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)
    for step in range(1, args.steps + 1):
        index = torch.randint(0, len(images), (args.batch,))
        loss = cross_entropy(model(augmented(images[index])), labels[index])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        print(f"step {step} loss {loss.item():.4f}", flush=True)

    print(f"accuracy {accuracy(net, *held_out):.3f}")
    print(f"weights {digest(net)}", flush=True)
    if world > 1:
        # A DDP model that outlives its process group can wait for ever in Gloo (PyTorch 2.11).
        del model
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
