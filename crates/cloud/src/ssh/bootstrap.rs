//! Prerequisites of an agent on a machine: the executables, identified by the hash of their contents, and libtorch. On a
//! machine with an NVIDIA GPU, that of an installed PyTorch for CUDA is used, where there is one of the same version.
//!
//! Everything is in `~/.gradus`. A copy is renamed only when it is complete, so that a broken connection leaves nothing
//! that looks ready. `gradus` itself is copied first, as it is, and compared by its length: where a connection breaks, the input
//! of a command there just ends. With it there, the rest goes compressed and in chunks, and a copy that broke off is continued
//! behind the last of them ([`transfer`]). What another node of the pool has comes from there ([`fetch`]).

mod fetch;
mod transfer;

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use domain::{Node, Rate, torch};

use super::connection::{Connection, SshError, quoted};
use super::peers::PeerNodes;
use crate::provider::{ProviderAnswer, ProviderCall};

use transfer::SourceFolder;
pub use transfer::{CopiedFiles, PeerCopy};

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
    /// The folder `.gradus`, in which everything is.
    pub installed: String,
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

    /// What [`Site::serving_command`] prints where there is no such `gradus`.
    const ABSENT: &'static str = "absent";

    /// The line of a shell that has *another* machine serve blobs: that has the same folders below its own home folder.
    fn serving_command(&self) -> String {
        let name = |path: &str| quoted(path.rsplit('/').next().unwrap_or_default());
        format!("sh -c {} sh {} {}", quoted(SERVE), name(&self.programs), name(&self.root))
    }
}

/// Runs `gradus node-serve` of the executables of this hash, for this owner.
const SERVE: &str = r#"cd && here=$(pwd -P)/.gradus && program=$here/bin/$1/gradus
if [ -x "$program" ]; then exec "$program" --home "$here/homes/$2" node-serve; fi
echo absent
"#;

/// Prints what exists, one line each; the arguments are the hash of the executables, the name of libtorch, the owner, the
/// version of PyTorch, the folder of devices, and the length of `gradus`: earlier versions took a part of it for the whole.
/// Images of clouds keep their Python in `/opt`.
const LOOK: &str = r#"set -e
cd; mkdir -p -m 700 .gradus .gradus/bin .gradus/lib ".gradus/homes/$3"
echo "home $(pwd -P)"
gradus=".gradus/bin/$1/gradus" length=$6
has_gradus() { [ -x "$gradus" ] && [ "$(wc -c < "$gradus")" -eq "$length" ]; }
has_gradus && echo "gradus"
has_gradus && [ -x "$gradus-rank" ] && echo "programs"
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

/// What [`SshError::Failed`] says of a machine on which `gradus` itself does not run.
pub const RUN_GRADUS: &str = "run `gradus`";

/// The name of an owner's folder below `~/.gradus/homes` of a machine.
pub fn folder_of(owner: &str) -> String {
    owner.chars().rev().take(12).collect()
}

/// Copies missing files to a machine; if there are none, this costs one command.
///
/// # Errors
/// [`SshError`].
pub fn prepare(connection: &Connection, program: &Executables, owner: &str) -> Result<Site, SshError> {
    install(connection, program, owner, || None).map(|(site, _)| site)
}

