//! Boundaries are stable, manifests round-trip, and hostile ones are refused.

mod hostile;

use std::collections::HashSet;
use std::io::Write;
use std::num::NonZero;

use super::*;
use crate::sampling::random::Draws;

/// Noise that is the same for the same seed.
fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    Draws::new(seed).bytes(bytes)
}

fn scanned(bytes: &[u8]) -> Vec<Chunk> {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    let one = scan(&file, NonZero::<usize>::MIN, |_| false).unwrap();
    let four = scan(&file, NonZero::new(4).unwrap(), |_| false).unwrap();
    assert_eq!(one, four, "the number of threads changes the cuts");
    let mut at = 0;
    for chunk in &one {
        assert_eq!(chunk.offset, at);
        at += u64::from(chunk.bytes);
        assert_eq!(chunk.id, ContentHash::of(&bytes[chunk.offset as usize..at as usize]));
    }
    assert_eq!(at, bytes.len() as u64, "the chunks do not cover the file");
    one
}

/// Bytes of chunks in `new` that are not in `old`.
fn fresh(old: &[u8], new: &[u8]) -> u64 {
    let old: HashSet<ContentHash> = scanned(old).iter().map(|chunk| chunk.id).collect();
    let new: std::collections::HashMap<ContentHash, u32> =
        scanned(new).iter().map(|chunk| (chunk.id, chunk.bytes)).collect();
    new.iter().filter(|(id, _)| !old.contains(id)).map(|(_, bytes)| u64::from(*bytes)).sum()
}

fn tar(members: &[u64]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for &member in members {
        let bytes = noise(member, 2000 + (member as usize * 37) % 9000);
        let mut header = tar::Header::new_ustar();
        header.set_size(bytes.len() as u64);
        // Some names are so long that they need a header of their own.
        let name = match member % 10 {
            0 => format!("{}/{member}.jpg", "long".repeat(40)),
            _ => format!("class-{}/{member}.jpg", member % 3),
        };
        builder.append_data(&mut header, name, bytes.as_slice()).unwrap();
    }
    builder.into_inner().unwrap()
}

fn records(members: &[u64]) -> Vec<u8> {
    let mut file = Vec::new();
    for &member in members {
        let bytes = noise(member, 3000 + (member as usize * 31) % 5000);
        let masked = |bytes: &[u8]| crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xA282_EAD8).to_le_bytes();
        let length = (bytes.len() as u64).to_le_bytes();
        file.extend([&length[..], &masked(&length), &bytes, &masked(&bytes)].concat());
    }
    file
}

#[test]
fn samples_that_move_are_found_again() {
    for form in [tar, records as fn(&[u64]) -> Vec<u8>] {
        let old: Vec<u64> = (0..300).collect();
        let moved: Vec<u64> = old.iter().rev().copied().collect();
        let mut inserted = old.clone();
        [10, 150, 250].iter().for_each(|at| inserted.insert(*at, 1000 + *at as u64));
        assert!(fresh(&form(&old), &form(&moved)) <= 1024, "reordering");
        let new: u64 = [1010, 1150, 1250].iter().map(|member| form(&[*member]).len() as u64).sum();
        assert!(fresh(&form(&old), &form(&inserted)) <= new, "inserting");
    }
}

#[test]
fn an_overwritten_header_hides_its_own_sample_only() {
    let members: Vec<u64> = (1..300).filter(|member| member % 10 != 0).collect();
    for form in [tar, records as fn(&[u64]) -> Vec<u8>] {
        let old = form(&members);
        // The first header, one that lies with the end of the sample before it, and one alone.
        let starts = [0, 100, 200].map(|count| members[..count].iter().map(|member| form(&[*member]).len()).sum());
        let trailer = form(&[]).len();
        for (at, samples) in [(starts[0], 1), (starts[1] - 100 * trailer - 90, 2), (starts[2] - 200 * trailer, 1)] {
            let mut new = old.clone();
            new[at..at + 100].copy_from_slice(&noise(5, 100));
            let sent = fresh(&old, &new);
            assert!(sent <= samples * 12_100, "{sent} bytes are new after a change at {at}");
        }
    }
}

