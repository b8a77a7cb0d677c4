"""The detector in plain PyTorch, for `parity.py`: torchvision and `transformers` have none of this form.

Written after the published architecture, with the names of tensors that its files have, and the loss after the papers
that crates/train/src/detect names; nothing of it shares code with ours.
"""

import math

import torch
from torch import nn
from torch.nn import functional as F

BINS, STRIDES = 16, (8, 16, 32)


class Conv(nn.Module):
    def __init__(self, inputs, outputs, kernel=1, stride=1):
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
        self.bn = nn.BatchNorm2d(outputs, eps=1e-3, momentum=0.03)

    def forward(self, x):
        return F.silu(self.bn(self.conv(x)))


class Unit(nn.Module):
    def __init__(self, channels, adds):
        super().__init__()
        self.cv1, self.cv2, self.adds = Conv(channels, channels, 3), Conv(channels, channels, 3), adds

    def forward(self, x):
        out = self.cv2(self.cv1(x))
        return x + out if self.adds else out


class Part(nn.Module):
    def __init__(self, inputs, outputs, repeats, adds):
        super().__init__()
        self.half = outputs // 2
        self.cv1 = Conv(inputs, 2 * self.half)
        self.cv2 = Conv((2 + repeats) * self.half, outputs)
        self.m = nn.ModuleList(Unit(self.half, adds) for _ in range(repeats))

    def forward(self, x):
        parts = list(self.cv1(x).chunk(2, 1))
        for unit in self.m:
            parts.append(unit(parts[-1]))
        return self.cv2(torch.cat(parts, 1))


