//! Where samples come from: each form of data is read into the same [`Index`].
//!
//! Pictures that are files (a folder, members of tars, records and rows of tables) stay encoded and are read one at a
//! time by position; forms that hold plain pixels (CIFAR-10, the CSV) are read whole. Read on in `labels`, which turns
//! paths into classes, and in `spans`, which is what most forms come down to.

mod archive;
mod arrow;
mod cifar;
mod columns;
mod encoded;
mod example;
pub(crate) mod handles;
mod labels;
mod listed;
mod loaded;
mod pages;
mod parquet;
mod spans;
mod table;
mod tfrecord;
mod tree;
mod webdataset;

use std::path::{Path, PathBuf};

use domain::train::{Corrupt, Data, Folders, Split, Text};

use self::columns::Want;
pub(crate) use self::encoded::{Encoded, LARGEST_FILE, check_length};
pub(crate) use self::handles::Whole;
use self::labels::{Named, numbered};
pub(crate) use self::loaded::Loaded;
pub use self::loaded::preloading;
use self::tree::Form;
use crate::dataset::Skipped;
use crate::elsewhere::When;
use crate::manifest::Manifest;
use crate::shard::{Codec, Shards};
use crate::texts::Record;
use crate::{Error, Part};

/// All samples of a data set, in the order of their names.
#[derive(Debug)]
pub(crate) struct Index {
    /// Names of the classes, in label order.
    pub classes: Vec<String>,
    /// One label a sample.
    pub labels: Vec<u32>,
    /// The part that the layout of the data names for each sample; `None` when the split is drawn.
    pub homes: Option<Vec<Part>>,
    /// The pictures.
    pub content: Content,
    /// Samples that were left out.
    pub skipped: Vec<Skipped>,
    /// Pictures in place of which a later one of the same name counts.
    pub replaced: Vec<String>,
}

/// Pictures, as they were found.
#[derive(Debug)]
pub(crate) enum Content {
    /// JPEG and PNG files.
    Encoded(Encoded),
    /// Plain pixels.
    Decoded(Decoded),
}

/// The part that the name of a file or folder tells.
pub(crate) type Home = Option<Part>;

/// How a data set is read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reading {
    pub by_folders: ByFolders,
    /// Whether what is damaged is left out and counted.
    pub skip: bool,
}

/// Whether the parts are those that folders or files are named after.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ByFolders {
    No,
    Yes,
    /// If any sample names one, and then all must.
    IfAny,
}

impl ByFolders {
    /// Whether samples with these parts need one each.
    fn asks(self, mut homes: impl Iterator<Item = Home>) -> bool {
        match self {
            ByFolders::No => false,
            ByFolders::Yes => true,
            ByFolders::IfAny => homes.any(|home| home.is_some()),
        }
    }
}

/// Pictures as plain pixels: sample by sample, then channel by channel, then row by row.
#[derive(Debug)]
pub(crate) struct Decoded {
    pub channels: usize,
    pub height: usize,
    pub width: usize,
    /// The largest value a pixel can have, which stands for 1.
    pub full: u8,
    pub pixels: Vec<u8>,
}

