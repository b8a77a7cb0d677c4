//! The script that is to be started, and the folder that is copied for it.

use std::path::{Path, PathBuf};

use domain::file::nearest::nearest;

use crate::error::Error;

/// A script in the folder that is copied to the machine.
#[derive(Debug)]
pub struct LaunchedScript {
    /// The folder, as it stands in the job file.
    pub workdir: String,
    /// The script within it.
    pub inner: PathBuf,
    /// Absolute: what runs of this script have in common.
    pub file: PathBuf,
}

/// Maximum size of a working folder that was not named explicitly.
const MOST_BYTES: u64 = 2_000_000_000;
const MOST_FILES: u64 = 100_000;

fn usage(message: String, hint: impl Into<String>) -> Error {
    Error::Usage { message, hint: hint.into() }
}

/// Finds a script, in `workdir` or else in its own folder.
///
/// # Errors
/// [`Error::Usage`] if it is not a Python script, or not in the folder.
pub fn find(script: &Path, workdir: Option<&Path>) -> Result<LaunchedScript, Error> {
    check(script)?;
    let parent = script.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder = folder(workdir.unwrap_or(parent))?;
    let file = std::fs::canonicalize(script).map_err(Error::file("open", script))?;
    // A link is started where it stands, and may lead out of the folder.
    let place = std::fs::canonicalize(parent).map_err(Error::file("open", parent))?;
    let Ok(inner) = place.strip_prefix(&folder.1) else {
        let message = format!("`{}` is not in the working folder `{}`", script.display(), folder.0);
        return Err(usage(message, "pass `--workdir` a folder that holds the script"));
    };
    let inner = inner.join(script.file_name().unwrap_or_default());
    Ok(LaunchedScript { workdir: folder.0, inner, file })
}

/// The text of a script; nothing for a module without a file, or one that is no text.
pub fn text(found: &LaunchedScript) -> String {
    let candidates = [found.file.clone(), found.file.with_extension("py"), found.file.join("__main__.py")];
    candidates.iter().find_map(|file| std::fs::read_to_string(file).ok()).unwrap_or_default()
}

/// The folder for a module that is started with `-m`.
///
/// # Errors
/// [`Error::Usage`] if it is not the name of a module.
pub fn find_module(module: &str, workdir: Option<&Path>) -> Result<LaunchedScript, Error> {
    let is_name = |part: &str| {
        part.starts_with(|c: char| c.is_alphabetic() || c == '_')
            && part.chars().all(|c| c.is_alphanumeric() || c == '_')
    };
    if module.ends_with(".py") || !module.split('.').all(is_name) {
        let name = module.trim_end_matches(".py").replace('/', ".");
        let message = format!("`{module}` is not the name of a module");
        return Err(usage(message, format!("write `-m {name}`, or leave `-m` out to start a script")));
    }
    let (name, path) = folder(workdir.unwrap_or(Path::new(".")))?;
    let file = path.join(module.replace('.', "/"));
    Ok(LaunchedScript { workdir: name, inner: PathBuf::from(module), file })
}

/// A folder as it is named, and its absolute path.
fn folder(folder: &Path) -> Result<(String, PathBuf), Error> {
    let absolute = std::fs::canonicalize(folder).map_err(Error::file("open the working folder", folder))?;
    if !absolute.is_dir() {
        return Err(usage(format!("`--workdir {}` is not a folder", folder.display()), "name a folder"));
    }
    let name = folder
        .to_str()
        .ok_or_else(|| usage(format!("the name of the folder `{}` is not UTF-8", folder.display()), "rename it"))?;
    Ok((name.to_owned(), absolute))
}

/// Refuses files that are not Python scripts, with a hint.
fn check(script: &Path) -> Result<(), Error> {
    let shown = script.display();
    let Ok(about) = std::fs::metadata(script) else {
        let parent = script.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let others = std::fs::read_dir(parent).into_iter().flatten().flatten();
        let names: Vec<String> = others.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        let scripts: Vec<&str> = names.iter().map(String::as_str).filter(|name| name.ends_with(".py")).collect();
        let written = script.file_name().unwrap_or_default().to_string_lossy();
        let hint = match nearest(&written, scripts.iter().copied()) {
            Some(name) => format!("did you mean `{}`?", parent.join(name).display()).replace("`./", "`"),
            None if scripts.is_empty() => "name a Python script, such as `train.py`, or a module with `-m`".to_owned(),
            None => format!("scripts there: {}", scripts.iter().take(5).copied().collect::<Vec<_>>().join(", ")),
        };
        return Err(usage(format!("there is no script `{shown}`"), hint));
    };
    if about.is_dir() {
        return Err(usage(format!("`{shown}` is a folder"), "name the script in it, such as `train.py`"));
    }
    let extension = script.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    let hint = match extension {
        "py" => return Ok(()),
        "yaml" | "yml" => format!("start a job file with `gradus run {shown}`"),
        "ipynb" => format!("convert the notebook first: `jupyter nbconvert --to script {shown}`"),
        "sh" | "sbatch" | "slurm" => {
            format!("write a job file with `run: bash {shown}`; `gradus import {shown}` reads `#SBATCH` lines")
        }
        _ => "name a Python script that ends in `.py`; any other program runs from a job file with `run:`".to_owned(),
    };
    let start = std::fs::read(script).map_err(Error::file("read", script))?;
    let first = start.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let first = String::from_utf8_lossy(first);
    if first.starts_with("#!") && first.contains("python") {
        return Ok(());
    }
    Err(usage(format!("`{shown}` is not a Python script"), hint))
}

/// Refuses to copy a large folder that was not named explicitly.
///
/// # Errors
/// [`Error::Usage`] with the large files in it.
pub fn check_size(workdir: &str, home: Option<&str>) -> Result<(), Error> {
    let path = Path::new(workdir);
    let absolute = std::fs::canonicalize(path).map_err(Error::file("open the working folder", path))?;
    let choose = "put the script into a folder of its own, or pass `--workdir FOLDER`, which is copied to the machine";
    if absolute.parent().is_none() || home.is_some_and(|home| Path::new(home) == absolute) {
        return Err(usage(
            format!("the whole folder `{}` would be copied for each attempt", absolute.display()),
            choose,
        ));
    }
    let size = agent::measure_workdir(path, MOST_FILES).map_err(Error::file("read the folder", path))?;
    if size.bytes <= MOST_BYTES && size.files < MOST_FILES {
        return Ok(());
    }
    let largest =
        size.largest.map(|(name, bytes)| format!(", `{name}` with {:.1} GB", bytes as f64 / 1e9)).unwrap_or_default();
    let files =
        if size.files >= MOST_FILES { format!("{MOST_FILES} files or more") } else { format!("{} files", size.files) };
    let message = format!(
        "the folder `{}` is copied for each attempt, and holds {:.1} GB in {files}{largest}",
        absolute.display(),
        size.bytes as f64 / 1e9
    );
    let hint = "name what the script does not need in `.skyignore` there, a pattern a line such as `data/`; \
                `--workdir FOLDER` copies a folder whatever its size";
    Err(usage(message, hint))
}
