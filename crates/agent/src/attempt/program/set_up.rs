//! Whether a recovery may leave `setup` out: the same run has done it on this machine, from the same contents, and nothing
//! of what it has done can be gone.
//!
//! What it changes outside of the working folder, such as installed packages, stays on the machine. So its key is written down
//! only if the working folder is as it was before, which each attempt has anew, and no process of it still runs. Whatever
//! else may change the machine takes the key away: another program, another boot, a program that has failed by itself.

use std::fs::{self, DirEntry, File};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use domain::Command;
use domain::wire::Start;

/// A larger working folder takes too long to compare.
const MOST_BYTES: u64 = 64 << 20;

/// The same, for many small files.
const MOST_FILES: u64 = 10_000;

/// The file of a home's cache that holds the key of what was set up last.
const NOTED: &str = "set-up";

/// What a set-up starts from, and where: one with an equal key would do the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetupKey(String);

impl SetupKey {
    /// The key of the set-up in a working folder, which is staged. `None` if there is none, or it must run for each attempt.
    pub fn of(start: &Start, command: &Command, workdir: &Path) -> Option<SetupKey> {
        SetupKey::at_boot(start, command, workdir, &boot()?)
    }

    fn at_boot(start: &Start, command: &Command, workdir: &Path, boot: &str) -> Option<SetupKey> {
        let text = command.setup.as_ref()?;
        // A container is gone with its attempt, what is mounted is not compared, and no attempt has the name of another.
        if command.image.is_some() || !command.file_mounts.is_empty() || text.contains("GRADUS_ATTEMPT") {
            return None;
        }
        let mut contents = FolderContents::default();
        contents.add(workdir, "").ok()?;
        // A hash of a short secret would give it away.
        let secrets: Vec<&String> = start.job.secrets.keys().collect();
        let (run, member, envs) = (start.run.as_str(), start.member, &start.job.envs);
        let all = format!("{:?}\n{}", (boot, run, member, text, envs, secrets), contents.lines);
        node::sha256(all.as_bytes()).ok().map(SetupKey)
    }

    /// Whether it is what was set up last for this home on this machine.
    pub fn is_noted(&self, root: &Path) -> bool {
        fs::read_to_string(root.join("cache").join(NOTED)).is_ok_and(|noted| noted == self.0)
    }

    /// Writes it down. Where that fails, the set-up is repeated.
    pub fn note(&self, root: &Path) {
        let cache = root.join("cache");
        let partial = cache.join(format!("{NOTED}.partial"));
        let written = fs::create_dir_all(&cache).and_then(|()| {
            // Nobody else is to try which values of variables give it.
            let options = File::options().create(true).truncate(true).write(true).mode(0o600).clone();
            options.open(&partial)?.write_all(self.0.as_bytes())
        });
        let _ = written.and_then(|()| fs::rename(&partial, cache.join(NOTED)));
    }
}

/// What is another one after each start of the machine, or of the container that this is: what was installed may be gone.
fn boot() -> Option<String> {
    let machine = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let first = fs::read_to_string("/proc/1/stat").ok()?;
    // The name of the process comes before, in brackets; the 22nd field is when it was started.
    let started = first.rsplit_once(") ")?.1.split(' ').nth(19)?;
    // Containers of one pod may share that process, and not their files.
    let files = fs::read_link("/proc/self/ns/mnt").ok()?;
    Some(format!("{} {started} {}", machine.trim(), files.display()))
}

/// The machine may not be any more as the last set-up left it, also for other owners on a node: their homes are beside this
/// one, and their programs run as the same user.
pub fn forget_setup(root: &Path) {
    let beside = root.parent().filter(|homes| homes.ends_with("homes")).map(fs::read_dir);
    let others = beside.into_iter().flatten().flatten().flatten().map(|home| home.path());
    for home in others.chain([root.to_owned()]) {
        let _ = fs::remove_file(home.join("cache").join(NOTED));
    }
}

/// A line for each entry of a folder, with the hashes of its files.
#[derive(Debug, Default)]
struct FolderContents {
    lines: String,
    bytes: u64,
    files: u64,
}

impl FolderContents {
    fn add(&mut self, folder: &Path, below: &str) -> io::Result<()> {
        let mut entries: Vec<DirEntry> = fs::read_dir(folder)?.collect::<io::Result<_>>()?;
        entries.sort_by_key(DirEntry::file_name);
        for entry in entries {
            let (path, kind) = (entry.path(), entry.file_type()?);
            let place = format!("{below}{:?}/", entry.file_name());
            self.files += 1;
            if kind.is_dir() {
                self.lines.push_str(&format!("{place} folder\n"));
                self.add(&path, &place)?;
            } else if kind.is_symlink() {
                self.lines.push_str(&format!("{place} link {:?}\n", fs::read_link(&path)?));
            } else if kind.is_file() {
                let about = entry.metadata()?;
                self.bytes = self.bytes.saturating_add(about.len());
                self.require_small()?;
                let (mode, hash) = (about.mode() & 0o7777, node::sha256(File::open(&path)?)?);
                self.lines.push_str(&format!("{place} file {mode:o} {hash}\n"));
            } else {
                return Err(io::Error::other("it is no file, folder or link"));
            }
            self.require_small()?;
        }
        Ok(())
    }

