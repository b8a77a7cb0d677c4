//! A fresh Python environment with the wheel in it, as `pip install gradus` leaves one, and what must work there: the
//! installed executables without a checkout, a compiler or a cache, and the module.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use crate::doing::{self, Outcome};
use crate::{build, setup};

/// Starts of `gradus --version` that are timed.
const STARTS: usize = 9;

/// Epochs of the digits example, in its own text and here: enough to train, save, evaluate and export.
const EPOCHS: [&str; 2] = ["epochs: 30", "epochs: 3"];

/// Tests of the module that kill nothing; the others take minutes.
const TESTS: [&str; 7] = [
    "test_loader",
    "test_loaders",
    "test_samples",
    "test_run.States",
    "test_run.Saving",
    "test_run.Attended",
    "test_run.Documented",
];

/// Tries the wheel in a fresh environment, and says what was found. `packages` is a folder with PyTorch; without one, what
/// needs no PyTorch is tried, with the libtorch of the checkout.
pub fn tried(root: &Path, wheel: &Path, packages: Option<&Path>) -> Outcome {
    let folder = created(root, wheel)?;
    let python = folder.join("bin/python");
    if let Some(packages) = packages {
        link(&python, packages)?;
    }
    let gradus = folder.join("bin/gradus");
    let start = start_ms(&gradus)?;
    digits(root, &folder, packages.is_none())?;
    let mut program = Command::new(&python);
    program.arg(root.join("crates/door/tests/scripts/installed.py")).arg(folder.join("checkpoints"));
    program.env_remove("PYTHONPATH");
    doing::run(&mut program, "`crates/door/tests/scripts/installed.py` says what it expects")?;
    if packages.is_some() {
        module_tests(root, &folder)?;
    }
    Ok(format!("`gradus --version` as pip installs it: {start:.1} ms, the median of {STARTS} starts"))
}

/// Makes the environment, and has pip install the wheel in it.
fn created(root: &Path, wheel: &Path) -> Result<PathBuf, Box<dyn Error>> {
    let folder = build::target(root).join("wheels/environment");
    let _ = fs::remove_dir_all(&folder);
    let python = setup::python()?;
    let mut venv = Command::new(&python);
    doing::run(venv.args(["-m", "venv", "--without-pip"]).arg(&folder), "`sudo apt install python3-venv`")?;
    // As `pip --python` does, which Ubuntu 22.04's pip does not have yet.
    let found = doing::read(Command::new(&python).args(["-c", "import pip; print(pip.__path__[0])"]))?;
    let mut pip = Command::new(folder.join("bin/python"));
    pip.arg(found.trim()).env_remove("PYTHONPATH");
    pip.args(["install", "--quiet", "--no-deps", "--disable-pip-version-check"]).arg(wheel);
    doing::run(pip.env("PIP_ROOT_USER_ACTION", "ignore"), "read pip's message above")?;
    Ok(folder)
}

/// Links packages that are in a folder already into the environment, where `pip install torch` would put them.
fn link(python: &Path, packages: &Path) -> Result<(), Box<dyn Error>> {
    let site = "import sysconfig; print(sysconfig.get_path('purelib'))";
    let site = doing::read(Command::new(python).args(["-c", site]))?;
    for entry in fs::read_dir(packages)?.flatten() {
        // What the environment has itself stays.
        let _ = std::os::unix::fs::symlink(entry.path(), Path::new(site.trim()).join(entry.file_name()));
    }
    Ok(())
}

/// How long `gradus --version` takes, in milliseconds.
fn start_ms(gradus: &Path) -> Result<f64, Box<dyn Error>> {
    let mut times = Vec::new();
    for _ in 0..STARTS {
        let started = Instant::now();
        doing::read(Command::new(gradus).arg("--version"))?;
        times.push(started.elapsed().as_secs_f64() * 1e3);
    }
    Ok(median(times))
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or_default()
}

/// Trains the digits for a few epochs with the installed executables; with libtorch of the checkout if there is no other.
fn digits(root: &Path, folder: &Path, needs_library: bool) -> Result<(), Box<dyn Error>> {
    let (examples, work) = (root.join("examples"), folder.join("digits"));
    fs::create_dir_all(&work)?;
    fs::copy(examples.join("digits.csv.gz"), work.join("digits.csv.gz"))?;
    let job = shortened(&fs::read_to_string(examples.join("digits.yaml"))?)?;
    fs::write(work.join("digits.yaml"), job)?;
    let mut run = Command::new(folder.join("bin/gradus"));
    run.arg("run").arg(work.join("digits.yaml")).arg("--home").arg(folder.join("home"));
    run.env("HOME", folder.join("nobody")).env("XDG_CACHE_HOME", folder.join("cache")).env_remove("GRADUS_LIBTORCH");
    if needs_library {
        run.env("GRADUS_LIBTORCH", fs::canonicalize(root.join("vendor/libtorch"))?);
    }
    doing::run(&mut run, "`gradus logs last` shows what its processes wrote")
}

/// The job with fewer epochs.
fn shortened(job: &str) -> Result<String, Box<dyn Error>> {
    let [whole, few] = EPOCHS;
    match job.matches(whole).count() {
        1 => Ok(job.replace(whole, few)),
        found => Err(format!("`examples/digits.yaml` has `{whole}` {found} times, and once is expected").into()),
    }
}

/// Runs the module's tests with the environment's Python.
fn module_tests(root: &Path, folder: &Path) -> Result<(), Box<dyn Error>> {
    let mut python = Command::new(folder.join("bin/python"));
    python.args(["-W", "ignore", "-m", "unittest"]).args(TESTS).current_dir(root.join("crates/door/tests"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::iter::once(folder.join("bin")).chain(std::env::split_paths(&path));
    python.env("PATH", std::env::join_paths(path)?).env_remove("PYTHONPATH").env("PYTHONDONTWRITEBYTECODE", "1");
    doing::run(&mut python, "`cargo xtask wheel --test` runs all tests of the package")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_one_in_the_middle() {
        assert_eq!(median(vec![9.0, 1.0, 3.0]), 3.0);
        assert_eq!(median(Vec::new()), 0.0);
    }

    #[test]
    fn the_example_is_shortened_and_stays_a_job() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let job = fs::read_to_string(root.join("examples/digits.yaml")).unwrap();
        let short = shortened(&job).unwrap();
        assert!(short.contains("epochs: 3 ") || short.contains("epochs: 3\n"), "{short}");
        assert!(shortened("train: {}").unwrap_err().to_string().contains("0 times"));
    }

    #[test]
    fn tests_that_are_named_exist() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("crates/door/tests");
        for name in TESTS {
            let (file, class) = name.split_once('.').unwrap_or((name, ""));
            let text = fs::read_to_string(folder.join(file).with_extension("py")).unwrap();
            assert!(text.contains(&format!("\nclass {class}")), "{name}");
        }
    }
}
