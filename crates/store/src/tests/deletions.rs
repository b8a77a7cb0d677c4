//! Pushes that delete while others push and read: nothing is lost that a head refers to or an unfinished push has sent.

use std::sync::atomic::Ordering;

use chrono::TimeDelta;
use object_store::PutMode;

use super::aged::Aged;
use super::*;

/// Requests of a push until its bundle is sent, and no more.
const SENT: i64 = 7;

fn bundles(remote: &Remote) -> Vec<String> {
    let listed = remote.wait(remote.list()).unwrap().into_iter().map(|object| object.name);
    listed.filter(|name| name.starts_with("bundles/")).collect()
}

fn deleting(scene: &Scene, home: &str) -> Options {
    Options { delete: true, journals: scene.path(home), ..scene.options(StoreFormat::Chunks) }
}

/// A data set that shares no content with others, and is stored in one bundle.
fn data(seed: u64) -> Tree {
    Tree::from([("x".to_owned(), Draws::new(seed).bytes(30_000))])
}

/// Pushes such a data set and deletes. The bundles of two earlier ones are dropped with the third.
fn push_deleting(scene: &Scene, remote: &Remote, seed: u64) -> Pushed {
    let folder = scene.path(&format!("data {seed}"));
    write(&folder, &data(seed));
    push(&folder, remote, &deleting(scene, "another home"), &Meter::default()).unwrap()
}

#[test]
fn what_is_not_needed_is_removed_after_the_grace_time() {
    let (scene, store) = (Scene::new(), Aged::new());
    let remote = remote(store.clone());
    push_deleting(&scene, &remote, 1);
    push_deleting(&scene, &remote, 2);
    let dropped = bundles(&remote);
    let marking = push_deleting(&scene, &remote, 3);
    assert_eq!((dropped.len(), marking.removed, marking.marked), (2, 0, 2));
    assert!(dropped.iter().all(|name| bundles(&remote).contains(name)), "removed without a mark");
    store.later(TimeDelta::hours(23));
    assert_eq!(push_deleting(&scene, &remote, 3).removed, 0);
    store.later(TimeDelta::hours(1));
    let removing = push_deleting(&scene, &remote, 3);
    assert_eq!((removing.removed, removing.marked), (2, 0));
    assert!(dropped.iter().all(|name| !bundles(&remote).contains(name)));
    pull_(&scene, &remote, "there");
    assert_eq!(read(&scene.path("there")), data(3));
    // Who wants no grace period gets none.
    push_deleting(&scene, &remote, 4);
    write(&scene.path("data 5"), &data(5));
    let at_once = Options { grace: Duration::ZERO, ..deleting(&scene, "another home") };
    let pushed = push(&scene.path("data 5"), &remote, &at_once, &Meter::default()).unwrap();
    assert_eq!((pushed.removed, pushed.marked), (2, 0));
}

/// A push that is killed repeatedly for days does not lose what it has sent.
#[test]
fn an_unfinished_push_loses_nothing_to_one_that_deletes() {
    let (scene, store) = (Scene::new(), Aged::new());
    let remote = remote(store.clone());
    push_deleting(&scene, &remote, 1);
    write(&scene.path("here"), &data(2));
    store.left.store(SENT, Ordering::Relaxed);
    push(&scene.path("here"), &remote, &scene.options(StoreFormat::Chunks), &Meter::default()).unwrap_err();
    store.left.store(i64::MAX, Ordering::Relaxed);
    assert_eq!(bundles(&remote).len(), 2, "the push was killed too early");
    // After the grace period, its lock protects what it has sent.
    push_deleting(&scene, &remote, 1);
    store.later(TimeDelta::hours(25));
    let lock = remote.wait(remote.list()).unwrap().into_iter().find(|object| lock::is_lock(&object.name)).unwrap();
    remote.wait(remote.put(&lock.name, b"{}".to_vec(), PutMode::Overwrite)).unwrap();
    let pushed = push_deleting(&scene, &remote, 1);
    assert_eq!((pushed.removed, pushed.marked), (0, 1));
    let resumed = push_(&scene, &remote, StoreFormat::Chunks);
    assert_eq!(resumed.objects, 2, "the bundle was sent again");
    store.later(TimeDelta::hours(25));
    push_(&scene, &remote, StoreFormat::Chunks);
    pull_(&scene, &remote, "there");
    assert_eq!(read(&scene.path("there")), read(&scene.path("here")));
}

