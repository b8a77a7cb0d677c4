"""Models as they leave gradus, in the programs that users run them with.

    deployed.py GRADUS MODEL…

For each model: `gradus run` trains a few steps on images of noise, `gradus models export --onnx --torchscript` writes the
files, and a batch of noise goes through torchvision's model with the exported weights, through onnxruntime and through
`torch.jit.load`. Prints one line of JSON each: the largest difference of a logit, relative to the largest logit, for one
and for five images.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import numpy
import onnxruntime
import torch
import torchvision
from safetensors.torch import load_file

SIZE, CLASSES = 64, 3
gradus, *names = sys.argv[1:]
torch.set_num_threads(1)


def data(folder):
    """Images whose class can be told, so that the statistics of the normalisations are not those of the start."""
    generator = torch.Generator().manual_seed(1)
    for number in range(60):
        place = folder / "images" / f"class{number % CLASSES}"
        place.mkdir(parents=True, exist_ok=True)
        image = torch.randint(0, 120, (3, SIZE, SIZE), generator=generator, dtype=torch.uint8)
        image[number % CLASSES] += 100
        torchvision.io.write_png(image, str(place / f"{number}.png"))
    return folder / "images"


def peer(name):
    if name == "vit_s_16":
        return torchvision.models.VisionTransformer(
            image_size=SIZE, patch_size=16, num_layers=12, num_heads=6, hidden_dim=384, mlp_dim=1536, num_classes=CLASSES
        )
    sized = {"image_size": SIZE} if name.startswith("vit") else {}
    return getattr(torchvision.models, name)(num_classes=CLASSES, **sized)


def relative(found, expected):
    return ((found - expected).abs().max() / expected.abs().max()).item()


with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    path = data(folder)
    for name in names:
        home = ["--home", str(folder / f"home-{name}")]
        job = folder / f"{name}.yaml"
        rule = "{adamw: {lr: 0.0003}}" if name.startswith(("vit", "convnext")) else "{sgd: {lr: 0.01}}"
        job.write_text(
            f"name: deployed\ntrain:\n  model: {name}\n  data: {{path: {path}}}\n  epochs: 2\n  batch: 8\n  optimizer: {rule}\n"
        )
        to = folder / name
        for words in (["run", str(job), "--yes"], ["models", "export", "last", "--to", str(to), "--onnx", "--torchscript"]):
            done = subprocess.run([gradus, *home, *words], capture_output=True, text=True)
            if done.returncode != 0:
                sys.exit(f"{name}: gradus {words}: {done.stderr}")
        model = peer(name)
        model.load_state_dict(load_file(to / "model.safetensors"))
        model.eval()
        session = onnxruntime.InferenceSession(str(to / "model.onnx"), providers=["CPUExecutionProvider"])
        script = torch.jit.load(str(to / "model.pt"))
        line = {"model": name, "onnxruntime": 0.0, "torchscript": 0.0}
        for count in (1, 5):
            images = torch.randn(count, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(count))
            with torch.no_grad():
                expected, scripted = model(images), script(images)
            by_onnx = torch.from_numpy(numpy.asarray(session.run(None, {"images": images.numpy()})[0]))
            line["onnxruntime"] = max(line["onnxruntime"], relative(by_onnx, expected))
            line["torchscript"] = max(line["torchscript"], relative(scripted, expected))
        print(json.dumps(line), flush=True)
