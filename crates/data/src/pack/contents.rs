//! Decides what is packed in which order, from a listing of the data alone.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use super::{PackFormat, PackOptions};
use crate::formats::{self, ByFolders, Content, Encoded, Index, Reading};
use crate::sampling::order::permute;
use crate::sampling::random::{Purpose, key};
use crate::sampling::split;
use crate::shard::SampleCodec;
use crate::texts::documents::Documents;
use crate::{Error, Part};

/// A data set that was listed, and the order in which it is written.
pub(super) struct Contents {
    pub classes: Vec<String>,
    pub labels: Vec<u32>,
    pub matter: Matter,
    pub parts: Vec<List>,
    /// Names of image files that are skipped because their format is not supported.
    pub unread: Vec<String>,
    /// A hash of the listing and the options.
    pub fingerprint: String,
}

/// What is packed.
pub(super) enum Matter {
    Images(Content),
    Texts(Documents),
}

/// The samples of one part.
pub(super) struct List {
    pub part: Option<Part>,
    samples: Vec<u32>,
    key: u64,
}

impl List {
    /// Number of samples of the part.
    pub fn len(&self) -> u64 {
        self.samples.len() as u64
    }

    /// The sample at a position: the order is drawn once, over the complete part.
    pub fn at(&self, position: u64) -> u32 {
        self.samples[permute(position, self.len(), self.key) as usize]
    }
}

impl Contents {
    /// Lists the data and draws the order that it is written in.
    ///
    /// # Errors
    /// If the data cannot be listed, or cannot be packed as `options` ask.
    pub fn list(source: &Path, options: &PackOptions, out: &Path) -> Result<Contents, Error> {
        if let Some(text) = &options.text {
            let mut documents = Documents::read(source, text, out)?;
            let (classes, labels) = (std::mem::take(&mut documents.classes), std::mem::take(&mut documents.labels));
            return Contents::of(source, options, (classes, labels, None), Matter::Texts(documents));
        }
        let Index { classes, labels, homes, content, skipped, unread, .. } = list(source, options)?;
        if let Content::Decoded(decoded) = &content
            && (decoded.channels, decoded.full) != (3, 255)
        {
            let why = "images of one channel are not packed: they fit into memory as they are".to_owned();
            return Err(Error::Layout { path: source.into(), why, hint: "give the data itself to the job".into() });
        }
        if let (Content::Encoded(Encoded::Shards(shards)), PackFormat::Webdataset) = (&content, options.format)
            && let Some(entry) = shards.places().iter().find(|entry| entry.codec != SampleCodec::Original)
        {
            let why = format!("its shards hold {}, and tars hold image files", entry.codec.word());
            let hint = "pack the images that these shards were made of".into();
            return Err(Error::Layout { path: source.into(), why, hint });
        }
        if let (Some(first), false) = (skipped.first(), options.skip) {
            return Err(Error::Image { name: first.name.clone(), why: first.why.clone() });
        }
        let contents = Contents::of(source, options, (classes, labels, homes), Matter::Images(content))?;
        Ok(Contents { unread, ..contents })
    }

    fn of(
        source: &Path,
        options: &PackOptions,
        (classes, labels, homes): (Vec<String>, Vec<u32>, Option<Vec<Part>>),
        matter: Matter,
    ) -> Result<Contents, Error> {
        if u32::try_from(labels.len()).is_err() {
            let why = format!("it has {} samples, and at most {} are packed", labels.len(), u32::MAX);
            return Err(Error::Layout { path: source.into(), why, hint: "divide it".into() });
        }
        let list = |part: Option<Part>, samples| {
            let stream = part.map_or(3, |part| part as u64);
            List { part, samples, key: key(Purpose::Pack, options.seed, &[stream]) }
        };
        let of_parts = |parts: split::Parts| {
            let named = [Part::Train, Part::Validation, Part::Test].into_iter().zip(parts);
            named.filter(|(_, samples)| !samples.is_empty()).map(|(part, samples)| list(Some(part), samples)).collect()
        };
        let parts = match (options.split, &homes) {
            (Some(shares), _) => of_parts(split::by_shares(labels.len(), shares, options.seed)?),
            (None, Some(homes)) => {
                let mut parts = split::Parts::default();
                for (home, sample) in homes.iter().zip(0..) {
                    parts[*home as usize].push(sample);
                }
                of_parts(parts)
            }
            (None, None) => vec![list(None, (0..labels.len() as u32).collect())],
        };
        let fingerprint = fingerprint(source, options, &classes, &labels, &homes, &matter)?;
        Ok(Contents { classes, labels, matter, parts, unread: Vec::new(), fingerprint })
    }