/// The same, also from other nodes, with what was copied beside `gradus` itself; `None` where nothing was. `peers` is called where
/// more than `gradus` is missing, and may wait until another node has it.
///
/// # Errors
/// [`SshError`].
pub fn install<'a>(
    connection: &Connection,
    program: &Executables,
    owner: &str,
    peers: impl FnOnce() -> Option<PeerNodes<'a>>,
) -> Result<(Site, Option<CopiedFiles>), SshError> {
    let here = |doing: &str, path: &Path| {
        let doing = format!("{doing} `{}`", path.display());
        move |source| SshError::Here { doing, source }
    };
    // What a rank looks for beside itself comes before it.
    let cuda_part = program.rank.with_file_name(CUDA_PART);
    let beside = cuda_part.is_file().then(|| (CUDA_PART.to_owned(), cuda_part));
    let ranks: Vec<(String, PathBuf)> =
        beside.into_iter().chain([("gradus-rank".to_owned(), program.rank.clone())]).collect();
    let mut contents: Box<dyn Read> = Box::new(File::open(&program.gradus).map_err(here("read", &program.gradus))?);
    for (_, path) in &ranks {
        contents = Box::new(contents.chain(File::open(path).map_err(here("read", path))?));
    }
    let hash = node::sha256(contents).map_err(here("read", &program.gradus))?[..16].to_owned();
    let length = fs::metadata(&program.gradus).map_err(here("read", &program.gradus))?.len();
    let short = folder_of(owner);
    let found = look(connection, (&hash, length), &short)?;
    let library = format!("lib/{}", torch::CACHE_FOLDER);
    let is_needed = found.torch.is_none() && !found.has("copied") && !found.has("cached");
    let home = &found.home;
    let site = Site {
        installed: format!("{home}/.gradus"),
        programs: format!("{home}/.gradus/bin/{hash}"),
        libtorch: found.torch.clone().or_else(|| match (&program.libtorch, found.has("copied"), found.has("cached")) {
            (_, false, true) => Some(format!("{home}/.cache/gradus/{}", torch::CACHE_FOLDER)),
            (None, false, false) => None,
            (_, _, _) => Some(format!("{home}/.gradus/{library}")),
        }),
        root: format!("{home}/.gradus/homes/{short}"),
    };
    if !found.has("gradus") {
        copy_gradus(connection, (&program.gradus, length), &site.programs)?;
    }
    let mut missing = Vec::new();
    if !found.has("programs") {
        missing.push(SourceFolder { folder: format!("bin/{hash}"), is_whole: false, files: ranks });
    }
    if let Some(libtorch) = program.libtorch.as_ref().filter(|_| is_needed) {
        let files = transfer::libraries(libtorch).map_err(here("read", libtorch))?;
        missing.push(SourceFolder { folder: library, is_whole: true, files });
    }
    if missing.is_empty() {
        return Ok((site, None));
    }
    let copied = fetch::install(connection, &site, &missing, peers)?;
    Ok((site, Some(copied)))
}

/// What is on a machine.
#[derive(Debug)]
struct Installed {
    home: String,
    /// Folder of an installed PyTorch that is used.
    torch: Option<String>,
    said: String,
}

impl Installed {
    fn has(&self, word: &str) -> bool {
        self.said.lines().any(|line| line.trim() == word)
    }
}

