//! `cargo xtask setup`: puts libtorch where every cargo command finds it.
//!
//! The pinned wheels come through pip, are checked against their hashes, and the part that a CPU needs is stored in the
//! user's cache; `vendor/libtorch` links to it, and `.cargo/config.toml` names that link. Nothing is built by hand and
//! nothing needs an environment variable. `GRADUS_LIBTORCH` names an installed PyTorch of the same version instead.

pub mod peers;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::{env, fmt, fs, io};

// Taken as a file, so that everybody's first command does not build the crate and what it depends on.
#[path = "../../../crates/domain/src/runs/torch.rs"]
mod torch;

/// The version that everything is built for.
pub const VERSION: &str = torch::VERSION;

/// The folder name by which `gradus` finds the library below `lib/` of its prefix.
pub const CACHE_FOLDER: &str = torch::CACHE_FOLDER;

/// The environment variable that names an installed library, a folder with `lib/` and `include/`.
const INSTALLED: &str = "GRADUS_LIBTORCH";

/// The requirement for pip, the prefix of the wheel's name, and its SHA-256.
const WHEELS: [(&str, &str, &str); 3] = [
    ("torch==2.11.0", "torch-", "7aa2f9bbc6d4595ba72138026b2074be1233186150e9292865e04b7a63b8c67a"),
    (
        "nvidia-cuda-runtime==13.0.96",
        "nvidia_cuda_runtime-",
        "7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548",
    ),
    (
        "nvidia-cuda-cupti==13.0.85",
        "nvidia_cuda_cupti-",
        "4eb01c08e859bf924d222250d2e8f8b8ff6d3db4721288cf35d14252a4d933c8",
    ),
];

/// Platforms whose wheels are taken, so that any Python 3 of the host fetches the same files.
const PLATFORMS: [&str; 4] =
    ["manylinux_2_28_x86_64", "manylinux_2_25_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64"];

/// Why the library could not be set up, and what to do.
#[derive(Debug)]
pub struct Error {
    message: String,
    hint: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n  hint: {}", self.message, self.hint)
    }
}

impl std::error::Error for Error {}

/// Sets up the library for the repository at `root`, and returns one line with its path.
///
/// A link to the right version is not touched, so a second call takes milliseconds. `say` is called before each long
/// step.
pub fn setup(root: &Path, say: &dyn Fn(&str)) -> Result<String, Error> {
    let link = root.join("vendor/libtorch");
    let library = match env::var_os(INSTALLED) {
        Some(path) => installed(Path::new(&path))?,
        None if check(&link).is_ok() => return Ok(line(&link)),
        None => downloaded(say)?,
    };
    relink(&link, &library)?;
    Ok(line(&link))
}

fn line(link: &Path) -> String {
    let place = fs::canonicalize(link).unwrap_or_else(|_| link.to_owned());
    format!("libtorch {} is set up: {}", torch::VERSION, place.display())
}

/// The folder named by the user, made absolute and checked.
fn installed(path: &Path) -> Result<PathBuf, Error> {
    let hint = format!("name the `torch` folder of a PyTorch {} in `{INSTALLED}`, or unset it", torch::VERSION);
    let wrong = |message: String| Error { message, hint: hint.clone() };
    let absolute =
        fs::canonicalize(path).map_err(|error| wrong(format!("`{INSTALLED}={}`: {error}", path.display())))?;
    check(&absolute).map_err(|reason| wrong(format!("`{INSTALLED}={}`: {reason}", path.display())))?;
    Ok(absolute)
}

/// The folder in the user's cache, filled if it is missing or incomplete.
fn downloaded(say: &dyn Fn(&str)) -> Result<PathBuf, Error> {
    let parent = cache()?.join("gradus");
    let library = parent.join(torch::CACHE_FOLDER);
    if check(&library).is_ok() {
        return Ok(library);
    }
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        return Err(Error {
            message: "libtorch is fetched for Linux on x86-64 only".into(),
            hint: format!("name an installed PyTorch {} in `{INSTALLED}`", torch::VERSION),
        });
    }
    let python = python()?;
    let work = parent.join(format!(".{}.{}", torch::CACHE_FOLDER, std::process::id()));
    say(&format!("fetching libtorch {} through pip (544 MB, once per user)", torch::VERSION));
    let filled = fill(&python, &work, &library);
    let _ = fs::remove_dir_all(&work);
    filled.map(|()| library)
}

/// Downloads into `work`, extracts there, and renames the finished folder to `library`.
fn fill(python: &str, work: &Path, library: &Path) -> Result<(), Error> {
    let wheels = work.join("wheels");
    let unfinished = work.join("library");
    fs::create_dir_all(&wheels).map_err(|error| cannot("create", &wheels, &error))?;
    let mut pins = Vec::new();
    for (requirement, start, sha256) in WHEELS {
        pins.push((download(python, requirement, start, &wheels)?, sha256));
    }

    let mut command = Command::new(python);
    command.args(["-c", include_str!("extract.py"), torch::VERSION]).arg(&unfinished);
    for (wheel, sha256) in &pins {
        command.arg(wheel).arg(sha256);
    }
    let output = command.output().map_err(|error| cannot("start", Path::new(python), &error))?;
    if !output.status.success() {
        return Err(Error {
            message: format!("the wheels of libtorch cannot be used: {}", last_words(&output)),
            hint: match output.status.code() {
                Some(3) => "`python3 -m pip cache purge`, then try again; the package index serves another file".into(),
                _ => "look for space on the disk of the cache folder, then try again".into(),
            },
        });
    }

    if library.exists() {
        fs::remove_dir_all(library).map_err(|error| cannot("remove", library, &error))?;
    }
    match fs::rename(&unfinished, library) {
        Ok(()) => Ok(()),
        // Another `setup` was faster.
        Err(_) if check(library).is_ok() => Ok(()),
        Err(error) => Err(cannot("write", library, &error)),
    }
}

