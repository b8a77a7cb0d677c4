//! Data sets that are trained on while they stay in a store, with a cache of less than a third of them.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use data::{Cursor, Dataset, Loader, LoaderOptions, PackFormat, PackOptions, RankShare};
use domain::random::Draws;
use domain::train::{Augment, Data};
use object_store::memory::InMemory;
use object_store::{ObjectStoreExt, PutPayload, path::Path as Key};

use super::*;
use crate::tests::limits;

/// A store in memory that holds all files below a folder.
fn put(folder: &Path) -> Arc<InMemory> {
    let store = Arc::new(InMemory::new());
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for file in crate::source::walk(folder).unwrap() {
        let bytes = std::fs::read(&file.path).unwrap();
        runtime.block_on(store.put(&Key::from(format!("set/{}", file.name)), PutPayload::from(bytes))).unwrap();
    }
    store
}

fn location() -> Location {
    "s3://bucket/set".parse().unwrap()
}

fn opener(store: &Arc<InMemory>) -> Opener {
    let store = Arc::clone(store);
    Arc::new(move || Remote::new(location(), store.clone(), None, Key::from("set"), limits()))
}

/// Pictures of noise, which do not compress, packed.
fn packed(root: &Path, format: PackFormat) -> PathBuf {
    let source = root.join("pictures");
    let mut draws = Draws::new(7);
    for number in 0..120 {
        let class = source.join(format!("c{}", number % 3));
        fs::create_dir_all(&class).unwrap();
        let picture = image::RgbImage::from_raw(32, 32, draws.bytes(32 * 32 * 3)).unwrap();
        picture.save(class.join(format!("{number:03}.png"))).unwrap();
    }
    let out = root.join(format!("{format:?}"));
    let options = PackOptions { shard_bytes: 100 << 10, seed: 1, format, ..PackOptions::default() };
    data::pack(&source, &out, &options, &mut |_| {}).unwrap();
    out
}

fn spec() -> Data {
    let text = serde_json::json!({
        "path": "", "size": 16, "augment": ["random_resized_crop", "flip"],
        "normalize": {"mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5]},
    });
    serde_json::from_value(text).unwrap()
}

/// The bits of every batch of three epochs, from a position on and for so many batches.
fn batches(path: &Path, share: RankShare, from: Cursor, most: usize) -> Vec<(Cursor, Vec<u32>)> {
    let dataset = Arc::new(Dataset::open(&spec(), path, 3).unwrap());
    let augment = vec![Augment::RandomResizedCrop, Augment::Flip];
    let options = LoaderOptions { batch: 10, share, workers: 3, seed: 4, augment, ..Default::default() };
    let mut loader = Loader::train(dataset, options, from, 3);
    let mut found = Vec::new();
    while found.len() < most
        && let Some(batch) = loader.next()
    {
        let batch = batch.unwrap();
        found.push((batch.cursor_after(), batch.images().iter().map(|value| value.to_bits()).collect()));
    }
    found
}

fn size(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
    let bytes = entries.map(|entry| match entry.file_type().unwrap().is_dir() {
        true => size(&entry.path()),
        false => entry.metadata().unwrap().len(),
    });
    bytes.sum()
}

fn whole() -> RankShare {
    RankShare::new(0, 1).unwrap()
}

/// A store in memory that holds all files below a folder, as chunks.
fn put_chunks(folder: &Path) -> Arc<InMemory> {
    let store = Arc::new(InMemory::new());
    let threads = std::num::NonZero::<usize>::MIN;
    let journals = folder.with_extension("journals");
    let options = crate::Options {
        form: crate::StoreFormat::Chunks,
        dry_run: false,
        delete: false,
        grace: crate::GRACE,
        verify: false,
        threads,
        journals,
    };
    crate::push(folder, &opener(&store)().unwrap(), &options, &Meter::default()).unwrap();
    store
}

#[test]
fn training_sees_the_same_batches_with_a_third_of_the_data_here() {
    let root = tempfile::tempdir().unwrap();
    let (shards, tars) = (packed(root.path(), PackFormat::Shards), packed(root.path(), PackFormat::Webdataset));
    let pictures = root.path().join("pictures");
    for (name, here, store) in [
        ("shards", &shards, put(&shards)),
        ("tars", &tars, put(&tars)),
        ("pictures", &pictures, put(&pictures)),
        ("shards in chunks", &shards, put_chunks(&shards)),
        ("tars in chunks", &tars, put_chunks(&tars)),
        ("pictures in chunks", &pictures, put_chunks(&pictures)),
    ] {
        let (all, expected) = (size(here), batches(here, whole(), Cursor::START, usize::MAX));
        let budget = all * 3 / 10;
        let [cache, folder, socket] = ["c", "d", "s"].map(|kind| root.path().join(format!("{kind} {name}")));
        let places = Places { folder: &folder, cache: &cache, socket: &socket };
        let served = serve_from(&location(), opener(&store), budget, places).unwrap();
        assert_eq!(served.path, folder);
        assert_eq!(batches(&folder, whole(), Cursor::START, usize::MAX), expected, "{name}");
        let CacheCounts { hits, misses } = served.counts();
        let pieces = cache.join(crate::stage::folder_name(&location()));
        assert!(size(&pieces) <= budget + (1 << 10), "the cache holds {} of {budget} bytes", size(&pieces));
        // 84 samples are read three times. The cache keeps those of each epoch that the next one needs first; how many
        // depends slightly on which thread is first.
        assert!(hits >= 20 && misses >= 84, "{name}: {hits} hits, {misses} misses");
        // No other user can see the training data.
        for (path, expected) in [(&pieces, 0o700), (&socket, 0o600)] {
            assert_eq!(
                fs::metadata(path).unwrap().permissions().mode() & 0o777,
                expected,
                "{name}: {}",
                path.display()
            );
        }
        drop(served);
        assert!(!socket.exists());
    }
}

/// A thread that ends while it fetches a chunk leaves no reader waiting for it.
#[test]
fn a_fetch_that_breaks_off_is_done_by_the_next_reader() {
    let root = tempfile::tempdir().unwrap();
    let store = put(&packed(root.path(), PackFormat::Shards));
    let tries = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let (working, counted) = (opener(&store), Arc::clone(&tries));
    let breaking: Opener = Arc::new(move || match counted.fetch_add(1, Ordering::SeqCst) {
        0 => panic!("a fetch breaks off, as this test wants"),
        _ => working(),
    });
    let remote = opener(&store)().unwrap();
    let objects = remote.wait(plain::objects(&remote)).unwrap();
    let object = objects.iter().find(|object| object.bytes > SMALL).unwrap();
    let source = Source::object(object.name.clone(), object);
    let cache = DiskCache::open(&root.path().join("cache"), 1 << 20).unwrap();
    let pieces = Arc::new(Pieces::new(cache, vec![source], breaking));
    let span = data::remote::ByteRange { file: 0, offset: 100, bytes: 1000 };
    let read = || {
        let pieces = Arc::clone(&pieces);
        let (done, found) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let bytes = pieces.read(span, data::remote::AccessTime::SOME_TIME, &mut None).map(|(_, bytes)| bytes.len());
            let _ = done.send(bytes);
        });
        found
    };
    assert!(read().recv().is_err(), "the first reader got an answer");
    // Long enough for any machine; a reader that waits for the dead thread would wait forever.
    let found = read().recv_timeout(std::time::Duration::from_secs(60));
    assert_eq!(found, Ok(Ok(1000)));
    assert_eq!(tries.load(Ordering::SeqCst), 2);
}

