//! `setup`, and when it is skipped: the machine is still as the same set-up has left it.
//!
//! A set-up can do anything to a machine, so what it has done is never copied or guessed at. It is taken as done only where
//! no other program of gradus has run since that could have changed the machine, and all is the same that it could tell
//! ([`seen`]). It must have left behind nothing that is made anew for each attempt: files in the working folder, in the checkpoints
//! or in the mounts, or processes. It is written down when the set-up has succeeded, and forgotten before anything else begins, or
//! when a program fails that went without it.
//!
//! So that what it has put elsewhere may point into the working folder, that of a job with `setup` lies at one place while it
//! runs, and is moved to the folder of its attempt at the end.

mod seen;

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use seen::{FORCED, SetupFacts, identity, key};
use seen::{SeenFiles, below};

/// In the cache of a home: the place, and what was done there.
const FOLDER: &str = "cache/setup";

/// What is written down when a set-up has succeeded.
const DONE: &str = "done.json";

/// Held by the attempt that has the place.
const LOCK: &str = "lock";

/// Held by all other attempts that run programs.
const OTHERS: &str = "others";

/// The set-up that was done last.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct DoneSetup {
    /// Hash of all that it depends on.
    key: String,
}

/// An attempt that may change the machine, for as long as it runs.
#[derive(Debug)]
pub enum SetupUse {
    /// It has the place, and may find its set-up done.
    Alone(Box<SetupRoom>),
    /// It has no `setup`, or another attempt has the place.
    Beside {
        /// Says so to others.
        _lock: Option<File>,
    },
}

/// The place of the working folder of a job with `setup`; one attempt at a time has it.
#[derive(Debug)]
pub struct SetupRoom {
    root: PathBuf,
    is_node: bool,
    /// Folders that are made anew for each attempt.
    watched: Vec<PathBuf>,
    key: Option<String>,
    before: SeenFiles,
    is_done: bool,
    _lock: File,
}

impl SetupUse {
    /// Begins an attempt in the folder `attempt`, which has no working folder yet. `root` is the folder of all runs and caches of
    /// this owner; on a node other owners' are beside it, who have the same user there. `watched` are folders that are made anew for
    /// each attempt.
    pub fn begin(root: &Path, attempt: &Path, is_node: bool, watched: Option<Vec<PathBuf>>) -> SetupUse {
        if let Some(room) = watched.and_then(|watched| SetupRoom::enter(root, attempt, is_node, watched)) {
            return SetupUse::Alone(Box::new(room));
        }
        let folder = root.join(FOLDER);
        let others = fs::create_dir_all(&folder).and_then(|()| File::create(folder.join(OTHERS)));
        let lock = others.ok().filter(|file| file.lock_shared().is_ok());
        // Only now: what another attempt writes down after this one began is for it to find out.
        forget(root, is_node);
        SetupUse::Beside { _lock: lock }
    }

    /// The room of the attempt, if it has it.
    pub fn room(&self) -> Option<&SetupRoom> {
        match self {
            SetupUse::Alone(room) => Some(room),
            SetupUse::Beside { .. } => None,
        }
    }
}

impl SetupRoom {
    fn enter(root: &Path, attempt: &Path, is_node: bool, watched: Vec<PathBuf>) -> Option<SetupRoom> {
        let folder = root.join(FOLDER);
        fs::create_dir_all(&folder).ok()?;
        let lock = File::create(folder.join(LOCK)).ok()?;
        lock.try_lock().ok()?;
        let (root, key, before) = (root.to_owned(), None, SeenFiles::new());
        let room = SetupRoom { root, is_node, watched, key, before, is_done: false, _lock: lock };
        room.clear_away();
        fs::write(folder.join("attempt"), attempt.to_str()?).ok()?;
        fs::create_dir_all(room.workdir()).ok()?;
        symlink(room.workdir(), attempt.join("workdir")).ok()?;
        Some(room)
    }

    fn workdir(&self) -> PathBuf {
        self.root.join(FOLDER).join("workdir")
    }

    /// The working folder goes to the folder of its attempt, also that of one whose agent was killed.
    fn clear_away(&self) {
        let place = self.workdir();
        let attempt = fs::read_to_string(self.root.join(FOLDER).join("attempt"));
        let link = attempt.ok().map(|attempt| Path::new(&attempt).join("workdir"));
        if let Some(link) = link.filter(|link| fs::read_link(link).is_ok_and(|aim| aim == place)) {
            let _ = fs::remove_file(&link).and_then(|()| fs::rename(&place, &link));
        }
        let _ = fs::remove_dir_all(&place);
    }

