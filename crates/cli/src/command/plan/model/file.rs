//! Reads a model file: regular files only, and only as many bytes as its format needs.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use plan::model::read::onnx::beside;

use crate::error::Error;

/// Protocol Buffers hold no more, so no ONNX file does; larger models keep their weights in external files.
const LARGEST_ONNX: u64 = 2 << 30;
/// No `config.json` is longer.
const LARGEST_CONFIG: u64 = 16 << 20;
/// No header of a safetensors file is longer.
const LARGEST_HEADER: u64 = 64 << 20;
/// Bytes that distinguish the formats.
const START: usize = 16;

/// Reads what matters of a file of a network: all of an ONNX file or a `config.json`, and the header of a safetensors
/// file, whose weights may be hundreds of gigabytes.
///
/// # Errors
/// [`Error::File`] for what cannot be read, [`Error::Usage`] for what is no plain file or is too long for its format.
pub fn bytes(path: &Path) -> Result<Vec<u8>, Error> {
    let metadata = std::fs::metadata(path).map_err(Error::file("read the model", path))?;
    let shown = path.display();
    if metadata.is_dir() {
        return Err(Error::Usage {
            message: format!("cannot read the model `{shown}`: it is a folder"),
            hint: format!("use the file in it, such as `{shown}/config.json`"),
        });
    }
    if !metadata.is_file() {
        return Err(Error::Usage {
            message: format!("cannot read the model `{shown}`: not a regular file"),
            hint: "use a `config.json`, an ONNX or a safetensors file".to_owned(),
        });
    }
    let mut file = File::open(path).map_err(Error::file("read the model", path))?;
    let mut read = |bytes: &mut Vec<u8>, most: u64| {
        (&mut file).take(most).read_to_end(bytes).map_err(Error::file("read the model", path))
    };
    let mut bytes = Vec::new();
    read(&mut bytes, START as u64)?;
    let (kind, most) = format(&bytes);
    if metadata.len() > most && kind != "safetensors" {
        return Err(Error::Usage {
            message: format!(
                "cannot read the model `{shown}`: {} MB exceed the limit of {kind} files",
                metadata.len() >> 20
            ),
            hint: "use its `config.json`, or an ONNX file with external weights".to_owned(),
        });
    }
    read(&mut bytes, most)?;
    if kind == "ONNX" {
        bring(path, &mut bytes);
    }
    Ok(bytes)
}

/// Adds the few external values of an ONNX file that matter for its shapes. One that cannot be read is skipped, and
/// listed as unknown.
fn bring(path: &Path, bytes: &mut Vec<u8>) {
    for wanted in beside::wanted(bytes) {
        let from = path.with_file_name(&wanted.file);
        let mut values = Vec::new();
        let length = wanted.length;
        // A link could lead anywhere.
        let there = std::fs::symlink_metadata(&from).is_ok_and(|metadata| metadata.is_file());
        let Some(mut file) = there.then(|| File::open(&from).ok()).flatten() else { continue };
        let read = file.seek(SeekFrom::Start(wanted.offset)).and_then(|_| file.take(length).read_to_end(&mut values));
        if read.is_ok_and(|read| read as u64 == length) {
            beside::bring(bytes, &wanted.weight, &values);
        }
    }
}

/// The format of a file according to its first bytes, and how many bytes of it are needed.
fn format(start: &[u8]) -> (&'static str, u64) {
    match start.first_chunk::<8>().map(|length| u64::from_le_bytes(*length)) {
        Some(length) if length <= u64::from(u32::MAX) && start.get(8) == Some(&b'{') => {
            ("safetensors", 8 + length.min(LARGEST_HEADER))
        }
        Some(_) | None => match start.iter().find(|byte| !byte.is_ascii_whitespace()) {
            Some(b'{') | None => ("`config.json`", LARGEST_CONFIG),
            Some(_) => ("ONNX", LARGEST_ONNX),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_known_by_their_first_bytes() {
        assert_eq!(format(b"{\"model_type\": 1}").0, "`config.json`");
        assert_eq!(format(b"\n  {\"a\": 1}    ").0, "`config.json`");
        assert_eq!(format(b"\x08\x07\x12\x07pytorch...").0, "ONNX");
        assert_eq!(format(b"\x40\0\0\0\0\0\0\0{\"a\": 1"), ("safetensors", 72));
        assert_eq!(format(b"").0, "`config.json`");
    }

    #[test]
    fn other_than_regular_files_and_too_long_ones_are_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let said = |path: &Path| match bytes(path) {
            Err(Error::Usage { message, .. }) => message,
            other => panic!("{other:?}"),
        };
        assert!(said(folder.path()).contains("is a folder"));
        assert!(said(Path::new("/dev/zero")).contains("not a regular file"));
        let long = folder.path().join("long.json");
        std::fs::write(&long, b"{").expect("written");
        let file = File::options().write(true).open(&long).expect("opened");
        file.set_len(20 << 30).expect("a file with a hole");
        assert!(said(&long).contains("exceed the limit of `config.json`"));
        let weights = folder.path().join("long.safetensors");
        std::fs::write(&weights, b"\x02\0\0\0\0\0\0\0{}").expect("written");
        let file = File::options().write(true).open(&weights).expect("opened");
        file.set_len(20 << 30).expect("a file with a hole");
        assert_eq!(bytes(&weights).expect("its header").len(), 16 + 10);
    }
}