/// Has pip put one wheel into `folder`, and returns its path.
fn download(python: &str, requirement: &str, start: &str, folder: &Path) -> Result<PathBuf, Error> {
    let mut command = Command::new(python);
    command.args(["-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]);
    command.args(["--only-binary=:all:", "--python-version=3.11", "--implementation=cp", "--abi=cp311", "--abi=none"]);
    for platform in PLATFORMS {
        command.args(["--platform", platform]);
    }
    let output = command
        .arg("--dest")
        .arg(folder)
        .arg(requirement)
        .output()
        .map_err(|error| cannot("start", Path::new(python), &error))?;
    let wheel = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(start)));
    match wheel {
        Some(wheel) if output.status.success() => Ok(wheel),
        Some(_) | None => Err(Error {
            message: format!("pip could not download `{requirement}`: {}", last_words(&output)),
            hint: format!("check the network and pip's index, or name an installed PyTorch in `{INSTALLED}`"),
        }),
    }
}

/// A Python 3 with pip.
pub fn python() -> Result<String, Error> {
    let mut found = false;
    for name in ["python3", "python"] {
        let runs = |arguments: &[&str]| Command::new(name).args(arguments).output().is_ok_and(|o| o.status.success());
        if !runs(&["-c", "import sys; sys.exit(sys.version_info < (3, 6))"]) {
            continue;
        }
        found = true;
        if runs(&["-m", "pip", "--version"]) {
            return Ok(name.into());
        }
    }
    Err(match found {
        true => Error {
            message: "this Python has no pip, which fetches libtorch".into(),
            hint: "`python3 -m ensurepip --user`, or `sudo apt install python3-pip`".into(),
        },
        false => Error {
            message: "no `python3` was found, which fetches libtorch".into(),
            hint: format!("`sudo apt install python3-pip`, or name an installed PyTorch in `{INSTALLED}`"),
        },
    })
}

/// Whether `folder` holds the right version of the library, and its headers.
fn check(folder: &Path) -> Result<(), String> {
    let version = version(folder).ok_or_else(|| format!("no PyTorch was found in `{}`", folder.display()))?;
    if version.split('+').next() != Some(torch::VERSION) {
        return Err(format!("it holds PyTorch {version}, and {} is needed", torch::VERSION));
    }
    for library in torch::LIBRARIES {
        if !folder.join("lib").join(library).is_file() {
            return Err(format!("`lib/{library}` is missing"));
        }
    }
    match folder.join("include/ATen/ATen.h").is_file() {
        true => Ok(()),
        false => Err("its headers are missing".into()),
    }
}

/// The version as libtorch's archives (`build-version`) or Python's package (`version.py`) state it.
fn version(folder: &Path) -> Option<String> {
    if let Ok(text) = fs::read_to_string(folder.join("build-version")) {
        return Some(text.trim().to_owned());
    }
    let text = fs::read_to_string(folder.join("version.py")).ok()?;
    let value = text.lines().find_map(|line| line.strip_prefix("__version__ = "))?;
    Some(value.trim_matches(['\'', '"']).to_owned())
}

/// `$XDG_CACHE_HOME`, else `~/.cache`.
pub fn cache() -> Result<PathBuf, Error> {
    let absolute = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache"))).ok_or_else(|| Error {
        message: "no cache folder is known for libtorch".into(),
        hint: "set `HOME` or `XDG_CACHE_HOME`".into(),
    })
}

/// Points `link` at `library` in one step, whatever it was before.
pub fn relink(link: &Path, library: &Path) -> Result<(), Error> {
    if fs::read_link(link).is_ok_and(|target| target == library) {
        return Ok(());
    }
    let parent = link.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(parent).map_err(|error| cannot("create", parent, &error))?;
    let fresh = parent.join(format!(".libtorch.{}", std::process::id()));
    std::os::unix::fs::symlink(library, &fresh).map_err(|error| cannot("create", &fresh, &error))?;
    fs::rename(&fresh, link).map_err(|error| {
        let _ = fs::remove_file(&fresh);
        cannot("replace", link, &error)
    })
}

fn cannot(verb: &str, path: &Path, error: &io::Error) -> Error {
    Error {
        message: format!("cannot {verb} `{}`: {error}", path.display()),
        hint: "look for space and permissions, then run `cargo xtask setup` again".into(),
    }
}

/// The last line that a program wrote to stderr.
fn last_words(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    text.trim().lines().last().unwrap_or("it said nothing").trim().to_owned()
}
