//! A transfer that is killed at any request resumes: nothing is corrupt, and only requests in flight are repeated.

use std::sync::atomic::Ordering;

use super::twin::Twin;
use super::*;

/// Kills a push at random requests until it completes; then a pull. Returns the number of kills.
fn check(seed: u64, form: StoreFormat) -> u32 {
    let mut draws = Draws::new(seed);
    let (scene, inner) = (Scene::new(), Arc::new(InMemory::new()));
    let tree = data_set(seed);
    write(&scene.path("here"), &tree);
    let once = Twin::new(Arc::new(InMemory::new()), i64::MAX);
    push(
        &scene.path("here"),
        &remote(once.clone()),
        &Options { journals: scene.path("other"), ..scene.options(form) },
        &Meter::default(),
    )
    .unwrap();
    let (whole, mut deaths, mut put) = (once.put.load(Ordering::Relaxed), 0, 0);
    let twice = limits().part * limits().streams as u64;
    loop {
        let twin = Twin::new(inner.clone(), 1 + draws.below(25) as i64);
        let result = push(&scene.path("here"), &remote(twin.clone()), &scene.options(form), &Meter::default());
        put += twin.put.load(Ordering::Relaxed);
        if let Ok(pushed) = result {
            assert_eq!(pushed.bytes, tree.values().map(|bytes| bytes.len() as u64).sum::<u64>());
            break;
        }
        deaths += 1;
        assert!(deaths < 500, "seed {seed}: it never ends");
        // A concurrent reader sees all or nothing of a data set in chunks.
        if form == StoreFormat::Chunks && draws.below(8) == 0 {
            let early = pull(&remote(inner.clone()), &scene.path("early"), &scene.options(form), &Meter::default());
            assert!(early.is_err() || read(&scene.path("early")) == tree, "seed {seed}");
        }
    }
    assert!(
        put <= whole + u64::from(deaths) * twice,
        "seed {seed}: {put} bytes were sent for {whole}, {deaths} deaths"
    );
    let (mut killed, mut got) = (0, 0);
    loop {
        let twin = Twin::new(inner.clone(), 1 + draws.below(12) as i64);
        let result = pull(&remote(twin.clone()), &scene.path("there"), &scene.options(form), &Meter::default());
        got += twin.got.load(Ordering::Relaxed);
        // Every file in place is complete.
        for (name, bytes) in read(&scene.path("there")) {
            assert_eq!(tree.get(&name), Some(&bytes), "seed {seed}: `{name}`");
        }
        if result.is_ok() {
            break;
        }
        killed += 1;
        assert!(killed < 500, "seed {seed}: it never ends");
    }
    assert_eq!(read(&scene.path("there")), tree, "seed {seed}");
    // The head and the manifest are read again each time: 16 KiB here.
    let twice = twice + (16 << 10);
    assert!(got <= whole + u64::from(killed) * twice, "seed {seed}: {got} bytes came for {whole}, {killed} deaths");
    deaths + killed
}

#[test]
fn transfers_that_are_killed_go_on_where_they_were() {
    for form in [StoreFormat::Chunks, StoreFormat::Plain] {
        let (mut deaths, mut seed) = (0, 0);
        while deaths < 100 {
            seed += 1;
            deaths += check(seed, form);
        }
    }
}

#[test]
fn a_lost_or_damaged_journal_costs_time_only() {
    for damage in
        [None, Some("not json\n{\"part\":"), Some("{\"begun\":{\"object\":\"bundles/x\",\"upload\":\"9\"}}\n")]
    {
        let (scene, inner) = (Scene::new(), Arc::new(InMemory::new()));
        let tree = data_set(9);
        write(&scene.path("here"), &tree);
        let twin = Twin::new(inner.clone(), 9);
        push(&scene.path("here"), &remote(twin), &scene.options(StoreFormat::Chunks), &Meter::default()).unwrap_err();
        for entry in fs::read_dir(scene.path("journals")).unwrap() {
            match damage {
                None => fs::remove_file(entry.unwrap().path()).unwrap(),
                Some(text) => fs::write(entry.unwrap().path(), text).unwrap(),
            }
        }
        let remote = remote(inner);
        push_(&scene, &remote, StoreFormat::Chunks);
        pull_(&scene, &remote, "there");
        assert_eq!(read(&scene.path("there")), tree);
    }
}

/// The file shrinks, grows or keeps its length between listing and reading.
#[test]
fn a_file_that_changes_while_it_is_sent_is_told() {
    let scene = Scene::new();
    write(&scene.path("here"), &data_set(10));
    let files = source::walk(&scene.path("here")).unwrap();
    let large = files.iter().position(|file| file.name == "large.bin").unwrap();
    let chunks = data::chunk::scan(&fs::File::open(&files[large].path).unwrap(), NonZero::<usize>::MIN, |_| false);
    let expected = chunks.unwrap().into_iter().map(|chunk| push::plan::Wanted {
        id: chunk.id,
        file: large as u32,
        offset: chunk.offset,
        bytes: chunk.bytes,
    });
    let expected: Vec<_> = expected.collect();
    push::build::build(&files, &expected).unwrap();
    let error = |bytes: &[u8]| {
        fs::write(&files[large].path, bytes).unwrap();
        let built = push::build::build(&files, &expected).map(drop);
        assert!(matches!(built, Err(Error::Changed { .. })), "{built:?}");
        // A plain push compares the length, and the time when it has read the file.
        if bytes.len() as u64 != files[large].bytes {
            let options = scene.options(StoreFormat::Plain);
            let sent = plain::push(&scene.path("here"), &files, &memory(), &options, &Meter::default());
            assert!(matches!(sent, Err(Error::Changed { .. })), "{sent:?}");
        }
    };
    error(b"short");
    error(&[7; 700_000]);
}
