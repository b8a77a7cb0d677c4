//! Damaged and hostile shards and manifests: each gives a clear error, and nothing outside is read or written.

use std::fs;
use std::path::Path;

use super::hostile::check;
use super::{Files, complains, scratch, spec};
use crate::{Dataset, InspectOptions, PackOptions, inspect, pack};

#[test]
fn manifests_and_shards() {
    let root = scratch();
    let source = Files::of(&[""], &["a", "b"], 10).folder(root.path());
    let sound = root.path().join("sound");
    pack(&source, &sound, &PackOptions { shard_bytes: 1000, ..PackOptions::default() }, &mut |_| {}).unwrap();
    let manifest = fs::read_to_string(sound.join("manifest.json")).unwrap();
    fs::write(root.path().join("outside.shard"), fs::read(sound.join("data-000000.shard")).unwrap()).unwrap();
    let mut number = 0;
    let mut case = |message: &str, change: &dyn Fn(&Path)| {
        number += 1;
        let copy = root.path().join(format!("copy{number}"));
        fs::create_dir(&copy).unwrap();
        for entry in fs::read_dir(&sound).unwrap() {
            let entry = entry.unwrap();
            fs::copy(entry.path(), copy.join(entry.file_name())).unwrap();
        }
        change(&copy);
        check(&copy, message, None);
    };
    let texts: [(&str, &str, &str); 10] = [
        ("\"schema\": 1", "\"schema\": 99", "it is of version 99"),
        ("\"schema\": 1", "\"schema\": -1", "the manifest is damaged"),
        ("data-000000.shard", "../outside.shard", "is no name of a shard"),
        ("data-000000.shard", "/etc/passwd", "is no name of a shard"),
        ("data-000000.shard", "data-000001.shard", "is listed twice"),
        ("data-000000.shard", "data-999999.shard", "cannot read"),
        ("\"samples\": 20", "\"samples\": 21", "its shards hold 20 samples"),
        ("\"samples\": 20", "\"samples\": NaN", "the manifest is damaged"),
        ("\"samples\": 20", "\"samples\": 1e99", "the manifest is damaged"),
        ("\"a\",\n    \"b\"", "", "is of class 0, and there are 0"),
    ];
    for (from, to, message) in texts {
        let changed = manifest.replacen(from, to, 1);
        assert_ne!(changed, manifest, "{from}");
        case(message, &|folder| fs::write(folder.join("manifest.json"), &changed).unwrap());
    }
    case("the manifest is damaged", &|folder| fs::write(folder.join("manifest.json"), &manifest[..200]).unwrap());
    // A count that is raised everywhere would take memory, were it believed.
    case("the manifest is damaged", &|folder| {
        let changed = manifest.replace("\"count\": ", "\"count\": 99999999999999999");
        fs::write(folder.join("manifest.json"), changed).unwrap();
    });
    case("its manifest says", &|folder| in_shard(folder, |bytes| bytes.truncate(900)));
    case("its manifest says", &|folder| in_shard(folder, |bytes| bytes.push(0)));
    case("its manifest says", &|folder| in_shard(folder, Vec::clear));
    case("it is no shard", &|folder| in_shard(folder, |bytes| bytes[0] ^= 1));
    case("it is no shard", &|folder| in_shard(folder, |bytes| *bytes.last_mut().unwrap() ^= 1));
    case("it is of version 9", &|folder| in_shard(folder, |bytes| bytes[8] = 9));
    for at in [48, 40, 32] {
        case("its foot does not fit its length", &|folder| {
            in_shard(folder, |bytes| {
                let start = bytes.len() - at;
                bytes[start..start + 8].fill(0xFF);
            });
        });
    }
    case("its index is damaged", &|folder| {
        in_shard(folder, |bytes| {
            let at = index(bytes);
            bytes[at] ^= 1;
        });
    });
    case("lies outside it", &|folder| in_index(folder, |index| index[..8].fill(0xFF)));
    case("is larger than 256 MiB", &|folder| in_index(folder, |index| index[8..12].fill(0xFF)));
    case("is larger than 256 MiB", &|folder| in_index(folder, |index| index[12..16].fill(0xFF)));
    case("lies outside it", &|folder| in_index(folder, |index| index[8..12].copy_from_slice(&[0, 0, 0, 1])));
    // A sparse file is as long as it claims, and takes no space until it is read.
    case("its foot does not fit its length", &|folder| {
        let length = 1_u64 << 36;
        let mut foot = vec![0; 48];
        in_shard(folder, |bytes| {
            let (end, names) = (bytes.len(), length - index(bytes) as u64 - 48);
            foot_of(bytes, end, names);
        });
        let path = folder.join("data-000001.shard");
        let bytes = fs::read(&path).unwrap();
        foot.copy_from_slice(&bytes[bytes.len() - 48..]);
        let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(length).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &foot, length - 48).unwrap();
        let text = fs::read_to_string(folder.join("manifest.json")).unwrap();
        let second = text.find("data-000001.shard").unwrap();
        let (start, rest) = text.split_at(second);
        let changed = rest.replacen(&format!("\"bytes\": {}", bytes.len()), &format!("\"bytes\": {length}"), 1);
        assert_ne!(changed, rest);
        fs::write(folder.join("manifest.json"), format!("{start}{changed}")).unwrap();
    });
    case("is of class 4294967295", &|folder| in_index(folder, |index| index[24..28].fill(0xFF)));
    case("unknown codec", &|folder| in_index(folder, |index| index[28] = 77));
    case("is there twice", &|folder| in_index(folder, |index| index.copy_within(48..56, 16)));
}

