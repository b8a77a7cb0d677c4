"""Estimated step time and memory, as `gradus plan` has them before any calibration, against what is measured here: twelve
networks in several precisions and batches; and a plan whose steps a measured one corrects, for another batch.

`gradus plan check` compares a table with estimates and states errors per source. A table in which each row is a source of
its own, and measures next to nothing, makes it state the estimates themselves.
"""

import csv
import json
import pathlib
import re

from suite import GRADUS, ON_CPU, attempt, case, described, left, mean, median, ours, run


def resnet(kind, depths, sizes):
    return {"model_type": "resnet", "layer_type": kind, "embedding_size": 64, "depths": depths, "hidden_sizes": sizes, "num_labels": 1000}


def bert(layers, width, heads):
    return {
        "model_type": "bert",
        "architectures": ["BertForSequenceClassification"],
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": 4 * width,
        "vocab_size": 8000,
        "max_position_embeddings": 512,
        "type_vocab_size": 2,
        "hidden_act": "gelu",
        "num_labels": 10,
    }


def gpt(layers, width, heads):
    return {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "n_embd": width,
        "n_layer": layers,
        "n_head": heads,
        "n_positions": 1024,
        "vocab_size": 8000,
    }


NETWORKS = {
    "resnet50": resnet("bottleneck", [3, 4, 6, 3], [256, 512, 1024, 2048]),
    "bert_base": bert(12, 768, 12),
    "gpt2": gpt(12, 768, 12),
    "vit_s_16": {
        "model_type": "vit",
        "architectures": ["ViTForImageClassification"],
        "hidden_size": 384,
        "num_hidden_layers": 12,
        "num_attention_heads": 6,
        "intermediate_size": 1536,
        "patch_size": 16,
        "image_size": 224,
        "num_channels": 3,
        "num_labels": 1000,
    },
    "yolo_s": {"model_type": "yolo", "depth_multiple": 0.33, "width_multiple": 0.5, "max_channels": 1024},
    "resnet18": resnet("basic", [2, 2, 2, 2], [64, 128, 256, 512]),
    "gpt2_medium": gpt(24, 1024, 16),
    "bert_large": bert(24, 1024, 16),
    "resnet101": resnet("bottleneck", [3, 4, 23, 3], [256, 512, 1024, 2048]),
    "mobilenet_v2": {"model_type": "mobilenet_v2", "num_labels": 1000},
    "bert_mini": bert(4, 256, 4),
    "gpt_tiny": gpt(4, 128, 4),
}
# Precision, and the share of the usual batch.
SETTINGS = [("bf16", 1.0), ("fp32", 0.5), ("bf16", 0.25)]
LIKE = {"resnet101": "resnet50", "mobilenet_v2": "mobilenet_v3_large", "bert_large": "bert_base"}
NOTHING = 0.001
COLUMNS = [
    "source_id", "model", "gpu", "n_gpus", "precision", "batch_per_gpu", "throughput", "unit", "peak_memory_gib",
    "memory_kind", "memory_exact_or_bound", "image_or_seq", "framework",
]  # fmt: skip


def estimates(rows):
    """Samples per second and peak GiB that the planner says for each row."""
    folder = pathlib.Path("networks")
    folder.mkdir(exist_ok=True)
    for name, config in NETWORKS.items():
        (folder / f"{name}.json").write_text(json.dumps(config))
    with open("table.csv", "w", newline="") as file:
        table = csv.writer(file)
        table.writerow(COLUMNS)
        for number, (model, gpu, precision, batch, size) in enumerate(rows):
            table.writerow(
                [number, model, gpu, 1, {"bf16": "amp_bf16"}.get(precision, precision), batch, NOTHING, "samples/s",
                 NOTHING, "allocated", "exact", size, "pytorch"]
            )  # fmt: skip
    answer = json.loads(run(GRADUS, "--home", "home", "plan", "check", "table.csv", "--models", "networks", "--json"))

    def back(error):
        return NOTHING * (error / 100 + 1) if error else None

    found = [answer["sources"].get(str(number), {}) for number in range(len(rows))]
    return [(back(one.get("mape")), back(one.get("memory", {}).get("mape"))) for one in found]


def device():
    """The device as the catalog may know it."""
    if ON_CPU:
        return "H100-SXM5"
    return run("nvidia-smi", "--query-gpu=name", "--format=csv,noheader").strip().splitlines()[0]


