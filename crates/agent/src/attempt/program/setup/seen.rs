//! All that a set-up could tell from its surroundings, as a hash; and whether it has changed any of it.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use domain::Job;
use domain::wire::NodeRank;
use node::mounts;
use node::workdir::{LeavesOut, Walk, WorkdirEntry};

/// The variable of a job that has its set-up run in any case, with the value `always`.
pub const FORCED: &str = "GRADUS_SETUP";

/// Names in a script that are other ones in each run or attempt.
const OF_A_RUN: [&str; 5] = ["GRADUS_", "SKYPILOT_TASK_ID", "SKYPILOT_NODE_IPS", "MASTER_", "TF_CONFIG"];

/// Scripts that are called by a set-up are not longer.
const SCRIPT: u64 = 1 << 20;

/// Everything below some folders: what an entry is, and when it was changed last, which no program can choose.
pub type SeenFiles = BTreeMap<PathBuf, (u32, u64, u64, i64, i64)>;

/// What a set-up can tell from its surroundings, beside the files that it sees.
#[derive(Debug, Clone, Default)]
pub struct SetupFacts<'a> {
    /// The variables of the agent, which its processes inherit, as a hash.
    pub inherited: &'a str,
    /// Its place among the nodes of the attempt.
    pub member: Option<NodeRank>,
    /// GPUs that it sees.
    pub gpus: usize,
}

/// The hash of all that the set-up `text` of a job depends on, with the identity of its `files`; `None` for one that uses what
/// is of a single run, itself or in a script of `workdir` that it names.
pub fn key(job: &Job, text: &str, facts: &SetupFacts, files: &str, workdir: &Path) -> Option<String> {
    if is_of_a_run(text) || scripts(text, workdir).any(|script| is_of_a_run(&script)) {
        return None;
    }
    let variables: BTreeMap<&str, &str> = job.environment().filter(|(name, _)| *name != FORCED).collect();
    let place = facts.member.map(|member| (member.rank, member.nodes));
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let all = format!("1 {text:?} {variables:?} {place:?} {} {} {boot:?} {files}", facts.gpus, facts.inherited);
    node::sha256(all.as_bytes()).ok()
}

fn is_of_a_run(text: &str) -> bool {
    OF_A_RUN.iter().any(|name| text.contains(name))
}

/// The texts of files below the working folder whose names are in `text`.
fn scripts(text: &str, workdir: &Path) -> impl Iterator<Item = String> {
    let workdir = fs::canonicalize(workdir).unwrap_or_else(|_| workdir.to_owned());
    let walk = Walk { except: None, follows_links: false, leaves_out: LeavesOut::Nothing };
    let entries = walk.entries(&workdir).filter_map(Result::ok).filter(|entry| entry.kind.is_file());
    let text = text.to_owned();
    entries.filter_map(move |entry| {
        let name = entry.path.file_name()?.to_str()?;
        let path = workdir.join(&entry.path);
        let is_named = text.contains(name) && fs::metadata(&path).is_ok_and(|about| about.len() <= SCRIPT);
        is_named.then(|| fs::read(path).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())).flatten()
    })
}

/// Identifies the files of a working folder and of mounts by names, sizes and times; `None` if one cannot be looked at.
pub fn identity<'a>(
    workdir: Option<(&Path, LeavesOut)>,
    mounted: impl Iterator<Item = (&'a str, &'a Path, LeavesOut)>,
) -> Option<String> {
    let mut text = String::new();
    if let Some((root, leaves_out)) = workdir {
        let root = fs::canonicalize(root).ok()?;
        let walk = Walk { except: None, follows_links: false, leaves_out };
        tell(&root, walk.entries(&root), &mut text)?;
    }
    for (place, source, leaves_out) in mounted {
        let root = fs::canonicalize(source).ok()?;
        writeln!(text, "mount {place:?}").ok()?;
        match root.is_dir() {
            true => tell(&root, mounts::entries(&root, None, leaves_out), &mut text)?,
            false => about(&root, &mut text)?,
        }
    }
    node::sha256(text.as_bytes()).ok()
}