/// A rank that waits for an unresponsive origin is not considered hung.
#[test]
fn a_reader_that_waits_is_seen() {
    let root = tempfile::tempdir().unwrap();
    let store = put(&packed(root.path(), PackFormat::Shards));
    let (working, remote) = (opener(&store), opener(&store)().unwrap());
    let (asked, is_asked) = std::sync::mpsc::channel();
    let (answer, is_answered) = std::sync::mpsc::channel::<()>();
    let (asked, is_answered) = (std::sync::Mutex::new(asked), std::sync::Mutex::new(is_answered));
    let silent: Opener = Arc::new(move || {
        asked.lock().unwrap().send(()).unwrap();
        is_answered.lock().unwrap().recv().unwrap();
        working()
    });
    let objects = remote.wait(plain::objects(&remote)).unwrap();
    let object = objects.iter().find(|object| object.bytes > SMALL).unwrap();
    let cache = DiskCache::open(&root.path().join("cache"), 1 << 20).unwrap();
    let pieces = Pieces::new(cache, vec![Source::object(object.name.clone(), object)], silent);
    let span = data::remote::ByteRange { file: 0, offset: 100, bytes: 1000 };
    assert_eq!(pieces.silence(), None);
    let began = std::time::Instant::now();
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| pieces.read(span, data::remote::AccessTime::SOME_TIME, &mut None).is_ok());
        is_asked.recv().unwrap();
        let silence = pieces.silence().unwrap();
        assert!(silence <= began.elapsed());
        // It grows as long as nothing comes.
        while pieces.silence().unwrap() <= silence {}
        answer.send(()).unwrap();
        assert!(reader.join().unwrap());
    });
    assert_eq!(pieces.silence(), None);
    assert!(pieces.last_heard().is_some_and(|heard| heard > began), "what came was not noticed");
}

