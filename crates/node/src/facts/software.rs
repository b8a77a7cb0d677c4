//! libtorch, PyTorch and the CUDA toolkit: which versions are installed, without starting any of them.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::ask::ask;

/// libtorch, PyTorch and the CUDA toolkit.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SoftwareFacts {
    /// The libtorch that gradus' own trainer loads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub libtorch: Option<TorchBuild>,
    /// The PyTorch that `python3` imports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pytorch: Option<TorchBuild>,
    /// Version of the CUDA toolkit in `/usr/local/cuda`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub toolkit: Option<String>,
}

/// A build of PyTorch or libtorch.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TorchBuild {
    /// Its folder.
    pub folder: String,
    /// Its version, such as `2.11.0`.
    pub version: String,
    /// The CUDA it was built for, such as `12.8`; none for a build without.
    pub cuda: Option<String>,
}

/// Finding a module takes well under a second, but a home folder may lie on a network.
const PATIENCE: Duration = Duration::from_secs(10);

/// Where a module lies, without importing it.
const FIND: &str =
    "import importlib.util as u; s = u.find_spec('torch'); print((s and s.submodule_search_locations or [''])[0])";

pub(super) fn software(root: &Path, libtorch: Option<&Path>) -> SoftwareFacts {
    let python = ask("python3", &["-c", FIND], PATIENCE).ok().map(|text| text.trim().to_owned());
    SoftwareFacts {
        libtorch: libtorch.and_then(loaded),
        pytorch: python.filter(|folder| !folder.is_empty()).and_then(|folder| stated(Path::new(&folder))),
        toolkit: toolkit(&root.join("usr/local/cuda")),
    }
}

/// The library without which libtorch runs on CPU only, whatever its version is called.
pub const CUDA_LIBRARY: &str = "libtorch_cuda.so";

/// Whether the libtorch in this folder of libraries can use GPUs: a copy for CPUs has the version of the build that it was
/// taken from, such as `2.11.0+cu130`.
pub fn has_cuda(libraries: &Path) -> bool {
    libraries.join(CUDA_LIBRARY).is_file()
}

/// The libtorch in a folder, as a rank loads it.
fn loaded(folder: &Path) -> Option<TorchBuild> {
    let build = stated(folder)?;
    let cuda = build.cuda.filter(|_| has_cuda(&folder.join("lib")));
    Some(TorchBuild { cuda, ..build })
}

/// What a build says of itself: `build-version` of libtorch, or `version.py` of PyTorch, whose libraries may lie in another
/// folder.
fn stated(folder: &Path) -> Option<TorchBuild> {
    let place = folder.display().to_string();
    if let Ok(text) = fs::read_to_string(folder.join("build-version")) {
        let (version, cuda) = version(text.trim());
        return Some(TorchBuild { folder: place, version, cuda });
    }
    let text = fs::read_to_string(folder.join("version.py")).ok()?;
    let value = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name) && line.contains('='))?;
        let value = line.split_once('=')?.1.trim();
        value.strip_prefix(['\'', '"'])?.strip_suffix(['\'', '"']).map(str::to_owned)
    };
    let (version, of_version) = version(&value("__version__")?);
    Some(TorchBuild { folder: place, version, cuda: value("cuda").or(of_version) })
}

/// `2.11.0+cu128` is version 2.11.0 for CUDA 12.8.
fn version(text: &str) -> (String, Option<String>) {
    let (version, local) = text.split_once('+').unwrap_or((text, ""));
    let digits = local
        .strip_prefix("cu")
        .filter(|digits| digits.len() >= 3 && digits.bytes().all(|digit| digit.is_ascii_digit()));
    let cuda = digits.map(|digits| format!("{}.{}", &digits[..digits.len() - 1], &digits[digits.len() - 1..]));
    (version.to_owned(), cuda)
}

fn toolkit(folder: &Path) -> Option<String> {
    let text = fs::read_to_string(folder.join("version.json")).ok()?;
    let value: serde_json::Value = serde_json::from_str(&text).ok()?;
    value["cuda"]["version"].as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_the_files_of_a_build() {
        let folder = tempfile::tempdir().unwrap();
        let check = |file: &str, text: &str, expected: Option<(&str, Option<&str>)>| {
            fs::write(folder.path().join(file), text).unwrap();
            let found = stated(folder.path());
            let found = found.as_ref().map(|build| (build.version.as_str(), build.cuda.as_deref()));
            assert_eq!(found, expected, "{text}");
            fs::remove_file(folder.path().join(file)).unwrap();
        };
        check("build-version", "2.11.0+cpu\n", Some(("2.11.0", None)));
        check("build-version", "2.11.0+cu128\n", Some(("2.11.0", Some("12.8"))));
        check(
            "version.py",
            "__version__ = '2.11.0+cu130'\ndebug = False\ncuda: Optional[str] = '13.0'\n",
            Some(("2.11.0", Some("13.0"))),
        );
        check("version.py", "__version__ = '2.11.0'\ncuda: Optional[str] = None\n", Some(("2.11.0", None)));
        check("version.py", "debug = False\n", None);
        check("version.txt", "2.11.0", None);
        fs::write(folder.path().join("version.json"), r#"{"cuda": {"name": "CUDA SDK", "version": "12.4.1"}}"#)
            .unwrap();
        assert_eq!(toolkit(folder.path()).as_deref(), Some("12.4.1"));
        assert_eq!(toolkit(&folder.path().join("none")), None);
    }

    #[test]
    fn a_libtorch_for_cpus_has_no_cuda_whatever_its_version_is_called() {
        let folder = tempfile::tempdir().unwrap();
        let library = folder.path().join("lib");
        fs::create_dir(&library).unwrap();
        fs::write(library.join("libtorch_cpu.so"), "").unwrap();
        for (file, text) in [("version.py", "__version__ = '2.11.0+cu130'\n"), ("build-version", "2.11.0+cu130\n")] {
            fs::write(folder.path().join(file), text).unwrap();
            let build = loaded(folder.path()).unwrap();
            assert_eq!((build.version.as_str(), build.cuda), ("2.11.0", None), "{file}");
        }
        fs::write(library.join(CUDA_LIBRARY), "").unwrap();
        assert_eq!(loaded(folder.path()).unwrap().cuda.as_deref(), Some("13.0"));
    }
}
