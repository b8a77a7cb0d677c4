//! Detects the format of the data at a path, and lists its samples.

use std::path::{Path, PathBuf};

use domain::train::{Corrupt, Data, Folders, Labels, Split};
use plugin::{TableClasses, Want};

use super::archives::tfrecord;
use super::archives::webdataset::{self, ArchiveKind};
use super::class_names::{Named, numbered};
use super::encoded::Encoded;
use super::index::{ByFolders, Content, Home, Index, Reading, Skipped};
use super::labels::{self, homes_of};
use super::listed;
use super::pixels::{cifar, idx, npz, table};
use super::tables::{arrow, parquet};
use super::targets;
use super::tree::{self, Form};
use crate::Error;
use crate::error::layout;
use crate::shard::manifest::ShardManifest;
use crate::shard::{SampleCodec, Shards};

/// Detects the format of the data at `path`, and lists its samples.
pub(crate) fn index(spec: &Data, path: &Path) -> Result<Index, Error> {
    let by_folders = match spec.split {
        Split::Folders(Folders::Folders) => ByFolders::Yes,
        Split::Shares(_) => ByFolders::No,
    };
    let skip = match spec.corrupt {
        Corrupt::Fail => false,
        Corrupt::Skip => true,
    };
    let index = list(path, &Reading { by_folders, skip, labels: spec.labels })?;
    if matches!(&index.content, Content::Encoded(encoded) if encoded.len() > 0 && encoded.codec(0) == SampleCodec::Tokens)
    {
        let why = "it holds text as tokens, and this model takes images";
        return Err(layout(path, why, "give a data set of images, or train a model of text"));
    }
    match u32::try_from(index.labels.len()) {
        Ok(_) => Ok(index),
        Err(_) => {
            let why = format!("it has {} images, and at most {} are served", index.labels.len(), u32::MAX);
            Err(layout(path, why, "divide it"))
        }
    }
}

/// The same, without a job.
pub(crate) fn list(path: &Path, reading: &Reading) -> Result<Index, Error> {
    let metadata = match std::fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return match path.to_str().filter(|text| text.contains('{')) {
                Some(pattern) => matching(path, pattern, reading),
                None => Err(Error::Missing { path: path.to_owned() }),
            };
        }
        Err(source) => return Err(Error::Read { name: path.display().to_string(), source }),
    };
    if metadata.is_dir() {
        if let Some(manifest) = ShardManifest::read(path)? {
            return shards(path, manifest, reading);
        }
        if let Some(binary) = cifar::find(path)? {
            return cifar::index(&binary, reading.by_folders, reading.skip);
        }
        if let Some(pairs) = idx::find(path)? {
            return idx::index(path, &pairs, reading.by_folders);
        }
        if let Some(index) = listed::folder(path, reading)? {
            return Ok(index);
        }
        let tree = tree::walk(path).map_err(|error| match error {
            Error::Layout { .. } => of_boxes(path).unwrap_or(error),
            other => other,
        })?;
        if tree.images.is_empty()
            && let Some((form, files)) = tree.tables()?
        {
            return tables(path, form, files, reading);
        }
        let labels = labels::from_paths(path, &tree.images, &[], reading.by_folders)?;
        let index = labels.into_index(Encoded::files(path, tree.images, Vec::new()));
        return Ok(Index { unread: tree.unread, ..index });
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    if name.ends_with(".csv")
        && let Some(index) = listed::csv(path, reading)?
    {
        return Ok(index);
    }
    if name.ends_with(".csv") || name.ends_with(".csv.gz") {
        return table::index(path, reading.by_folders, reading.skip);
    }
    if name.ends_with(".json") {
        return listed::coco(path, reading);
    }
    if name.ends_with(".npz") {
        return npz::index(path, reading);
    }
    if let Some(form) = Form::of(path).filter(|form| form.is_meant(path)) {
        return tables(path, form, vec![path.to_owned()], reading);
    }
    Err(unknown(path, &name))
}

/// The error for YOLO data with boxes, which cannot be read as images with classes.
fn of_boxes(path: &Path) -> Option<Error> {
    let is_one = path.join("images").is_dir() && path.join("labels").is_dir();
    let why = "its folders `images` and `labels` are YOLO annotations with boxes, which give an image no class";
    let hint = "train a model that finds objects on it, measure it with `gradus data bench --as objects`, or give the folder \
                `images` alone";
    is_one.then(|| layout(path, why, hint))
}

/// The samples of our own shards, in the order of the data that was packed.
fn shards(folder: &Path, manifest: ShardManifest, reading: &Reading) -> Result<Index, Error> {
    let shards = Shards::open(folder, &manifest)?;
    if shards.places().is_empty() {
        return Err(layout(folder, "its shards hold no samples", "pack the data again"));
    }
    let labels: Vec<u32> = shards.places().iter().map(|entry| entry.label).collect();
    let places: Vec<Home> = shards.places().iter().map(|entry| manifest.shards[entry.shard as usize].part).collect();
    // Text may have no classes; then all is of one without a name.
    let classes = if manifest.classes.is_empty() { vec![String::new()] } else { manifest.classes };
    let homes = homes_of(folder, &places, &classes, &labels, reading)?;
    let content = Content::Encoded(Encoded::Shards(shards));
    Ok(Index::whole(classes, labels, homes, content))
}

