//! `cargo xtask package`: what is installed without a compiler: a tarball with libtorch, and where `dpkg-deb` is there a
//! Debian package of the same files.
//!
//! Both hold a prefix, as `cargo xtask install --prefix` makes one: `gradus` finds libtorch in `lib` beside its own folder.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::doing::{self, Outcome};
use crate::{build, setup};

/// Files of the checkout that go along, each with its place in the prefix.
const DOCUMENTS: [(&str, &str); 4] = [
    ("README.md", "share/doc/gradus/README.md"),
    ("LICENSE-MIT", "share/doc/gradus/LICENSE-MIT"),
    ("LICENSE-APACHE", "share/doc/gradus/LICENSE-APACHE"),
    ("examples", "share/doc/gradus/examples"),
];

/// Shells, each with the place of its completions.
const SHELLS: [(&str, &str); 3] = [
    ("bash", "share/bash-completion/completions/gradus"),
    ("zsh", "share/zsh/site-functions/_gradus"),
    ("fish", "share/fish/vendor_completions.d/gradus.fish"),
];

/// What is beside the library that `cargo xtask setup` fetches, and goes along: its version and its licences.
const BESIDE: [&str; 2] = ["build-version", "licenses"];

/// Why nothing can be packed here: an installed PyTorch has other files, and may be a CUDA build of several gigabytes.
pub fn obstacle(root: &Path) -> Option<String> {
    let library = root.join("vendor/libtorch");
    let is_fetched = BESIDE.iter().all(|name| library.join(name).exists());
    let place = fs::canonicalize(&library).unwrap_or(library);
    let why = format!("`{}` is not the libtorch that `cargo xtask setup` fetches", place.display());
    let hint = "unset `GRADUS_LIBTORCH`, remove the link `vendor/libtorch`, and try again";
    (!is_fetched).then(|| format!("{why}, whose licences belong to a package\n  hint: {hint}"))
}

/// Builds both executables and packs them.
pub fn package(root: &Path) -> Outcome {
    eprintln!("{}", build::setup(root)?);
    if let Some(obstacle) = obstacle(root) {
        return Err(obstacle.into());
    }
    let built = build::executables(root)?;
    let version = doing::read(Command::new(built.join("gradus")).arg("--version"))?;
    let version = version.trim().trim_start_matches("gradus ").to_owned();
    let folder = build::target(root).join("package");
    let _ = fs::remove_dir_all(&folder);
    let name = format!("gradus-{version}-x86_64-linux");
    let prefix = folder.join(&name);
    fill(root, &built, &prefix)?;
    let tarball = folder.join(format!("{name}.tar.gz"));
    let mut tar = Command::new("tar");
    tar.args(["--create", "--gzip", "--owner=0", "--group=0", "--sort=name", "--file"]).arg(&tarball);
    doing::run(tar.arg("--directory").arg(&folder).arg(&name), "`tar` of GNU is needed")?;
    let mut made = vec![tarball];
    if doing::works(Command::new("dpkg-deb").arg("--version")) {
        made.push(debian(&folder, &prefix, &version)?);
    }
    Ok(format!("packed {}", made.iter().map(|path| sized(path)).collect::<Vec<_>>().join(" and ")))
}

/// A file's path and size, for people.
pub fn sized(path: &Path) -> String {
    let bytes = fs::metadata(path).map_or(0, |about| about.len());
    format!("`{}` ({:.0} MB)", path.display(), bytes as f64 / 1e6)
}