    /// Everything is in place: finds out whether the set-up with this key was done already; without a key it was not. One that is
    /// forced runs, and is written down again.
    pub fn look(&mut self, key: Option<String>, is_forced: bool) {
        let snapshot = self.snapshot();
        (self.key, self.before) = match snapshot {
            Ok(snapshot) => (key, snapshot),
            Err(_) => (None, SeenFiles::new()),
        };
        let done = fs::read(self.root.join(FOLDER).join(DONE)).ok();
        let done = done.and_then(|text| serde_json::from_slice::<DoneSetup>(&text).ok());
        let is_same = done.is_some_and(|done| Some(done.key) == self.key);
        self.is_done = is_same && !is_forced && self.is_alone();
        if !self.is_done {
            // Until it has succeeded, nothing is known of this machine.
            forget(&self.root, self.is_node);
        }
    }

    /// Whether the set-up is skipped.
    pub fn is_done(&self) -> bool {
        self.is_done
    }

    /// The set-up has succeeded: writes it down, unless it left behind something that the next attempt makes anew.
    pub fn succeeded(&self, left_processes: bool) {
        let is_as_before = !left_processes && self.snapshot().is_ok_and(|now| now == self.before);
        if let Some(key) = self.key.clone()
            && is_as_before
            && self.is_alone()
        {
            // Where it cannot be written down, the set-up runs again.
            let _ = self.write(&DoneSetup { key });
        }
    }

    /// The program has failed. If it went without its set-up, that may be why.
    pub fn failed(&self) {
        if self.is_done {
            forget(&self.root, false);
        }
    }

    fn write(&self, done: &DoneSetup) -> io::Result<()> {
        let folder = self.root.join(FOLDER);
        let partial = folder.join("done.partial");
        let mut file = File::create(&partial)?;
        file.write_all(&serde_json::to_vec(done)?)?;
        file.sync_all()?;
        fs::rename(&partial, folder.join(DONE))
    }

    /// Whether no other attempt runs that could change the machine meanwhile.
    fn is_alone(&self) -> bool {
        let is_free = |file: PathBuf| match File::open(file) {
            Ok(file) => file.try_lock().is_ok(),
            Err(_) => true,
        };
        let homes = homes(&self.root, self.is_node);
        let busy = |home: &PathBuf| {
            let folder = home.join(FOLDER);
            !is_free(folder.join(OTHERS)) || (*home != self.root && !is_free(folder.join(LOCK)))
        };
        !homes.iter().any(busy)
    }

    fn snapshot(&self) -> io::Result<SeenFiles> {
        let mut found = SeenFiles::new();
        below(&self.workdir(), &mut found)?;
        for folder in self.watched.iter().filter(|folder| folder.exists()) {
            below(folder, &mut found)?;
        }
        Ok(found)
    }
}

impl Drop for SetupRoom {
    fn drop(&mut self) {
        self.clear_away();
    }
}

/// This home, and on a node those of other owners.
fn homes(root: &Path, is_node: bool) -> Vec<PathBuf> {
    let beside = root.parent().filter(|_| is_node).and_then(|homes| fs::read_dir(homes).ok());
    let others = beside.into_iter().flatten().flatten().map(|entry| entry.path()).filter(|home| home != root);
    std::iter::once(root.to_owned()).chain(others).collect()
}

