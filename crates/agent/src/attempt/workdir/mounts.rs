//! `file_mounts`: what an attempt's program finds beside its working folder.
//!
//! Below the working folder a mount is copied there. Anywhere else it is a link to a copy in the folder of the attempt, which
//! is taken away at its end: no file of the machine's user is ever written, and one that is there already is not changed. Only
//! a link of gradus whose attempt is over is replaced; a lock beside the copies says which are not. What an agent that was killed
//! has left is taken away by the next one of the same home.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt, lchown, symlink};
use std::path::{Path, PathBuf};

use domain::mounts::{MountPlace, is_address};
use domain::{Cause, Finding};
use node::mounts;
use node::workdir::{LeavesOut, WorkdirEntry};
use store::{Access, Limits, Meter};

use super::placed_list::{self, PlacedList};
use super::{Placed, outer_link};
use crate::travel::Brought;
use node::folder::not_written;

/// The folder of an attempt that holds its copies.
pub const MOUNTS: &str = "mounts";

/// In it, held while the attempt lives.
const LOCK: &str = "lock";

/// The machine that mounts come to.
#[derive(Debug, Clone)]
pub struct MountTarget {
    /// The folder of the attempt.
    pub attempt: PathBuf,
    /// The folder of all runs and caches of this owner.
    pub root: PathBuf,
    /// The home folder of the user that programs run as.
    pub user_home: Option<PathBuf>,
    /// Credentials and endpoints of object stores.
    pub access: Access,
}

/// Something to mount.
struct Source {
    path: PathBuf,
    leaves_out: LeavesOut,
    /// Whether it is the user's own, and no copy yet.
    is_original: bool,
}

/// Puts each of `mounts` in its place.
pub fn place<'a>(
    mounts: impl IntoIterator<Item = (&'a String, &'a String)>,
    brought: &Brought,
    target: &MountTarget,
) -> Result<Placed, Finding> {
    let mut placed = Placed::default();
    placed_list::clear(&target.root, is_in_use);
    clear_earlier(&target.attempt);
    for (number, (place, source)) in (0..).zip(mounts) {
        let refused = |why: &str| Finding::new(Cause::Job, format!("`file_mounts` names `{place}`, which {why}"));
        let parsed = MountPlace::parse(place).map_err(refused)?;
        let source = fetched(number, source, brought, target)?;
        let outer = match parsed {
            MountPlace::Workdir(below) => {
                copy_below(&source, (&target.attempt.join("workdir"), &below), &target.root)?;
                continue;
            }
            MountPlace::Root(path) => Path::new("/").join(path),
            MountPlace::Home(below) => match &target.user_home {
                Some(home) => home.join(below),
                None => return Err(refused("needs a home folder, and `HOME` is not set on the machine")),
            },
        };
        // Of this machine's own files, a program finds what is there.
        let is_there = source.is_original && fs::canonicalize(&outer).is_ok_and(|end| end == source.path);
        match is_there {
            true => placed.originals.push(outer),
            false => placed.link(&outer, number, &source, target)?,
        }
    }
    Ok(placed)
}

/// The files of a mount on this machine.
fn fetched(number: u32, source: &str, brought: &Brought, target: &MountTarget) -> Result<Source, Finding> {
    let (path, leaves_out, is_original) = match (is_address(source), brought.mounts.get(&number)) {
        (true, _) => (from_store(source, target)?, LeavesOut::Nothing, false),
        (false, Some(path)) => (path.clone(), LeavesOut::Nothing, false),
        (false, None) => (PathBuf::from(source), LeavesOut::Listed, true),
    };
    let path = fs::canonicalize(&path).map_err(|error| {
        let message = format!("cannot read `{source}` of `file_mounts`: {error}");
        Finding::new(Cause::Job, message).hint("check the path, relative to the job file")
    })?;
    // A pipe has no end, and a device is not a file.
    if !path.is_file() && !path.is_dir() {
        let message = format!("`{source}` of `file_mounts` is neither a file nor a folder");
        return Err(Finding::new(Cause::Job, message).hint("name a file or a folder"));
    }
    Ok(Source { path, leaves_out, is_original })
}

