//! Prerequisites of an agent on a machine: the executables, identified by the hash of their contents, and libtorch. On a
//! machine with an NVIDIA GPU, that of an installed PyTorch for CUDA is used, where there is one of the same version.
//!
//! Everything is in `~/.gradus`. A copy is renamed only when it is complete, so that a broken connection leaves nothing
//! that looks ready, and the next try resumes from there.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use domain::{Node, Rate, torch};

use super::connection::{Connection, SshError, quoted};
use crate::provider::{ProviderAnswer, ProviderCall};

/// Files to copy to machines.
#[derive(Debug, Clone)]
pub struct Executables {
    /// The `gradus` executable.
    pub gradus: PathBuf,
    /// The executable of our own trainer.
    pub rank: PathBuf,
    /// Folder of libtorch, when one was found.
    pub libtorch: Option<PathBuf>,
}

/// Paths on a prepared machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    /// The folder of the executables.
    pub programs: String,
    /// Folder of libtorch, where one was installed, found or copied.
    pub libtorch: Option<String>,
    /// The folder of this owner: `instances/`, `runs/`, `cache/`.
    pub root: String,
}

impl Site {
    /// The socket on which agents there find the loop.
    pub fn socket(&self) -> String {
        format!("{}/loop.sock", self.root)
    }

    /// The line of a shell that runs `gradus` there with these words.
    pub fn command(&self, words: &[&str]) -> String {
        let libtorch =
            self.libtorch.as_ref().map_or(String::new(), |path| format!("GRADUS_LIBTORCH={} ", quoted(path)));
        let program = quoted(&format!("{}/gradus", self.programs));
        let words: String = words.iter().map(|word| format!(" {}", quoted(word))).collect();
        format!("{libtorch}exec {program} --home {}{words}", quoted(&self.root))
    }
}

/// Prints what exists, one line each; the arguments are the hash of the executables, the name of libtorch, the owner, the
/// version of PyTorch, and the folder of devices. Images of clouds keep their Python in `/opt`.
const LOOK: &str = r#"set -e
cd; mkdir -p -m 700 .gradus/bin .gradus/lib ".gradus/homes/$3"
echo "home $(pwd -P)"
[ -x ".gradus/bin/$1/gradus" ] && [ -x ".gradus/bin/$1/gradus-rank" ] && echo "programs"
whole() { [ -d "$1/lib" ] && { [ -f "$1/build-version" ] || [ -f "$1/version.py" ]; }; }
whole ".gradus/lib/$2" && echo "copied"
whole ".cache/gradus/$2" && echo "cached"
find_torch='import importlib.util as u; print(u.find_spec("torch").submodule_search_locations[0])'
[ -e "$5/nvidiactl" ] && for python in python3 /opt/pytorch/bin/python3 /opt/conda/bin/python3; do
  torch=$("$python" -c "$find_torch" 2>/dev/null </dev/null) || continue
  [ -f "$torch/lib/libtorch_cuda.so" ] || continue
  grep -q "^__version__ = .$4+" "$torch/version.py" 2>/dev/null || continue
  echo "torch $torch"
  break
done
echo "end"
"#;

/// Our own part of libtorch for CUDA, which is beside the executable of the trainer where it was built.
const CUDA_PART: &str = "libgradus-cuda.so";

/// The name of an owner's folder below `~/.gradus/homes` of a machine.
pub fn folder_of(owner: &str) -> String {
    owner.chars().rev().take(12).collect()
}