/// Fills a prefix: stripped executables, libtorch, completions, the manual, documents.
fn fill(root: &Path, built: &Path, prefix: &Path) -> Result<(), Box<dyn Error>> {
    fs::create_dir_all(prefix.join("bin"))?;
    for name in EXECUTABLES {
        stripped(&built.join(name), &prefix.join("bin").join(name))?;
    }
    let library = prefix.join("lib").join(setup::CACHE_FOLDER);
    copy(&fs::canonicalize(root.join("vendor/libtorch"))?.join("lib"), &library.join("lib"))?;
    for name in BESIDE {
        copy(&root.join("vendor/libtorch").join(name), &library.join(name))?;
    }
    let gradus = built.join("gradus");
    for (shell, place) in SHELLS {
        let script = doing::read(Command::new(&gradus).args(["completions", shell]))?;
        write(&prefix.join(place), &script)?;
    }
    write(&prefix.join("share/man/man1/gradus.1"), &doing::read(Command::new(&gradus).arg("man"))?)?;
    DOCUMENTS.iter().try_for_each(|(source, place)| copy(&root.join(source), &prefix.join(place)))
}

/// Both executables.
pub const EXECUTABLES: [&str; 2] = ["gradus", "gradus-rank"];

/// Copies an executable without its symbols.
pub fn stripped(source: &Path, target: &Path) -> Result<(), Box<dyn Error>> {
    let mut strip = Command::new("strip");
    doing::run(strip.args(["--strip-all", "-o"]).arg(target).arg(source), "`strip` of binutils is needed")
}

fn write(path: &Path, text: &str) -> Result<(), Box<dyn Error>> {
    fs::create_dir_all(path.parent().unwrap_or(path))?;
    Ok(fs::write(path, text)?)
}

/// Copies a file or folder; what a link leads to, for the headers and libraries of a checkout may be links.
fn copy(source: &Path, target: &Path) -> Result<(), Box<dyn Error>> {
    fs::create_dir_all(target.parent().unwrap_or(target))?;
    let mut cp = Command::new("cp");
    doing::run(cp.args(["--recursive", "--dereference"]).arg(source).arg(target), "check the disk")
}

/// The prefix as `/usr`, in a Debian package.
fn debian(folder: &Path, prefix: &Path, version: &str) -> Result<PathBuf, Box<dyn Error>> {
    let tree = folder.join("debian");
    fs::create_dir_all(&tree)?;
    copy(prefix, &tree.join("usr"))?;
    write(&tree.join("DEBIAN/control"), &control(version))?;
    let package = folder.join(format!("gradus_{version}_amd64.deb"));
    let mut pack = Command::new("dpkg-deb");
    pack.args(["--build", "--root-owner-group", "-Zgzip"]).arg(&tree).arg(&package);
    doing::run(&mut pack, "read its message above")?;
    fs::remove_dir_all(&tree)?;
    Ok(package)
}

fn control(version: &str) -> String {
    format!(
        "Package: gradus\nVersion: {version}\nArchitecture: amd64\nMaintainer: the authors of gradus <noreply@gradus.invalid>\n\
         Depends: libc6, libstdc++6, libgomp1, openssh-client\nSection: science\nPriority: optional\n\
         Description: train deep-learning models from a job file\n Plans time and cost, runs, recovers from failures, and ends with the trained model and an\n exact bill.\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_installed_pytorch_is_not_packed() {
        let root = tempfile::tempdir().unwrap();
        let library = root.path().join("vendor/libtorch");
        fs::create_dir_all(library.join("lib")).unwrap();
        fs::write(library.join("version.py"), "__version__ = '2.11.0+cu130'\n").unwrap();
        assert!(obstacle(root.path()).is_some_and(|why| why.contains("hint: unset `GRADUS_LIBTORCH`")));
        fs::create_dir_all(library.join("licenses")).unwrap();
        fs::write(library.join("build-version"), "2.11.0+cpu\n").unwrap();
        assert_eq!(obstacle(root.path()), None);
    }

    #[test]
    fn the_control_file_has_what_dpkg_asks_for() {
        let control = control("1.2.3");
        for field in ["Package: gradus\n", "Version: 1.2.3\n", "Architecture: amd64\n", "Maintainer: ", "Description: "]
        {
            assert!(control.contains(field), "{field}");
        }
        assert!(control.ends_with('\n') && !control.contains("\n\n"));
    }
}