/// Deletes the copies of earlier attempts of the same run, which an agent that was killed or stopped meanwhile has left.
fn clear_earlier(attempt: &Path) {
    // Only where attempts lie side by side: beside any other folder, what is called so is not gradus's.
    let attempts = attempt.parent().filter(|folder| folder.ends_with("attempts"));
    let attempts = attempts.and_then(|folder| fs::read_dir(folder).ok());
    let folders = attempts.into_iter().flatten().flatten().map(|entry| entry.path());
    for copies in folders.filter(|folder| folder != attempt).map(|folder| folder.join(MOUNTS)) {
        if copies.is_dir() && !is_in_use(&copies) {
            let _ = fs::remove_dir_all(copies);
        }
    }
}

/// An address names a file if the file is called like the end of it, and otherwise a folder, of one file as of many.
fn from_store(source: &str, target: &MountTarget) -> Result<PathBuf, Finding> {
    let cache = target.root.join("cache/data");
    let staged = store::stage(source, &cache, &target.access, Limits::default(), &Meter::default());
    let staged = staged.map_err(|error| error.finding())?;
    let Some(single) = &staged.pulled.single else { return Ok(staged.path) };
    let end = source.split(['?', '#']).next().unwrap_or(source).rsplit('/').next();
    if end == Some(single) {
        return Ok(staged.path);
    }
    Ok(staged.path.ancestors().nth(single.split('/').count()).unwrap_or(&staged.path).to_owned())
}

/// Copies a mount into the working folder, over what is there.
fn copy_below(source: &Source, (workdir, below): (&Path, &str), root: &Path) -> Result<(), Finding> {
    let to = workdir.join(below);
    let parent = to.parent().unwrap_or(workdir);
    // Nothing is made where a link of it leads.
    let there = parent.ancestors().find(|folder| folder.exists()).unwrap_or(workdir);
    let ends = [there, workdir].map(fs::canonicalize);
    if let [Ok(end), Ok(workdir)] = &ends
        && !end.starts_with(workdir)
    {
        return Err(outer_link(end, workdir));
    }
    fs::create_dir_all(parent).map_err(|error| *not_written("make", parent, &error))?;
    copy(source, &to, root)
}

/// Copies a file, or what a folder holds; `home` is left out, for it holds the copies.
fn copy(source: &Source, to: &Path, home: &Path) -> Result<(), Finding> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |error: io::Error| *not_written("copy", &path, &error)
    };
    if !source.path.is_dir() {
        return copy_file(&source.path, to).map_err(failed(to));
    }
    make_folder(to).map_err(failed(to))?;
    let home = fs::canonicalize(home).unwrap_or_else(|_| home.to_owned());
    for entry in mounts::entries(&source.path, Some(home), source.leaves_out) {
        let WorkdirEntry { path, kind } = entry.map_err(|error| {
            let message = format!("cannot copy `{}` of `file_mounts`: {error}", source.path.display());
            Finding::new(Cause::Job, message).hint("correct the folder, or name another one")
        })?;
        let (from, to) = (source.path.join(&path), to.join(&path));
        if kind.is_dir() {
            make_folder(&to).map_err(failed(&to))?;
        } else if kind.is_file() {
            copy_file(&from, &to).map_err(failed(&to))?;
        }
    }
    Ok(())
}

fn make_folder(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(about) if !about.is_dir() => fs::remove_file(path)?,
        Ok(_) | Err(_) => {}
    }
    fs::create_dir_all(path)
}

/// Copies a file with its rights and its time. What is there is not written through: it may be a link.
fn copy_file(from: &Path, to: &Path) -> io::Result<()> {
    match fs::symlink_metadata(to) {
        Ok(about) if about.is_dir() => fs::remove_dir_all(to)?,
        Ok(_) => fs::remove_file(to)?,
        Err(_) => {}
    }
    fs::copy(from, to)?;
    super::keep_time(from, to)
}

impl Placed {
    fn link(&mut self, place: &Path, number: u32, source: &Source, target: &MountTarget) -> Result<(), Finding> {
        let folder = &target.attempt.join(MOUNTS);
        self.lock(folder, &target.root)?;
        let copied = folder.join(number.to_string());
        // A program that asks where the link leads finds the same name, and its extension.
        let copied = copied.join(place.file_name().unwrap_or_default());
        let parent = copied.parent().unwrap_or(folder);
        fs::create_dir_all(parent).map_err(|error| *not_written("make", parent, &error))?;
        copy(source, &copied, &target.root)?;
        self.make_way(place)?;
        self.note(|list| list.add_link(place))?;
        symlink(&copied, place).map_err(|error| unplaced(place, &error))?;
        self.links.push((place.to_owned(), copied));
        Ok(())
    }