class Pool(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.cv1, self.cv2 = Conv(channels, channels // 2), Conv(2 * channels, channels)

    def forward(self, x):
        parts = [self.cv1(x)]
        for _ in range(3):
            parts.append(F.max_pool2d(parts[-1], 5, 1, 2))
        return self.cv2(torch.cat(parts, 1))


class Head(nn.Module):
    def __init__(self, classes, channels):
        super().__init__()
        edges, scores = max(16, channels[0] // 4, 4 * BINS), max(channels[0], min(classes, 100))

        def branch(inputs, inner, outputs):
            return nn.Sequential(Conv(inputs, inner, 3), Conv(inner, inner, 3), nn.Conv2d(inner, outputs, 1))

        self.cv2 = nn.ModuleList(branch(inputs, edges, 4 * BINS) for inputs in channels)
        self.cv3 = nn.ModuleList(branch(inputs, scores, classes) for inputs in channels)

    def forward(self, grids):
        said = [torch.cat([e(x), s(x)], 1).flatten(2) for e, s, x in zip(self.cv2, self.cv3, grids)]
        return torch.cat(said, 2).transpose(1, 2)


class Yolo(nn.Module):
    def __init__(self, classes, width=16, repeats=(1, 2, 2, 1)):
        super().__init__()
        a, b, c, d, e = (width * times for times in (1, 2, 4, 8, 16))
        again = repeats[0]
        up = nn.Upsample(scale_factor=2)
        self.model = nn.ModuleList(
            [
                Conv(3, a, 3, 2),
                Conv(a, b, 3, 2),
                Part(b, b, repeats[0], True),
                Conv(b, c, 3, 2),
                Part(c, c, repeats[1], True),
                Conv(c, d, 3, 2),
                Part(d, d, repeats[2], True),
                Conv(d, e, 3, 2),
                Part(e, e, repeats[3], True),
                Pool(e),
                up,
                nn.Identity(),
                Part(e + d, d, again, False),
                up,
                nn.Identity(),
                Part(d + c, c, again, False),
                Conv(c, c, 3, 2),
                nn.Identity(),
                Part(c + d, d, again, False),
                Conv(d, d, 3, 2),
                nn.Identity(),
                Part(d + e, e, again, False),
                Head(classes, (c, d, e)),
            ]
        )

    def forward(self, x):
        m = self.model
        for layer in m[:5]:
            x = layer(x)
        fine = x
        middle = m[6](m[5](fine))
        coarse = m[9](m[8](m[7](middle)))
        towards = m[12](torch.cat([m[10](coarse), middle], 1))
        fine = m[15](torch.cat([m[13](towards), fine], 1))
        middle = m[18](torch.cat([m[16](fine), towards], 1))
        coarse = m[21](torch.cat([m[19](middle), coarse], 1))
        return m[22]([fine, middle, coarse])


def ciou(one, other, eps=1e-7):
    left, right = torch.maximum(one[..., :2], other[..., :2]), torch.minimum(one[..., 2:], other[..., 2:])
    shared = (right - left).clamp(min=0).prod(-1)
    first, second = one[..., 2:] - one[..., :2], other[..., 2:] - other[..., :2]
    iou = shared / (first.prod(-1) + second.prod(-1) - shared + eps)
    around = torch.maximum(one[..., 2:], other[..., 2:]) - torch.minimum(one[..., :2], other[..., :2])
    apart = ((other[..., :2] + other[..., 2:] - one[..., :2] - one[..., 2:]) ** 2).sum(-1) / 4
    shape = 4 / math.pi**2 * (
        torch.atan(second[..., 0] / (second[..., 1] + eps)) - torch.atan(first[..., 0] / (first[..., 1] + eps))
    ) ** 2
    with torch.no_grad():
        weight = shape / (shape - iou + 1 + eps)
    return iou - apart / ((around**2).sum(-1) + eps) - weight * shape


def loss(said, truths, size):
    """A loop over frames and objects, for clarity; `truths` is frames × objects × (class, four edges), class −1 for none."""
    middles, strides = [], []
    for stride in STRIDES:
        cells = torch.arange(size // stride, device=said.device)
        rows, columns = torch.meshgrid(cells, cells, indexing="ij")
        middles.append(torch.stack([columns, rows], -1).reshape(-1, 2) + 0.5)
        strides += [stride] * len(middles[-1])
    middles, strides = torch.cat(middles), torch.tensor(strides, dtype=torch.float32, device=said.device)[:, None]
    edges, scores = said[..., : 4 * BINS].unflatten(-1, (4, BINS)), said[..., 4 * BINS :]
    distances = edges.softmax(-1) @ torch.arange(BINS, dtype=torch.float32, device=said.device)
    boxes = torch.cat([middles - distances[..., :2], middles + distances[..., 2:]], -1)
    wanted, sure = torch.zeros_like(boxes), torch.zeros_like(scores)
    with torch.no_grad():
        for frame in range(len(said)):
            there = [row for row in truths[frame] if row[0] >= 0]
            overlaps, agreements, chosen = [], [], []
            for row in there:
                at = middles * strides
                inside = ((at - row[1:3] > 1e-9) & (row[3:5] - at > 1e-9)).all(-1)
                overlap = ciou(row[1:], boxes[frame] * strides).clamp(min=0) * inside
                agreement = scores[frame, :, int(row[0])].sigmoid() ** 0.5 * overlap**6 * inside
                best = torch.zeros_like(inside)
                best[agreement.topk(min(10, len(at))).indices] = True
                overlaps.append(overlap)
                agreements.append(agreement)
                chosen.append(best & inside)
            if not there:
                continue
            overlaps, agreements, chosen = torch.stack(overlaps), torch.stack(agreements), torch.stack(chosen)
            for cell in (chosen.sum(0) > 1).nonzero()[:, 0]:
                best = overlaps[:, cell].argmax()
                chosen[:, cell] = False
                chosen[best, cell] = True
            for place, row in enumerate(there):
                mine = chosen[place]
                wanted[frame, mine] = (row[1:] / strides)[mine]
                agreement = agreements[place] * mine
                scaled = agreement * (overlaps[place] * mine).max() / (agreement.max() + 1e-9)
                sure[frame, mine, int(row[0])] = scaled[mine]
    weight = sure.sum(-1)
    whole = sure.sum().clamp(min=1)
    apart = ((1 - ciou(boxes, wanted)) * weight).sum() / whole
    scored = F.binary_cross_entropy_with_logits(scores, sure, reduction="sum") / whole
    distances = torch.cat([middles - wanted[..., :2], wanted[..., 2:] - middles], -1).clamp(0, BINS - 1.01)
    below = distances.long()
    likely = edges.log_softmax(-1)
    by_edge = -(
        likely.gather(-1, below[..., None])[..., 0] * (below + 1 - distances)
        + likely.gather(-1, below[..., None] + 1)[..., 0] * (distances - below)
    ).mean(-1)
    return 7.5 * apart + 0.5 * scored + 1.5 * (by_edge * weight).sum() / whole