def measure(model, precision, share):
    name = LIKE.get(model, model)
    description = described(name, precision)
    description["train"]["model"] = model
    batch = max(1, int(description["train"]["batch"] * share))
    description["train"]["batch"] = batch
    program = ours(description)
    try:
        program.ask("steps 6")
        answers = [program.ask("steps 5") for _ in range(1 if ON_CPU else 4)]
    finally:
        program.end()
    seconds = median([mean(answer["seconds"]) for answer in answers])
    size = description["size"] or description["train"]["data"]["text"]["length"]
    return batch, size, seconds, max(answer["peak_bytes"] for answer in answers) / 2**30


def compare(gpu, model, precision, share):
    batch, size, seconds, peak = measure(model, precision, share)
    # What a CPU takes is no measurement of a GPU, and refused as such.
    measured[precision, model, share] = (batch, size, 0.005 if ON_CPU else seconds)
    [(rate, memory)] = estimates([(model, gpu, precision, batch, size)])
    if rate is None:
        return case(f"{model} {precision}, batch {batch}", None, f"`{gpu}` or the network is not known", step_ms=1e3 * seconds)
    time_error, memory_error = 100 * (batch / rate / seconds - 1), 100 * (memory / peak - 1)
    errors.append((abs(time_error), abs(memory_error)))
    return case(
        f"{model} {precision}, batch {batch}",
        None if ON_CPU else abs(time_error) <= 15 and abs(memory_error) <= 8,
        "",
        step_ms=1e3 * seconds,
        estimated_ms=1e3 * batch / rate,
        error_percent=time_error,
        peak_gib=peak,
        estimated_gib=memory,
        memory_error_percent=memory_error,
    )


def calibrated(gpu, model):
    """The step that `gradus plan --calibrate` states for a quarter of the batch, from a step of the whole batch alone."""
    batch, size, seconds = measured["bf16", model, 1.0]
    # On a CPU there is one batch.
    smaller, _, expected = measured["bf16", model, 1.0 if ON_CPU else 0.25]
    with open("measured.csv", "w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["source_id", "model", "gpu", "n_gpus", "precision", "batch_per_gpu", "throughput", "unit",
                        "image_or_seq", "framework"])  # fmt: skip
        table.writerow(["suite", model, gpu, 1, "amp_bf16", batch, batch / seconds, "samples/s", size, "pytorch"])
    train = described(model, "bf16", batch=smaller)["train"]
    train["data"] = {"path": "texts.csv", "text": train["data"]["text"] | {"columns": ["text"]}}
    # Of the driver's name, what people call the GPU.
    short = next(word for word in re.split("[ -]", gpu) if re.search("[0-9]", word))
    job = {"name": "calibrated", "train": train, "data": {"samples": 50000, "bytes": "1 GB"}}
    job["resources"] = {"accelerators": f"{short}:1"}
    pathlib.Path("calibrated.yaml").write_text(json.dumps(job))
    words = ["plan", "calibrated.yaml", "--catalog", "--json"]
    steps = []
    for more in ([], ["--calibrate", "measured.csv"]):
        picks = json.loads(run(GRADUS, "--home", "home", *words, *more))["picks"]
        steps.append(next((pick["way"]["step"] for pick in picks if pick["calibration"] or not more), None))
    plain, corrected = steps
    if corrected is None:
        return case(f"{model} bf16, calibrated", False, f"no machine with `{gpu}` was corrected")
    error = 100 * (corrected / expected - 1)
    return case(f"{model} bf16, calibrated", None if ON_CPU else abs(error) <= 15, f"batch {smaller} by that of {batch}",
                step_ms=1e3 * expected, estimated_ms=1e3 * corrected, error_percent=error,
                before_percent=100 * (plain / expected - 1))  # fmt: skip


errors, measured = [], {}
gpu = device()
for precision, share in SETTINGS[:1] if ON_CPU else SETTINGS:
    for model in ["bert_mini", "gpt_tiny"] if ON_CPU else NETWORKS:
        if left() > 12:
            attempt(f"{model} {precision}", compare, gpu, model, precision, share)
if errors:
    times, memories = zip(*errors)
    is_right = None if ON_CPU else mean(times) <= 15 and mean(memories) <= 8
    case("all", is_right, "mean of the errors' sizes", error_percent=mean(times), memory_error_percent=mean(memories))
model = "bert_mini" if ON_CPU else "bert_base"
if measured:
    attempt(f"{model} bf16, calibrated", calibrated, gpu, model)