    /// Says that the links of this attempt are in use, and begins their list.
    fn lock(&mut self, folder: &Path, root: &Path) -> Result<(), Finding> {
        if self.lock.is_some() {
            return Ok(());
        }
        fs::create_dir_all(folder).map_err(|error| *not_written("make", folder, &error))?;
        let path = folder.join(LOCK);
        let file = File::create(&path).and_then(|file| file.lock().map(|()| file));
        self.lock = Some(file.map_err(|error| *not_written("lock", &path, &error))?);
        let list = PlacedList::create(root, folder).map_err(|error| *not_written("write", root, &error))?;
        self.list = Some(list);
        Ok(())
    }

    /// Writes down what is about to be made.
    fn note(&mut self, add: impl FnOnce(&mut PlacedList) -> io::Result<()>) -> Result<(), Finding> {
        let Some(list) = self.list.as_mut() else { return Ok(()) };
        let path = list.path().to_owned();
        add(list).map_err(|error| *not_written("write", &path, &error))
    }

    /// Makes the folders above a place, and takes away a link there whose attempt is over.
    fn make_way(&mut self, place: &Path) -> Result<(), Finding> {
        let above: Vec<&Path> = place.ancestors().skip(1).take_while(|folder| !folder.exists()).collect();
        for folder in above.into_iter().rev() {
            self.note(|list| list.add_folder(folder))?;
            fs::create_dir(folder).map_err(|error| unplaced(folder, &error))?;
            own_as_above(folder);
            self.made.push(folder.to_owned());
        }
        let Ok(about) = fs::symlink_metadata(place) else { return Ok(()) };
        let theirs = fs::read_link(place).ok().filter(|_| about.is_symlink()).and_then(|aim| copies_of(&aim));
        let Some(theirs) = theirs else {
            let message = format!(
                "`file_mounts` names `{}`, which is on the machine already and was not put there by gradus",
                place.display()
            );
            let hint =
                "name a place that is free, such as a path relative to the working folder, or move away what is there";
            return Err(Finding::new(Cause::Job, message).hint(hint));
        };
        if is_in_use(&theirs) {
            let message = format!("`file_mounts` names `{}`, which another run uses now", place.display());
            return Err(Finding::new(Cause::Job, message).hint("wait for its end, or name another place"));
        }
        fs::remove_file(place).map_err(|error| unplaced(place, &error))
    }
}

/// Gives a new folder to whom the one above belongs: root makes `~/.cache` in the home of the user that programs run as.
fn own_as_above(folder: &Path) {
    if let Some(above) = folder.parent().and_then(|above| fs::metadata(above).ok()) {
        // For others than root it may fail, and what they make is theirs.
        let _ = lchown(folder, Some(above.uid()), Some(above.gid()));
    }
}

/// The folder of an attempt's copies that a link leads into, if it does.
fn copies_of(aim: &Path) -> Option<PathBuf> {
    let folder = aim.ancestors().nth(2)?;
    let is_of_attempt = folder.ends_with(MOUNTS) && folder.ancestors().nth(2)?.ends_with("attempts");
    (aim.is_absolute() && is_of_attempt).then(|| folder.to_owned())
}

fn is_in_use(copies: &Path) -> bool {
    File::open(copies.join(LOCK)).is_ok_and(|file| {
        let is_in_use = matches!(file.try_lock(), Err(fs::TryLockError::WouldBlock));
        let _ = file.unlock();
        is_in_use
    })
}

