//! The idx files of MNIST and similar data sets: images as raw pixels in one file, their classes in another.
//!
//! The format is described at <https://yann.lecun.org/exdb/mnist/>: two zero bytes, the type (8: unsigned bytes), the
//! number of dimensions, their lengths as big-endian 32-bit numbers, and the values. The files are read completely,
//! also from gzip.

use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;

use crate::error::layout;
use crate::files::plain_file;
use crate::formats::class_names::{Named, numbered};
use crate::formats::index::{ByFolders, Content, Decoded, Index};
use crate::{Error, Part};

/// No file unpacks to more: a few compressed bytes may claim to hold very many.
const LARGEST: u64 = 4 << 30;
/// Folders in which torchvision keeps the files.
const BELOW: [&str; 4] = ["raw", "MNIST/raw", "FashionMNIST/raw", "KMNIST/raw"];

/// Files of images, each with that of its classes and the part that it is.
type Pairs = Vec<(PathBuf, PathBuf, Part)>;

/// The pairs of files in a folder, if there are any.
pub(in crate::formats) fn find(folder: &Path) -> Result<Option<Pairs>, Error> {
    for folder in std::iter::once(folder.to_owned()).chain(BELOW.map(|below| folder.join(below))) {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        let mut names: Vec<String> =
            entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        let mut pairs = Pairs::new();
        for name in names.iter().filter(|name| name.contains("images") && name.contains("idx3-ubyte")) {
            // Both are there after torchvision has unpacked one.
            if name.strip_suffix(".gz").is_some_and(|plain| names.iter().any(|other| other == plain)) {
                continue;
            }
            let labels = name.replace("images", "labels").replace("idx3", "idx1");
            let labels = [labels.as_str(), labels.trim_end_matches(".gz")]
                .into_iter()
                .find(|labels| names.iter().any(|name| name == labels));
            let labels = labels.ok_or_else(|| {
                layout(&folder, format!("it holds no file of the classes of `{name}`"), "get the files again")
            })?;
            let part = if name.contains("train") { Part::Train } else { Part::Test };
            pairs.push((folder.join(name), folder.join(labels), part));
        }
        if [Part::Train, Part::Test].iter().any(|part| pairs.iter().filter(|pair| pair.2 == *part).count() > 1) {
            let why = "it holds idx files of several data sets";
            return Err(layout(&folder, why, "give a folder with the four files of one of them"));
        }
        if !pairs.is_empty() {
            return Ok(Some(pairs));
        }
    }
    Ok(None)
}

/// All images of some files.
pub(in crate::formats) fn index(root: &Path, pairs: &Pairs, by_folders: ByFolders) -> Result<Index, Error> {
    let (mut named, mut homes, mut pixels) = (Vec::new(), Vec::new(), Vec::new());
    let mut sides = None;
    for (images, labels, part) in pairs {
        let (lengths, values) = read(images, 3)?;
        let (_, classes) = read(labels, 1)?;
        let [count, height, width] = [lengths[0], lengths[1], lengths[2]];
        if classes.len() != count {
            let why = format!("it holds {count} images, and `{}` {} classes", labels.display(), classes.len());
            return Err(layout(images, why, "get the files again"));
        }
        if *sides.get_or_insert((height, width)) != (height, width) {
            return Err(layout(
                images,
                "its images have another size than those of the other file",
                "get the files again",
            ));
        }
        named.extend(classes.iter().map(|class| Named::Number(i64::from(*class))));
        homes.extend(std::iter::repeat_n(*part, count));
        pixels.extend_from_slice(&values);
    }
    let (height, width) = sides.filter(|(height, width)| height * width > 0 && !named.is_empty()).unwrap_or_default();
    if height * width == 0 {
        return Err(layout(root, "its idx files hold no image", "get the files again"));
    }
    let by_folders = by_folders != ByFolders::No;
    if by_folders && !homes.contains(&Part::Train) {
        return Err(layout(root, "there is no `train-images-idx3-ubyte`", "get the files again"));
    }
    let (classes, labels) = numbered(named, None);
    let content = Content::Decoded(Decoded { channels: 1, height, width, full: 255, pixels });
    Ok(Index::whole(classes, labels, by_folders.then_some(homes), content))
}

/// The lengths of the dimensions, and the values.
fn read(path: &Path, dimensions: usize) -> Result<(Vec<usize>, Vec<u8>), Error> {
    let damaged = |why: String| {
        layout(path, format!("the idx file is damaged: {why}"), "get the file again, or check it with `gzip -t`")
    };
    let plain = plain_file::open(path).map_err(|source| Error::Read { name: path.display().to_string(), source })?;
    let plain = BufReader::new(plain);
    let mut reader: Box<dyn Read> = match path.extension().is_some_and(|ending| ending == "gz") {
        true => Box::new(MultiGzDecoder::new(plain)),
        false => Box::new(plain),
    };
    let mut head = vec![0; 4 + 4 * dimensions];
    reader.read_exact(&mut head).map_err(|error| damaged(error.to_string()))?;
    if head[..4] != [0, 0, 8, dimensions as u8] {
        return Err(damaged(format!("it begins with {:?}, not with [0, 0, 8, {dimensions}]", &head[..4])));
    }
    let lengths =
        head[4..].chunks_exact(4).map(|bytes| bytes.iter().fold(0_u64, |all, byte| all << 8 | u64::from(*byte)));
    let lengths: Vec<u64> = lengths.collect();
    let claimed = lengths.iter().try_fold(1_u64, |all, length| all.checked_mul(*length)).filter(|all| *all <= LARGEST);
    let claimed = claimed.ok_or_else(|| damaged(format!("it claims to hold {lengths:?} values")))?;
    let mut values = Vec::new();
    reader.take(claimed + 1).read_to_end(&mut values).map_err(|error| damaged(error.to_string()))?;
    match values.len() as u64 == claimed {
        true => Ok((lengths.into_iter().map(|length| length as usize).collect(), values)),
        false => Err(damaged(format!("it claims to hold {claimed} values, and has {} or more", values.len()))),
    }
}
