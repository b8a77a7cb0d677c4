//! Damages a pushed data set, and fetches it: `cargo run --release -p gradus-store --example fuzz_store -- all 120`.
//!
//! The targets are `head` and `bundle` (objects of the remote folder), both pulled and served to a reader that trains
//! on them, `kept` (a chunk in the cache of that server) and `journal` (left by an interrupted push). Whatever is
//! damaged, the data received equals the data sent, or there is an error.

#[path = "../../data/src/tests/mutate.rs"]
mod mutate;
#[allow(dead_code)]
#[path = "../../data/examples/fuzz/round.rs"]
mod round;

use std::cell::Cell;
use std::error::Error;
use std::fs;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use data::{Cursor, Dataset, Loader, LoaderOptions, PackOptions};
use domain::random::Draws;
use round::{Verdict, round};
use store::{Access, Limits, Meter, Options, Places, Remote, StoreFormat, open, pull, push, serve};

const FORMS: [&str; 4] = ["head", "bundle", "kept", "journal"];

type Outcome<T> = Result<T, Box<dyn Error>>;

/// A folder with what is sent, where to, and what has arrived.
struct Scene {
    root: tempfile::TempDir,
    /// Number of readers served; each has its own folder.
    readers: Cell<u64>,
}

impl Scene {
    fn new() -> Outcome<Scene> {
        let scene = Scene { root: tempfile::tempdir()?, readers: Cell::new(0) };
        let mut draws = Draws::new(3);
        for number in 0..240 {
            let class = scene.path("pictures").join(["a", "b"][number % 2]);
            fs::create_dir_all(&class)?;
            let picture = image::RgbImage::from_raw(12, 12, draws.bytes(12 * 12 * 3)).ok_or("no picture")?;
            picture.save(class.join(format!("{number}.png")))?;
        }
        data::pack(&scene.path("pictures"), &scene.path("here"), &PackOptions::default(), &mut |_| {})?;
        fs::write(scene.path("here/notes.txt"), "some words that compress ".repeat(4000))?;
        push(&scene.path("here"), &scene.remote()?, &scene.options(), &Meter::default())?;
        Ok(scene)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn remote(&self) -> Outcome<Remote> {
        let place = self.path("remote");
        fs::create_dir_all(&place)?;
        Ok(open(&place.display().to_string().parse()?, &Access::gather(|_| None), Limits::default())?)
    }

    fn options(&self) -> Options {
        let journals = self.path("journals");
        Options {
            form: StoreFormat::Chunks,
            dry_run: false,
            delete: false,
            grace: store::GRACE,
            verify: false,
            threads: NonZero::<usize>::MIN,
            journals,
        }
    }

    /// Fetches all into an empty folder, and compares.
    fn pulled(&self) -> Outcome<()> {
        let there = self.path("there");
        let _ = fs::remove_dir_all(&there);
        pull(&self.remote()?, &there, &self.options(), &Meter::default())?;
        for entry in fs::read_dir(self.path("here"))? {
            let name = entry?.file_name();
            let sent = fs::read(self.path("here").join(&name))?;
            assert!(fs::read(there.join(&name)).is_ok_and(|found| found == sent), "{name:?} arrived otherwise");
        }
        Ok(())
    }

    /// Every batch of an epoch, of data that stays in the remote folder.
    fn served(&self) -> Outcome<Vec<u32>> {
        self.readers.set(self.readers.get() + 1);
        let folder = self.path(&format!("reader-{}", self.readers.get()));
        let (cache, socket) = (self.path("cache"), self.path("socket"));
        let places = Places { folder: &folder, cache: &cache, socket: &socket };
        let uri = self.path("remote").display().to_string();
        let found = serve(&uri, 1 << 20, places, &Access::gather(|_| None), Limits::default())
            .map_err(Box::from)
            .and_then(|served| batches(&served.path));
        fs::remove_dir_all(&folder)?;
        found
    }
}

fn batches(path: &Path) -> Outcome<Vec<u32>> {
    let spec = serde_json::json!({"path": "", "size": 8, "normalize": {"mean": [0.5, 0.5, 0.5], "std": [1, 1, 1]}});
    let dataset = Arc::new(Dataset::open(&serde_json::from_value(spec)?, path, 1)?);
    let mut loader = Loader::train(dataset, LoaderOptions { batch: 16, ..Default::default() }, Cursor::START, 1);
    let mut bits = Vec::new();
    while let Some(batch) = loader.next() {
        bits.extend(batch?.images().iter().map(|value| value.to_bits()));
    }
    Ok(bits)
}

/// The largest file below a folder.
fn largest(folder: &Path) -> Outcome<PathBuf> {
    let (mut waiting, mut found) = (vec![folder.to_owned()], (0, PathBuf::new()));
    while let Some(folder) = waiting.pop() {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            match metadata.is_dir() {
                true => waiting.push(entry.path()),
                false if metadata.len() > found.0 => found = (metadata.len(), entry.path()),
                false => {}
            }
        }
    }
    Ok(found.1)
}

/// Leaves the journal of a push that sent a bundle but could not commit it, because a file was in the way of the
/// manifests; the state of the remote folder then is saved.
fn interrupted(scene: &Scene) -> Outcome<PathBuf> {
    let (remote, place) = (scene.path("remote"), scene.path("remote/manifests"));
    fs::remove_dir_all(&remote)?;
    fs::create_dir_all(&remote)?;
    fs::write(&place, "in the way")?;
    let pushed = push(&scene.path("here"), &scene.remote()?, &scene.options(), &Meter::default());
    fs::remove_file(&place)?;
    copy(&remote, &scene.path("interrupted"))?;
    match pushed {
        Ok(_) => Err("the push was not interrupted".into()),
        Err(_) => largest(&scene.path("journals")),
    }
}

/// Makes `to` a copy of the folder `from`.
fn copy(from: &Path, to: &Path) -> Outcome<()> {
    let _ = fs::remove_dir_all(to);
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let place = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => copy(&entry.path(), &place)?,
            false => drop(fs::copy(entry.path(), place)?),
        }
    }
    Ok(())
}

fn main() -> Outcome<()> {
    let (form, seconds, seed) = round::asked()?;
    let forms = if form == "all" { FORMS.to_vec() } else { vec![form.as_str()] };
    for form in forms {
        let scene = Scene::new()?;
        let expected = scene.served()?;
        let damaged = match form {
            "head" => scene.path("remote/gradus.json"),
            "bundle" => largest(&scene.path("remote/bundles"))?,
            "kept" => largest(&scene.path("cache"))?,
            "journal" => interrupted(&scene)?,
            _ => return Err(format!("give `all` or one of {}", FORMS.join(", ")).into()),
        };
        let sound = fs::read(&damaged)?;
        let look = |bytes: &[u8]| {
            fs::write(&damaged, bytes).expect("a file can be written");
            if form == "journal" {
                copy(&scene.path("interrupted"), &scene.path("remote")).expect("a folder can be copied");
                let pushed =
                    push(&scene.path("here"), &scene.remote().expect("a folder"), &scene.options(), &Meter::default());
                return Verdict::of(pushed.map_err(Box::from).and_then(|_| scene.pulled()));
            }
            let served = scene.served();
            assert!(served.as_ref().map_or(true, |found| *found == expected), "other batches");
            if form == "kept" {
                return Verdict::of(served);
            }
            // The next reader starts with an empty cache.
            let _ = fs::remove_dir_all(scene.path("cache"));
            Verdict::of(served.and_then(|_| scene.pulled()))
        };
        round((form, seconds, seed), &sound, |_| {}, look)?;
    }
    Ok(())
}
