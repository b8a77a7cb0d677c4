//! The bytes on disk: what others read, and what later versions must still read.

use std::fs;

use safetensors::SafeTensors;
use serde_json::json;

use super::{Random, commit, tensors};
use crate::manifest::{CheckpointManifest, Data, manifest_name, manifest_step};
use crate::{Dtype, Tensor, read_tensors, write_tensors};

#[test]
fn tensors_are_read_by_their_own_crate_and_by_ours() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    let tensors = tensors(5);
    let entry = write_tensors(&path, &tensors, &[("format", "pt"), ("made by", "a \"test\"")]).unwrap();
    assert_eq!(read_tensors(&path).unwrap(), tensors);

    let bytes = fs::read(&path).unwrap();
    assert_eq!(entry.bytes, bytes.len() as u64);
    let (header, metadata) = SafeTensors::read_metadata(&bytes).unwrap();
    assert_eq!(metadata.metadata().as_ref().unwrap()["made by"], "a \"test\"");
    let theirs = SafeTensors::deserialize(&bytes).unwrap();
    assert_eq!(theirs.len(), tensors.len());
    for tensor in &tensors {
        let view = theirs.tensor(&tensor.name).unwrap();
        assert_eq!(view.data(), tensor.bytes);
        assert_eq!(view.shape().iter().map(|length| *length as u64).collect::<Vec<_>>(), tensor.shape);
        let start = metadata.info(&tensor.name).unwrap().data_offsets.0;
        assert_eq!((8 + header + start) as u64 % tensor.dtype.bytes(), 0, "`{}` is not aligned", tensor.name);
    }

    // The file is the same for any order: its SHA-256 identifies the model.
    let mut reversed = tensors;
    reversed.reverse();
    let again = write_tensors(&path, &reversed, &[("format", "pt"), ("made by", "a \"test\"")]).unwrap();
    assert_eq!(again, entry);
}

#[test]
fn no_tensors_are_a_file_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("none.safetensors");
    write_tensors(&path, &[], &[]).unwrap();
    assert_eq!(read_tensors(&path).unwrap(), []);
}

#[test]
fn tensors_that_contradict_themselves_are_not_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    let tensor = |name: &str, shape: &[u64], bytes: usize| Tensor {
        name: name.into(),
        dtype: Dtype::F32,
        shape: shape.into(),
        bytes: vec![0; bytes],
    };
    for (wrong, reason) in [
        (vec![tensor("a", &[2], 7)], "`a` cannot be saved: 7 bytes"),
        (vec![tensor("b", &[u64::MAX, 2], 0)], "`b` cannot be saved: 0 bytes"),
        (vec![tensor("c", &[1], 4), tensor("c", &[2], 8)], "`c` cannot be saved: its name is not unique"),
    ] {
        let error = write_tensors(&path, &wrong, &[]).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
        assert_eq!(super::listing(folder.path()), [""; 0]);
    }
}

#[test]
fn every_float_of_the_state_comes_back_bit_for_bit() {
    let mut random = Random(3);
    let floats: Vec<f64> =
        (0..20_000).map(|_| f64::from_bits(random.next())).filter(|float| float.is_finite()).collect();
    let folder = tempfile::tempdir().unwrap();
    commit(folder.path(), 1, 1, &[1]).unwrap();
    let text = fs::read(folder.path().join("manifest-00000001.json")).unwrap();
    let mut manifest = CheckpointManifest::read(&text).unwrap();
    manifest.state = json!(floats);
    let read = CheckpointManifest::read(manifest.to_text().as_bytes()).unwrap();
    for (float, read) in floats.iter().zip(read.state.as_array().unwrap()) {
        assert_eq!(read.as_f64().unwrap().to_bits(), float.to_bits());
    }
}

/// A manifest as the first version wrote it. This text must never change: such files exist.
const SCHEMA_1: &str = include_str!("manifest-schema-1.json");

#[test]
fn manifests_of_the_first_schema_are_read() {
    let manifest = CheckpointManifest::read(SCHEMA_1.as_bytes()).unwrap();
    assert_eq!((manifest.step, manifest.fence.0, manifest.files.len()), (120, 3, 3));
    assert_eq!(manifest.state["best"], json!(0.9712643678160919));
    assert_eq!(manifest.best.as_ref().unwrap().name, "best-00000100-a2.safetensors");
    assert_eq!(manifest.to_text(), SCHEMA_1);
}

#[test]
fn names_are_read_only_as_they_are_written() {
    assert_eq!(manifest_step(&manifest_name(123_456_789_012)), Some(123_456_789_012));
    for name in ["manifest-120.json", "manifest-000000120.json", "manifest-+0000120.json", "manifest-00000120.json.tmp"]
    {
        assert_eq!(manifest_step(name), None, "{name}");
    }
    for name in [
        "step-00000120-a3",
        "step-00000120-a3-2",
        "best-00000100-a2.safetensors",
        "best-00000100-a2-1.safetensors",
        "best-00000100-a2",
    ] {
        assert_eq!(Data::parse(name).map(Data::name).as_deref(), Some(name));
    }
    for name in [
        "step-120-a3",
        "step-00000120",
        "step-00000120-a03",
        "step-00000120-a3-0",
        "step-00000120-a3.safetensors",
        "best-00000100-a02",
        "best-00000100-a2.safetensors.safetensors",
        "worst-00000100-a2",
        "step-00000120-a3-2-2",
        "..",
    ] {
        assert_eq!(Data::parse(name), None, "{name}");
    }
}

#[test]
fn values_that_are_not_finite_are_found_in_every_type() {
    let check = |dtype: Dtype, bytes: &[u8], is_finite: bool| {
        let tensor = Tensor { name: "x".into(), dtype, shape: vec![1], bytes: bytes.to_vec() };
        assert_eq!(tensor.is_finite(), is_finite, "{dtype:?} {bytes:?}");
    };
    for value in [0.0, -1.5, f32::MAX, f32::MIN_POSITIVE, f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        check(Dtype::F32, &value.to_le_bytes(), value.is_finite());
        check(Dtype::F64, &f64::from(value).to_le_bytes(), value.is_finite());
        // The upper half of a float is a bfloat16.
        check(Dtype::BF16, &value.to_bits().to_le_bytes()[2..], value.is_finite());
    }
    check(Dtype::F16, &0x7bff_u16.to_le_bytes(), true);
    check(Dtype::F16, &0xfc00_u16.to_le_bytes(), false);
    check(Dtype::F16, &0x7e01_u16.to_le_bytes(), false);
    check(Dtype::I32, &[255; 4], true);
}
