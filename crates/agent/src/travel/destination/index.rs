//! Which files an object store has of the checkpoints of a run, and which attempt says so.
//!
//! ```text
//! index/a3-0.json        attempt 3 has begun: nothing counts any more that an older one writes from now on
//! index/a3-1.json        what it has accepted of older ones
//! index/a3-2.json …      the same after each checkpoint
//! files/a3-2/SHA256      contents that its second index was the first to list
//! ```
//!
//! Each index is a new object, created only if it is not there. The newest one of the newest attempt counts. An older
//! attempt looks for newer ones before it deletes anything, and after it has written its index. One that begins meanwhile
//! lists what is there after its own first object, so it accepts that index or a later one, and what is deleted is in
//! neither. Names of contents are never used twice, so a request that was late deletes nothing that is needed.

use std::collections::{BTreeMap, BTreeSet};

use domain::files::KeepRequest;
use domain::{Fence, RunId};
use serde::{Deserialize, Serialize};

/// The version of the format.
const SCHEMA: u32 = 1;

/// Files that an attempt, or the command that deletes checkpoints, lists.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::travel) struct CheckpointIndex {
    /// The version of the format.
    pub schema: u32,
    /// The run.
    pub run: RunId,
    /// The tag of the home that the run is of: names of runs may be the same in two.
    pub owner: String,
    /// Number of the attempt.
    pub fence: Fence,
    /// Number of the index among those of the attempt.
    pub number: u64,
    /// Every file, by its path below the folder of checkpoints.
    pub files: BTreeMap<String, IndexedFile>,
}

/// A file in an object store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::travel) struct IndexedFile {
    /// Its size.
    pub bytes: u64,
    /// When it was modified, in microseconds since 1970.
    pub modified: i64,
    /// SHA-256 of its contents.
    pub sha256: String,
    /// The object that has its contents.
    pub object: String,
}

impl CheckpointIndex {
    /// The first index of an attempt, by which older ones learn that it has begun.
    pub fn begun(run: RunId, owner: String, fence: Fence) -> CheckpointIndex {
        CheckpointIndex { schema: SCHEMA, run, owner, fence, number: 0, files: BTreeMap::new() }
    }

    /// The index after this one, with the same files.
    pub fn next(&self) -> CheckpointIndex {
        CheckpointIndex { number: self.number + 1, ..self.clone() }
    }

    /// Reads an index.
    ///
    /// # Errors
    /// Why it is none.
    pub fn parse(bytes: &[u8]) -> Result<CheckpointIndex, String> {
        let index: CheckpointIndex = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        match index.schema {
            SCHEMA => Ok(index),
            other => Err(format!("it has version {other} of the format, and this program reads version {SCHEMA}")),
        }
    }

    /// Its object.
    pub fn name(&self) -> String {
        name_of(self.fence, self.number)
    }

    /// The object for contents that the next index is the first to list.
    pub fn object(&self, sha256: &str) -> String {
        format!("files/a{}-{}/{sha256}", self.fence.0, self.number + 1)
    }

    /// A file with these contents.
    pub fn holding(&self, sha256: &str, bytes: u64) -> Option<&IndexedFile> {
        self.files.values().find(|file| file.sha256 == sha256 && file.bytes == bytes)
    }

    /// Lists a file; whether that is new.
    pub fn add(&mut self, path: &str, file: IndexedFile) -> bool {
        let is_new = self.files.get(path) != Some(&file);
        if is_new {
            self.files.insert(path.to_owned(), file);
        }
        is_new
    }

    /// Leaves out files of checkpoints that are not named, and what a program has deleted; whether there were any. Files of
    /// programs are left out only by name.
    pub fn keep(&mut self, request: &KeepRequest) -> bool {
        let kept: BTreeSet<&str> = request.files.iter().map(String::as_str).collect();
        let removed: BTreeSet<&str> = request.removed.iter().map(String::as_str).collect();
        let before = self.files.len();
        let is_gone = |path: &str| !kept.contains(path) && (is_of_checkpoint(path) || removed.contains(path));
        self.files.retain(|path, _| !is_gone(path));
        self.files.len() < before
    }
}

/// Whether it is a file of a checkpoint of ours.
fn is_of_checkpoint(path: &str) -> bool {
    ["manifest-", "step-", "best-", "data-"].iter().any(|start| path.starts_with(start))
}

/// The object of an index.
pub(in crate::travel) fn name_of(fence: Fence, number: u64) -> String {
    format!("index/a{}-{number}.json", fence.0)
}

/// The attempt and the number of an index; `None` for another object.
fn version(name: &str) -> Option<(Fence, u64)> {
    let (fence, number) = name.strip_prefix("index/a")?.strip_suffix(".json")?.split_once('-')?;
    Some((Fence(fence.parse().ok()?), number.parse().ok()?))
}

/// The index that counts: an attempt that has only begun has accepted nothing yet.
pub(in crate::travel) fn newest(names: &[String]) -> Option<(Fence, u64)> {
    names.iter().filter_map(|name| version(name)).filter(|(_, number)| *number > 0).max()
}

