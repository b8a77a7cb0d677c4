//! A push verifies the destination: lost or damaged data there is sent again.

use object_store::PutMode;

use super::*;

/// The objects below `bundles/` and `manifests/`.
fn objects(remote: &Remote, below: &str) -> Vec<String> {
    let listed = remote.wait(remote.list()).unwrap();
    listed.into_iter().map(|object| object.name).filter(|name| name.starts_with(below)).collect()
}

fn overwrite(remote: &Remote, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
    let (mut bytes, _) = remote.wait(remote.get(name, 1 << 30)).unwrap().unwrap();
    change(&mut bytes);
    remote.wait(remote.put(name, bytes, PutMode::Overwrite)).unwrap();
}

/// Pushes, lets `harm` happen at the destination, and pushes again from another home; then everything can be fetched.
#[track_caller]
fn check(remote: &Remote, scene: &Scene, verify: bool, harm: impl FnOnce(&Remote)) {
    write(&scene.path("here"), &data_set(4));
    push_(scene, remote, StoreFormat::Chunks);
    harm(remote);
    let found = super::super::check(remote, verify, &Meter::default()).unwrap();
    assert_eq!(found.broken.len(), 1, "{found:?}");
    assert!(found.files == 0 || !found.lost.is_empty(), "{found:?}");
    let elsewhere = Options { journals: scene.path("another home"), verify, ..scene.options(StoreFormat::Chunks) };
    let pushed = push(&scene.path("here"), remote, &elsewhere, &Meter::default()).unwrap();
    assert_eq!(pushed.repaired, 1);
    pull_(scene, remote, "there");
    assert_eq!(read(&scene.path("there")), read(&scene.path("here")));
    let found = super::super::check(remote, true, &Meter::default()).unwrap();
    assert_eq!((found.files, found.broken, found.lost), (63, Vec::new(), Vec::new()));
    assert_eq!(
        push_(scene, remote, StoreFormat::Chunks),
        Pushed { files: 63, bytes: found.bytes, ..Pushed::default() }
    );
}

fn everywhere(verify: bool, harm: impl Fn(&Remote)) {
    let scene = Scene::new();
    check(&scene.folder("remote"), &scene, verify, &harm);
    check(&memory(), &Scene::new(), verify, &harm);
}

#[test]
fn a_push_sends_again_what_was_lost_or_damaged() {
    let bundle = |remote: &Remote| objects(remote, "bundles/").remove(0);
    everywhere(false, |remote| remote.wait(remote.remove(&bundle(remote))).unwrap());
    everywhere(false, |remote| overwrite(remote, &bundle(remote), |bytes| bytes.truncate(1000)));
    // A change of one byte leaves the length, and gives the object another version.
    everywhere(false, |remote| overwrite(remote, &bundle(remote), |bytes| bytes[1000] ^= 1));
    // Without a recorded version, only reading everything shows it.
    everywhere(true, |remote| {
        remote.wait(remote.remove("bundles.json")).unwrap();
        overwrite(remote, &bundle(remote), |bytes| bytes[1000] ^= 1);
    });
}

#[test]
fn a_push_replaces_a_damaged_manifest() {
    let manifest = |remote: &Remote| objects(remote, "manifests/").remove(0);
    everywhere(false, |remote| remote.wait(remote.remove(&manifest(remote))).unwrap());
    everywhere(false, |remote| overwrite(remote, &manifest(remote), |bytes| bytes[20] ^= 1));
    everywhere(false, |remote| overwrite(remote, "gradus.json", |bytes| bytes.truncate(40)));
}

#[test]
fn a_dry_run_says_what_would_be_sent_again() {
    let (scene, remote) = (Scene::new(), memory());
    write(&scene.path("here"), &data_set(4));
    let all = push_(&scene, &remote, StoreFormat::Chunks).new_bytes;
    for name in objects(&remote, "bundles/") {
        remote.wait(remote.remove(&name)).unwrap();
    }
    let dry = Options { dry_run: true, ..scene.options(StoreFormat::Chunks) };
    let would = push(&scene.path("here"), &remote, &dry, &Meter::default()).unwrap();
    assert_eq!((would.new_bytes, would.repaired, would.sent), (all, 1, 0));
    assert!(objects(&remote, "bundles/").is_empty());
}

/// Intact bundles are not sent again only because the manifest that listed them is gone.
#[test]
fn what_is_sound_is_not_sent_again_for_a_new_manifest() {
    let (scene, remote) = (Scene::new(), memory());
    write(&scene.path("here"), &data_set(4));
    let all = push_(&scene, &remote, StoreFormat::Chunks).sent;
    overwrite(&remote, "gradus.json", |bytes| bytes.clear());
    let again = push_(&scene, &remote, StoreFormat::Chunks);
    assert_eq!(again.repaired, 1);
    assert!(again.sent * 20 < all, "{} of {all} bytes were sent again", again.sent);
}
