"""What the device is, and what it reaches in PyTorch: the ceilings that other figures are compared with. Compiles the
library for CUDA devices where the pack came without it."""

import importlib.util
import json
import pathlib
import shutil
import subprocess
import time

import torch
from suite import CEILINGS, DEVICE, FOLDER, ON_CPU, attempt, case, run


def library():
    """As `cargo xtask cuda` compiles it; headers that PyTorch lacks are the toolkit's."""
    made = FOLDER / "bin/libgradus-cuda.so"
    if made.exists():
        return case("libgradus-cuda.so", True, "came with the pack")
    torch_folder = pathlib.Path(importlib.util.find_spec("torch").submodule_search_locations[0])
    packages = torch_folder.parent
    headers = [torch_folder / "include", torch_folder / "include/torch/csrc/api/include"]
    headers += [packages / "nvidia/cu13/include", packages / "nvidia/cu13/include/cccl", packages / "nvidia/nccl/include"]
    compiler = shutil.which("nvcc")
    if compiler:
        toolkit = pathlib.Path(compiler).resolve().parent.parent
        headers += [toolkit / "include", toolkit / "include/cccl", toolkit / "targets/x86_64-linux/include"]
    headers += [pathlib.Path("/usr/local/cuda/include"), pathlib.Path("/usr/local/cuda/include/cccl")]
    options = ["-std=c++17", "-O2", "-fPIC", "-shared", "-DUSE_C10D_NCCL", "-D_GLIBCXX_USE_CXX11_ABI=1"]
    options += [f"-isystem{folder}" for folder in headers if folder.is_dir()]
    sources = sorted(str(path) for path in (FOLDER / "cuda").glob("*.cpp"))
    began = time.monotonic()
    done = subprocess.run(
        ["c++", *options, *sources, "-o", str(made)], stderr=subprocess.PIPE, text=True, check=False
    )
    note = next((line for line in done.stderr.splitlines() if "error" in line), "")[:200]
    case("libgradus-cuda.so", done.returncode == 0, note, seconds=time.monotonic() - began)


def rate(work, amount):
    """The most that was done in a second over some tries."""
    best = 0.0
    for _ in range(6):
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(10):
            work()
        torch.cuda.synchronize()
        best = max(best, 10 * amount / (time.perf_counter() - began))
    return best


def device():
    facts = torch.cuda.get_device_properties(0)
    case(
        "device",
        None,
        facts.name,
        memory_gib=facts.total_memory / 2**30,
        multiprocessors=facts.multi_processor_count,
        capability=f"{facts.major}.{facts.minor}",
        cuda=torch.version.cuda,
        cudnn=torch.backends.cudnn.version(),
        nccl=".".join(map(str, torch.cuda.nccl.version())),
    )
    fields = "clocks.max.sm,clocks.max.memory,power.limit,persistence_mode,mig.mode.current,pcie.link.gen.current"
    values = run("nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader").strip().split(", ")
    case("driver", None, "", **dict(zip(fields.replace(".", "_").split(","), values)))


def products(name, dtype, tf32=False):
    torch.backends.cuda.matmul.allow_tf32 = tf32
    side = 8192 if dtype != torch.float32 or tf32 else 4096
    left, right = (torch.randn(side, side, device=DEVICE, dtype=dtype) for _ in range(2))
    tflops = rate(lambda: left @ right, 2 * side**3) / 1e12
    case(f"matrix products, {name}", None, "", tflops=tflops)
    # Later sections compare steps with it.
    ceilings[name] = tflops
    CEILINGS.write_text(json.dumps(ceilings))


def copies():
    count = 1 << 28
    here, there = (torch.empty(count, dtype=torch.uint8, device=DEVICE) for _ in range(2))
    case("copy within the device", None, "read and written", gb_per_s=rate(lambda: there.copy_(here), 2 * count) / 1e9)
    for name, pinned in (("pinned", True), ("pageable", False)):
        host = torch.empty(count, dtype=torch.uint8, pin_memory=pinned)
        case(
            f"copy to the device, {name}",
            None,
            "",
            gb_per_s=rate(lambda host=host: here.copy_(host, non_blocking=True), count) / 1e9,
        )


ceilings = {}
attempt("libgradus-cuda.so", library)
if not ON_CPU:
    attempt("device", device)
    for name, dtype, tf32 in (
        ("bf16", torch.bfloat16, False),
        ("fp16", torch.float16, False),
        ("tf32", torch.float32, True),
        ("fp32", torch.float32, False),
    ):
        attempt(name, products, name, dtype, tf32)
    attempt("copies", copies)