#[test]
fn ranks_share_what_one_of_them_fetched_and_a_kill_costs_nothing() {
    let root = tempfile::tempdir().unwrap();
    let here = packed(root.path(), PackFormat::Shards);
    let store = put(&here);
    let expected = batches(&here, whole(), Cursor::START, usize::MAX);
    let cache = root.path().join("cache");
    let mut from = Cursor::START;
    let mut done = 0;
    // Each life ends in the middle, with another number of ranks, and leaves its cache behind as it is.
    for (life, (ranks, steps)) in [(1, 4), (3, 7), (2, usize::MAX)].into_iter().enumerate() {
        let (folder, socket) = (root.path().join(format!("d{life}")), root.path().join(format!("{life}.sock")));
        let places = Places { folder: &folder, cache: &cache, socket: &socket };
        let served = serve_from(&location(), opener(&store), size(&here) * 3 / 10, places).unwrap();
        let shares: Vec<RankShare> = (0..ranks).map(|rank| RankShare::new(rank, ranks).unwrap()).collect();
        let found: Vec<Vec<(Cursor, Vec<u32>)>> = std::thread::scope(|scope| {
            let ranks = shares.iter().map(|share| scope.spawn(|| batches(&folder, *share, from, steps)));
            ranks.collect::<Vec<_>>().into_iter().map(|rank| rank.join().unwrap()).collect()
        });
        for step in 0..found[0].len() {
            let bits: Vec<u32> = found.iter().flat_map(|rank| rank[step].1.clone()).collect();
            assert_eq!((found[0][step].0, bits), expected[done + step], "life {life}, step {step}");
        }
        done += found[0].len();
        from = expected[done - 1].0;
        if life == 0 {
            // As after a kill: a partial chunk, another with a wrong byte.
            let pieces = cache.join(crate::stage::folder_name(&location()));
            fs::write(pieces.join("unfinished"), "half").unwrap();
            let mut paths = fs::read_dir(&pieces).unwrap().map(|entry| entry.unwrap().path());
            let piece = paths.find(|path| path.file_name().unwrap().len() == 16).unwrap();
            let mut bytes = fs::read(&piece).unwrap();
            bytes[3] ^= 1;
            fs::write(&piece, bytes).unwrap();
        }
        drop(served);
    }
    assert_eq!(done, expected.len());
}

/// Data damaged in transit is fetched again, and data damaged at the origin is an error.
#[test]
fn damaged_bytes_are_fetched_twice() {
    let store = Arc::new(InMemory::new());
    let remote = opener(&store)().unwrap();
    remote.wait(store.put(&Key::from("set/bundle"), PutPayload::from_static(b"0123456789"))).unwrap();
    let fetch = |right: usize| {
        let mut tries = 0;
        let take = |bytes: Vec<u8>| {
            tries += 1;
            std::future::ready(Ok((tries == right).then_some(bytes)))
        };
        let found = remote.wait(crate::pull::fetch::verified(&remote, "bundle", &(2..5), take));
        (tries, found)
    };
    assert_eq!(
        [1, 2].map(&fetch).map(|(tries, found)| (tries, found.unwrap())),
        [1, 2].map(|tries| (tries, b"234".to_vec()))
    );
    let (tries, found) = fetch(3);
    let error = found.unwrap_err().to_string();
    assert!(tries == 2 && error.contains("its bytes are not those that the manifest names"), "{tries}: {error}");
}

/// Small files that are no pictures are here before training begins, however many there are.
#[test]
fn small_files_are_brought_whole() {
    let root = tempfile::tempdir().unwrap();
    let here = root.path().join("here");
    for number in 0..50 {
        let class = here.join(format!("c{}", number % 3));
        fs::create_dir_all(&class).unwrap();
        fs::write(class.join(format!("{number}.txt")), number.to_string()).unwrap();
    }
    fs::write(here.join("table.csv"), vec![b'7'; 300_000]).unwrap();
    let [folder, socket] = ["d", "s"].map(|name| root.path().join(name));
    let places = Places { folder: &folder, cache: root.path(), socket: &socket };
    let _served = serve_from(&location(), opener(&put(&here)), 1 << 30, places).unwrap();
    for file in crate::source::walk(&here).unwrap() {
        let found = fs::read(folder.join(&file.name)).unwrap();
        assert_eq!(found, fs::read(&file.path).unwrap(), "{}", file.name);
    }
}

#[test]
fn nothing_to_serve_is_told() {
    let root = tempfile::tempdir().unwrap();
    let (folder, socket) = (root.path().join("x"), root.path().join("x.sock"));
    let places = Places { folder: &folder, cache: root.path(), socket: &socket };
    let error = serve_from(&location(), opener(&Arc::new(InMemory::new())), 1 << 30, places).unwrap_err();
    assert!(error.to_string().contains("there is nothing at"), "{error}");
}

/// An object that is replaced during training is not mistaken for the earlier one.
#[test]
fn another_version_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let here = packed(root.path(), PackFormat::Shards);
    let store = put(&here);
    let (folder, socket) = (root.path().join("d"), root.path().join("s"));
    let places = Places { folder: &folder, cache: root.path(), socket: &socket };
    let _served = serve_from(&location(), opener(&store), 1 << 20, places).unwrap();
    let dataset = Arc::new(Dataset::open(&spec(), &folder, 3).unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for file in crate::source::walk(&here).unwrap() {
        let bytes = std::fs::read(&file.path).unwrap();
        runtime.block_on(store.put(&Key::from(format!("set/{}", file.name)), PutPayload::from(bytes))).unwrap();
    }
    let options = LoaderOptions { batch: 10, seed: 4, augment: spec().augment, ..Default::default() };
    let mut loader = Loader::train(dataset, options, Cursor::START, 1);
    let error = loader.next().unwrap().err().unwrap().to_string();
    assert!(error.contains("was changed by another push meanwhile"), "{error}");
}
