//! Any byte of a checkpoint changed, truncated, added or missing: the previous checkpoint is used, and the reason is
//! reported.

use std::fs;
use std::path::{Path, PathBuf};

use super::{JOB, Random, check, commit, listing, newest_verified};
use crate::manifest::CheckpointManifest;

/// Two checkpoints without shared files, and the files of the newer one's state.
fn two_checkpoints(folder: &Path) -> Vec<PathBuf> {
    commit(folder, 1, 3, &[20, 40]).unwrap();
    let files: Vec<PathBuf> =
        ["manifest-00000040.json", "step-00000040-a1/model.safetensors", "step-00000040-a1/training.safetensors"]
            .map(|name| folder.join(name))
            .into();
    assert_eq!(check(folder, Some(40)), [""; 0]);
    files
}

/// The older checkpoint is used, and one sentence names the damaged file.
fn check_older(folder: &Path, file: &Path) {
    let passed_over = check(folder, Some(20));
    let name = file.file_name().unwrap().to_str().unwrap();
    assert!(passed_over.len() == 1 && passed_over[0].contains(name), "{name}: {passed_over:?}");
    assert!(passed_over[0].starts_with("the checkpoint of step 40 is not used: "), "{passed_over:?}");
}

#[test]
fn a_flip_of_any_byte_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut random = Random(40);
    let mut flips = 0;
    for file in two_checkpoints(folder) {
        let intact = fs::read(&file).unwrap();
        for index in 0..intact.len() {
            let mut damaged = intact.clone();
            // One bit, and then any other value: a letter of JSON that becomes another, a space that becomes a line.
            for change in [1 << random.below(8), 1 + random.below(255) as u8] {
                damaged[index] = intact[index] ^ change;
                fs::write(&file, &damaged).unwrap();
                check_older(folder, &file);
                flips += 1;
            }
        }
        fs::write(&file, &intact).unwrap();
    }
    assert_eq!(check(folder, Some(40)), [""; 0]);
    assert!(flips > 3000, "only {flips} flips");
}

/// The best weights are no part of the state that is resumed.
#[test]
fn damaged_best_weights_cost_themselves_alone() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    two_checkpoints(folder);
    let file = folder.join("best-00000040-a1.safetensors");
    let intact = fs::read(&file).unwrap();
    let check = |damaged: Option<&[u8]>, why: &str| {
        fs::remove_file(&file).unwrap();
        if let Some(bytes) = damaged {
            fs::write(&file, bytes).unwrap();
        }
        let (loaded, passed_over) = newest_verified(folder, JOB);
        let loaded = loaded.unwrap();
        assert_eq!((loaded.manifest.step, passed_over.len(), &loaded.best), (40, 0, &None));
        let lost = loaded.lost_best.unwrap();
        assert!(lost.starts_with("the best weights, of step 40, are lost: `best-00000040-a1.safetensors`: "), "{lost}");
        assert!(lost.ends_with(why), "{lost}");
        // The next manifest does not list them.
        assert!(loaded.manifest.best.is_none() && loaded.manifest.files.len() == 2);
        fs::write(&file, &intact).unwrap();
    };
    let mut flipped = intact.clone();
    for index in 0..intact.len() {
        flipped[index] ^= 1 << (index % 8);
        check(Some(&flipped), "");
        flipped[index] = intact[index];
    }
    flipped[intact.len() - 1] ^= 1;
    check(Some(&flipped), "it does not match its checksum");
    check(Some(&intact[..9]), &format!("it has 9 bytes instead of {}", intact.len()));
    check(None, "it is missing");
}

#[test]
fn a_file_cut_short_or_lengthened_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for file in two_checkpoints(folder) {
        let intact = fs::read(&file).unwrap();
        for length in 0..intact.len() {
            fs::write(&file, &intact[..length]).unwrap();
            check_older(folder, &file);
        }
        for more in [&b" "[..], b"\n", b"\0", b"{}"] {
            fs::write(&file, [&intact, more].concat()).unwrap();
            check_older(folder, &file);
        }
        fs::write(&file, &intact).unwrap();
    }
}