/// Copies missing files to a machine; if there are none, this costs one command.
///
/// # Errors
/// [`SshError`].
pub fn prepare(connection: &Connection, program: &Executables, owner: &str) -> Result<Site, SshError> {
    let here = |doing: &str, path: &Path| {
        let doing = format!("{doing} `{}`", path.display());
        move |source| SshError::Here { doing, source }
    };
    let cuda_part = program.rank.with_file_name(CUDA_PART);
    let mut executables = vec![("gradus", &program.gradus), ("gradus-rank", &program.rank)];
    if cuda_part.is_file() {
        executables.insert(0, (CUDA_PART, &cuda_part));
    }
    let mut contents: Box<dyn Read> = Box::new(io::empty());
    for (_, path) in &executables {
        contents = Box::new(contents.chain(File::open(path).map_err(here("read", path))?));
    }
    let hash = node::sha256(contents).map_err(here("read", &program.gradus))?[..16].to_owned();
    let short = folder_of(owner);
    let arguments = [&hash, torch::CACHE_FOLDER, &short, torch::VERSION, "/dev"].map(quoted).join(" ");
    let said = connection.run("look at what is installed", &format!("sh -s -- {arguments}"), LOOK.as_bytes())?;
    let said = String::from_utf8_lossy(&said).into_owned();
    let has = |word: &str| said.lines().any(|line| line.trim() == word);
    let Some(home) = said.lines().find_map(|line| line.strip_prefix("home ")).filter(|_| has("end")) else {
        return Err(SshError::Failed {
            host: connection.host().to_owned(),
            doing: "find the home folder".to_owned(),
            why: format!("the shell said `{}`", said.trim()),
        });
    };
    let installed = said.lines().find_map(|line| line.strip_prefix("torch ")).map(str::to_owned);
    let is_needed = installed.is_none() && !has("copied") && !has("cached");
    let site = Site {
        programs: format!("{home}/.gradus/bin/{hash}"),
        libtorch: installed.or_else(|| match (&program.libtorch, has("copied"), has("cached")) {
            (_, false, true) => Some(format!("{home}/.cache/gradus/{}", torch::CACHE_FOLDER)),
            (None, false, false) => None,
            (_, _, _) => Some(format!("{home}/.gradus/lib/{}", torch::CACHE_FOLDER)),
        }),
        root: format!("{home}/.gradus/homes/{short}"),
    };
    if !has("programs") {
        for (name, path) in &executables {
            copy_file(connection, path, &site.programs, name)?;
        }
    }
    if let Some(libtorch) = program.libtorch.as_ref().filter(|_| is_needed) {
        copy_libraries(connection, libtorch, &format!("{home}/.gradus/lib/{}", torch::CACHE_FOLDER))?;
    }
    Ok(site)
}

/// Detects the hardware of a prepared machine.
///
/// # Errors
/// Its message, or why there is none.
pub fn probe(connection: &Connection, site: &Site, owner: &str) -> Result<Node, String> {
    match super::remote::ask(connection, site, owner, Rate::default(), &ProviderCall::Offers) {
        ProviderAnswer::Offers(offers) => {
            let node = offers.into_iter().next().map(|offer| offer.node);
            node.ok_or_else(|| format!("`{}` does not report its hardware", connection.host()))
        }
        ProviderAnswer::Unavailable(why) => Err(why),
        _ => Err(format!("`{}` answered another question: is its gradus of another version?", connection.host())),
    }
}

/// Removes the folder of an owner, and where no other one is left, or none was ever made, all that was installed.
const REMOVE: &str = r#"cd
rm -rf ".gradus/homes/$1"
rmdir .gradus/homes 2>/dev/null || [ ! -e .gradus/homes ] && rm -rf .gradus
true
"#;

/// Removes everything of an owner, and the programs once no owner remains. Running work must have ended before.
///
/// # Errors
/// [`SshError`].
pub fn remove(connection: &Connection, owner: &str) -> Result<(), SshError> {
    let short = folder_of(owner);
    let command = format!("sh -s -- {}", quoted(&short));
    connection.run("remove what was installed", &command, REMOVE.as_bytes()).map(|_| ())
}

/// The command that deletes, in a folder, what copies of this name have left that broke off a day ago or earlier. None of
/// that age is still being written. Where it cannot, they stay.
fn sweep(folder: &str, name: &str) -> String {
    let (folder, pattern) = (quoted(folder), quoted(&format!("{name}.partial-*")));
    format!("find {folder} -maxdepth 1 -name {pattern} -mmin +1440 -exec rm -rf {{}} + || true")
}

/// Copies an executable into a folder; it is renamed once it is complete.
fn copy_file(connection: &Connection, path: &Path, folder: &str, name: &str) -> Result<(), SshError> {
    let partial = format!("{name}.partial-{}", std::process::id());
    let remote = format!(
        "set -e; mkdir -p {place}; {sweep}; cd {place}; cat > {partial}; chmod 755 {partial}; sync {partial}; mv {partial} {name}",
        place = quoted(folder),
        sweep = sweep(folder, name)
    );
    connection
        .feed(&format!("copy `{name}` to it"), &remote, |pipe| io::copy(&mut File::open(path)?, pipe).map(|_| ()))
        .map(|_| ())
}