/// The attempt that has begun after this one, if any has.
pub(in crate::travel) fn replaced_by(names: &[String], fence: Fence) -> Option<Fence> {
    names.iter().filter_map(|name| Some(version(name)?.0)).max().filter(|newest| *newest > fence)
}

/// What nobody needs any more once this index is there, and no newer attempt has begun: older ones, and contents that it does
/// not list. What is not ours stays.
pub(in crate::travel) fn garbage<'a>(names: &'a [String], index: &CheckpointIndex) -> Vec<&'a str> {
    let listed: BTreeSet<&str> = index.files.values().map(|file| file.object.as_str()).collect();
    let is_garbage = |name: &&str| match version(name) {
        Some((fence, number)) => {
            let is_beginning = fence == index.fence && number == 0;
            (fence, number) < (index.fence, index.number) && !is_beginning
        }
        None => attempt_of(name).is_some_and(|fence| fence <= index.fence) && !listed.contains(*name),
    };
    names.iter().map(String::as_str).filter(is_garbage).collect()
}

/// The attempt that has sent contents.
fn attempt_of(name: &str) -> Option<Fence> {
    let (fence, _) = name.strip_prefix("files/a")?.split_once('-')?;
    fence.parse().ok().map(Fence)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn index(fence: u64, number: u64, files: &[(&str, &str)]) -> CheckpointIndex {
        let file = |(path, object): &(&str, &str)| {
            let (sha256, object) = ("5".to_owned(), (*object).to_owned());
            ((*path).to_owned(), IndexedFile { bytes: 1, modified: 2, sha256, object })
        };
        let begun = CheckpointIndex::begun(RunId::new("r"), "o".into(), Fence(fence));
        CheckpointIndex { number, files: files.iter().map(file).collect(), ..begun }
    }

    #[test]
    fn the_newest_index_of_the_newest_attempt_counts() {
        let check = |there: &[&str], expected: Option<(u64, u64)>, replaced: Option<u64>| {
            let there = names(there);
            assert_eq!(newest(&there), expected.map(|(fence, number)| (Fence(fence), number)), "{there:?}");
            assert_eq!(replaced_by(&there, Fence(2)), replaced.map(Fence), "{there:?}");
        };
        check(&[], None, None);
        check(&["index/a2-0.json"], None, None);
        check(
            &["index/a2-0.json", "index/a1-10.json", "index/a1-9.json", "index/other", "files/a9-1/5"],
            Some((1, 10)),
            None,
        );
        check(&["index/a2-1.json", "index/a1-10.json"], Some((2, 1)), None);
        // What an older attempt writes late.
        check(&["index/a2-99.json", "index/a10-0.json", "index/a10-1.json"], Some((10, 1)), Some(10));
        check(&["index/a2-99.json", "index/a3-0.json"], Some((2, 99)), Some(3));
    }

    #[test]
    fn only_what_no_attempt_needs_is_garbage() {
        let there = names(&[
            "files/a1-2/5",
            "files/a1-3/6",
            "files/a2-2/6",
            "files/a3-1/7",
            "files/other",
            "index/a1-0.json",
            "index/a1-7.json",
            "index/a2-0.json",
            "index/a2-1.json",
            "index/a2-2.json",
            "index/a2-3.json",
            "notes.txt",
        ]);
        let index = index(2, 2, &[("step-1-a1/x", "files/a1-2/5")]);
        let expected = ["files/a1-3/6", "files/a2-2/6", "index/a1-0.json", "index/a1-7.json", "index/a2-1.json"];
        assert_eq!(garbage(&there, &index), expected);
    }

    #[test]
    fn files_of_checkpoints_are_kept_by_name_and_others_are_not_deleted_unnamed() {
        let files = [
            ("manifest-1.json", "a"),
            ("manifest-2.json", "b"),
            ("step-1-a1/x", "c"),
            ("last.pt", "d"),
            ("old.pt", "e"),
        ];
        let mut index = index(1, 1, &files);
        let request = |files: &[&str], removed: &[&str]| KeepRequest {
            fence: Fence(1),
            files: names(files),
            removed: names(removed),
        };
        assert!(index.keep(&request(&["manifest-2.json", "last.pt"], &["old.pt", "last.pt"])));
        assert_eq!(index.files.keys().collect::<Vec<_>>(), ["last.pt", "manifest-2.json"]);
        assert!(!index.keep(&request(&["manifest-2.json"], &[])), "files of programs go only by name");
    }

    #[test]
    fn an_index_reads_back_and_a_later_version_is_refused() {
        let index = index(3, 4, &[("last.pt", "files/a1-2/5")]);
        let text = serde_json::to_string(&index).unwrap();
        assert_eq!(CheckpointIndex::parse(text.as_bytes()), Ok(index.clone()));
        assert_eq!((index.name(), index.object("9")), ("index/a3-4.json".to_owned(), "files/a3-5/9".to_owned()));
        let later = text.replace("\"schema\":1", "\"schema\":2");
        assert!(CheckpointIndex::parse(later.as_bytes()).unwrap_err().contains("version 2"));
    }
}
