//! From paths to classes: the class of an image is the name of its folder.
//!
//! Only paths are used, so a folder and a tar of the same folder are the same data set, sample for sample.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::encoded::Encoded;
use super::index::{ByFolders, Content, Home, Index, Reading};
use crate::error::{layout, shorten};
use crate::{Error, Part};

/// Classes and parts of a list of images.
pub(super) struct Labels {
    classes: Vec<String>,
    labels: Vec<u32>,
    homes: Option<Vec<Part>>,
}

const TREE: &str = "lay the images out as `…/<class>/<file>.jpg|png`";

impl Labels {
    /// The index of encoded images with these labels.
    pub fn into_index(self, encoded: Encoded) -> Index {
        let Labels { classes, labels, homes } = self;
        let content = Content::Encoded(encoded);
        Index::whole(classes, labels, homes, content)
    }

    /// Classes, labels, and the split that the layout names for each sample if it names any.
    pub fn into_lists(self) -> (Vec<String>, Vec<u32>, Option<Vec<Part>>) {
        (self.classes, self.labels, self.homes)
    }
}

/// Labels for images of a single class without a name.
pub(super) fn none(images: usize) -> Labels {
    Labels { classes: vec![String::new()], labels: vec![0; images], homes: None }
}

/// Extensions of supported image files.
pub const EXTENSIONS: [&str; 8] = ["jpg", "jpeg", "png", "webp", "bmp", "gif", "tif", "tiff"];

/// Extensions of unsupported image files, which are counted and skipped.
const UNREAD: [&str; 20] = [
    "avif", "heic", "heif", "jxl", "jp2", "j2k", "jfif", "ico", "tga", "ppm", "pgm", "pbm", "pnm", "psd", "svg", "exr",
    "hdr", "dds", "qoi", "dng",
];

/// Whether a file's extension is that of an unsupported image format.
pub(super) fn is_unread(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    UNREAD.iter().any(|known| extension.eq_ignore_ascii_case(known))
}

/// Whether a file's extension is that of a supported image format.
pub(crate) fn is_image(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    EXTENSIONS.iter().any(|known| extension.eq_ignore_ascii_case(known))
}

/// Whether a file or folder of this name is passed over, as `.DS_Store` is.
pub(super) fn is_hidden(name: &str) -> bool {
    name.starts_with('.') || name == "__MACOSX"
}

/// The classes of `paths`, which are relative to `root` and sorted.
///
/// `known` are the parts that are known already, by the file that holds the image; a folder's name comes first.
pub(super) fn from_paths(
    root: &Path,
    paths: &[PathBuf],
    known: &[Home],
    by_folders: ByFolders,
) -> Result<Labels, Error> {
    if paths.is_empty() {
        let why = format!("no file in it ends in `.{}`", EXTENSIONS.join("`, `."));
        return Err(layout(root, why, TREE));
    }
    let by_folders = {
        let of_folders = |path: &PathBuf| {
            let folders = path.parent().and_then(Path::parent).into_iter().flatten();
            folders.into_iter().find_map(|folder| home(&folder.to_string_lossy()))
        };
        by_folders.asks(known.iter().copied().chain(paths.iter().map(of_folders)))
    };
    let mut names = Vec::with_capacity(paths.len());
    let mut homes = Vec::with_capacity(paths.len());
    for (index, path) in paths.iter().enumerate() {
        let folders: Vec<String> =
            path.parent().into_iter().flatten().map(|part| part.to_string_lossy().into_owned()).collect();
        let Some((class, above)) = folders.split_last() else {
            return Err(layout(root, format!("`{}` is not in a class folder", path.display()), TREE));
        };
        if by_folders {
            let known = known.get(index).copied().flatten();
            homes.push(above.iter().find_map(|folder| home(folder)).or(known).ok_or_else(|| {
                let why = format!("`{}` is in none of the folders `train`, `val` and `test`", path.display());
                layout(root, why, "move it into one of them, or split at random: leave out `split: folders` in the job")
            })?);
        }
        names.push(class.clone());
    }
    let mut classes: BTreeMap<String, u32> = names.iter().map(|name| (name.clone(), 0)).collect();
    for (label, number) in classes.values_mut().zip(0..) {
        *label = number;
    }
    let labels: Vec<u32> = names.iter().map(|name| classes[name]).collect();
    let classes: Vec<String> = classes.into_keys().collect();
    if by_folders {
        check_homes(root, &classes, &labels, &homes)?;
    }
    Ok(Labels { classes, labels, homes: by_folders.then_some(homes) })
}

/// The part that a folder's name implies.
pub(super) fn home(folder: &str) -> Option<Part> {
    match folder.to_lowercase().as_str() {
        "train" => Some(Part::Train),
        "val" | "valid" | "validation" => Some(Part::Validation),
        "test" => Some(Part::Test),
        _ => None,
    }
}

/// A class without training samples would be counted as wrong in every evaluation.
fn check_homes(root: &Path, classes: &[String], labels: &[u32], homes: &[Part]) -> Result<(), Error> {
    // A class of the list may have no samples at all, which is fine.
    let (mut trained, mut met) = (vec![false; classes.len()], vec![false; classes.len()]);
    for (&label, home) in labels.iter().zip(homes) {
        met[label as usize] = true;
        trained[label as usize] |= *home == Part::Train;
    }
    if !trained.contains(&true) {
        return Err(layout(root, "there is no `train` folder", "name it so, or leave out `split: folders`"));
    }
    let missing = classes.iter().zip(trained.iter().zip(&met)).filter(|(_, (trained, met))| **met && !**trained);
    let missing: Vec<String> = missing.map(|(class, _)| class.clone()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let why = format!("the folder `train` has no images of {}", shorten(&missing));
    Err(layout(root, why, "give every class images to train on, or remove it from the other folders"))
}

/// The parts that file names imply, if the job uses them; every sample must have one then.
pub(super) fn homes_of(
    root: &Path,
    places: &[Home],
    classes: &[String],
    labels: &[u32],
    reading: &Reading,
) -> Result<Option<Vec<Part>>, Error> {
    if !reading.by_folders.asks(places.iter().copied()) {
        return Ok(None);
    }
    let Some(homes) = places.iter().copied().collect::<Option<Vec<Part>>>() else {
        let why = "not every file of it is named after `train`, `val` or `test`";
        return Err(layout(root, why, "rename them, or split at random: leave out `split: folders` in the job"));
    };
    // Of numbers, and of several labels, the texts of the other parts need not be among those of training.
    if reading.labels == domain::train::Labels::Class {
        check_homes(root, classes, labels, &homes)?;
    }
    Ok(Some(homes))
}
