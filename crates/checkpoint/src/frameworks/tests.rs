//! Layouts as the frameworks write them, and cut short as a kill leaves them. The files in `written` are of PyTorch 2.11.0.

use std::fs;
use std::path::Path;

use super::{Framework, find, newest, step_of};

/// `torch.save` of what begins as a checkpoint of Lightning, of step 300.
const ARCHIVE: &[u8] = include_bytes!("written/lightning.ckpt");

/// `.metadata` of `torch.distributed.checkpoint.save`, for one file.
const METADATA: &[u8] = include_bytes!("written/metadata.pickle");

fn write(root: &Path, path: &str, bytes: &[u8]) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

/// A safetensors file of two numbers.
fn tensors() -> Vec<u8> {
    let header = br#"{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#;
    [&(header.len() as u64).to_le_bytes()[..], header, &[0; 8]].concat()
}

fn hugging_face(root: &Path, step: u64) {
    let state = format!("{{\"global_step\": {step}, \"log_history\": []}}");
    for (name, bytes) in
        [("model.safetensors", tensors()), ("optimizer.pt", ARCHIVE.into()), ("trainer_state.json", state.into())]
    {
        write(root, &format!("outputs/out/checkpoint-{step}/{name}"), &bytes);
    }
}

fn lightning(root: &Path, bytes: &[u8]) {
    write(root, "outputs/lightning_logs/version_0/checkpoints/epoch=1-step=300.ckpt", bytes);
}

fn distributed(root: &Path) {
    write(root, "titan/checkpoint/step-40/.metadata", METADATA);
    write(root, "titan/checkpoint/step-40/__0_0.distcp", b"values");
}

#[test]
fn layouts_are_found_and_the_newest_comes_first() {
    let root = tempfile::tempdir().unwrap();
    assert_eq!(newest(root.path()), (None, Vec::new()));
    hugging_face(root.path(), 20);
    hugging_face(root.path(), 100);
    distributed(root.path());
    lightning(root.path(), ARCHIVE);
    write(root.path(), "step-00000500-a1/model.safetensors", &tensors());
    write(root.path(), "best.ckpt", b"of another program");
    let found: Vec<(Framework, u64)> = find(root.path()).iter().map(|found| (found.framework, found.step)).collect();
    let expected = [
        (Framework::Lightning, 300),
        (Framework::HuggingFace, 100),
        (Framework::Distributed, 40),
        (Framework::HuggingFace, 20),
    ];
    assert_eq!(found, expected);
    assert!(find(root.path()).iter().all(|found| found.verify().is_ok() && found.bytes() > 0));
    let of_a_name = root.path().join("outputs/last.ckpt");
    fs::copy(root.path().join("outputs/lightning_logs/version_0/checkpoints/epoch=1-step=300.ckpt"), &of_a_name)
        .unwrap();
    assert_eq!(find(root.path())[0].step, 300, "the step is read, and not taken from the name");
    assert_eq!(find(root.path()).iter().filter(|found| found.step == 300).count(), 2);
}

/// Writes what `write` writes after one that is whole, and gives why it is not used.
fn check(write: impl Fn(&Path), expected: &str) {
    let root = tempfile::tempdir().unwrap();
    hugging_face(root.path(), 20);
    write(root.path());
    let (found, passed_over) = newest(root.path());
    assert_eq!(found.map(|found| found.step), Some(20), "{passed_over:?}");
    assert!(matches!(&passed_over[..], [why] if why.ends_with(expected)), "{passed_over:?}, and not `{expected}`");
}

#[test]
fn half_a_checkpoint_is_none() {
    let root = tempfile::tempdir().unwrap();
    for name in ["pytorch_model_fsdp_0", "optimizer_0"] {
        let folder = root.path().join("checkpoint_3").join(name);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(".metadata"), b"x.").unwrap();
    }
    assert_eq!(newest(root.path()), (None, Vec::new()));
    let file = root.path().join("checkpoint-30/trainer_state.json");
    assert_eq!((step_of(&file), step_of(&root.path().join("out/trainer_state.json"))), (Some(30), None));
}

