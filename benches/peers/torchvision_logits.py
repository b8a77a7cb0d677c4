"""Loads an exported resnet18 into torchvision, strictly, and holds its logits against ours.

    torchvision_logits.py LOGITS MODEL_FOLDER [PICTURES.tar]

LOGITS is the built example `logits` of crates/train. The pictures are the first 200 of the tar's `test/` (or of all of
it), normalised as `model.json` says; without a tar they are random. Prints {"images", "largest", "difference",
"agree"}: how many, the largest logit, the largest difference, and how many get the same class from both.
"""

import io
import json
import pathlib
import subprocess
import sys
import tarfile
import tempfile

import numpy
import torch
import torchvision
from PIL import Image
from safetensors.torch import load_file, save_file

COUNT = 200

logits, folder, *pictures = sys.argv[1:]
folder = pathlib.Path(folder)
card = json.loads((folder / "model.json").read_text())
assert card["architecture"] == "resnet18", "torchvision has no such network"
size = card["input"]
channels, height, width = size["channels"], size["height"], size["width"]

model = torchvision.models.resnet18(num_classes=len(card["classes"]))
if min(height, width) < 64:
    model.conv1 = torch.nn.Conv2d(channels, 64, kernel_size=3, stride=1, padding=1, bias=False)
    model.maxpool = torch.nn.Identity()
# Strict: a missing or an unexpected name, or another shape, is an error.
model.load_state_dict(load_file(folder / "model.safetensors"), strict=True)
model.eval()


def read(path):
    with tarfile.open(path) as tar:
        names = sorted(m.name for m in tar.getmembers() if m.name.endswith((".jpg", ".jpeg", ".png")))
        names = [name for name in names if "test/" in name] or names
        # Evenly over the sorted names, so over all classes.
        for name in names[:: max(1, len(names) // COUNT)][:COUNT]:
            with Image.open(io.BytesIO(tar.extractfile(name).read())) as picture:
                picture = picture.convert("RGB" if channels == 3 else "L").resize((width, height))
                yield numpy.asarray(picture, dtype=numpy.float32).reshape(height, width, channels) / 255


if pictures:
    images = torch.from_numpy(numpy.stack(list(read(pictures[0])))).permute(0, 3, 1, 2)
    mean, std = (torch.tensor(size[key]).view(1, -1, 1, 1) for key in ("mean", "std"))
    images = ((images - mean) / std).contiguous()
else:
    torch.manual_seed(0)
    images = torch.randn(COUNT, channels, height, width)

with tempfile.TemporaryDirectory() as work:
    given, got = f"{work}/images.safetensors", f"{work}/logits.safetensors"
    save_file({"images": images}, given)
    subprocess.run([logits, folder, given, got], check=True)
    ours = load_file(got)["logits"]
with torch.no_grad():
    theirs = model(images)

difference = (ours - theirs).abs().max().item()
agree = (ours.argmax(1) == theirs.argmax(1)).sum().item()
largest = theirs.abs().max().item()
print(json.dumps({"images": len(images), "largest": largest, "difference": difference, "agree": agree}))