/// Copies the libraries as one stream, packed by `tar` here and unpacked by `tar` there.
fn copy_libraries(connection: &Connection, libtorch: &Path, folder: &str) -> Result<(), SshError> {
    let partial = format!("{folder}.partial-{}", std::process::id());
    let (parent, name) = folder.rsplit_once('/').unwrap_or((".", folder));
    let remote = format!(
        "set -e; {sweep}; mkdir -p {partial}; tar -xf - -C {partial}; rm -rf {folder}; mv {partial} {folder}",
        sweep = sweep(parent, name),
        partial = quoted(&partial),
        folder = quoted(folder)
    );
    let pack = |pipe: &mut dyn Write| {
        // Links are followed: a pruned copy may consist of them.
        let mut tar = Command::new("tar");
        tar.args(["-chf", "-", "-C"]).arg(libtorch).args(["--exclude=*.a", "lib"]);
        // A rank is started only if one of these has the right version.
        tar.args(["build-version", "version.py"].into_iter().filter(|file| libtorch.join(file).is_file()));
        let mut tar = tar.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        if let Some(mut packed) = tar.stdout.take() {
            io::copy(&mut packed, pipe)?;
        }
        let status = tar.wait()?;
        if status.success() { Ok(()) } else { Err(io::Error::other(format!("`tar` ended with {status}"))) }
    };
    connection.feed("copy libtorch to it", &remote, pack).map(|_| ())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// What is found on a machine with or without a GPU, on which this PyTorch is installed.
    fn found(has_gpu: bool, version: &str, library: &str) -> Vec<String> {
        let machine = tempfile::tempdir().unwrap();
        let path = |name: &str| machine.path().join(name);
        let torch = path("site-packages/torch");
        fs::create_dir_all(torch.join("lib")).unwrap();
        fs::create_dir_all(path("dev")).unwrap();
        fs::write(torch.join("lib").join(library), "").unwrap();
        fs::write(torch.join("version.py"), format!("__version__ = '{version}'\n")).unwrap();
        if has_gpu {
            fs::write(path("dev/nvidiactl"), "").unwrap();
        }
        // Written by another process: while a child that another test starts has the file open, nobody can execute it.
        fs::write(path("draft"), format!("#!/bin/sh\necho {}\n", torch.display())).unwrap();
        let mut install = Command::new("install");
        install.args(["-m", "755"]).args([path("draft"), path("python3")]);
        assert!(install.status().unwrap().success());
        let devices = path("dev").to_string_lossy().into_owned();
        let mut shell = Command::new("sh");
        shell.args(["-s", "--", "hash", torch::CACHE_FOLDER, "me", torch::VERSION, &devices]);
        shell.env("HOME", machine.path()).env("PATH", format!("{}:/usr/bin:/bin", machine.path().display()));
        let mut shell = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        shell.stdin.take().unwrap().write_all(LOOK.as_bytes()).unwrap();
        let said = String::from_utf8(shell.wait_with_output().unwrap().stdout).unwrap();
        assert!(said.ends_with("end\n"), "{said}");
        let folder = torch.to_string_lossy().into_owned();
        said.lines().filter(|line| line.starts_with("torch ")).map(|line| line.replace(&folder, "it")).collect()
    }

    #[test]
    fn what_a_copy_has_left_that_broke_off_is_deleted_after_a_day() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("it's");
        fs::create_dir_all(place.join("libtorch.partial-1/lib")).unwrap();
        fs::create_dir_all(place.join("libtorch.partial-2")).unwrap();
        fs::write(place.join("other.partial-3"), "").unwrap();
        let old = std::time::SystemTime::now() - std::time::Duration::from_secs(2 * 24 * 3600);
        for name in ["libtorch.partial-1", "other.partial-3"] {
            fs::File::open(place.join(name)).unwrap().set_modified(old).unwrap();
        }
        // A folder that is not there ends no script.
        let script = format!("set -e; {}; {}", sweep("/nonexistent", "x"), sweep(place.to_str().unwrap(), "libtorch"));
        let swept = Command::new("sh").arg("-c").arg(script).status().unwrap();
        let mut left: Vec<_> = fs::read_dir(&place).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert!(swept.success() && left == ["libtorch.partial-2", "other.partial-3"], "{left:?}");
    }

    #[test]
    fn what_was_installed_goes_with_the_last_owner_also_where_no_folder_of_one_was_made_yet() {
        for (owners, expected) in [(&[][..], false), (&["me"], false), (&["me", "other"], true)] {
            let machine = tempfile::tempdir().unwrap();
            let installed = machine.path().join(".gradus");
            fs::create_dir_all(installed.join("lib/libtorch.partial-1")).unwrap();
            for owner in owners {
                fs::create_dir_all(installed.join("homes").join(owner)).unwrap();
            }
            let mut shell = Command::new("sh");
            shell.args(["-c", REMOVE, "sh", "me"]).env("HOME", machine.path());
            assert!(shell.status().unwrap().success());
            assert_eq!(installed.exists(), expected, "{owners:?}");
            assert!(!installed.join("homes/me").exists());
        }
    }

    #[test]
    fn a_pytorch_for_cuda_of_the_same_version_is_used_where_there_is_a_gpu() {
        let (right, cuda) = (format!("{}+cu130", torch::VERSION), "libtorch_cuda.so");
        assert_eq!(found(true, &right, cuda), ["torch it"]);
        assert_eq!(found(false, &right, cuda), [""; 0]);
        assert_eq!(found(true, "2.10.0+cu130", cuda), [""; 0]);
        assert_eq!(found(true, &right, "libtorch_cpu.so"), [""; 0], "one for CPUs");
    }
}