/// Lets the foot claim so many bytes of names.
fn foot_of(bytes: &mut [u8], end: usize, names: u64) {
    let samples = u64::from_le_bytes(bytes[end - 40..end - 32].try_into().unwrap());
    bytes[end - 32..end - 24].copy_from_slice(&(names - samples * 68).to_le_bytes());
}

/// Where the index of a shard begins.
fn index(bytes: &[u8]) -> usize {
    u64::from_le_bytes(bytes[bytes.len() - 48..][..8].try_into().unwrap()) as usize
}

fn in_shard(folder: &Path, change: impl Fn(&mut Vec<u8>)) {
    let path = folder.join("data-000001.shard");
    let mut bytes = fs::read(&path).unwrap();
    change(&mut bytes);
    fs::write(&path, bytes).unwrap();
}

/// Changes the index and makes its checksum again, as an attacker would.
fn in_index(folder: &Path, change: impl Fn(&mut [u8])) {
    in_shard(folder, |bytes| {
        let (at, foot) = (index(bytes), bytes.len() - 48);
        change(&mut bytes[at..foot]);
        let sum = blake3::hash(&bytes[at..foot]);
        bytes[foot + 24..foot + 40].copy_from_slice(&sum.as_bytes()[..16]);
    });
}

#[test]
fn a_later_version_is_reported_also_without_classes() {
    let root = scratch();
    let (source, out) = (Files::of(&[""], &["a", "b"], 4).folder(root.path()), root.path().join("out"));
    pack(&source, &out, &PackOptions::default(), &mut |_| {}).unwrap();
    let manifest = fs::read_to_string(out.join("manifest.json")).unwrap();
    fs::write(out.join("manifest.json"), manifest.replacen("\"schema\": 1", "\"schema\": 99", 1)).unwrap();
    complains(&Dataset::unlabelled(&spec(), &out).unwrap_err(), "it is of version 99", "install the newest gradus");
}

#[test]
fn what_cannot_be_listed_is_verified_all_the_same() {
    let root = scratch();
    let source = Files::of(&[""], &["a", "b"], 10).folder(root.path());
    let out = root.path().join("out");
    pack(&source, &out, &PackOptions { shard_bytes: 1000, ..PackOptions::default() }, &mut |_| {}).unwrap();
    in_index(&out, |index| index[24..28].fill(0xFF));
    fs::remove_file(out.join("data-000000.shard")).unwrap();
    let look = |verify| inspect(&out, &InspectOptions { verify, sheet: None, threads: 2 });
    assert!(look(false).is_err());
    let found: Vec<String> =
        look(true).unwrap().damaged.into_iter().map(|it| format!("{}: {}", it.name, it.why)).collect();
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].starts_with("data-000000.shard: cannot read"), "{found:?}");
    assert!(found[1].starts_with("data-000001.shard, sample 1: sample 1 is of class 4294967295"), "{found:?}");
}

#[test]
fn a_shard_that_is_a_link_or_a_folder() {
    let root = scratch();
    let source = Files::of(&[""], &["a", "b"], 10).folder(root.path());
    let out = root.path().join("out");
    pack(&source, &out, &PackOptions::default(), &mut |_| {}).unwrap();
    let shard = out.join("data-000000.shard");
    fs::remove_file(&shard).unwrap();
    fs::create_dir(&shard).unwrap();
    check(&out, "data-000000.shard", None);
    fs::remove_dir(&shard).unwrap();
    std::os::unix::fs::symlink("/dev/zero", &shard).unwrap();
    check(&out, "it is no plain file", None);
    // Nor is anything written through a link.
    fs::remove_file(&shard).unwrap();
    let elsewhere = root.path().join("elsewhere");
    std::os::unix::fs::symlink(&elsewhere, &shard).unwrap();
    pack(&source, &out, &PackOptions::default(), &mut |_| {}).unwrap();
    assert!(!elsewhere.exists() && fs::symlink_metadata(&shard).unwrap().is_file());
}