    /// Whether any sample is packed coefficients already.
    pub fn has_coefficients(&self) -> bool {
        let Matter::Images(Content::Encoded(encoded)) = &self.matter else { return false };
        (0..encoded.len()).any(|place| encoded.codec(place) == SampleCodec::Coefficients)
    }

    /// Number of samples of all parts.
    pub fn samples(&self) -> usize {
        self.labels.len()
    }

    /// The samples that may be trained on: the training part, or all if there are no parts.
    pub fn trained_on(&self) -> impl Iterator<Item = u32> {
        let trained = self.parts.iter().filter(|list| matches!(list.part, Some(Part::Train) | None));
        trained.flat_map(|list| list.samples.iter().copied())
    }
}

/// Lists the data, with the parts that its folders name if any folder does: an existing split is preserved, or it is an
/// error.
fn list(source: &Path, options: &PackOptions) -> Result<Index, Error> {
    let listed = |by_folders| {
        formats::list(source, &Reading { by_folders, skip: options.skip, labels: domain::train::Labels::Class })
    };
    if options.split.is_some() {
        return listed(ByFolders::No);
    }
    listed(ByFolders::IfAny).map_err(|error| match error {
        // It is the parts that are wrong where it can be listed without them.
        Error::Layout { path, why, hint } if listed(ByFolders::No).is_ok() => {
            Error::Layout { path, why, hint: format!("{hint}, or give `--split`") }
        }
        error => error,
    })
}

/// A hash of all inputs of a pack: names, sizes and times of the files, classes, and the options.
fn fingerprint(
    source: &Path,
    options: &PackOptions,
    classes: &[String],
    labels: &[u32],
    homes: &Option<Vec<Part>>,
    matter: &Matter,
) -> Result<String, Error> {
    let mut hash = blake3::Hasher::new();
    let PackOptions { shard_bytes, seed, split, codec, shrink, format, text, skip: _, threads: _ } = options;
    // Samples are skipped one by one, so a pack that ended at a damaged one continues when they may be; `false` is where
    // earlier versions named that option.
    hash.update(
        format!("1 {shard_bytes} {seed} {split:?} {codec:?} {shrink:?} {format:?} false {classes:?}").as_bytes(),
    );
    if let Some(text) = text {
        hash.update(text.vocabulary.identity()?.as_bytes());
    }
    for label in labels {
        hash.update(&label.to_le_bytes());
    }
    for home in homes.iter().flatten() {
        hash.update(&[*home as u8]);
    }
    match matter {
        Matter::Images(content) => hash_images(&mut hash, source, content)?,
        Matter::Texts(documents) => {
            hash.update(documents.identity().as_bytes());
        }
    }
    Ok(hash.finalize().to_hex().to_string())
}

/// Adds the files that the images are in, and where in them they lie.
fn hash_images(hash: &mut blake3::Hasher, source: &Path, content: &Content) -> Result<(), Error> {
    match content {
        Content::Encoded(Encoded::Files { root, paths, notes, .. }) => {
            for path in paths {
                // An unreadable file is reported later, by name, when it is packed.
                let _ = hash_file(hash, source, &root.join(path));
            }
            for noted in notes {
                hash.update(&(noted.len() as u64).to_le_bytes()).update(noted);
            }
        }
        Content::Encoded(Encoded::Spans(spans)) => {
            hash_files(hash, source, spans.files.paths())?;
            for span in &spans.spans {
                hash.update(&span.offset.to_le_bytes())
                    .update(&span.bytes.to_le_bytes())
                    .update(&span.file.to_le_bytes());
            }
        }
        Content::Encoded(Encoded::Rows(rows)) => hash_files(hash, source, rows.files().paths())?,
        Content::Encoded(Encoded::Shards(shards)) => hash_files(hash, source, shards.files().paths())?,
        // A pack reads from disk.
        Content::Encoded(Encoded::Loaded(_)) => {}
        Content::Decoded(decoded) => {
            hash.update(&decoded.pixels);
        }
    }
    Ok(())
}

fn hash_files(hash: &mut blake3::Hasher, source: &Path, paths: &[PathBuf]) -> Result<(), Error> {
    paths.iter().try_for_each(|path| hash_file(hash, source, path))
}

/// Adds the name, size and time of a file.
fn hash_file(hash: &mut blake3::Hasher, source: &Path, path: &Path) -> Result<(), Error> {
    let metadata = fs::metadata(path).map_err(|source| Error::Read { name: path.display().to_string(), source })?;
    let since = metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let nanoseconds = since.map_or(0, |since| since.as_nanos());
    hash.update(path.strip_prefix(source).unwrap_or(path).to_string_lossy().as_bytes());
    hash.update(&metadata.len().to_le_bytes()).update(&nanoseconds.to_le_bytes());
    Ok(())
}