#[test]
fn a_file_that_is_missing_or_no_file_is_noticed() {
    for kind in ["missing", "folder", "link", "pipe", "another's"] {
        for number in 0..3 {
            let folder = tempfile::tempdir().unwrap();
            let folder = folder.path();
            let file = &two_checkpoints(folder)[number];
            let aside = folder.join("aside");
            fs::rename(file, &aside).unwrap();
            match kind {
                "missing" => {}
                "folder" => fs::create_dir(file).unwrap(),
                "link" => std::os::unix::fs::symlink(&aside, file).unwrap(),
                // Opening a pipe in the usual way would block until it has a writer.
                "pipe" => assert!(std::process::Command::new("mkfifo").arg(file).status().unwrap().success()),
                _ => drop(fs::copy(folder.join("best-00000020-a1.safetensors"), file).unwrap()),
            }
            match (kind, number) {
                // A checkpoint without manifest does not exist.
                ("missing", 0) => assert_eq!(check(folder, Some(20)), [""; 0]),
                _ => check_older(folder, file),
            }
        }
    }
}

#[test]
fn other_files_in_the_folder_are_none_of_our_business() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    two_checkpoints(folder);
    let others =
        ["notes.txt", "manifest-40.json", "manifest-.json", "manifest-00000041.json.bak", "step-1", "best-1-a1"];
    for name in others {
        fs::write(folder.join(name), "mine").unwrap();
    }
    fs::create_dir(folder.join("step-00000040")).unwrap();
    assert_eq!(check(folder, Some(40)), [""; 0]);
    commit(folder, 2, 1, &[60]).unwrap();
    assert_eq!(check(folder, Some(60)), [""; 0]);
    let left = listing(folder);
    for name in others.iter().chain(&["step-00000040"]) {
        assert!(left.iter().any(|left| left == name), "`{name}` was removed");
    }
}

/// Changes the newer manifest, seals it again, and expects the older one to be used, for this reason.
fn check_forged(forge: impl FnOnce(&mut CheckpointManifest), reason: &str) {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let file = &two_checkpoints(folder)[0];
    let mut manifest = CheckpointManifest::read(&fs::read(file).unwrap()).unwrap();
    forge(&mut manifest);
    fs::write(file, manifest.to_text()).unwrap();
    let passed_over = check(folder, Some(20));
    assert!(passed_over.len() == 1 && passed_over[0].contains(reason), "{reason}: {passed_over:?}");
}

#[test]
fn a_manifest_is_believed_nothing() {
    for name in
        ["../../etc/passwd", "/etc/passwd", "step-00000040-a1/../fence", "step-00000040-a1/fence", "fence", "", "\0"]
    {
        check_forged(|manifest| manifest.files[0].name = name.into(), "no file of a checkpoint");
    }
    check_forged(|manifest| manifest.schema = 4, "schema 4");
    check_forged(|manifest| manifest.step = 41, "manifest of step 41");
    check_forged(|manifest| manifest.job_hash = "1".repeat(64), "another job");
    check_forged(|manifest| manifest.files.clear(), "does not name the files");
    check_forged(|manifest| drop(manifest.files.pop()), "does not name the files");
    check_forged(|manifest| manifest.files[1] = manifest.files[0].clone(), "does not name the files");
    check_forged(|manifest| manifest.best = None, "does not name the files");
    check_forged(|manifest| manifest.files[0].bytes = u64::MAX, "instead of 18446744073709551615");
    check_forged(|manifest| manifest.files[0].sha256 = "0".repeat(64), "checksum");
    check_forged(|manifest| manifest.files[0].sha256.make_ascii_uppercase(), "checksum");
}