fn unplaced(place: &Path, error: &io::Error) -> Finding {
    let message = format!("cannot make `{}` for `file_mounts`: {error}", place.display());
    let hint = "name a place that the user of the machine may write, such as a path relative to the working folder";
    Finding::new(Cause::Job, message).hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::os::unix::fs::PermissionsExt;

    struct Scene {
        folder: tempfile::TempDir,
    }

    impl Scene {
        fn new() -> Scene {
            let scene = Scene { folder: tempfile::tempdir().unwrap() };
            scene.write("source/a.txt", "a");
            scene.write("source/sub/b.txt", "b");
            scene.write("key", "secret");
            fs::set_permissions(scene.path("key"), fs::Permissions::from_mode(0o600)).unwrap();
            scene
        }

        fn path(&self, name: &str) -> PathBuf {
            self.folder.path().join(name)
        }

        fn write(&self, name: &str, text: &str) {
            fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
            fs::write(self.path(name), text).unwrap();
        }

        fn read(&self, name: &str) -> String {
            fs::read_to_string(self.path(name)).unwrap_or_else(|error| error.kind().to_string())
        }

        /// Mounts `pairs` for an attempt; in a place, `@` is the scene's folder.
        fn place(&self, attempt: &str, pairs: &[(&str, &str)]) -> Result<Placed, String> {
            let attempt = self.path("home/runs/r/attempts").join(attempt);
            fs::create_dir_all(attempt.join("workdir")).unwrap();
            let folder = self.folder.path().display().to_string();
            let pair = |(place, source): &(&str, &str)| {
                (place.replace('@', &folder), self.path(source).to_string_lossy().into_owned())
            };
            let mounts: BTreeMap<String, String> = pairs.iter().map(pair).collect();
            let (root, user_home) = (self.path("home"), Some(self.path("user")));
            let target = MountTarget { attempt, root, user_home, access: Access::default() };
            place(&mounts, &Brought::default(), &target).map_err(|finding| finding.message)
        }
    }

    #[test]
    fn mounts_are_copies_that_are_gone_with_their_attempt() {
        let scene = Scene::new();
        scene.write("home/runs/r/attempts/1/workdir/data/a.txt", "of the working folder");
        scene.write("home/runs/r/attempts/1/workdir/data/own.txt", "own");
        let mounts = [("data", "source"), ("~/.key", "key"), ("@/new/deep/data", "source")];
        let placed = scene.place("1", &mounts).unwrap();
        let workdir = "home/runs/r/attempts/1/workdir/data";
        assert_eq!(["a.txt", "own.txt", "sub/b.txt"].map(|n| scene.read(&format!("{workdir}/{n}"))), ["a", "own", "b"]);
        assert_eq!((scene.read("user/.key"), scene.read("new/deep/data/sub/b.txt")), ("secret".into(), "b".into()));
        assert_eq!(fs::metadata(scene.path("user/.key")).unwrap().permissions().mode() & 0o777, 0o600);
        scene.write("new/deep/data/a.txt", "changed");
        assert_eq!(scene.read("source/a.txt"), "a", "the original is as it was");
        drop(placed);
        assert!(!scene.path("new").exists() && !scene.path("user").exists(), "also the folders above");
    }

    #[test]
    fn what_a_user_has_is_left_alone() {
        let scene = Scene::new();
        scene.write("data/own.txt", "mine");
        std::os::unix::fs::symlink(scene.path("source"), scene.path("link")).unwrap();
        for place in ["@/data", "@/data/own.txt", "@/link"] {
            let why = scene.place("1", &[(place, "key")]).unwrap_err();
            assert!(why.contains("was not put there by gradus"), "{why}");
        }
        assert_eq!((scene.read("data/own.txt"), scene.read("link/a.txt")), ("mine".into(), "a".into()));
        // What is to come there is there already.
        let placed = scene.place("1", &[("@/source", "source"), ("@/link", "source")]).unwrap();
        drop(placed);
        assert_eq!((scene.read("source/a.txt"), scene.read("link/a.txt")), ("a".into(), "a".into()));
        let why = scene.place("1", &[("@/x", "nothing")]).unwrap_err();
        assert!(why.contains("nothing` of `file_mounts`"), "{why}");
    }

    #[test]
    fn of_a_folder_that_holds_the_home_only_the_home_is_left_out() {
        let scene = Scene::new();
        scene.write("home/own.txt", "of gradus");
        let placed = scene.place("1", &[("all", "."), ("@/there", ".")]).unwrap();
        for place in ["home/runs/r/attempts/1/workdir/all", "there"] {
            let names = ["source/sub/b.txt", "key", "home/own.txt"].map(|name| scene.read(&format!("{place}/{name}")));
            assert_eq!(names, ["b", "secret", "entity not found"], "{place}");
        }
        drop(placed);
    }

    #[test]
    fn a_pipe_is_refused_and_copies_of_earlier_attempts_do_not_pile_up() {
        let scene = Scene::new();
        rustix::fs::mkfifoat(rustix::fs::CWD, scene.path("pipe"), rustix::fs::Mode::RUSR).unwrap();
        let why = scene.place("1", &[("x", "pipe")]).unwrap_err();
        assert!(why.ends_with("`file_mounts` is neither a file nor a folder"), "{why}");
        scene.write("home/runs/r/attempts/1/mounts/0/big", "left by an agent that was killed");
        let held = scene.place("2", &[("@/held", "key")]).unwrap();
        scene.place("3", &[("x", "key")]).unwrap();
        let is_there = |attempt: u32| scene.path(&format!("home/runs/r/attempts/{attempt}/mounts")).exists();
        assert_eq!([1, 2].map(is_there), [false, true], "and those in use stay");
        drop(held);
        scene.write("user/mounts/photo", "of the user");
        clear_earlier(&scene.path("profile"));
        assert_eq!(scene.read("user/mounts/photo"), "of the user", "beside a folder that is no attempt's");
    }

    /// An agent that was killed has not taken its links away.
    #[test]
    fn a_link_of_an_attempt_that_is_over_is_replaced_and_one_in_use_is_not() {
        let scene = Scene::new();
        let first = scene.place("1", &[("@/data", "source")]).unwrap();
        let why = scene.place("2", &[("@/data", "key")]).unwrap_err();
        assert!(why.contains("which another run uses now"), "{why}");
        assert_eq!(scene.read("data/a.txt"), "a");
        let leaked = first.links.clone();
        let mut first = first;
        first.links.clear();
        first.made.clear();
        // Also for a process that another test is about to start, which has a copy of it.
        first.lock.take().unwrap().unlock().unwrap();
        drop(first);
        assert_eq!(fs::read_link(scene.path("data")).unwrap(), leaked[0].1);
        let second = scene.place("2", &[("@/data", "key")]).unwrap();
        assert_eq!(scene.read("data"), "secret");
        drop(second);
        assert!(!scene.path("data").is_symlink());
    }

    /// Also the folders above its places, which the user has never made.
    #[test]
    fn what_an_agent_that_was_killed_has_left_goes_with_the_next_attempt() {
        let scene = Scene::new();
        let killed = |attempt: &str, place: &str| {
            let mut placed = scene.place(attempt, &[(place, "source")]).unwrap();
            placed.links.clear();
            placed.made.clear();
            placed.list = None;
            placed.lock.take().unwrap().unlock().unwrap();
        };
        killed("1", "@/data/digits");
        assert!(scene.path("data/digits/a.txt").exists());
        drop(scene.place("2", &[("@/data/digits", "source")]).unwrap());
        assert!(!scene.path("data").exists(), "the folder was no user's");
        killed("3", "@/data/deep/digits");
        drop(scene.place("4", &[("x", "key")]).unwrap());
        assert!(!scene.path("data").exists(), "also where the next attempt has other places");
        assert_eq!(fs::read_dir(scene.path("home/placed")).unwrap().count(), 0);
        fs::create_dir(scene.path("own")).unwrap();
        killed("5", "@/own/digits");
        drop(scene.place("6", &[("@/own/digits", "source")]).unwrap());
        assert!(scene.path("own").exists() && !scene.path("own/digits").is_symlink(), "of the user");
    }

    #[test]
    fn nothing_is_written_through_a_link_of_the_working_folder() {
        let scene = Scene::new();
        let workdir = scene.path("home/runs/r/attempts/1/workdir");
        fs::create_dir_all(&workdir).unwrap();
        scene.write("elsewhere/a.txt", "mine");
        std::os::unix::fs::symlink(scene.path("elsewhere"), workdir.join("out")).unwrap();
        std::os::unix::fs::symlink(scene.path("elsewhere/a.txt"), workdir.join("file")).unwrap();
        let why = scene.place("1", &[("out/sub/x", "key")]).unwrap_err();
        assert!(why.contains("leads out of the working folder"), "{why}");
        scene.place("1", &[("out", "source"), ("file", "key")]).unwrap();
        assert_eq!(scene.read("elsewhere/a.txt"), "mine");
        assert!(!scene.path("elsewhere/sub").exists(), "not even a folder");
        assert_eq!(scene.read("home/runs/r/attempts/1/workdir/file"), "secret");
    }
}
