//! `gpu pack`: one archive with everything that the suite needs on a machine that has PyTorch and nothing of ours.

use std::collections::BTreeSet;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use super::section::SECTIONS;
use crate::build;
use crate::doing::{self, Outcome};

/// What may be carried to a machine, less what the caller carries beside it.
pub const MOST_BYTES: u64 = 60 << 20;

/// The folder within the archive, and the list in it.
const NAME: &str = "gradus-gpu";
const LIST: &str = "pack.json";

/// The library for CUDA devices, where `cargo xtask cuda` built it; otherwise it is compiled on the machine.
const LIBRARY: &str = "libgradus-cuda.so";

/// Executables that are packed, and where cargo puts them.
const PROGRAMS: [&str; 5] = ["gradus", "gradus-rank", "xtask", "examples/parity", "examples/collectives"];

/// Folders of which every file of a kind is packed, and where it lies in the pack.
const CUDA: &str = "crates/train/src/torch/cuda";
const FOLDERS: [(&str, &str, &str); 3] = [("benches/gpu", "py", "gpu"), (CUDA, "cpp", "cuda"), (CUDA, "h", "cuda")];

/// Single files, and where they lie in the pack.
const FILES: [(&str, &str); 7] = [
    ("benches/peers/parity.py", "peers/parity.py"),
    ("benches/peers/yolo.py", "peers/yolo.py"),
    ("benches/peers/torch_step.py", "peers/torch_step.py"),
    ("benches/peers/images.py", "peers/images.py"),
    ("examples/digits.csv.gz", "examples/digits.csv.gz"),
    ("examples/digits.yaml", "examples/digits.yaml"),
    ("benches/gpu/run.sh", "run.sh"),
];

/// What was packed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packed {
    /// Files in the pack, by their names there.
    pub names: BTreeSet<String>,
    /// Bytes of all of them.
    pub bytes: u64,
}

/// Where the archive of a checkout lies.
pub(super) fn archive(root: &Path) -> PathBuf {
    build::target(root).join("gpu").join(format!("{NAME}.tar.gz"))
}

/// Builds the executables and packs them.
///
/// # Errors
/// When something does not build, is missing, or the archive is too large to be carried.
pub(super) fn pack(root: &Path) -> Outcome {
    eprintln!("{}", build::setup(root)?);
    let packages = ["--package", "gradus-cli", "--package", "gradus-train", "--package", "xtask"];
    let arguments: Vec<&str> =
        ["build", "--release"].into_iter().chain(packages).chain(["--bins", "--examples"]).collect();
    doing::step("building what is packed", || {
        doing::run(&mut doing::cargo(root, &arguments), "read the compiler's message above")
    })?;
    let programs = build::target(root).join("release");
    let folder = archive(root).with_file_name(NAME);
    let commit = doing::read(Command::new("git").args(["rev-parse", "--short", "HEAD"]).current_dir(root));
    let packed = assemble(root, &programs, &folder, commit.unwrap_or_default().trim())?;
    let bytes = compress(&folder, &archive(root))?;
    let library = match packed.names.contains(&format!("bin/{LIBRARY}")) {
        true => "with the library for CUDA",
        false => "the library for CUDA is compiled on the machine (`cargo xtask cuda` beforehand saves that)",
    };
    Ok(format!(
        "`{}`: {:.1} MiB, {} files, {library}\n  hint: there, `tar xzf {NAME}.tar.gz && bash {NAME}/run.sh --out FOLDER`",
        archive(root).display(),
        bytes as f64 / f64::from(1 << 20),
        packed.names.len(),
    ))
}

/// Lays the files of the pack out in `folder`; executables come from `programs`.
///
/// # Errors
/// When one is missing, or a file cannot be written.
pub fn assemble(root: &Path, programs: &Path, folder: &Path, commit: &str) -> Result<Packed, Box<dyn Error>> {
    let _ = fs::remove_dir_all(folder);
    for (from, to) in contents(root, programs)? {
        let target = folder.join(&to);
        let made = target.parent().map_or(Ok(()), fs::create_dir_all);
        made.map_err(|error| format!("cannot make the folder of `{}`: {error}", target.display()))?;
        let is_program = to.starts_with("bin/");
        // Symbols are for debuggers, of which the machine has none.
        if !(is_program && stripped(&from, &target)) {
            fs::copy(&from, &target).map_err(|error| format!("cannot copy `{}`: {error}", from.display()))?;
        }
    }
    let mut packed = Packed { names: BTreeSet::new(), bytes: 0 };
    for (_, to) in contents(root, programs)? {
        packed.bytes += fs::metadata(folder.join(&to))?.len();
        packed.names.insert(to);
    }
    let list = json!({"commit": commit, "files": packed.names, "bytes": packed.bytes});
    fs::write(folder.join(LIST), format!("{list:#}\n"))?;
    Ok(packed)
}

