//! `cargo xtask install`: both executables in a prefix, with a link by which they find libtorch outside this checkout.
//!
//! `PREFIX/bin` gets copies; `gradus` looks for libtorch in `PREFIX/lib` before it looks in the user's cache.

use std::env;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use crate::build;
use crate::doing::Outcome;
use crate::setup;

/// The files of the target directory to install. The last exists only after `cargo xtask cuda`.
const FILES: [&str; 3] = ["gradus", "gradus-rank", "libgradus-cuda.so"];

/// Builds and installs into `prefix`, or where `cargo install` would.
pub fn install(root: &Path, prefix: Option<&str>) -> Outcome {
    let prefix = match prefix {
        Some(prefix) => env::current_dir()?.join(prefix),
        None => cargo_prefix()?,
    };
    eprintln!("{}", build::setup(root)?);
    let built = build::executables(root)?;
    let library = fs::canonicalize(root.join("vendor/libtorch"))?;
    place(&built, &library, &prefix)?;
    let bin = prefix.join("bin");
    let is_on_path = env::split_paths(&env::var_os("PATH").unwrap_or_default()).any(|folder| folder == bin);
    let hint = if is_on_path { "" } else { "\n  hint: add this folder to `PATH`" };
    Ok(format!("installed `gradus` and `gradus-rank` in `{}`{hint}", bin.display()))
}

/// `CARGO_INSTALL_ROOT`, else `CARGO_HOME`, else `~/.cargo`.
fn cargo_prefix() -> Result<PathBuf, Box<dyn Error>> {
    let folder = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let found = folder("CARGO_INSTALL_ROOT").or_else(|| folder("CARGO_HOME"));
    found
        .or_else(|| folder("HOME").map(|home| home.join(".cargo")))
        .ok_or_else(|| "no folder is known to install into\n  hint: `cargo xtask install --prefix FOLDER`".into())
}

/// Copies the executables of `built` into `prefix/bin`, and links `prefix/lib` to `library`.
fn place(built: &Path, library: &Path, prefix: &Path) -> Result<(), Box<dyn Error>> {
    let (bin, lib) = (prefix.join("bin"), prefix.join("lib"));
    for folder in [&bin, &lib] {
        fs::create_dir_all(folder).map_err(|error| cannot("create", folder, &error))?;
    }
    for name in FILES {
        let source = built.join(name);
        if source.exists() {
            replace(&source, &bin.join(name))?;
        }
    }
    Ok(setup::relink(&lib.join(setup::CACHE_FOLDER), library)?)
}

/// Copies to a temporary file and renames, so that a run that executes the old file is not affected.
fn replace(source: &Path, target: &Path) -> Result<(), Box<dyn Error>> {
    let fresh = target.with_extension(format!("new.{}", std::process::id()));
    let copied = fs::copy(source, &fresh).and_then(|_| fs::rename(&fresh, target));
    copied.map_err(|error| {
        let _ = fs::remove_file(&fresh);
        cannot("write", target, &error)
    })
}

fn cannot(verb: &str, path: &Path, error: &std::io::Error) -> Box<dyn Error> {
    format!("cannot {verb} `{}`: {error}\n  hint: `cargo xtask install --prefix FOLDER`", path.display()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_gets_both_executables_and_a_link_and_is_updated_in_place() {
        let folder = tempfile::tempdir().unwrap();
        let [built, library, prefix] = ["built", "library", "prefix"].map(|name| folder.path().join(name));
        fs::create_dir_all(&built).unwrap();
        fs::create_dir_all(library.join("lib")).unwrap();
        for version in ["one", "two"] {
            for name in ["gradus", "gradus-rank"] {
                fs::write(built.join(name), format!("{name} {version}")).unwrap();
            }
            place(&built, &library, &prefix).unwrap();
            let read = |name: &str| fs::read_to_string(prefix.join("bin").join(name)).unwrap();
            assert_eq!(
                (read("gradus"), read("gradus-rank")),
                (format!("gradus {version}"), format!("gradus-rank {version}"))
            );
            assert!(prefix.join("lib").join(setup::CACHE_FOLDER).join("lib").is_dir());
        }
        let mut names: Vec<_> =
            fs::read_dir(prefix.join("bin")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["gradus", "gradus-rank"], "nothing is left behind");
    }

    #[test]
    fn a_prefix_that_cannot_be_written_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let prefix = folder.path().join("file");
        fs::write(&prefix, "").unwrap();
        let error = place(folder.path(), folder.path(), &prefix).unwrap_err().to_string();
        assert!(error.contains("cannot create") && error.contains("--prefix FOLDER"), "{error}");
    }
}