fn tell(root: &Path, entries: impl Iterator<Item = io::Result<WorkdirEntry>>, text: &mut String) -> Option<()> {
    for entry in entries {
        let WorkdirEntry { path, kind } = entry.ok()?;
        write!(text, "{path:?} ").ok()?;
        match kind.is_dir() {
            true => text.push('\n'),
            false => about(&root.join(&path), text)?,
        }
    }
    Some(())
}

fn about(path: &Path, text: &mut String) -> Option<()> {
    let about = fs::symlink_metadata(path).ok()?;
    let (modified, changed) = ((about.mtime(), about.mtime_nsec()), (about.ctime(), about.ctime_nsec()));
    let (mode, length, aim) = (about.mode(), about.len(), fs::read_link(path).ok());
    writeln!(text, "{mode:o} {length} {modified:?} {changed:?} {aim:?}").ok()
}

/// Adds everything below a folder.
pub fn below(folder: &Path, found: &mut SeenFiles) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let about = fs::symlink_metadata(&path)?;
        if about.is_dir() {
            found.insert(path.clone(), (about.mode(), about.ino(), 0, 0, 0));
            below(&path, found)?;
        } else {
            let (changed, nanoseconds) = (about.ctime(), about.ctime_nsec());
            found.insert(path, (about.mode(), about.ino(), about.len(), changed, nanoseconds));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_a_set_up_can_tell_makes_another_key() {
        let folder = tempfile::tempdir().unwrap();
        let job = |more: &str| Job::parse(&format!("setup: a\nrun: b\n{more}"), "job.yaml").unwrap().job;
        let facts = SetupFacts { inherited: "x", member: None, gpus: 0 };
        let with = |job: &Job, text: &str, facts: &SetupFacts, files: &str| key(job, text, facts, files, folder.path());
        let plain = with(&job(""), "a", &facts, "f");
        assert_eq!(plain, with(&job(""), "a", &facts, "f"));
        assert_eq!(plain, with(&job("envs: {GRADUS_SETUP: always}"), "a", &facts, "f"), "it only forces");
        let member = Some(NodeRank { rank: 1, nodes: 2 });
        for other in [
            with(&job("envs: {A: b}"), "a", &facts, "f"),
            with(&job("secrets: {A: b}"), "a", &facts, "f"),
            with(&job(""), "b", &facts, "f"),
            with(&job(""), "a", &facts, "g"),
            with(&job(""), "a", &SetupFacts { gpus: 1, ..facts.clone() }, "f"),
            with(&job(""), "a", &SetupFacts { member, ..facts.clone() }, "f"),
            with(&job(""), "a", &SetupFacts { inherited: "y", ..facts.clone() }, "f"),
        ] {
            assert!(other.is_some() && other != plain);
        }
        assert_eq!(with(&job(""), "echo $GRADUS_RUN", &facts, "f"), None, "each run has another");
        fs::create_dir_all(folder.path().join("tools")).unwrap();
        fs::write(folder.path().join("tools/prepare.sh"), "cp x $GRADUS_CHECKPOINTS").unwrap();
        assert_eq!(with(&job(""), "bash tools/prepare.sh", &facts, "f"), None);
        assert!(with(&job(""), "bash tools/other.sh", &facts, "f").is_some());
    }

    #[test]
    fn files_are_told_apart_by_names_sizes_and_times() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir_all(path("code")).unwrap();
        fs::create_dir_all(path("data")).unwrap();
        fs::write(path("code/a"), "1").unwrap();
        fs::write(path("data/a"), "1").unwrap();
        let seen = |place: &str| {
            let (code, data) = (path("code"), path("data"));
            let mounted = [(place, data.as_path(), LeavesOut::Listed)];
            identity(Some((&code, LeavesOut::Ignored)), mounted.into_iter()).unwrap()
        };
        let mut all = vec![seen("/data"), seen("/other")];
        let mut note = || all.push(seen("/data"));
        std::fs::write(path("code/a"), "2").unwrap();
        note();
        std::fs::write(path("data/a"), "2").unwrap();
        note();
        fs::rename(path("code/a"), path("code/b")).unwrap();
        note();
        fs::create_dir(path("code/c")).unwrap();
        note();
        let different: std::collections::BTreeSet<&String> = all.iter().collect();
        assert_eq!(different.len(), all.len());
        assert_eq!(seen("/data"), seen("/data"));
    }
}
