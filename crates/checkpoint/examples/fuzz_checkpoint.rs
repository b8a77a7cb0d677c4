//! Damages the files of a checkpoint, and reads them: `cargo run --release -p gradus-checkpoint --example
//! fuzz_checkpoint -- all 120`.
//!
//! The formats are `full` and `delta` (links of a chain), `tensors` (a safetensors file) and `manifest`.

#[path = "../../data/src/tests/mutate.rs"]
mod mutate;
#[allow(dead_code)]
#[path = "../../data/examples/fuzz/round.rs"]
mod round;

use std::error::Error;
use std::fs;

use checkpoint::delta::{Width, difference, full, restore};
use checkpoint::{Dtype, Tensor, newest_verified, read_tensors, write_tensors};
use domain::random::Draws;
use round::{Verdict, round};
use sha2::{Digest, Sha256};

const FORMS: [&str; 4] = ["full", "delta", "tensors", "manifest"];
const MANIFEST: &str = include_str!("../src/tests/manifest-schema-1.json");

/// Makes the hash in the last line that of all before it.
fn sealed(bytes: &mut Vec<u8>) {
    let Some(end) = bytes.windows(11).rposition(|part| part == b"  \"sha256\":") else { return };
    bytes.truncate(end);
    let sum: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    bytes.extend(format!("  \"sha256\": \"{sum}\"\n}}\n").bytes());
}

fn main() -> Result<(), Box<dyn Error>> {
    let (form, seconds, seed) = round::asked()?;
    let forms = if form == "all" { FORMS.to_vec() } else { vec![form.as_str()] };
    let before = Draws::new(1).bytes(4096);
    let mut state = before.clone();
    state.iter_mut().step_by(7).for_each(|byte| *byte = byte.wrapping_add(3));
    let first = full(&before, Width::Two);
    for form in forms {
        let arguments = (form, seconds, seed);
        match form {
            "full" => {
                let look = |bytes: &[u8]| {
                    let restored = restore(bytes, None);
                    // What changes the bytes changes their hash, which the link names.
                    assert!(restored.as_ref().map_or(true, |found| *found == before));
                    Verdict::of(restored)
                };
                round(arguments, &first, |_| {}, look)?;
            }
            "delta" => {
                let link = difference(&first, &before, &state)?;
                let look = |bytes: &[u8]| {
                    let restored = restore(bytes, Some(&before));
                    // A link restores the state that it names, or nothing.
                    assert!(restored.as_ref().is_ok_and(|found| *found == state) || restored.is_err() || bytes[9] == 0);
                    Verdict::of(restored)
                };
                round(arguments, &link, |_| {}, look)?;
            }
            "tensors" => {
                let folder = tempfile::tempdir()?;
                let path = folder.path().join("a.safetensors");
                let tensor = |name: &str, shape: Vec<u64>| Tensor {
                    name: name.into(),
                    dtype: Dtype::F32,
                    bytes: Draws::new(2).bytes(4 * shape.iter().product::<u64>() as usize),
                    shape,
                };
                write_tensors(&path, &[tensor("a.weight", vec![8, 3]), tensor("b", vec![])], &[("step", "1")])?;
                let sound = fs::read(&path)?;
                let look = |bytes: &[u8]| {
                    fs::write(&path, bytes).expect("a file can be written");
                    Verdict::of(read_tensors(&path))
                };
                round(arguments, &sound, |_| {}, look)?;
            }
            "manifest" => {
                let folder = tempfile::tempdir()?;
                let path = folder.path().join("manifest-00000120.json");
                let look = |bytes: &[u8]| {
                    fs::write(&path, bytes).expect("a file can be written");
                    // Its files are not there, so that the most it can be is read and passed over.
                    let (found, passed_over) =
                        newest_verified(folder.path(), &"ab".repeat(32)).expect("the folder is readable");
                    assert!(found.is_none() && passed_over.len() == 1);
                    let is_read = passed_over.iter().any(|why| why.contains("safetensors"));
                    if is_read { Verdict::Whole } else { Verdict::Refused }
                };
                round(arguments, MANIFEST.as_bytes(), sealed, look)?;
            }
            _ => return Err(format!("give `all` or one of {}", FORMS.join(", ")).into()),
        }
    }
    Ok(())
}
