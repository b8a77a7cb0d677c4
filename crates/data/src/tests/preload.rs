//! Files that were read into memory: the disk is no longer read, and the batches are the same.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use domain::Bytes;
use domain::train::{Augment, Corrupt, Data, MemoryFormat};

use super::{Files, complains, scratch, spec};
use crate::{BatchDtype, Cursor, Dataset, Error, Loader, LoaderOptions, PackOptions, SampleCodec, Skipped};

/// The bits of all batches of two epochs.
fn drain(dataset: Dataset) -> Vec<u32> {
    let options = LoaderOptions { batch: 7, workers: 2, seed: 5, ..Default::default() };
    let mut loader = Loader::train(Arc::new(dataset), options, Cursor::START, 2);
    let mut bits = Vec::new();
    while let Some(batch) = loader.next() {
        bits.extend(batch.unwrap().images().iter().map(|value| value.to_bits()));
    }
    bits
}

fn open(path: &Path, preload: Option<u64>, corrupt: Corrupt) -> Result<Dataset, Error> {
    let spec = Data { preload: preload.map(Bytes), corrupt, ..spec() };
    // As if no decoded image fitted into memory.
    Dataset::open_keeping(&spec, path, 3, 0)
}

#[test]
fn a_data_set_in_memory_needs_its_files_no_more() {
    let root = scratch();
    let files = Files::of(&[""], &["a", "b", "c"], 20);
    let bytes: u64 = files.0.iter().map(|(_, bytes)| bytes.len() as u64).sum();
    let (tree, shards) = (files.folder(root.path()), root.path().join("shards"));
    let options = PackOptions { shard_bytes: 4 << 10, seed: 1, ..PackOptions::default() };
    crate::pack(&tree, &shards, &options, &mut |_| {}).unwrap();
    let expected = drain(open(&tree, None, Corrupt::Fail).unwrap());
    for path in [&shards, &tree, &files.tar(root.path())] {
        let much = format!("its images take {bytes} B or more, and `preload` allows {} B", bytes - 1);
        complains(&open(path, Some(bytes - 1), Corrupt::Fail).unwrap_err(), &much, "raise `preload`");
        let dataset = open(path, Some(bytes), Corrupt::Fail).unwrap();
        match path.is_dir() {
            true => fs::remove_dir_all(path).unwrap(),
            false => fs::write(path, "").unwrap(),
        }
        assert_eq!(drain(dataset), expected, "{}", path.display());
    }
}

#[test]
fn parts_of_packed_pixels_are_the_same_from_memory() {
    let root = scratch();
    let (tree, shards) = (Files::of(&[""], &["a", "b"], 20).folder(root.path()), root.path().join("shards"));
    let options = PackOptions { shard_bytes: 64 << 10, seed: 1, codec: SampleCodec::Pixels, ..PackOptions::default() };
    crate::pack(&tree, &shards, &options, &mut |_| {}).unwrap();
    let augment = vec![Augment::ResizeCrop(6), Augment::Flip];
    for (numbers, layout) in [
        (BatchDtype::U8, MemoryFormat::Contiguous),
        (BatchDtype::Bf16, MemoryFormat::Contiguous),
        (BatchDtype::U8, MemoryFormat::ChannelsLast),
        (BatchDtype::Bf16, MemoryFormat::ChannelsLast),
    ] {
        let [read, loaded] = [None, Some(Bytes(1 << 20))].map(|preload| {
            let spec = Data { preload, size: Some(5), augment: augment.clone(), ..spec() };
            let dataset = Arc::new(Dataset::open(&spec, &shards, 3).unwrap());
            let options = LoaderOptions { numbers, layout, augment: augment.clone(), ..Default::default() };
            let mut loader = Loader::train(dataset, options, Cursor::START, 2);
            let mut bytes = Vec::new();
            while let Some(batch) = loader.next() {
                bytes.extend_from_slice(batch.unwrap().bytes());
            }
            bytes
        });
        assert!(!read.is_empty() && read == loaded, "{numbers:?} {layout:?}");
    }
}

#[test]
fn damaged_images_are_also_skipped_in_memory() {
    let root = scratch();
    let mut files = Files::of(&[""], &["a", "b", "c"], 20);
    files.0[5].1.truncate(20);
    files.0[9].1.clear();
    let tree = files.folder(root.path());
    let [plain, loaded] = [None, Some(1 << 20)].map(|preload| open(&tree, preload, Corrupt::Skip).unwrap());
    let names = |dataset: &Dataset| -> Vec<Skipped> { dataset.skipped().to_vec() };
    assert_eq!((names(&plain).len(), names(&plain)), (2, names(&loaded)));
    assert_eq!(drain(loaded), drain(plain));
}
