//! Whether libtorch is installed, complete, and of the version that a rank is built for.

use std::fs;
use std::path::{Path, PathBuf};

use domain::{Cause, Finding, torch};
use node::facts::has_cuda;

const HINT: &str = "run `cargo xtask setup`, or name a folder of libtorch with `GRADUS_LIBTORCH`";

/// Returns the folder of the shared libraries.
pub fn check(libtorch: Option<&Path>) -> Result<PathBuf, Finding> {
    let wrong = |message: String| Finding::new(Cause::Library, message).hint(HINT);
    let expected = torch::VERSION;
    let Some(folder) = libtorch else {
        return Err(wrong(format!("libtorch {expected} was not found on this machine")));
    };
    let libraries = folder.join("lib");
    for library in torch::LIBRARIES {
        let path = libraries.join(library);
        if !path.is_file() {
            return Err(wrong(format!("libtorch is not whole: `{}` is missing", path.display())));
        }
    }
    match version(folder) {
        Some(version) if version == expected => Ok(libraries),
        Some(version) => {
            Err(wrong(format!("libtorch in `{}` is {version}, and this gradus needs {expected}", folder.display())))
        }
        None => Err(wrong(format!("libtorch in `{}` does not tell its version", folder.display()))),
    }
}

/// What is said where a machine has GPUs and a rank cannot use them, because its libtorch is one for CPUs.
pub fn unused_gpus(gpus: usize, libraries: &Path, is_node: bool) -> Option<String> {
    if gpus == 0 || has_cuda(libraries) {
        return None;
    }
    let (version, folder) = (torch::VERSION, libraries.display());
    let remedy = match is_node {
        true => format!("install PyTorch for CUDA there: `pip install torch=={version}`"),
        false => format!("name the folder `torch` of PyTorch {version} for CUDA with `GRADUS_LIBTORCH`"),
    };
    Some(format!(
        "this machine has {gpus} NVIDIA GPU(s), but training runs on its CPU, because the libtorch in `{folder}` is one for \
         CPUs; {remedy}"
    ))
}

/// The version as libtorch's archives (`build-version`) or Python's package (`version.py`) state it, without what
/// stands behind the `+`.
fn version(folder: &Path) -> Option<String> {
    let stated = match fs::read_to_string(folder.join("build-version")) {
        Ok(text) => text,
        Err(_) => {
            let text = fs::read_to_string(folder.join("version.py")).ok()?;
            let line = text.lines().find_map(|line| line.strip_prefix("__version__ ="))?;
            line.trim().trim_matches(['\'', '"']).to_owned()
        }
    };
    Some(stated.trim().split('+').next()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The outcome for a folder with this version file, less these libraries.
    fn check(file: &str, text: &str, missing: &[&str]) -> Result<PathBuf, String> {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("lib")).unwrap();
        for library in torch::LIBRARIES.iter().filter(|library| !missing.contains(library)) {
            fs::write(folder.path().join("lib").join(library), "").unwrap();
        }
        fs::write(folder.path().join(file), text).unwrap();
        let result = super::check(Some(folder.path()));
        result.map_err(|finding| {
            assert_eq!((finding.cause, finding.hint.as_deref()), (Cause::Library, Some(HINT)));
            finding.message
        })
    }

    #[test]
    fn gpus_that_are_not_used_are_named() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(unused_gpus(0, folder.path(), true), None);
        for (is_node, remedy) in [(true, "pip install torch=="), (false, "GRADUS_LIBTORCH")] {
            let note = unused_gpus(2, folder.path(), is_node).unwrap();
            assert!(note.starts_with("this machine has 2 NVIDIA GPU(s)") && note.contains(remedy), "{note}");
        }
        fs::write(folder.path().join(node::facts::CUDA_LIBRARY), "").unwrap();
        assert_eq!(unused_gpus(2, folder.path(), true), None);
    }

    #[test]
    fn only_a_whole_library_of_the_right_version_passes() {
        let right = torch::VERSION;
        for (file, text) in [
            ("build-version", format!("{right}+cpu\n")),
            ("build-version", right.to_owned()),
            ("version.py", format!("from typing import Any\n__version__ = '{right}+cu130'\n")),
        ] {
            assert!(check(file, &text, &[]).unwrap().ends_with("lib"), "{text}");
        }
        let message = |file, text, missing| check(file, text, missing).unwrap_err();
        assert!(message("build-version", "2.10.0+cpu", &[]).contains("is 2.10.0"));
        assert!(message("build-version", "2.11.01", &[]).contains("is 2.11.01"));
        assert!(message("README", "", &[]).contains("does not tell"));
        assert!(message("build-version", right, &["libc10.so"]).contains("libc10.so` is missing"));
        assert!(super::check(None).unwrap_err().message.contains("not found"));
    }
}
