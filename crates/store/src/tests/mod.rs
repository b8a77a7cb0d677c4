//! Data sets are pushed and pulled: over folders, over an in-memory store that dies at any request, from a web server
//! that fails as networks do, and from hostile locations.

mod aged;
mod budget;
mod deaths;
mod deletions;
mod hostile;
mod repair;
mod twin;
mod web;

use std::collections::BTreeMap;
use std::fs;
use std::num::NonZero;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use domain::random::Draws;
use object_store::memory::InMemory;

use crate::location::StorageService;
use crate::*;

type Tree = BTreeMap<String, Vec<u8>>;

fn write(folder: &Path, tree: &Tree) {
    for (name, bytes) in tree {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
}

fn read(folder: &Path) -> Tree {
    let files = source::walk(folder).unwrap();
    files.into_iter().map(|file| (file.name, fs::read(file.path).unwrap())).collect()
}

/// Pictures that do not compress, text that does, a file above one part, and an empty one.
fn data_set(seed: u64) -> Tree {
    let mut draws = Draws::new(seed);
    let mut tree = Tree::new();
    for number in 0..60 {
        let bytes = 1000 + draws.below(20_000) as usize;
        tree.insert(format!("class {}/{number:03}.jpg", number % 3), draws.bytes(bytes));
    }
    tree.insert("labels.csv".into(), "name,label\n".repeat(20_000).into_bytes());
    tree.insert("large.bin".into(), draws.bytes(700_000));
    tree.insert("empty".into(), Vec::new());
    tree
}

pub(crate) fn limits() -> Limits {
    let short = Duration::from_millis(500);
    Limits {
        streams: 4,
        part: 100_000,
        connect: short,
        stall: short,
        request: short * 4,
        patience: Duration::from_secs(5),
        reach: Duration::from_secs(2),
    }
}

struct Scene {
    temporary: tempfile::TempDir,
}

impl Scene {
    fn new() -> Scene {
        Scene { temporary: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.temporary.path().join(name)
    }

    fn options(&self, form: StoreFormat) -> Options {
        let journals = self.path("journals");
        Options {
            form,
            dry_run: false,
            delete: false,
            grace: GRACE,
            verify: false,
            threads: NonZero::new(2).unwrap(),
            journals,
        }
    }

    fn folder(&self, name: &str) -> Remote {
        open(&Location::Local(self.path(name)), &Access::default(), limits()).unwrap()
    }
}

fn memory() -> Remote {
    remote(Arc::new(InMemory::new()))
}

fn remote<S: object_store::ObjectStore + object_store::multipart::MultipartStore>(store: Arc<S>) -> Remote {
    let location = Location::Object { service: StorageService::S3, bucket: "b".into(), path: "data/set".into() };
    let prefix = object_store::path::Path::parse("data/set").unwrap();
    Remote::new(location, store.clone(), Some(store), prefix, limits()).unwrap()
}

fn push_(scene: &Scene, remote: &Remote, form: StoreFormat) -> Pushed {
    push(&scene.path("here"), remote, &scene.options(form), &Meter::default()).unwrap()
}

fn pull_(scene: &Scene, remote: &Remote, name: &str) -> Pulled {
    pull(remote, &scene.path(name), &scene.options(StoreFormat::Chunks), &Meter::default()).unwrap()
}

/// Required of every kind of store, in both formats.
fn conformance(scene: &Scene, remote: &Remote, form: StoreFormat) {
    let mut tree = data_set(1);
    write(&scene.path("here"), &tree);
    let bytes: u64 = tree.values().map(|bytes| bytes.len() as u64).sum();

    let dry = Options { dry_run: true, ..scene.options(form) };
    let would = push(&scene.path("here"), remote, &dry, &Meter::default()).unwrap();
    assert_eq!((would.files, would.bytes, would.sent, would.objects), (63, bytes, 0, 0));
    assert!(remote.wait(remote.list()).unwrap().is_empty(), "a dry run wrote something");

    let pushed = push_(scene, remote, form);
    assert_eq!((pushed.files, pushed.bytes), (63, bytes));
    assert_eq!(push_(scene, remote, form).sent, 0, "what is there was sent again");

    let pulled = pull_(scene, remote, "there");
    assert_eq!((pulled.files, pulled.bytes, pulled.single), (63, bytes, None));
    assert_eq!(read(&scene.path("there")), tree);
    let again = pull_(scene, remote, "there");
    assert_eq!((again.new_bytes, again.to_receive), (0, 0), "what is here was fetched again");

    tree.insert("class 0/new.jpg".into(), Draws::new(2).bytes(5000));
    tree.remove("class 1/001.jpg");
    fs::remove_file(scene.path("here/class 1/001.jpg")).unwrap();
    // Only this one, because a plain push compares the times of files.
    fs::write(scene.path("here/class 0/new.jpg"), &tree["class 0/new.jpg"]).unwrap();
    let more = push_(scene, remote, form);
    assert_eq!(more.new_bytes, 5000);
    let delete = Options { delete: true, ..scene.options(form) };
    push(&scene.path("here"), remote, &delete, &Meter::default()).unwrap();
    let pulled = pull(remote, &scene.path("there"), &delete, &Meter::default()).unwrap();
    assert_eq!((pulled.new_bytes, pulled.removed), (5000, 1));
    assert_eq!(read(&scene.path("there")), tree);
    assert!(!scene.path("there/.gradus").exists() || form == StoreFormat::Plain);
}

#[test]
fn folders_and_memory_hold_chunks_and_plain_files() {
    for form in [StoreFormat::Chunks, StoreFormat::Plain] {
        let scene = Scene::new();
        conformance(&scene, &scene.folder("remote"), form);
        conformance(&Scene::new(), &memory(), form);
    }
}

#[test]
fn a_single_file_comes_back_as_one() {
    for form in [StoreFormat::Chunks, StoreFormat::Plain] {
        let (scene, remote) = (Scene::new(), memory());
        fs::write(scene.path("x.tar"), Draws::new(3).bytes(250_000)).unwrap();
        push(&scene.path("x.tar"), &remote, &scene.options(form), &Meter::default()).unwrap();
        assert_eq!(pull_(&scene, &remote, "there").single.as_deref(), Some("x.tar"));
        assert_eq!(fs::read(scene.path("there/x.tar")).unwrap(), fs::read(scene.path("x.tar")).unwrap());
    }
}

/// Members of a tar with a header that only their name and size decide.
fn tar(members: impl Iterator<Item = u64>) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for member in members {
        let bytes = Draws::new(member).bytes(3000 + member as usize % 4000);
        let mut header = tar::Header::new_ustar();
        header.set_size(bytes.len() as u64);
        tar.append_data(&mut header, format!("{member:06}.jpg"), bytes.as_slice()).unwrap();
    }
    tar.into_inner().unwrap()
}

#[test]
fn a_tar_with_one_percent_more_samples_sends_those() {
    let (scene, remote) = (Scene::new(), memory());
    let mut members: Vec<u64> = (0..1000).collect();
    let put = |members: &[u64]| {
        fs::create_dir_all(scene.path("here")).unwrap();
        fs::write(scene.path("here/x.tar"), tar(members.iter().copied())).unwrap();
    };
    put(&members);
    push_(&scene, &remote, StoreFormat::Chunks);
    pull_(&scene, &remote, "there");

    let fresh: Vec<u64> = (5000..5010).collect();
    let new_bytes = tar(fresh.iter().copied()).len() as u64 - 1024;
    for (number, member) in fresh.iter().enumerate() {
        members.insert(number * 97 + 13, *member);
    }
    put(&members);
    let pushed = push_(&scene, &remote, StoreFormat::Chunks);
    assert_eq!(pushed.new_bytes, new_bytes);
    assert!(pushed.sent as f64 <= 1.1 * new_bytes as f64, "{} bytes were sent for {new_bytes}", pushed.sent);
    let pulled = pull_(&scene, &remote, "there");
    assert_eq!(pulled.new_bytes, new_bytes);
    assert_eq!(read(&scene.path("there")), read(&scene.path("here")));

    members.reverse();
    put(&members);
    let pushed = push_(&scene, &remote, StoreFormat::Chunks);
    assert_eq!(pushed.new_bytes, 0, "reordering");
    // A manifest in another order.
    assert!(pushed.sent < 20_000, "{} bytes were sent for a reordering", pushed.sent);
    assert_eq!(pull_(&scene, &remote, "there").new_bytes, 0, "reordering");
    assert_eq!(read(&scene.path("there")), read(&scene.path("here")));
}

/// A tar that is written again has the same contents behind headers with other times.
#[test]
fn a_tar_with_other_times_sends_its_headers() {
    let (scene, remote) = (Scene::new(), memory());
    let put = |time: u64| {
        let mut tar = tar::Builder::new(Vec::new());
        for member in 0..500_u64 {
            let bytes = Draws::new(member).bytes(20_000);
            let mut header = tar::Header::new_ustar();
            header.set_size(bytes.len() as u64);
            header.set_mtime(time + member);
            tar.append_data(&mut header, format!("{member:06}.jpg"), bytes.as_slice()).unwrap();
        }
        write(&scene.path("here"), &Tree::from([("x.tar".into(), tar.into_inner().unwrap())]));
    };
    put(1_000_000);
    let first = push_(&scene, &remote, StoreFormat::Chunks);
    pull_(&scene, &remote, "there");
    put(2_000_000);
    let again = push_(&scene, &remote, StoreFormat::Chunks);
    assert_eq!((first.new_bytes, again.new_bytes), (first.bytes, 500 * 512));
    assert_eq!(pull_(&scene, &remote, "there").new_bytes, 500 * 512);
    assert_eq!(read(&scene.path("there")), read(&scene.path("here")));
}

#[test]
fn many_small_pushes_stay_one_data_set() {
    let (scene, remote) = (Scene::new(), memory());
    let mut tree = Tree::new();
    for round in 0..20_u64 {
        tree.insert(format!("{round}"), Draws::new(round + 100).bytes(2000));
        if round % 3 == 2 {
            let gone = tree.keys().next().unwrap().clone();
            tree.remove(&gone);
            fs::remove_file(scene.path("here").join(gone)).unwrap();
        }
        write(&scene.path("here"), &tree);
        push_(&scene, &remote, StoreFormat::Chunks);
        let delete = Options { delete: true, ..scene.options(StoreFormat::Chunks) };
        pull(&remote, &scene.path("there"), &delete, &Meter::default()).unwrap();
        assert_eq!(read(&scene.path("there")), tree, "round {round}");
    }
}

#[test]
fn two_that_push_at_once_do_not_overwrite_each_other() {
    let (scene, remote) = (Scene::new(), memory());
    write(&scene.path("here"), &data_set(5));
    push_(&scene, &remote, StoreFormat::Chunks);
    let found = remote.wait(head::load(&remote, &Meter::default())).unwrap().unwrap();
    write(&scene.path("here"), &data_set(6));
    push_(&scene, &remote, StoreFormat::Chunks);
    let late = remote.wait(head::save(&remote, &found.manifest, Some(&found), None));
    assert!(matches!(late, Err(Error::Raced { .. })), "{late:?}");
}

#[test]
fn mistakes_are_told() {
    let (scene, remote) = (Scene::new(), memory());
    let told = |result: Result<Pushed, Error>| {
        let error = result.unwrap_err();
        format!("{error}; {}", error.hint().unwrap_or_default())
    };
    let options = scene.options(StoreFormat::Chunks);
    let push = |path: &str| push(&scene.path(path), &remote, &options, &Meter::default());
    assert!(told(push("missing")).contains("cannot open"));
    fs::create_dir_all(scene.path("empty")).unwrap();
    assert!(told(push("empty")).contains("there are no files"));
    write(&scene.path("here"), &Tree::from([("a".into(), vec![1])]));
    std::os::unix::fs::symlink(scene.path("empty"), scene.path("here/loop")).unwrap();
    assert!(told(push("here")).contains("a link to a folder"));
    fs::remove_file(scene.path("here/loop")).unwrap();
    fs::create_dir_all(scene.path("remote")).unwrap();
    fs::write(scene.path("remote/bundles"), "in the way").unwrap();
    let place = scene.path("remote").display().to_string().parse().unwrap();
    let local = open(&place, &Access::gather(|_| None), Limits::default()).unwrap();
    let in_the_way = told(super::push(&scene.path("here"), &local, &options, &Meter::default()));
    assert!(in_the_way.contains("move away what stands there"), "{in_the_way}");
    let nothing = pull(&remote, &scene.path("there"), &options, &Meter::default()).unwrap_err();
    assert_eq!(nothing.to_string(), "there is nothing at `s3://b/data/set`");
    assert!(!scene.path("there/.gradus").join("lock").exists() || scene.path("there").exists());
}
