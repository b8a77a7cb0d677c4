//! Manifests that mean harm, or were damaged: each is refused with a reason.

use super::*;

#[track_caller]
fn check(change: impl FnOnce(&mut ChunkManifest), expected: &str) {
    let mut manifest = manifest(0..3);
    change(&mut manifest);
    // The checksum is right, so the manifest was written on purpose.
    let refused = decode(&encode(&manifest)).unwrap_err().to_string();
    assert!(refused.contains(expected), "expected `{expected}`, found `{refused}`");
}

#[test]
fn names_that_leave_the_folder_are_refused() {
    for name in [
        "",
        "/",
        "/etc/passwd",
        "../x",
        "a/../../x",
        "a/..",
        "..",
        ".",
        "./a",
        "a//b",
        "a/",
        "a\0b",
        "a\nb",
        "\u{1b}[2J",
        ".gradus/x",
        "a/.gradus/x",
    ] {
        check(|manifest| manifest.files[0].name = name.into(), "is refused");
    }
    check(|manifest| manifest.files[0].name = "x".repeat(256), "longer than 255");
    check(|manifest| manifest.files[0].name = "x/".repeat(3000) + "x", "longer than 4096");
}

#[test]
fn files_that_are_in_each_others_way_are_refused() {
    check(|manifest| manifest.files[1].name = manifest.files[0].name.clone(), "listed twice");
    check(|manifest| manifest.files[1].name = "a".into(), "a file and a folder at once");
}

#[test]
fn numbers_that_do_not_fit_are_refused() {
    check(|manifest| manifest.bundles[0].bytes = u64::MAX, "bytes long");
    check(|manifest| manifest.bundles.clear(), "which does not exist");
    check(|manifest| manifest.frames[0].bundle = u32::MAX, "which does not exist");
    check(|manifest| manifest.frames[0].offset = u32::MAX, "not within its bundle");
    check(|manifest| manifest.frames[0].stored = 1_000_001, "not within its bundle");
    check(|manifest| manifest.files[0].bytes = u64::MAX, "the file has 18446744073709551615");
    check(|manifest| manifest.files[0].pieces.clear(), "have 0 bytes, but the file has 100");
    check(|manifest| manifest.files[0].pieces[0].frame = 1, "not within its frame");
    check(|manifest| manifest.files[0].pieces[0].at = u32::MAX, "not within its frame");
    check(|manifest| manifest.files[0].pieces[0].bytes = u32::MAX, "not within its frame");
}

#[test]
fn bombs_are_refused() {
    let bomb = |manifest: &mut ChunkManifest| {
        manifest.frames[0].stored = 1000;
        manifest.frames[0].raw = u32::MAX;
    };
    check(bomb, "unpacks to 4294967295 bytes");
    // A gigabyte of zeros behind a stated length of a thousand bytes.
    let zeros = zstd::stream::encode_all(std::io::Read::take(std::io::repeat(0), 1 << 30), 1).unwrap();
    assert!(frame::decompress(&zeros, 1000).is_none());
    assert!(unpatch(&[], &zeros, 1000).is_err());
    assert!(unpatch(&[], &zeros, u64::MAX).is_err());
}

#[test]
fn damaged_bytes_are_refused() {
    let complete = encode(&manifest(0..20));
    for length in 0..complete.len() {
        assert!(decode(&complete[..length]).is_err(), "cut at {length}");
    }
    for at in 0..complete.len() {
        let mut flipped = complete.clone();
        flipped[at] ^= 0x40;
        assert!(decode(&flipped).is_err(), "byte {at} changed");
    }
    // Counts larger than the contents, with a valid checksum.
    for at in [12, 16, 20] {
        let mut body = complete[..complete.len() - 32].to_vec();
        body[at..at + 4].copy_from_slice(&u32::MAX.to_le_bytes());
        body.extend(ContentHash::of(&body).0);
        assert!(decode(&body).is_err(), "count at {at}");
    }
    let mut later = complete[..complete.len() - 32].to_vec();
    later[8] = 2;
    later.extend(ContentHash::of(&later).0);
    assert!(decode(&later).unwrap_err().to_string().contains("version 2"));
    assert!(
        decode(b"no manifest at all, but long enough to hold one").unwrap_err().to_string().contains("no manifest")
    );
}