    fn require_small(&self) -> io::Result<()> {
        match self.bytes <= MOST_BYTES && self.files <= MOST_FILES {
            true => Ok(()),
            false => Err(io::Error::other("it is too large to be compared")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::{Fence, Job, RunId, Work};

    fn key(file: &str, run: &str, workdir: &Path, boot: &str) -> Option<SetupKey> {
        let job = Job::parse(file, "job.yaml").unwrap_or_else(|problems| panic!("{problems:?}")).job;
        let Work::Command(command) = job.work.clone() else { panic!("it is a program") };
        let run = RunId::new(run);
        let start = Start {
            attempt: run.attempt(Fence(1)),
            run,
            fence: Fence(1),
            job,
            job_hash: "hash".into(),
            threads: 1,
            accept_data_change: false,
            member: None,
            folder: "/r".into(),
        };
        SetupKey::at_boot(&start, &command, workdir, boot)
    }

    #[test]
    fn a_key_is_another_one_where_anything_is_that_a_set_up_can_see() {
        let folder = tempfile::tempdir().unwrap();
        let workdir = folder.path();
        fs::create_dir(workdir.join("lib")).unwrap();
        fs::write(workdir.join("requirements.txt"), "torch").unwrap();
        let of = |file: &str| key(file, "a-1", workdir, "boot");
        let file = "{setup: pip install x, run: python train.py, envs: {A: b}}";
        let first = of(file);
        assert!(first.is_some());
        assert_eq!(of(&file.replace("train.py", "other.py")), first, "`run` is not set up");
        assert_ne!(of(&file.replace("install x", "install y")), first);
        assert_ne!(of(&file.replace("A: b", "A: c")), first);
        assert_ne!(key(file, "a-2", workdir, "boot"), first, "another run");
        assert_ne!(key(file, "a-1", workdir, "other"), first, "another boot");
        fs::write(workdir.join("requirements.txt"), "touch").unwrap();
        let other = of(file);
        assert!(other.is_some() && other != first, "other contents of the same length");
        fs::write(workdir.join("requirements.txt"), "torch").unwrap();
        assert_eq!(of(file), first);
        fs::create_dir(workdir.join("lib/empty")).unwrap();
        assert_ne!(of(file), first);
    }

    #[test]
    fn what_must_run_for_each_attempt_has_no_key() {
        let folder = tempfile::tempdir().unwrap();
        let of = |file: &str| key(file, "a-1", folder.path(), "boot");
        assert!(of("{setup: 'true', run: 'true'}").is_some());
        assert_eq!(of("run: 'true'"), None);
        assert_eq!(of("{setup: echo $GRADUS_ATTEMPT_NUMBER, run: 'true'}"), None);
        assert_eq!(of("{setup: 'true', run: 'true', file_mounts: {/data: /etc}}"), None);
        assert_eq!(of("{setup: 'true', run: 'true', resources: {image_id: 'docker:python:3.12'}}"), None);
        File::create(folder.path().join("large")).unwrap().set_len(MOST_BYTES + 1).unwrap();
        assert_eq!(of("{setup: 'true', run: 'true'}"), None);
    }

    #[test]
    fn the_start_of_this_machine_is_known() {
        let known = boot().unwrap();
        let [machine, started, files] = known.split(' ').collect::<Vec<_>>()[..] else { panic!("{known}") };
        assert!(machine.len() > 30 && started.parse::<u64>().is_ok() && files.starts_with("mnt:"), "{known}");
        assert_eq!(boot(), Some(known));
    }

    #[test]
    fn only_what_was_set_up_last_is_noted() {
        let root = tempfile::tempdir().unwrap();
        let (one, other) = (SetupKey("1".into()), SetupKey("2".into()));
        assert!(!one.is_noted(root.path()));
        one.note(root.path());
        assert!(one.is_noted(root.path()) && !other.is_noted(root.path()));
        other.note(root.path());
        assert!(!one.is_noted(root.path()) && other.is_noted(root.path()));
        forget_setup(root.path());
        assert!(!other.is_noted(root.path()));
        forget_setup(root.path());
        // Of the homes of a node, each may have changed the machine for all.
        let (mine, theirs) = (root.path().join("homes/me"), root.path().join("homes/them"));
        one.note(&mine);
        other.note(&theirs);
        forget_setup(&mine);
        assert!(!one.is_noted(&mine) && !other.is_noted(&theirs));
    }
}