/// Objects removed before a killed push resumed are sent again, and the head never refers to missing ones.
#[test]
fn a_push_that_slept_for_days_sends_again_what_was_removed() {
    let (scene, store) = (Scene::new(), Aged::new());
    let remote = remote(store.clone());
    push_deleting(&scene, &remote, 1);
    write(&scene.path("here"), &data(2));
    store.left.store(SENT, Ordering::Relaxed);
    push(&scene.path("here"), &remote, &scene.options(StoreFormat::Chunks), &Meter::default()).unwrap_err();
    store.left.store(i64::MAX, Ordering::Relaxed);
    push_deleting(&scene, &remote, 1);
    store.later(TimeDelta::hours(25));
    assert_eq!(push_deleting(&scene, &remote, 1).removed, 1, "its lock is stale");
    assert!(!remote.wait(remote.list()).unwrap().iter().any(|object| lock::is_lock(&object.name)));
    push_(&scene, &remote, StoreFormat::Chunks);
    pull_(&scene, &remote, "there");
    assert_eq!(read(&scene.path("there")), read(&scene.path("here")));
}

/// Two pushes alternate at every request: one deletes without grace period, and the other's data is complete whenever it
/// reports success.
#[test]
fn pushes_beside_one_that_deletes_at_once_name_nothing_that_is_gone() {
    for seed in 0..12 {
        let (scene, inner) = (Scene::new(), Arc::new(InMemory::new()));
        push_deleting(&scene, &remote(inner.clone()), 1);
        write(&scene.path("here"), &data(2));
        let others = |options: &Options| {
            let pushes = std::iter::repeat_with(|| {
                push(&scene.path("data 1"), &remote(inner.clone()), options, &Meter::default())
            });
            pushes.take(6).filter(Result::is_ok).count()
        };
        let at_once = Options { grace: Duration::ZERO, ..deleting(&scene, "another home") };
        let one = || loop {
            let paced = twin::Twin::new(inner.clone(), 4 + seed);
            match push(&scene.path("here"), &remote(paced), &scene.options(StoreFormat::Chunks), &Meter::default()) {
                Ok(_) => return,
                Err(Error::Raced { .. }) => {}
                Err(_) => drop(others(&at_once)),
            }
            let whole = push(
                &scene.path("here"),
                &remote(inner.clone()),
                &scene.options(StoreFormat::Chunks),
                &Meter::default(),
            );
            if whole.is_ok() {
                return;
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(one);
            scope.spawn(|| others(&at_once));
        });
        let found = super::super::check(&remote(inner.clone()), true, &Meter::default()).unwrap();
        assert_eq!((found.broken, found.lost), (Vec::new(), Vec::new()), "seed {seed}");
    }
}

/// A reader that has read its head before others replaced it finishes within the grace period.
#[test]
fn a_reader_of_an_older_head_finishes() {
    let (scene, store) = (Scene::new(), Aged::new());
    let remote = remote(store.clone());
    push_deleting(&scene, &remote, 1);
    let folder = folder::Folder::open(&scene.path("there")).unwrap();
    let old = remote.wait(head::load(&remote, &Meter::default())).unwrap().unwrap();
    push_deleting(&scene, &remote, 2);
    push_deleting(&scene, &remote, 3);
    store.later(TimeDelta::hours(23));
    assert_eq!(push_deleting(&scene, &remote, 3).marked, 2);
    let options = scene.options(StoreFormat::Chunks);
    pull::chunks(&remote, &folder, &old.manifest, &options, &Meter::default()).unwrap();
    assert_eq!(read(&scene.path("there")), data(1));
}

/// An object that a head refers to again after days loses its mark, and gets the full grace period when it is dropped
/// once more.
#[test]
fn what_is_needed_again_loses_its_mark() {
    let (scene, store) = (Scene::new(), Aged::new());
    let remote = remote(store.clone());
    for seed in [1, 2, 3] {
        push_deleting(&scene, &remote, seed);
    }
    store.later(TimeDelta::hours(20));
    write(&scene.path("here"), &data(1));
    // Without `--delete`.
    push_(&scene, &remote, StoreFormat::Chunks);
    store.later(TimeDelta::hours(20));
    let pushed = push_deleting(&scene, &remote, 4);
    assert_eq!((pushed.removed, pushed.marked), (1, 2), "only the bundle that nobody named for 40 hours may go");
}

/// Two pushes read one head; the second to finish is refused, in a folder as in a bucket.
#[test]
fn of_two_pushes_that_read_one_head_the_later_is_refused() {
    let check = |scene: &Scene, remote: &Remote| {
        write(&scene.path("here"), &data_set(5));
        push_(scene, remote, StoreFormat::Chunks);
        let found = remote.wait(head::load(remote, &Meter::default())).unwrap().unwrap();
        write(&scene.path("here"), &data_set(6));
        push_(scene, remote, StoreFormat::Chunks);
        let late = remote.wait(head::save(remote, &found.manifest, Some(&found), None));
        assert!(matches!(late, Err(Error::Raced { .. })), "{late:?}");
        // And one that found no data set.
        let first = remote.wait(head::save(remote, &found.manifest, None, None));
        assert!(matches!(first, Err(Error::Raced { .. })), "{first:?}");
        pull_(scene, remote, "there");
        assert_eq!(read(&scene.path("there")), read(&scene.path("here")));
    };
    let scene = Scene::new();
    check(&scene, &scene.folder("remote"));
    check(&Scene::new(), &memory());
}

