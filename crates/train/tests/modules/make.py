"""Writes the modules beside this file that the tests train.

    PYTHONPATH=FOLDER_OF_PYTORCH_2.11 python3 make.py
"""

import pathlib
from typing import Optional

import torch
from torch import nn

HERE = pathlib.Path(__file__).parent


class Pictures(nn.Module):
    """Tells pictures of 8×8 grey pixels apart; everything that has a state of its own is in it."""

    def __init__(self, classes: int):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, 2, 1)
        self.norm = nn.BatchNorm2d(4)
        self.drop = nn.Dropout(0.1)
        self.classify = nn.Linear(64, classes)

    def forward(self, x):
        return self.classify(self.drop(torch.relu(self.norm(self.conv(x))).flatten(1)))


class Spare(Pictures):
    """Has a parameter that it does not use."""

    def __init__(self):
        super().__init__(10)
        self.spare = nn.Parameter(torch.zeros(3))


class Rows(nn.Module):
    """Tells rows of words apart by the mean of their words."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(400, 6)
        self.classify = nn.Linear(6, 3)

    def forward(self, words, mask: Optional[torch.Tensor] = None):
        values = self.words(words)
        if mask is None:
            return self.classify(values.mean(1))
        kept = mask.unsqueeze(-1).to(values.dtype)
        return self.classify((values * kept).sum(1) / kept.sum(1).clamp_min(1.0))


class Words(nn.Module):
    """Says the next word by the one before it; what goes in is what comes out."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(400, 6)
        self.mix = nn.Linear(6, 6)
        self.say = nn.Linear(6, 400, bias=False)
        self.say.weight = self.words.weight

    def forward(self, words):
        return self.say(torch.tanh(self.mix(self.words(words))))


torch.manual_seed(1)
for name, module in [
    ("pictures", Pictures(10)),
    ("seven", Pictures(7)),
    ("spare", Spare()),
    ("rows", Rows()),
    ("words", Words()),
]:
    torch.jit.script(module).save(HERE / f"{name}.pt")
torch.jit.freeze(torch.jit.script(Pictures(10).eval())).save(HERE / "frozen.pt")
torch.save(Pictures(10).state_dict(), HERE / "state.pt")
