//! Complete data sets, from files to batches.

mod batches;
mod changed;
mod forms;
mod hostile;
mod hostile_shards;
mod mixing;
mod mutate;
mod packs;
mod preload;
mod refusals;
mod sources;
mod tokens;
mod written;

use std::fs;
use std::io::Cursor as Bytes;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use domain::train::{Corrupt, Data, Normalize, Split};
use image::{ImageFormat, RgbImage};

use crate::{Dataset, Error};

/// A job's `data` section with defaults.
pub(crate) fn spec() -> Data {
    Data {
        path: String::new(),
        split: Split::default(),
        classes: None,
        labels: domain::train::Labels::Class,
        text: None,
        sampling: domain::train::Sampling::Shuffle,
        augment: Vec::new(),
        normalize: None,
        size: None,
        corrupt: Corrupt::Fail,
        workers: 1,
        cache: None,
        preload: None,
        trained_on: None,
    }
}

/// An image that identifies its number: every pixel depends on it.
fn image(number: usize, size: u32) -> RgbImage {
    RgbImage::from_fn(size, size, |x, y| [number as u8, (number as u32 * 7 + x * 20) as u8, (y * 31) as u8].into())
}

fn encoded(image: &RgbImage, format: ImageFormat) -> Vec<u8> {
    let mut bytes = Bytes::new(Vec::new());
    image.write_to(&mut bytes, format).unwrap();
    bytes.into_inner()
}

/// Files by path, to be written as a folder or as a tar.
#[derive(Clone, Default)]
pub(crate) struct Files(Vec<(String, Vec<u8>)>);

impl Files {
    /// So many 6×6 images for each class, `<above>/<class>/<number>.png`; every third one is a JPEG.
    pub(crate) fn of(above: &[&str], classes: &[&str], each: usize) -> Files {
        let mut files = Files::default();
        for above in above {
            for class in classes {
                for _ in 0..each {
                    let number = files.0.len();
                    let (format, ending) =
                        if number % 3 == 2 { (ImageFormat::Jpeg, "jpeg") } else { (ImageFormat::Png, "png") };
                    let name = format!("{above}{class}/{number:03}.{ending}");
                    files.0.push((name, encoded(&image(number, 6), format)));
                }
            }
        }
        files
    }

    fn with(mut self, path: &str, bytes: impl Into<Vec<u8>>) -> Files {
        self.0.push((path.into(), bytes.into()));
        self
    }

    pub(crate) fn folder(&self, root: &Path) -> PathBuf {
        let root = root.join("folder");
        for (path, bytes) in &self.0 {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }
        root
    }

    /// In the opposite order, with the folders that tools write before their files.
    fn tar(&self, root: &Path) -> PathBuf {
        let path = root.join("images.tar");
        let mut tar = tar::Builder::new(fs::File::create(&path).unwrap());
        for (name, bytes) in self.0.iter().rev() {
            let mut folder = tar::Header::new_gnu();
            folder.set_entry_type(tar::EntryType::Directory);
            folder.set_size(0);
            tar.append_data(&mut folder, Path::new(name).parent().unwrap().join("x.png"), &[][..]).unwrap();
            let mut header = tar::Header::new_gnu();
            header.set_size(bytes.len() as u64);
            tar.append_data(&mut header, name, &bytes[..]).unwrap();
        }
        tar.finish().unwrap();
        path
    }
}

fn scratch() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

/// A tar of sixty images, opened: 42 to train on, normalized with this mean and deviation; held in memory, or read each
/// time.
fn sixty(files: &Files, [mean, std]: [f32; 2], in_memory: bool) -> (tempfile::TempDir, Arc<Dataset>) {
    let root = scratch();
    let spec = Data { normalize: Some(Normalize { mean: vec![mean; 3], std: vec![std; 3] }), ..spec() };
    let limit = if in_memory { usize::MAX } else { 0 };
    let dataset = Dataset::open_keeping(&spec, &files.tar(root.path()), 3, limit).unwrap();
    assert_eq!(dataset.counts(), [42, 12, 6]);
    (root, Arc::new(dataset))
}

/// The data must not open; the message must contain `message`, and the hint `hint`.
#[track_caller]
fn refused(spec: &Data, path: &Path, message: &str, hint: &str) {
    let error = Dataset::open(spec, path, 0).expect_err("it opened");
    complains(&error, message, hint);
}

#[track_caller]
fn complains(error: &Error, part: &str, hinted: &str) {
    let message = error.to_string();
    assert!(message.contains(part), "`{part}` is not in: {message}");
    assert!(message.chars().next().is_some_and(|first| !first.is_uppercase()) && !message.ends_with('.'), "{message}");
    let hint = error.hint().unwrap_or_default();
    assert!(hint.contains(hinted), "`{hinted}` is not in the hint: {hint}");
    assert_eq!(error.finding().message, message);
}
