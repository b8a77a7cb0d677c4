//! Files of pretrained weights, looked at before anything is rented: whether they are what their names say. The trainer
//! reads them; here only the first bytes are.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use domain::Job;
use domain::problem::Problem;
use domain::train::{ModelSource, Module};

use super::job_file::JobSource;
use crate::error::Error;

/// Refuses a job whose weights or module do not exist or are none, before anything is rented for it.
///
/// # Errors
/// [`Error::Job`].
pub fn require_files(job: &Job, source: &JobSource) -> Result<(), Error> {
    let domain::Work::Train(train) = &job.work else { return Ok(()) };
    let module = match &train.model {
        ModelSource::Module(Module::Torchscript(path)) => Some(("train.model", path)),
        _ => None,
    };
    let wrong = |key: &str, message: String, hint: &str| Err(source.wrong(Problem::at(key, message).hint(hint)));
    let relative = "correct the path, which is relative to the job file";
    if let Some((key, path)) = module.filter(|(_, path)| !path.contains("://") && !Path::new(path).is_file()) {
        return wrong(key, format!("there is no file `{path}`"), relative);
    }
    let Some(path) = train.weights.as_ref().filter(|path| !path.contains("://")) else { return Ok(()) };
    match look(Path::new(path)) {
        Found::Nothing => wrong("train.weights", format!("there is no file `{path}`"), relative),
        Found::Other => wrong(
            "train.weights",
            format!("`{path}` is no file of weights"),
            "name a `.safetensors`, `.pth`, `.pt` or `.bin` file, or a folder of `save_pretrained`",
        ),
        Found::Damaged(why) => {
            wrong("train.weights", format!("`{path}` is damaged: {why}"), "get the file again, or save it again")
        }
        Found::Weights => Ok(()),
    }
}

/// What is at the path of `weights:`.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    /// A file or folder of weights, as far as its beginning shows.
    Weights,
    /// Nothing.
    Nothing,
    /// Something of another kind.
    Other,
    /// A file of weights that cannot be read, and why.
    Damaged(String),
}

/// Endings of the files of `torch.save`.
const PICKLED: [&str; 4] = ["pth", "pt", "bin", "ckpt"];

/// Looks at what the path holds.
pub fn look(path: &Path) -> Found {
    if path.is_dir() {
        let files = ["model.safetensors", "model.safetensors.index.json"];
        return if files.iter().any(|file| path.join(file).is_file()) { Found::Weights } else { Found::Other };
    }
    if !path.is_file() {
        return Found::Nothing;
    }
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    if ending != "safetensors" && !PICKLED.contains(&ending) {
        return Found::Other;
    }
    match beginning(path) {
        Ok((first, length)) if ending == "safetensors" => safetensors(first, length),
        // A zip archive, or the pickle of older versions.
        Ok((first, _)) if first.starts_with(b"PK\x03\x04") || first[0] == 0x80 => Found::Weights,
        Ok(_) => Found::Damaged("it does not begin as a file of `torch.save`".to_owned()),
        Err(error) => Found::Damaged(error.to_string()),
    }
}

/// The first nine bytes, and the length; a shorter file ends with zeros.
fn beginning(path: &Path) -> io::Result<([u8; 9], u64)> {
    let file = File::open(path)?;
    let length = file.metadata()?.len();
    let mut bytes = Vec::new();
    file.take(9).read_to_end(&mut bytes)?;
    bytes.resize(9, 0);
    Ok((bytes.try_into().unwrap_or_default(), length))
}

/// A header of JSON after its length, which fits into the file.
fn safetensors(first: [u8; 9], length: u64) -> Found {
    let [size @ .., bracket] = first;
    let size = u64::from_le_bytes(size);
    if bracket != b'{' {
        return Found::Damaged("it does not begin as a `.safetensors` file".to_owned());
    }
    if size.saturating_add(8) > length {
        return Found::Damaged(format!("its header says that it has {size} bytes, and the file has {length}"));
    }
    Found::Weights
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_told_from_other_files() {
        let folder = tempfile::tempdir().unwrap();
        let check = |name: &str, bytes: &[u8], expected: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            let found = format!("{:?}", look(&path));
            assert!(found.starts_with(expected), "{name}: {found}");
        };
        check("a.safetensors", b"\x02\0\0\0\0\0\0\0{}", "Weights");
        check("b.safetensors", b"\x09\0\0\0\0\0\0\0{}", "Damaged");
        check("c.safetensors", b"version https://git-lfs.github.com/spec/v1", "Damaged");
        check("d.safetensors", b"", "Damaged");
        check("e.pth", b"PK\x03\x04....", "Weights");
        check("f.pt", b"<html>", "Damaged");
        check("g.csv.gz", b"1,2", "Other");
        assert_eq!(look(&folder.path().join("none.pth")), Found::Nothing);
        assert_eq!(look(folder.path()), Found::Other);
        std::fs::write(folder.path().join("model.safetensors"), "").unwrap();
        assert_eq!(look(folder.path()), Found::Weights);
    }
}
