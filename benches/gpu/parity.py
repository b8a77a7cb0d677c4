"""Each network against its reference on the device, in one precision: `peers/parity.py`, four at a time, for nothing is
timed.

    parity.py fp32|tf32|bf16|fp16 [MODEL…]

Convolutional networks are also compared with channels last, where our own kernels normalise.
"""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from suite import DEVICE, FOLDER, ON_CPU, case, left

MODELS = [
    "resnet50 channels_last",
    "mobilenet_v3_large channels_last",
    "yolo_n channels_last",
    "resnet18 channels_last",
    "efficientnet_b0 channels_last",
    "convnext_tiny channels_last",
    "resnet50",
    "bert_base",
    "gpt2",
    "vit_s_16",
    "mobilenet_v3_large",
    "yolo_n",
    "resnet18",
    "bert_mini:words",
    "bert_mini",
    "gpt_tiny",
    "resnet20",
    "mobilenet_v2",
    "mobilenet_v3_small",
    "resnet34",
    "resnet101",
    "resnet152",
    "resnet56",
    "vit_b_16",
    "convnext_tiny",
    "efficientnet_b0",
    "torchscript",
]
# The largest difference that is right, relative to the largest value of a tensor: logits, loss, gradients, losses of 20
# steps, weights after them. In 16 bits the order of sums shows; what a reference differs from itself by, when its weights
# change by their last bit, is allowed as well.
MOST = {
    "fp32": [1e-4, 1e-5, 1e-3, 1e-2, 1e-2],
    "tf32": [3e-3, 1e-3, 2e-2, 3e-2, 3e-2],
    "bf16": [3e-2, 1e-2, 1e-1, 1e-1, 1e-1],
    "fp16": [1e-2, 3e-3, 5e-2, 1e-1, 1e-1],
}
FIGURES = ["logits", "loss", "gradients", "curve", "weights"]


def compare(model, precision):
    if left() < 10:
        return case(model, None, "no time left")
    name, memory_format = [*model.split(), "contiguous"][:2]
    words = [sys.executable, FOLDER / "peers/parity.py", FOLDER / "bin/parity", name]
    environment = os.environ | {"PARITY_DEVICE": DEVICE, "PARITY_PRECISION": precision}
    environment["PARITY_MEMORY_FORMAT"] = memory_format
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, check=False)
    sys.stderr.write(done.stderr)
    if done.returncode != 0:
        return case(model, False, done.stderr.strip()[-200:])
    answer = json.loads(done.stdout.strip().splitlines()[-1])
    itself = answer.get("itself", {})
    # Where rounding alone moves PyTorch by half, a comparison would pass whatever ours does.
    idle = [key for key in FIGURES if itself.get(key, 0.0) >= 0.5]
    wrong = [
        key
        for key, most in zip(FIGURES, MOST[precision])
        if key not in idle and not answer[key] <= max(most, 2 * itself.get(key, 0.0))
    ]
    notes = [f"{key} beyond the bound" for key in wrong]
    notes += [f"{key} tell nothing: PyTorch is {itself[key]:.2g} from itself" for key in idle]
    note = "; ".join(notes)
    return case(model, not wrong, note, **{key: answer[key] for key in FIGURES})


chosen = ["torchscript", "gpt_tiny"] if ON_CPU else sys.argv[2:] or MODELS
with ThreadPoolExecutor(1 if ON_CPU else 4) as pool:
    list(pool.map(lambda model: compare(model, sys.argv[1]), chosen))