/// Eight threads count in one object of a folder; no increment is lost.
#[test]
fn swaps_in_a_folder_lose_nothing() {
    let scene = Scene::new();
    let count = || {
        let remote = scene.folder("remote");
        let mut raced = 0;
        for _ in 0..20 {
            loop {
                let seen = remote.wait(remote.get("count", 100)).unwrap();
                let seen = seen.map(|(bytes, version)| remote::swap::ObjectRevision { bytes, version });
                let number =
                    seen.as_ref().map_or(0, |seen| std::str::from_utf8(&seen.bytes).unwrap().parse::<u32>().unwrap());
                match remote.wait(remote.swap("count", (number + 1).to_string().into_bytes(), seen.as_ref())) {
                    Ok(()) => break,
                    Err(Error::Raced { .. }) => raced += 1,
                    Err(error) => panic!("{error}"),
                }
            }
        }
        raced
    };
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(count);
        }
    });
    assert_eq!(fs::read_to_string(scene.path("remote/count")).unwrap(), "160");
}

/// A destination that the version before has pushed to has no locks and no marks.
#[test]
fn places_without_locks_and_marks_are_pushed_to_and_pulled_from() {
    let (scene, remote) = (Scene::new(), memory());
    push_deleting(&scene, &remote, 1);
    push_deleting(&scene, &remote, 2);
    for object in remote.wait(remote.list()).unwrap() {
        if object.name.starts_with("locks/") || object.name == "deletions.json" {
            remote.wait(remote.remove(&object.name)).unwrap();
        }
    }
    pull_(&scene, &remote, "there");
    assert_eq!(read(&scene.path("there")), data(2));
    let pushed = push_deleting(&scene, &remote, 3);
    assert_eq!((pushed.removed, pushed.marked), (0, 2));
}

/// A disk, or a path to it, that corrupts writes is noticed by reading back.
#[test]
fn what_a_folder_does_not_hold_as_written_is_told() {
    let (scene, store) = (Scene::new(), Aged::new());
    store.corrupts.store(true, Ordering::Relaxed);
    let place = Location::Local(scene.path("remote"));
    let patience = Limits { patience: Duration::from_millis(300), ..limits() };
    let remote = Remote::new(place, store, None, object_store::path::Path::default(), patience).unwrap();
    let wrote = remote.wait(remote.put("x", vec![1, 2, 3], PutMode::Overwrite));
    assert!(wrote.is_err_and(|error| error.to_string().contains("received other bytes")));
}

/// A pull whose objects are removed fetches their replacements, and leaves nothing of the old data.
#[test]
fn a_pull_beside_a_push_that_deletes_at_once_takes_the_new_data() {
    let (scene, store) = (Scene::new(), Arc::new(InMemory::new()));
    let remote = remote(store.clone());
    let before = Tree::from([("old".to_owned(), Draws::new(1).bytes(300_000))]);
    write(&scene.path("before"), &before);
    push(&scene.path("before"), &remote, &scene.options(StoreFormat::Chunks), &Meter::default()).unwrap();
    let at_once = Options { grace: Duration::ZERO, ..deleting(&scene, "another home") };
    let replace = || {
        for seed in [2, 3] {
            write(&scene.path(&format!("data {seed}")), &data(seed));
            push(&scene.path(&format!("data {seed}")), &remote, &at_once, &Meter::default()).unwrap();
        }
    };
    // An earlier pull had started with the old data.
    let part = scene.path("there").join(pull::part_name("old"));
    fs::create_dir_all(part.parent().unwrap()).unwrap();
    fs::write(&part, &before["old"][..100_000]).unwrap();
    let folder = folder::Folder::open(&scene.path("there")).unwrap();
    let found = remote.wait(head::load(&remote, &Meter::default())).unwrap().unwrap();
    replace();
    let options = scene.options(StoreFormat::Chunks);
    let (pulled, _) = pull::newest(&remote, &folder, found, &options, &Meter::default()).unwrap();
    assert_eq!(pulled.files, 1);
    pull_(&scene, &remote, "there");
    assert_eq!(read(&scene.path("there")), data(3));
    assert!(!scene.path("there/.gradus").exists(), "something of the old data is left");

    // A bundle that is lost is no replacement.
    remote.wait(remote.remove(&bundles(&remote)[0])).unwrap();
    let lost = pull(&remote, &scene.path("elsewhere"), &options, &Meter::default()).unwrap_err();
    assert!(lost.to_string().ends_with("is damaged: it is missing"), "{lost}");
}
