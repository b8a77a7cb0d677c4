//! `cargo xtask wheel`: the Python package of `crates/door`, and its tests beside PyTorch.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::doing::{self, Outcome};
use crate::{build, peers, setup};

/// Builds the wheel and says where it is. One wheel serves every Python from 3.9 on.
pub fn wheel(root: &Path) -> Result<PathBuf, Box<dyn Error>> {
    let folder = build::target(root).join("wheels");
    let _ = fs::remove_dir_all(&folder);
    let mut maturin = Command::new(peers::maturin()?);
    maturin.args(["build", "--release", "--quiet", "--manifest-path"]).arg(root.join("crates/door/Cargo.toml"));
    maturin.arg("--interpreter").arg(setup::python()?).arg("--out").arg(&folder);
    doing::run(&mut maturin, "read the compiler's message above")?;
    let mut wheels = fs::read_dir(&folder)?.filter_map(|entry| Some(entry.ok()?.path()));
    let is_wheel = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "whl");
    Ok(wheels.find(is_wheel).ok_or("maturin wrote no wheel")?)
}

/// Installs the wheel in a folder of its own, and runs its tests with the PyTorch that we are measured against.
pub fn test(root: &Path) -> Outcome {
    let wheel = wheel(root)?;
    let folder = build::target(root).join("wheels/installed");
    let python = setup::python()?;
    let mut pip = Command::new(&python);
    pip.args(["-m", "pip", "install", "--quiet", "--no-deps", "--disable-pip-version-check", "--target"]);
    pip.arg(&folder).arg(&wheel).env("PIP_ROOT_USER_ACTION", "ignore");
    doing::run(&mut pip, "read pip's message above")?;
    let mut tests = Command::new(python);
    tests.args(["-W", "ignore", "-m", "unittest", "discover", "--start-directory"]).arg(root.join("crates/door/tests"));
    tests.env("PYTHONPATH", std::env::join_paths([folder, peers::pytorch()?])?);
    doing::run(&mut tests, "`crates/door/tests` holds what was tried")?;
    Ok(format!("{} is right", wheel.display()))
}