/// What the last set-up has done is not relied on any more.
pub fn forget(root: &Path, is_node: bool) {
    for home in homes(root, is_node) {
        let _ = fs::remove_file(home.join(FOLDER).join(DONE));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Scene(tempfile::TempDir);

    impl Scene {
        fn path(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        fn begin(&self, owner: &str, attempt: &str, has_setup: bool) -> SetupUse {
            let (root, attempt) = (self.path(owner), self.path(owner).join(attempt));
            fs::create_dir_all(attempt.join("checkpoints")).unwrap();
            SetupUse::begin(&root, &attempt, true, has_setup.then(|| vec![attempt.join("checkpoints")]))
        }

        /// An attempt with this key, whose set-up does `work` in the working folder if it runs; returns whether it ran.
        fn attempt(&self, name: &str, key: &str, work: impl FnOnce(&Path) -> bool) -> bool {
            let SetupUse::Alone(mut room) = self.begin("one", name, true) else { panic!("the place is free") };
            let workdir = self.path("one").join(name).join("workdir");
            fs::write(workdir.join("train.py"), "1").unwrap();
            room.look(Some(key.to_owned()), false);
            let runs = !room.is_done();
            if runs && work(&workdir) {
                room.succeeded(false);
            }
            runs
        }
    }

    #[test]
    fn a_set_up_is_skipped_only_after_the_same_has_succeeded_and_left_nothing() {
        let scene = Scene(tempfile::tempdir().unwrap());
        let fine = |_: &Path| true;
        assert!(scene.attempt("1", "a", fine));
        assert!(!scene.attempt("2", "a", fine), "done");
        assert!(!scene.attempt("3", "a", fine), "and still done");
        assert!(scene.attempt("4", "b", fine), "another one");
        assert!(scene.attempt("5", "a", fine), "which may have undone it");
        assert!(scene.attempt("6", "b", |_| false), "fails, or is cut off");
        assert!(scene.attempt("6-a", "a", fine), "what was cut off may have undone it");
        assert!(scene.attempt("7", "b", |workdir| fs::write(workdir.join("made"), "").is_ok()));
        assert!(
            scene.attempt("8", "b", |workdir| fs::write(workdir.join("train.py"), "1").is_ok()),
            "the same bytes, later"
        );
        assert!(scene.attempt("9", "b", |workdir| fs::write(workdir.join("../../9/checkpoints/x"), "").is_ok()));
        assert!(scene.attempt("10", "b", fine));
        assert!(!scene.attempt("11", "b", fine));
        assert!(scene.path("one/7/workdir/made").is_file(), "the working folder is its attempt's in the end");
    }

    #[test]
    fn what_else_runs_has_it_run_again() {
        let scene = Scene(tempfile::tempdir().unwrap());
        let fine = |_: &Path| true;
        assert!(scene.attempt("1", "a", fine));
        drop(scene.begin("one", "2", false));
        assert!(scene.attempt("3", "a", fine), "a program without a set-up ran");
        drop(scene.begin("two", "1", false));
        assert!(scene.attempt("4", "a", fine), "another owner's");
        let other = scene.begin("two", "2", true);
        assert!(other.room().is_some(), "each owner has a place");
        assert!(scene.attempt("5", "a", fine), "while it runs");
        assert!(scene.attempt("6", "a", fine), "nothing is written down");
        drop(other);
        assert!(scene.attempt("7", "a", fine));
        assert!(!scene.attempt("8", "a", fine));
        let first = scene.begin("one", "9", true);
        let second = scene.begin("one", "10", true);
        assert!(first.room().is_some() && second.room().is_none(), "one has the place");
        drop((first, second));
        assert!(scene.attempt("11", "a", fine));
    }

    #[test]
    fn one_that_is_forced_or_after_which_a_program_fails_runs_again() {
        let scene = Scene(tempfile::tempdir().unwrap());
        assert!(scene.attempt("1", "a", |_| true));
        let SetupUse::Alone(mut room) = scene.begin("one", "2", true) else { panic!("the place is free") };
        room.look(Some("a".to_owned()), true);
        assert!(!room.is_done());
        room.succeeded(true);
        drop(room);
        assert!(scene.attempt("3", "a", |_| true), "it had left a process");
        let SetupUse::Alone(mut room) = scene.begin("one", "4", true) else { panic!("the place is free") };
        room.look(Some("a".to_owned()), false);
        assert!(room.is_done());
        room.failed();
        drop(room);
        assert!(scene.attempt("5", "a", |_| true));
    }

    #[test]
    fn a_working_folder_that_a_killed_agent_left_goes_to_its_attempt() {
        let scene = Scene(tempfile::tempdir().unwrap());
        let SetupUse::Alone(room) = scene.begin("one", "1", true) else { panic!("the place is free") };
        fs::write(scene.path("one/1/workdir/made"), "").unwrap();
        let killed = std::mem::ManuallyDrop::new(room);
        killed._lock.unlock().unwrap();
        assert!(scene.attempt("2", "a", |_| true));
        assert!(scene.path("one/1/workdir/made").is_file() && !scene.path("one/1/workdir").is_symlink());
    }
}
