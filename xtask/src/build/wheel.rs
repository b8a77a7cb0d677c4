//! `cargo xtask wheel`: the Python package of `crates/door`, and its tests with PyTorch.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::build::{environment, package};
use crate::doing::{self, Outcome};
use crate::{build, peers, setup};

/// Builds the wheel and says where it is: the module, and both executables, which pip puts into the environment's `bin`. One
/// wheel serves every Python from 3.9 on.
pub fn wheel(root: &Path) -> Result<PathBuf, Box<dyn Error>> {
    eprintln!("{}", build::setup(root)?);
    let built = build::executables(root)?;
    let scripts = root.join("crates/door/gradus.data/scripts");
    fs::create_dir_all(&scripts)?;
    for name in package::EXECUTABLES {
        package::stripped(&built.join(name), &scripts.join(name))?;
    }
    let folder = build::target(root).join("wheels");
    let _ = fs::remove_dir_all(&folder);
    let mut maturin = Command::new(peers::maturin()?);
    maturin.args(["build", "--release", "--quiet", "--manifest-path"]).arg(root.join("crates/door/Cargo.toml"));
    maturin.arg("--interpreter").arg(setup::python()?).arg("--out").arg(&folder).current_dir(root);
    // It calls cargo, which is to find what was built before.
    doing::as_typed(root, &mut maturin);
    doing::run(&mut maturin, "read the compiler's message above")?;
    let mut wheels = fs::read_dir(&folder)?.filter_map(|entry| Some(entry.ok()?.path()));
    let is_wheel = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "whl");
    Ok(wheels.find(is_wheel).ok_or("maturin wrote no wheel")?)
}

/// Programs that are killed in each test of the long layer that kills some.
const KILLS: &str = "200";

/// Installs the wheel in a separate folder, and runs its tests with the PyTorch that we are measured against.
pub fn test(root: &Path) -> Outcome {
    let (wheel, folder) = installed(root)?;
    let tests = root.join("crates/door/tests");
    discover(&tests, vec![folder, peers::pytorch()?], None)?;
    let found = environment::tried(root, &wheel, Some(&peers::pytorch()?))?;
    Ok(format!("{found}\n{} is right", wheel.display()))
}

/// The same with more programs killed, and with the packages that the module has callbacks for.
pub fn long(root: &Path) -> Outcome {
    let (wheel, folder) = installed(root)?;
    let tests = root.join("crates/door/tests");
    discover(&tests, vec![folder.clone(), peers::pytorch()?], Some(KILLS))?;
    with_others(root, &folder)?;
    Ok(format!("{} is right, with {KILLS} kills and with other packages", wheel.display()))
}

/// Runs the tests with other packages alone.
pub fn integrations(root: &Path) -> Outcome {
    let (wheel, folder) = installed(root)?;
    with_others(root, &folder)?;
    Ok(format!("{} is right with other packages", wheel.display()))
}

/// The module in `folder` with the packages that it has callbacks for, with JAX and Keras, and with torchtitan and torchtune.
fn with_others(root: &Path, folder: &Path) -> Result<(), Box<dyn Error>> {
    let (tests, torch) = (root.join("crates/door/tests"), peers::pytorch()?);
    let [transformers, lightning] = peers::integrations()?;
    let packages = vec![folder.to_owned(), torch.clone(), transformers, lightning];
    discover(&tests.join("integrations"), packages, None)?;
    discover(&tests.join("arrays"), vec![folder.to_owned(), torch.clone(), peers::arrays()?], None)?;
    let [recipes, below] = peers::recipes()?;
    discover(&tests.join("recipes"), vec![folder.to_owned(), torch, recipes, below], None)
}

/// Measures what the package costs a program, beside PyTorch.
pub fn overheads(root: &Path) -> Outcome {
    let (_, folder) = installed(root)?;
    let disk = build::target(root).join("wheels");
    let mut command = Command::new(setup::python()?);
    command.args(["-W", "ignore"]).arg(root.join("benches/peers/overheads.py")).arg(disk);
    command.env("PYTHONPATH", std::env::join_paths([folder, peers::pytorch()?])?);
    doing::run(&mut command, "2 GB of memory and of disk are needed")?;
    Ok("measured".into())
}

/// Builds the wheel, and installs it in a separate folder: the wheel, and the folder.
pub fn installed(root: &Path) -> Result<(PathBuf, PathBuf), Box<dyn Error>> {
    let wheel = wheel(root)?;
    let folder = build::target(root).join("wheels/installed");
    let mut pip = Command::new(setup::python()?);
    pip.args(["-m", "pip", "install", "--quiet", "--no-deps", "--disable-pip-version-check", "--target"]);
    pip.arg(&folder).arg(&wheel).env("PIP_ROOT_USER_ACTION", "ignore");
    doing::run(&mut pip, "read pip's message above")?;
    Ok((wheel, folder))
}

/// Runs the tests of a folder with these packages, and so many kills.
fn discover(tests: &Path, packages: Vec<PathBuf>, kills: Option<&str>) -> Result<(), Box<dyn Error>> {
    let mut command = Command::new(setup::python()?);
    command.args(["-W", "ignore", "-m", "unittest", "discover", "--start-directory"]).arg(tests);
    // The executables that pip has put beside the module come first.
    let bin = packages.iter().map(|folder| folder.join("bin"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    command.env("PATH", std::env::join_paths(bin.chain(std::env::split_paths(&path)))?);
    command.env("PYTHONPATH", std::env::join_paths(packages)?);
    if let Some(kills) = kills {
        command.env("GRADUS_KILLS", kills);
    }
    doing::run(&mut command, "`crates/door/tests` holds what was tried")
}