/// Every file of the pack: where it is, and where it lies in the pack.
///
/// # Errors
/// When a folder cannot be read, or something is missing.
pub fn contents(root: &Path, programs: &Path) -> Result<Vec<(PathBuf, String)>, Box<dyn Error>> {
    let mut all = Vec::new();
    for program in PROGRAMS {
        let name = program.rsplit('/').next().unwrap_or(program);
        all.push((programs.join(program), format!("bin/{name}")));
    }
    let library = programs.join(LIBRARY);
    all.extend(library.is_file().then(|| (library, format!("bin/{LIBRARY}"))));
    all.extend(FILES.map(|(from, to)| (root.join(from), to.to_owned())));
    for (from, kind, to) in FOLDERS {
        let folder = root.join(from);
        let listed = fs::read_dir(&folder).map_err(|error| format!("cannot list `{}`: {error}", folder.display()))?;
        let mut paths: Vec<PathBuf> = listed.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?;
        paths.retain(|path| path.extension().is_some_and(|extension| extension == kind));
        paths.sort();
        let named = |path: PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            (path, format!("{to}/{name}"))
        };
        all.extend(paths.into_iter().map(named));
    }
    if let Some((missing, _)) = all.iter().find(|(from, _)| !from.is_file()) {
        return Err(format!("`{}` is missing in the pack", missing.display()).into());
    }
    let is_packed = |script: &str| all.iter().any(|(_, to)| *to == format!("gpu/{script}"));
    if let Some(section) = SECTIONS.iter().find(|section| !is_packed(section.script)) {
        return Err(format!("the script `{}` of section `{}` is missing", section.script, section.name).into());
    }
    Ok(all)
}

/// Writes a copy without symbols; false where there is no program that does, or what is copied is no executable.
fn stripped(from: &Path, to: &Path) -> bool {
    doing::works(Command::new("strip").arg("--strip-unneeded").arg("-o").arg(to).arg(from))
}

/// Makes the archive of a folder, and returns its size.
fn compress(folder: &Path, archive: &Path) -> Result<u64, Box<dyn Error>> {
    let parent = folder.parent().unwrap_or(folder);
    let mut tar = Command::new("tar");
    tar.arg("-C").arg(parent).arg("--exclude").arg(format!("{NAME}/work")).arg("-czf").arg(archive).arg(NAME);
    doing::run(&mut tar, "is there space left on the disk?")?;
    let bytes = fs::metadata(archive)?.len();
    match bytes > MOST_BYTES {
        true => Err(format!(
            "`{}` has {bytes} bytes, more than the {MOST_BYTES} that can be carried\n  hint: `du -a` its folder",
            archive.display()
        )
        .into()),
        false => Ok(bytes),
    }
}

/// Unpacks an archive beside itself, and returns the folder.
pub(super) fn unpack(archive: &Path) -> Result<PathBuf, Box<dyn Error>> {
    let archive = fs::canonicalize(archive).map_err(|error| format!("cannot open `{}`: {error}", archive.display()))?;
    let parent = archive.parent().unwrap_or(&archive).to_owned();
    let mut tar = Command::new("tar");
    doing::run(tar.arg("-C").arg(&parent).arg("-xzf").arg(&archive), "pack again with `cargo xtask gpu pack`")?;
    Ok(parent.join(NAME))
}

/// Reads the list of a pack, and checks that every file of it is there.
pub(super) fn read_list(folder: &Path) -> Result<Value, Box<dyn Error>> {
    let path = folder.join(LIST);
    let text = fs::read_to_string(&path).map_err(|error| {
        format!("`{}` is no pack: {error}\n  hint: `cargo xtask gpu pack` makes one", folder.display())
    })?;
    let list: Value = serde_json::from_str(&text)?;
    let names = list["files"].as_array().into_iter().flatten().filter_map(Value::as_str);
    match names.into_iter().find(|name| !folder.join(name).is_file()) {
        Some(missing) => Err(format!("the pack is not whole: `{missing}` is missing\n  hint: unpack it again").into()),
        None => Ok(list),
    }
}
