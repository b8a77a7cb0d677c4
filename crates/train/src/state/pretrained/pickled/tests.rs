//! Files that PyTorch 2.11 wrote: `fixtures` holds the same state in today's form and the one before, one that would run
//! a command in Python, and a whole module.

use std::fs;
use std::path::PathBuf;

use super::*;

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/state/pretrained/pickled/fixtures").join(name)
}

/// Name, type, shape and elements of every tensor.
fn told(tensors: &PickledTensors) -> String {
    let each = tensors.names().map(|name| {
        let Tensor { dtype, shape, bytes, .. } = tensors.whole(name).unwrap().unwrap();
        let values: Vec<String> = match dtype {
            Dtype::F32 => bytes.chunks(4).map(|b| f32::from_le_bytes(b.try_into().unwrap()).to_string()).collect(),
            Dtype::I64 => bytes.chunks(8).map(|b| i64::from_le_bytes(b.try_into().unwrap()).to_string()).collect(),
            _ => bytes.chunks(2).map(|b| format!("{:04x}", u16::from_le_bytes(b.try_into().unwrap()))).collect(),
        };
        format!("{name} {dtype:?} {shape:?}: {}", values.join(" "))
    });
    each.collect::<Vec<_>>().join("\n")
}

#[test]
fn both_forms_are_read() {
    let expected = "\
bn.num_batches_tracked I64 []: 7
brain BF16 [2]: 3fc0 c000
empty F32 [0, 3]: 
fc.weight F32 [3, 4]: 0 0.25 0.5 0.75 1 1.25 1.5 1.75 2 2.25 2.5 2.75
half F16 [2]: 3e00 c000
part F32 [2, 2]: 1.25 1.5 2.25 2.5
turned F32 [4, 3]: 0 1 2 0.25 1.25 2.25 0.5 1.5 2.5 0.75 1.75 2.75";
    for name in ["zip.pth", "legacy.pth"] {
        assert_eq!(told(&PickledTensors::open(&fixture(name)).unwrap()), expected, "{name}");
    }
}

/// In Python this file runs a command; here its tensors are read and the rest is passed over.
#[test]
fn nothing_that_a_file_names_is_run() {
    let tensors = PickledTensors::open(&fixture("hostile.pth")).unwrap();
    assert_eq!(tensors.names().collect::<Vec<_>>(), ["module.fc.weight"]);
    assert_eq!(tensors.shape("module.fc.weight"), Some(vec![3, 4]));
}

#[test]
fn what_is_no_state_dict_is_refused() {
    let check = |bytes: &[u8], expected: &str| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.pth");
        fs::write(&path, bytes).unwrap();
        let finding = PickledTensors::open(&path).err().unwrap().finding();
        assert!(finding.message.ends_with(expected) && finding.hint.is_some(), "{finding:?}");
    };
    check(&fs::read(fixture("module.pth")).unwrap(), "it holds no state dict, but a whole module or something else");
    check(b"", "`torch.save` did not write it");
    check(b"PK\x03\x04", "its list of files is missing");
    let whole = fs::read(fixture("legacy.pth")).unwrap();
    check(&whole[..whole.len() - 9], "it is cut off");
}

/// Whatever is damaged, a file gives tensors or a reason.
#[test]
fn damage_never_panics() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.pth");
    for name in ["zip.pth", "legacy.pth", "hostile.pth"] {
        let whole = fs::read(fixture(name)).unwrap();
        for at in 0..whole.len() {
            for flip in [0xFF, 0x01] {
                let mut bytes = whole.clone();
                bytes[at] ^= flip;
                fs::write(&path, &bytes).unwrap();
                if let Ok(tensors) = PickledTensors::open(&path) {
                    for name in tensors.names() {
                        let _ = tensors.whole(name);
                    }
                }
            }
        }
        for end in 0..whole.len() {
            fs::write(&path, &whole[..end]).unwrap();
            let _ = PickledTensors::open(&path);
        }
    }
}