#[test]
fn arbitrary_bytes_are_refused_and_harm_nothing() {
    let seed = 11;
    println!("seed {seed}");
    let mut random = Random(seed);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    crate::write_tensors(&path, &super::tensors(1), &[("format", "pt")]).unwrap();
    let intact = fs::read(&path).unwrap();
    let manifest = folder.path().join("manifest-00000009.json");
    for _ in 0..4000 {
        let mut bytes = intact.clone();
        for _ in 0..=random.below(4) {
            let index = random.below(bytes.len());
            match random.below(4) {
                0 => bytes[index] = random.next() as u8,
                1 => bytes.truncate(index + 1),
                2 => bytes.insert(index, b'0' + random.below(10) as u8),
                _ => bytes[random.below(8).min(index)] = random.next() as u8,
            }
        }
        fs::write(&path, &bytes).unwrap();
        if let Ok(tensors) = crate::read_tensors(&path) {
            let held: usize = tensors.iter().map(|tensor| tensor.bytes.len()).sum();
            assert!(held <= bytes.len(), "more was read than there is");
        }
        fs::write(&manifest, &bytes).unwrap();
        assert!(newest_verified(folder.path(), JOB).0.is_none());
    }
    for header in [
        r#"{"a":{"dtype":"F32","shape":[18446744073709551615,4],"data_offsets":[0,0]}}"#,
        r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,18446744073709551615]}}"#,
        r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}}"#,
        r#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}"#,
        r#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#,
        r#"{"a":{"dtype":"F128","shape":[1],"data_offsets":[0,16]}}"#,
        r#"{"a":{"dtype":"C64","shape":[1],"data_offsets":[0,8]}}"#,
        "[]",
        "",
        &"[".repeat(100_000),
    ] {
        let length = (header.len() as u64).to_le_bytes();
        fs::write(&path, [&length, header.as_bytes(), &[0; 8]].concat()).unwrap();
        let refused = crate::read_tensors(&path).unwrap_err().to_string();
        assert!(refused.contains("is damaged"), "{header}: {refused}");
    }
    for length in [u64::MAX, 1 << 40, 100_000_001] {
        fs::write(&path, length.to_le_bytes()).unwrap();
        assert!(crate::read_tensors(&path).unwrap_err().to_string().contains("header is longer"));
    }
}

#[test]
fn a_state_that_cannot_be_used_is_set_aside_until_a_later_attempt_has_saved() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let files = two_checkpoints(folder);
    fs::write(&files[1], "damaged").unwrap();
    check_older(folder, &files[1]);
    // After resuming from step 20, the damaged step 40 counts neither as one to retain, nor as newer than the next one.
    commit(folder, 2, 1, &[30, 50]).unwrap();
    assert_eq!(check(folder, Some(50)), [""; 0]);
    let aside = folder.join("aside-a2/manifest-00000040.json");
    assert!(!files[0].exists() && aside.exists() && files[1..].iter().all(|file| file.exists()));
    commit(folder, 3, 1, &[60]).unwrap();
    assert_eq!(check(folder, Some(60)), [""; 0]);
    assert!(!aside.exists() && files.iter().all(|file| !file.exists()) && !folder.join("aside-a2").exists());
}

#[test]
fn the_data_of_a_damaged_manifest_is_set_aside_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let files = two_checkpoints(folder);
    fs::write(&files[0], "damaged").unwrap();
    commit(folder, 2, 1, &[30]).unwrap();
    assert_eq!(check(folder, Some(30)), [""; 0]);
    assert!(folder.join("aside-a2/manifest-00000040.json").exists() && files[1..].iter().all(|file| file.exists()));
    commit(folder, 3, 1, &[35]).unwrap();
    assert!(files.iter().all(|file| !file.exists()) && !folder.join("aside-a2").exists());
}

#[test]
fn what_a_later_version_wrote_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let files = two_checkpoints(folder);
    let mut manifest = CheckpointManifest::read(&fs::read(&files[0]).unwrap()).unwrap();
    manifest.schema = 4;
    fs::write(&files[0], manifest.to_text()).unwrap();
    commit(folder, 2, 1, &[30]).unwrap();
    assert!(files.iter().all(|file| file.exists()));
    let passed_over = check(folder, Some(30));
    assert!(passed_over[0].contains("schema 4, and this program reads up to 3"), "{passed_over:?}");
}