/// The files that a pattern with braces names.
fn matching(path: &Path, pattern: &str, reading: &Reading) -> Result<Index, Error> {
    let hint = "write for example `shards/train-{000..146}.tar`";
    let files = webdataset::expand(pattern).map_err(|why| layout(path, why, hint))?;
    let files: Vec<PathBuf> = files.into_iter().map(PathBuf::from).collect();
    if let Some(missing) = files.iter().find(|file| !file.is_file()) {
        return Err(Error::Missing { path: missing.clone() });
    }
    let form = files.first().and_then(|first| Form::of(first));
    match form.filter(|form| files.iter().all(|file| Form::of(file) == Some(*form))) {
        Some(form) => tables(path, form, files, reading),
        None => Err(layout(path, "its files are not all tars, zips, TFRecords, Parquet or Arrow files", hint)),
    }
}

/// The samples of files that hold many each.
fn tables(root: &Path, form: Form, files: Vec<PathBuf>, reading: &Reading) -> Result<Index, Error> {
    let homes: Vec<Home> = files.iter().map(|file| tree::home_of(file.strip_prefix(root).unwrap_or(file))).collect();
    let listed = match form {
        Form::Tar => return webdataset::index(ArchiveKind::Tar, root, files, &homes, reading),
        Form::Zip => return webdataset::index(ArchiveKind::Zip, root, files, &homes, reading),
        Form::TfRecord => return tfrecord::index(root, files, &homes, reading),
        Form::Parquet => {
            let (rows, TableClasses { named, names }) = parquet::list(files, Want::Images)?;
            let places = rows.places.iter().map(|(file, _)| homes[*file as usize]).collect();
            (Encoded::Rows(rows), named, names, places)
        }
        Form::Arrow => {
            let arrow::Listing { spans, named, names } = arrow::list(files, Want::Images)?;
            let places = spans.spans.iter().map(|span| homes[span.file as usize]).collect();
            (Encoded::Spans(spans), named, names, places)
        }
    };
    rows(root, listed, reading)
}

/// Rows of a table: images, their classes, the names of these, and the parts that the file names imply.
type Listed = (Encoded, Vec<Option<Named>>, Option<Vec<String>>, Vec<Home>);

fn rows(
    root: &Path,
    (mut content, mut named, mut names, mut places): Listed,
    reading: &Reading,
) -> Result<Index, Error> {
    if named.iter().all(Option::is_none) {
        let why = "none of its columns holds classes";
        return Err(layout(root, why, "name the column of classes `label`"));
    }
    if reading.labels == Labels::MultiLabel && named.contains(&None) {
        // Nothing is a label of nothing, where there may be any number.
        let none = targets::joined([]);
        names.iter_mut().for_each(|names| names.push(none.clone()));
        named.iter_mut().filter(|named| named.is_none()).for_each(|named| *named = Some(Named::Word(none.clone())));
    }
    let keep: Vec<bool> = named.iter().map(Option::is_some).collect();
    let mut skipped = Vec::new();
    for (sample, _) in keep.iter().enumerate().filter(|(_, keep)| !**keep) {
        let (name, why) = (content.name(sample), "it has no class".to_owned());
        if !reading.skip {
            return Err(Error::Image { name, why });
        }
        skipped.push(Skipped { name, why });
    }
    if !skipped.is_empty() {
        content.retain(&keep);
        let mut flags = keep.iter();
        places.retain(|_| flags.next() == Some(&true));
    }
    let (classes, labels) = numbered(named.into_iter().flatten().collect(), names);
    let homes = homes_of(root, &places, &classes, &labels, reading)?;
    Ok(Index { skipped, ..Index::whole(classes, labels, homes, Content::Encoded(content)) })
}

/// The error for a file of an unsupported format, with a hint if its name shows what it is.
fn unknown(path: &Path, name: &str) -> Error {
    let shown = path.display();
    let folder = path.with_file_name(name.split('.').next().unwrap_or_default());
    let folder = folder.display();
    let ends = |endings: &[&str]| endings.iter().any(|ending| name.ends_with(ending));
    if ends(&[".tar.xz", ".tar.bz2"]) {
        let why = "it is a tar of a compression that is not read; `.tar.gz` and `.tar.zst` are";
        return layout(path, why, format!("unpack it: `mkdir {folder} && tar -xf {shown} -C {folder}`"));
    }
    if ends(&[".7z", ".rar"]) {
        let why = "it is an archive of a kind that is not read; `.zip` and `.tar` are";
        return layout(path, why, format!("unpack it into `{folder}`"));
    }
    if ends(&[".npy", ".mat", ".h5", ".hdf5", ".pkl", ".pt", ".pth"]) {
        let hint = "write its images and labels as `numpy.savez_compressed(\"data.npz\", x_train=images, y_train=labels)`, or as files \
                    with `PIL.Image.fromarray(pixels).save(f\"{label}/{number}.png\")`";
        return layout(path, "it holds arrays or objects of other programs, and no image files", hint);
    }
    if ends(&["-ubyte", "-ubyte.gz"]) {
        return layout(path, "it is one of the idx files of a data set", "give the folder with all of them");
    }
    let hint = "give a folder, `.tar`, `.tar.gz` or `.zip` of `…/<class>/<file>.jpg|png`, WebDataset tars, a `.npz`, a `.tfrecord`, `.parquet`, `.arrow` or \
                `.feather` file, a COCO `.json`, a folder of CIFAR's binary files or of MNIST's idx files, a `.csv` that \
                lists images, or a `.csv` or `.csv.gz` of pixels";
    layout(path, "its form is not known", hint)
}

/// Like [`index`] for data whose classes are not used: images need not be in class folders.
pub(crate) fn unlabelled(spec: &Data, path: &Path) -> Result<Index, Error> {
    match index(spec, path) {
        Err(error @ Error::Layout { .. }) if path.is_dir() => {
            let images = tree::walk(path)?.images;
            if images.is_empty() {
                return Err(error);
            }
            Ok(labels::none(images.len()).into_index(Encoded::files(path, images, Vec::new())))
        }
        found => found,
    }
}