#[test]
fn a_checkpoint_that_a_kill_cut_short_is_passed_over() {
    let cut = |name: &'static str, length: usize| {
        move |root: &Path| {
            hugging_face(root, 30);
            let path = root.join("outputs/out/checkpoint-30").join(name);
            let bytes = fs::read(&path).unwrap();
            fs::write(path, &bytes[..bytes.len() - length]).unwrap();
        }
    };
    let without = |name: &'static str| {
        move |root: &Path| {
            hugging_face(root, 30);
            fs::remove_file(root.join("outputs/out/checkpoint-30").join(name)).unwrap();
        }
    };
    check(cut("model.safetensors", 1), "`model.safetensors` is cut short");
    check(cut("model.safetensors", 60), "`model.safetensors` is cut short");
    check(cut("optimizer.pt", 1), "`optimizer.pt` is cut short");
    check(cut("optimizer.pt", ARCHIVE.len()), "`optimizer.pt` is cut short");
    check(cut("trainer_state.json", 1), "`trainer_state.json` is cut short");
    check(without("trainer_state.json"), "`trainer_state.json` is missing");
    check(without("model.safetensors"), "there is no file of the model, such as `model.safetensors`");
    for length in [0, 100, 900, ARCHIVE.len() - 1] {
        let is_known = |root: &Path| lightning(root, &ARCHIVE[..length]);
        check(is_known, "`epoch=1-step=300.ckpt` is cut short");
    }
    let damaged = |path: &'static str, bytes: &'static [u8]| {
        move |root: &Path| {
            distributed(root);
            fs::rename(root.join("titan/checkpoint/step-40"), root.join("titan/step-41")).unwrap();
            if bytes == b"missing" {
                fs::remove_file(root.join("titan/step-41").join(path)).unwrap();
            } else {
                fs::write(root.join("titan/step-41").join(path), bytes).unwrap();
            }
        }
    };
    check(damaged("__0_0.distcp", b""), "`__0_0.distcp` is empty");
    check(damaged("__0_0.distcp", b"missing"), "`__0_0.distcp` is missing");
    check(damaged(".metadata", &METADATA[..METADATA.len() - 1]), "`.metadata` is cut short");
    check(damaged(".metadata", b"missing"), "`.metadata` is missing");
}

#[test]
fn shards_that_an_index_names_must_all_be_there() {
    let sharded = |name: &'static str| {
        move |root: &Path| {
            hugging_face(root, 30);
            let folder = root.join("outputs/out/checkpoint-30");
            fs::remove_file(folder.join("model.safetensors")).unwrap();
            let index = r#"{"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}"#;
            fs::write(folder.join("model.safetensors.index.json"), index).unwrap();
            fs::write(folder.join(name), tensors()).unwrap();
        }
    };
    check(sharded("model-1.safetensors"), "`model-2.safetensors` is missing");
    let root = tempfile::tempdir().unwrap();
    sharded("model-1.safetensors")(root.path());
    fs::write(root.path().join("outputs/out/checkpoint-30/model-2.safetensors"), tensors()).unwrap();
    assert_eq!(newest(root.path()).0.map(|found| found.step), Some(30));
}

#[test]
fn archives_of_more_than_4_gb_have_their_numbers_elsewhere() {
    let (root, path) = (tempfile::tempdir().unwrap(), "outputs/x-step=7.ckpt");
    // The end record says that the 64-bit one before it holds the numbers.
    let mut bytes = ARCHIVE.to_vec();
    let end = bytes.len() - 22;
    bytes[end + 12..end + 20].fill(0xff);
    write(root.path(), path, &bytes);
    assert_eq!(newest(root.path()).1, [""; 0]);
    let record = bytes.windows(4).rposition(|four| four == b"PK\x06\x06").unwrap();
    bytes[record + 48] ^= 1;
    write(root.path(), path, &bytes);
    assert!(newest(root.path()).1[0].ends_with("is cut short"));
}
