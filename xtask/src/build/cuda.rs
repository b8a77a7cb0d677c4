//! `cargo xtask cuda`: the library with which ranks on NVIDIA GPUs exchange gradients without the host, and repeat passes
//! that are recorded once.
//!
//! It needs the headers of a PyTorch for CUDA, of the version that everything else is built for, as pip installs it:
//! folders `torch` and `nvidia` in one; and a few of CUDA's that PyTorch leaves out. Nothing else does, so it is no part
//! of the ordinary build.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::doing::{self, Outcome};
use crate::{build, peers};

/// The library's file name; the trainer looks for it in its own folder.
const NAME: &str = "libgradus-cuda.so";

/// Its sources.
const SOURCES: [&str; 4] = ["nccl.cpp", "graph.cpp", "batch_norm.cpp", "version.cpp"];

/// Folders of headers within the installed packages: PyTorch's, CUDA's and NCCL's.
const HEADERS: [&str; 4] =
    ["torch/include", "torch/include/torch/csrc/api/include", "nvidia/cu13/include", "nvidia/nccl/include"];

/// The same within the packages of headers alone, which PyTorch does not bring along.
const MORE_HEADERS: [&str; 2] = ["nvidia/cu13/include", "nvidia/cu13/include/cccl"];

/// Opens libraries one after another as the trainer does: all names of each must be known by then.
const OPEN: &str = "import ctypes, sys\nfor path in sys.argv[1:]: ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)";

/// Builds it against the packages in `folder`, or against the PyTorch that the benchmarks measure.
pub fn cuda(root: &Path, folder: Option<&str>) -> Outcome {
    let packages = folder.map_or_else(peers::pytorch, |folder| Ok(PathBuf::from(folder)))?;
    check(&packages)?;
    let library = build::target(root).join("release").join(NAME);
    let mut compiler = Command::new(std::env::var_os("CXX").unwrap_or_else(|| "c++".into()));
    compiler.args(["-std=c++17", "-O2", "-fPIC", "-shared", "-DUSE_C10D_NCCL", "-D_GLIBCXX_USE_CXX11_ABI=1"]);
    let more = peers::cuda_headers()?;
    let of_pytorch = HEADERS.map(|folder| packages.join(folder));
    for headers in of_pytorch.into_iter().chain(MORE_HEADERS.map(|folder| more.join(folder))) {
        compiler.arg("-isystem").arg(headers);
    }
    let sources = root.join("crates/train/src/torch/cuda");
    compiler.args(SOURCES.map(|name| sources.join(name))).arg("-o").arg(&library);
    doing::step("compiling the library for CUDA", || doing::run(&mut compiler, "read the compiler's message above"))?;
    // The symbols that it calls are in libraries that the trainer has opened before it; no driver is needed to look.
    let mut python = Command::new("python3");
    python.args(["-c", OPEN]).arg(packages.join("torch/lib/libtorch_cuda.so")).arg(&library);
    doing::step("opening it after PyTorch's", || {
        doing::run(&mut python, "a name that is unknown is in the message above: is this PyTorch whole?")
    })?;
    Ok(format!("`{}` stands beside `gradus-rank`; install the two together", library.display()))
}

fn check(packages: &Path) -> Result<(), Box<dyn Error>> {
    let version = std::fs::read_to_string(packages.join("torch/version.py")).map_err(|error| {
        let folder = packages.display();
        format!("there is no PyTorch in `{folder}`: {error}\n  hint: name the folder that holds `torch` and `nvidia`, such as `…/site-packages`")
    })?;
    let wanted = crate::setup::VERSION;
    if !version.contains(&format!("'{wanted}+cu")) && !version.contains(&format!("'{wanted}'")) {
        let found = version.lines().find(|line| line.starts_with("__version__")).unwrap_or("of no known version");
        return Err(
            format!("this PyTorch is not {wanted} for CUDA: {found}\n  hint: `pip install torch=={wanted}`").into()
        );
    }
    if !packages.join("nvidia/cu13/include").is_dir() {
        return Err(format!(
            "this PyTorch is for another CUDA than 13, or came without its headers\n  hint: `pip install torch=={wanted}`, as it comes"
        )
        .into());
    }
    match packages.join("nvidia/nccl/include/nccl.h").is_file() {
        true => Ok(()),
        false => {
            Err("this PyTorch was installed without NCCL's headers\n  hint: `pip install nvidia-nccl-cu13` beside it"
                .into())
        }
    }
}