#[test]
fn what_looks_like_a_header_in_an_opaque_file_changes_little() {
    // One within the first bytes is believed, and all is covered; one behind them is not looked for.
    for at in [3 << 20, 5 << 20] {
        let mut file = noise(6, 8 << 20);
        let member = tar(&[3]);
        file[at..at + member.len()].copy_from_slice(&member);
        let is_cut_there = scanned(&file).iter().any(|chunk| chunk.offset == at as u64);
        assert_eq!(is_cut_there, at < 4 << 20);
    }
}

#[test]
fn opaque_files_are_cut_by_their_content() {
    let old = noise(1, 3 << 20);
    let new = [b"a hundred bytes before everything else", old.as_slice()].concat();
    let sent = fresh(&old, &new);
    assert!(sent < 200 << 10, "{sent} bytes are new");
    assert!(scanned(&old).iter().all(|chunk| chunk.bytes <= 64 << 10));
}

#[test]
fn odd_files_are_cut_too() {
    for bytes in [
        vec![],
        vec![1],
        noise(2, 511),
        vec![0; 5000],
        tar(&[0, 1, 2])[..1500].to_vec(),
        records(&[0, 1])[..40].to_vec(),
    ] {
        scanned(&bytes);
    }
}

#[test]
fn frames_are_compressed_where_it_pays() {
    let text = "the quick brown fox jumps over the lazy dog; ".repeat(3000);
    assert!(frame::probe(text.as_bytes()) && !frame::probe(&noise(3, 100_000)) && !frame::probe(&[]));
    let stored = frame::compress(text.as_bytes()).unwrap();
    assert_eq!(frame::decompress(&stored, text.len()).unwrap(), text.as_bytes());
    assert!(
        frame::decompress(&stored, text.len() - 1).is_none() && frame::decompress(&stored, text.len() + 1).is_none()
    );
    assert!(frame::decompress(&stored, usize::MAX).is_none() && frame::compress(&noise(4, 50_000)).is_none());
}

/// A manifest of `files` files of one chunk each, whose contents are drawn from `seed`.
fn manifest(files: std::ops::Range<u64>) -> ChunkManifest {
    let pieces: Vec<ChunkRef> = files
        .clone()
        .map(|file| ChunkRef {
            id: ContentHash::of(&file.to_le_bytes()),
            bytes: 100,
            frame: 0,
            at: (file % 10_000) as u32 * 100,
        })
        .collect();
    ChunkManifest {
        bundles: vec![Bundle { id: ContentHash::of(b"bundle"), bytes: 1_000_000 }],
        frames: vec![CompressedFrame { bundle: 0, offset: 0, stored: 1_000_000, raw: 1_000_000 }],
        files: files
            .zip(pieces)
            .map(|(file, piece)| ChunkedFile { name: format!("a/{file:05}.png"), bytes: 100, pieces: vec![piece] })
            .collect(),
    }
}

#[test]
fn manifests_survive_the_wire_and_patches_are_small() {
    let (old, mut new) = (manifest(0..5000), manifest(0..5000));
    for at in (0..5000).step_by(100) {
        new.files[at].pieces[0].id = ContentHash::of(format!("new {at}").as_bytes());
    }
    let (old, new) = (encode(&old), encode(&new));
    assert_eq!(encode(&decode(&new).unwrap()), new);
    let full = patch(&[], &new).unwrap();
    assert_eq!(unpatch(&[], &full, new.len() as u64).unwrap(), new);
    let small = patch(&old, &new).unwrap();
    assert_eq!(unpatch(&old, &small, new.len() as u64).unwrap(), new);
    // Fifty new names are 1,600 bytes.
    assert!(small.len() < 3_000, "the patch is {} bytes, the manifest {}", small.len(), full.len());
}

/// The current format must remain readable.
#[test]
fn the_form_of_a_manifest_is_a_promise() {
    let id = ContentHash::of(&encode(&manifest(0..3))).to_string();
    assert_eq!(&id[..16], "56651a780e78fbaf");
}