/// Finds out what lies at `path`, and lists its samples.
pub(crate) fn index(spec: &Data, path: &Path) -> Result<Index, Error> {
    let by_folders = match spec.split {
        Split::Folders(Folders::Folders) => ByFolders::Yes,
        Split::Shares(_) => ByFolders::No,
    };
    let skip = match spec.corrupt {
        Corrupt::Fail => false,
        Corrupt::Skip => true,
    };
    let index = list(path, &Reading { by_folders, skip })?;
    if matches!(&index.content, Content::Encoded(encoded) if encoded.len() > 0 && encoded.codec(0) == Codec::Tokens) {
        let why = "it holds text as tokens, and this model takes pictures";
        return Err(layout(path, why, "give a data set of pictures, or train a model of text"));
    }
    match u32::try_from(index.labels.len()) {
        Ok(_) => Ok(index),
        Err(_) => {
            let why = format!("it has {} pictures, and at most {} are served", index.labels.len(), u32::MAX);
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
        if let Some(manifest) = Manifest::read(path)? {
            return shards(path, manifest, reading);
        }
        if let Some(folder) = cifar::find(path)? {
            return cifar::index(&folder, reading.by_folders, reading.skip);
        }
        if let Some(index) = listed::folder(path, reading)? {
            return Ok(index);
        }
        let tree = tree::walk(path).map_err(|error| match error {
            Error::Layout { .. } => of_boxes(path).unwrap_or(error),
            other => other,
        })?;
        if tree.pictures.is_empty()
            && let Some((form, files)) = tree.tables()?
        {
            return tables(path, form, files, reading);
        }
        let labels = labels::from_paths(path, &tree.pictures, &[], reading.by_folders)?;
        return Ok(labels.into_index(Encoded::files(path, tree.pictures, Vec::new())));
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    if name.ends_with(".csv") || name.ends_with(".csv.gz") {
        return table::index(path, reading.by_folders, reading.skip);
    }
    if name.ends_with(".json") {
        return listed::coco(path, reading);
    }
    if let Some(form) = Form::of(path).filter(|form| form.is_meant(path)) {
        return tables(path, form, vec![path.to_owned()], reading);
    }
    Err(unknown(path, &name))
}

/// What is said of boxes in the form of YOLO programs, which cannot be read as pictures of classes.
fn of_boxes(path: &Path) -> Option<Error> {
    let is_one = path.join("images").is_dir() && path.join("labels").is_dir();
    let why = "its folders `images` and `labels` mark objects with boxes, as YOLO programs do, and tell no class of a picture";
    let hint = "train a model that finds objects on it, measure it with `gradus data bench --as objects`, or give the folder \
                `images` alone";
    is_one.then(|| layout(path, why, hint))
}

/// The samples of our own shards, in the order of the data that was packed.
fn shards(folder: &Path, manifest: Manifest, reading: &Reading) -> Result<Index, Error> {
    let shards = Shards::open(folder, &manifest)?;
    if shards.places().is_empty() {
        return Err(layout(folder, "its shards hold no samples", "pack the data again"));
    }
    let labels: Vec<u32> = shards.places().iter().map(|place| place.label).collect();
    let places: Vec<Home> = shards.places().iter().map(|place| manifest.shards[place.shard as usize].part).collect();
    // Text may have no classes; then all is of one without a name.
    let classes = if manifest.classes.is_empty() { vec![String::new()] } else { manifest.classes };
    let homes = homes_of(folder, &places, &classes, &labels, reading)?;
    let content = Content::Encoded(Encoded::Shards(shards));
    Ok(Index { classes, labels, homes, content, skipped: Vec::new(), replaced: Vec::new() })
}

/// The texts in the rows of a Parquet or Arrow file, with their classes if they are asked for.
pub(crate) fn texts_of_tables(file: &Path, keys: &Text) -> Result<Vec<Record>, Error> {
    let word = |named: Named| match named {
        Named::Number(number) => number.to_string(),
        Named::Word(word) => word,
    };
    let [column] = &keys.columns[..] else {
        let why = "the text of a table stands in one column";
        return Err(layout(file, why, "name one column with `--columns`"));
    };
    let want = Want::Texts { column, label: keys.label.as_deref() };
    let (texts, named, names) = match Form::of(file) {
        Some(Form::Parquet) => {
            let parquet::Texts { texts, named, names } = parquet::texts(file, want)?;
            (texts, named, names)
        }
        Some(Form::Arrow | Form::Tar | Form::TfRecord) | None => {
            let arrow::Listing { spans, named, names } = arrow::list(vec![file.to_owned()], want)?;
            let mut texts = Vec::with_capacity(spans.spans.len());
            for sample in 0..spans.spans.len() {
                let mut bytes = Vec::new();
                spans.read(sample, &mut bytes, When::ONCE)?;
                let wrong = |_| Error::Picture { name: spans.name(sample), why: "it is not UTF-8".into() };
                texts.push(String::from_utf8(bytes).map_err(wrong)?);
            }
            (texts, named, names)
        }
    };
    let named_class = |class: Named| match (&class, &names) {
        (Named::Number(number), Some(names)) => {
            usize::try_from(*number).ok().and_then(|place| names.get(place).cloned()).unwrap_or_else(|| word(class))
        }
        _ => word(class),
    };
    let class = |named: Option<Named>| named.filter(|_| keys.label.is_some()).map(named_class);
    Ok(texts.into_iter().zip(named).map(|(text, named)| Record { text, class: class(named) }).collect())
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
        None => Err(layout(path, "its files are not all tars, TFRecords, Parquet or Arrow files", hint)),
    }
}

/// The samples of files that hold many each.
fn tables(root: &Path, form: Form, files: Vec<PathBuf>, reading: &Reading) -> Result<Index, Error> {
    let homes: Vec<Home> = files.iter().map(|file| tree::home_of(file.strip_prefix(root).unwrap_or(file))).collect();
    let listed = match form {
        Form::Tar => return webdataset::index(root, files, &homes, reading),
        Form::TfRecord => return tfrecord::index(root, files, &homes, reading),
        Form::Parquet => {
            let parquet::Listing { rows, named, names } = parquet::list(files, Want::Pictures)?;
            let places = rows.places.iter().map(|(file, _)| homes[*file as usize]).collect();
            (Encoded::Rows(rows), named, names, places)
        }
        Form::Arrow => {
            let arrow::Listing { spans, named, names } = arrow::list(files, Want::Pictures)?;
            let places = spans.spans.iter().map(|span| homes[span.file as usize]).collect();
            (Encoded::Spans(spans), named, names, places)
        }
    };
    rows(root, listed, reading)
}

/// Rows of a table: its pictures, their classes, what those are called, and the parts that the files tell.
type Listed = (Encoded, Vec<Option<Named>>, Option<Vec<String>>, Vec<Home>);

fn rows(root: &Path, (mut content, named, names, mut places): Listed, reading: &Reading) -> Result<Index, Error> {
    let keep: Vec<bool> = named.iter().map(Option::is_some).collect();
    if !keep.contains(&true) {
        let why = "none of its columns holds classes";
        return Err(layout(root, why, "name the column of classes `label`"));
    }
    let mut skipped = Vec::new();
    for (sample, _) in keep.iter().enumerate().filter(|(_, keep)| !**keep) {
        let (name, why) = (content.name(sample), "it has no class".to_owned());
        if !reading.skip {
            return Err(Error::Picture { name, why });
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
    Ok(Index { classes, labels, homes, content: Content::Encoded(content), skipped, replaced: Vec::new() })
}

/// The parts that the names of files tell, if they are asked for; every sample must have one then.
fn homes_of(
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
        return Err(layout(root, why, "rename them, or leave out `split: folders` to have the split drawn"));
    };
    labels::check_homes(root, classes, labels, &homes)?;
    Ok(Some(homes))
}

/// What to do with a column that holds no classes.
const AS_CLASSES: &str = "write the classes as whole numbers or words, in pandas with `.astype(int)` or `.astype(str)`";

fn unknown(path: &Path, name: &str) -> Error {
    let packed = [".tar.gz", ".tgz", ".tar.zst", ".tar.xz", ".tar.bz2", ".zip"].iter().any(|end| name.ends_with(end));
    let hint = match packed {
        true => "unpack it, and give the folder or the plain `.tar`; pictures are compressed already",
        false => {
            "give a folder or `.tar` of `…/<class>/<file>.jpg|png`, WebDataset tars, a `.tfrecord`, `.parquet` or `.arrow` \
             file, a COCO `.json`, a CIFAR-10 binary folder, a `.csv` or a `.csv.gz`"
        }
    };
    layout(path, "its form is not known", hint)
}

/// The same for data whose classes do not matter: pictures may also lie in no class folder.
pub(crate) fn unlabelled(spec: &Data, path: &Path) -> Result<Index, Error> {
    match index(spec, path) {
        Err(error @ Error::Layout { .. }) if path.is_dir() => {
            let pictures = tree::walk(path)?.pictures;
            if pictures.is_empty() {
                return Err(error);
            }
            Ok(labels::none(pictures.len()).into_index(Encoded::files(path, pictures, Vec::new())))
        }
        found => found,
    }
}

fn layout(path: &Path, why: impl Into<String>, hint: impl Into<String>) -> Error {
    Error::Layout { path: path.to_owned(), why: why.into(), hint: hint.into() }
}