/// Looks what is there, and makes the folder of an owner. The executables have this hash, and `gradus` this length.
fn look(connection: &Connection, (hash, length): (&str, u64), owner: &str) -> Result<Installed, SshError> {
    let length = length.to_string();
    let arguments = [hash, torch::CACHE_FOLDER, owner, torch::VERSION, "/dev", &length].map(quoted).join(" ");
    let said = connection.run("look at what is installed", &format!("sh -s -- {arguments}"), LOOK.as_bytes())?;
    let said = String::from_utf8_lossy(&said).into_owned();
    let after = |word: &str| said.lines().find_map(|line| line.strip_prefix(word)).map(str::to_owned);
    let installed = Installed { home: after("home ").unwrap_or_default(), torch: after("torch "), said: said.clone() };
    if installed.home.is_empty() || !installed.has("end") {
        return Err(SshError::Failed {
            host: connection.host().to_owned(),
            doing: "find the home folder".to_owned(),
            why: format!("the shell said `{}`", said.trim()),
        });
    }
    Ok(installed)
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

/// Removes the folder of an owner, and where no other one is left, or none was ever made, all that was installed. Before, what
/// agents that were killed have left outside of it, as their lists name it: the folder of copies, then links into that, and
/// folders, which end with `/`.
const REMOVE: &str = r#"cd
for list in ".gradus/homes/$1/placed/"*; do
  [ -f "$list" ] || continue
  copies=$(head -n 1 "$list")
  tail -n +2 "$list" | LC_ALL=C sort -r | while IFS= read -r path; do
    case $path in */) rmdir "$path" 2>/dev/null; continue ;; esac
    case $(readlink "$path") in "$copies"/*) rm -f "$path" ;; esac
  done
done
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

/// The command that writes its input, so many bytes, to `gradus` in a folder; it is renamed once it is complete. One that still
/// waits there for the input of a broken connection writes to another name.
fn receive(folder: &str, length: u64) -> String {
    format!(
        "set -e; mkdir -p {place}; {sweep}; cd {place}; part=gradus.partial-{process}-$$; cat > $part; \
         [ \"$(wc -c < $part)\" -eq {length} ] || {{ rm -f $part; echo 'the copy broke off' >&2; exit 1; }}; \
         chmod 755 $part; sync $part; mv $part gradus",
        place = quoted(folder),
        sweep = sweep(folder, "gradus"),
        process = std::process::id()
    )
}

/// Copies `gradus` itself, which has so many bytes, into a folder.
fn copy_gradus(connection: &Connection, (path, length): (&Path, u64), folder: &str) -> Result<(), SshError> {
    let copied = connection.feed("copy `gradus` to it", &receive(folder, length), |pipe| {
        io::copy(&mut File::open(path)?, pipe).map(|_| ())
    });
    copied.map(|_| ())
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Command, Stdio};

    use super::*;

    /// What a machine with this home folder prints of itself, where the executables have the hash `hash`.
    fn looked_at(home: &Path, path: &str, devices: &str, length: &str) -> String {
        let mut shell = Command::new("sh");
        shell.args(["-s", "--", "hash", torch::CACHE_FOLDER, "me", torch::VERSION, devices, length]);
        shell.env("HOME", home).env("PATH", path).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut shell = shell.spawn().unwrap();
        shell.stdin.take().unwrap().write_all(LOOK.as_bytes()).unwrap();
        let said = String::from_utf8(shell.wait_with_output().unwrap().stdout).unwrap();
        assert!(said.ends_with("end\n"), "{said}");
        said
    }

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
        let path = format!("{}:/usr/bin:/bin", machine.path().display());
        let said = looked_at(machine.path(), &path, &devices, "0");
        let folder = torch.to_string_lossy().into_owned();
        said.lines().filter(|line| line.starts_with("torch ")).map(|line| line.replace(&folder, "it")).collect()
    }

    #[test]
    fn a_copy_of_gradus_whose_connection_broke_is_not_taken_for_a_whole_one() {
        let machine = tempfile::tempdir().unwrap();
        let folder = machine.path().join(".gradus/bin/hash");
        let gradus = folder.join("gradus");
        let receive = |contents: &[u8]| {
            let mut shell = Command::new("sh");
            shell.arg("-c").arg(receive(folder.to_str().unwrap(), 5)).stdin(Stdio::piped()).stderr(Stdio::piped());
            let mut shell = shell.spawn().unwrap();
            shell.stdin.take().unwrap().write_all(contents).unwrap();
            let output = shell.wait_with_output().unwrap();
            (output.status.success(), String::from_utf8(output.stderr).unwrap())
        };
        let found = || {
            let said = looked_at(machine.path(), "/usr/bin:/bin", "/nonexistent", "5");
            said.lines().filter(|line| ["gradus", "programs"].contains(line)).collect::<Vec<_>>().join(" ")
        };
        let names = || fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>();
        assert_eq!(receive(b"who"), (false, "the copy broke off\n".to_owned()));
        assert!(names().is_empty(), "{:?}", names());
        assert_eq!(found(), "");
        assert_eq!(receive(b"whole"), (true, String::new()));
        assert_eq!((names(), found()), (vec!["gradus".into()], "gradus".to_owned()));
        // A part that an earlier version has left under the name of the whole.
        fs::copy(&gradus, folder.join("gradus-rank")).unwrap();
        assert_eq!(found(), "gradus programs");
        fs::File::options().write(true).open(&gradus).unwrap().set_len(3).unwrap();
        assert_eq!(found(), "");
        assert!(receive(b"whole").0);
        assert_eq!(found(), "gradus programs");
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
    fn what_killed_agents_have_left_outside_goes_with_the_folder_of_the_owner() {
        let machine = tempfile::tempdir().unwrap();
        let path = |name: &str| machine.path().join(name);
        let (copies, lists) = (path(".gradus/homes/me/runs/r/attempts/1/mounts"), path(".gradus/homes/me/placed"));
        for folder in [&copies, &lists, &path("data/deep"), &path("used")] {
            fs::create_dir_all(folder).unwrap();
        }
        for (link, aim) in [("data/deep/a b", copies.join("0/a b")), ("own", path("used"))] {
            std::os::unix::fs::symlink(aim, path(link)).unwrap();
        }
        fs::write(path("used/photo"), "of the user").unwrap();
        let names = ["data/", "data/deep/", "data/deep/a b", "own", "used/"];
        let placed = names.map(|name| path(name).display().to_string());
        fs::write(lists.join("one"), format!("{}\n{}\n", copies.display(), placed.join("\n"))).unwrap();
        let mut shell = Command::new("sh");
        shell.args(["-c", REMOVE, "sh", "me"]).env("HOME", machine.path());
        assert!(shell.status().unwrap().success());
        assert!(!path("data").exists() && !path(".gradus").exists());
        assert!(path("own").is_symlink() && path("used/photo").exists(), "what others have stays");
    }

    #[test]
    fn a_pytorch_for_cuda_of_the_same_version_is_used_where_there_is_a_gpu() {
        let (right, cuda) = (format!("{}+cu130", torch::VERSION), node::facts::CUDA_LIBRARY);
        assert_eq!(found(true, &right, cuda), ["torch it"]);
        assert_eq!(found(false, &right, cuda), [""; 0]);
        assert_eq!(found(true, "2.10.0+cu130", cuda), [""; 0]);
        assert_eq!(found(true, &right, "libtorch_cpu.so"), [""; 0], "one for CPUs");
    }
}
