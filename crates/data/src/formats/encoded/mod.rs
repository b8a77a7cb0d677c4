//! Encoded images: separate files, spans of larger files, rows of tables, samples of shards. Each is read by number,
//! with its name and metadata.

pub(super) mod loaded;
pub(super) mod spans;

use std::path::{Path, PathBuf};

use self::loaded::Loaded;
use self::spans::Spans;
use super::tables::parquet;
use crate::Error;
use crate::files::cache::CacheCounts;
use crate::files::handles::{Handles, LARGEST_FILE, Whole, check_length};
use crate::files::remote::{AccessTime, ByteRange, Client};
use crate::shard::{SampleCodec, Shards};

/// Image files that are read when they are needed.
#[derive(Debug)]
pub(crate) enum Encoded {
    /// Files under a folder, and the metadata of each from a list, if there is one.
    Files { root: PathBuf, paths: Vec<PathBuf>, notes: Vec<Box<[u8]>>, files: Whole },
    /// Spans of larger files.
    Spans(Spans),
    /// Rows of Parquet files.
    Rows(parquet::Rows),
    /// Samples of our own shards.
    Shards(Shards),
    /// Any of these, with their bytes in memory.
    Loaded(Loaded),
}

impl Encoded {
    /// Files under a folder, and the metadata of each, if any.
    pub(in crate::formats) fn files(root: &Path, paths: Vec<PathBuf>, notes: Vec<Box<[u8]>>) -> Encoded {
        Encoded::Files { root: root.to_owned(), paths, notes, files: Whole::below(root) }
    }

    /// Number of images.
    pub fn len(&self) -> usize {
        match self {
            Encoded::Files { paths, .. } => paths.len(),
            Encoded::Spans(spans) => spans.spans.len(),
            Encoded::Rows(rows) => rows.places.len(),
            Encoded::Shards(shards) => shards.places().len(),
            Encoded::Loaded(loaded) => loaded.from.len(),
        }
    }

    /// The name of an image in messages: its path below the root, or its position in a file.
    pub fn name(&self, sample: usize) -> String {
        match self {
            Encoded::Files { paths, .. } => paths[sample].display().to_string(),
            Encoded::Spans(spans) => spans.name(sample),
            Encoded::Rows(rows) => rows.name(sample),
            Encoded::Shards(shards) => shards.name(sample),
            Encoded::Loaded(loaded) => loaded.from.name(sample),
        }
    }

    /// Reads the file of one image into `bytes`.
    pub fn read(&self, sample: usize, bytes: &mut Vec<u8>) -> Result<(), Error> {
        self.read_due(sample, bytes, AccessTime::SOME_TIME)
    }

    /// The files that hold many images each; `None` if each image has its own.
    fn handles(&self) -> Option<&Handles> {
        match self {
            Encoded::Files { .. } => None,
            Encoded::Spans(spans) => Some(&spans.files),
            Encoded::Rows(rows) => Some(rows.files()),
            Encoded::Shards(shards) => Some(shards.files()),
            Encoded::Loaded(loaded) => loaded.from.handles(),
        }
    }

    /// The client of remote files; `None` if they are local.
    fn client(&self) -> Option<&Client> {
        match self {
            Encoded::Files { files, .. } => files.client(),
            Encoded::Loaded(loaded) => loaded.from.client(),
            Encoded::Spans(_) | Encoded::Rows(_) | Encoded::Shards(_) => self.handles()?.client(),
        }
    }

    /// Reads of remote files; `None` if they are local.
    pub fn reads(&self) -> Option<CacheCounts> {
        self.client().map(Client::counts)
    }

    /// Whether announcing future reads helps.
    pub fn is_remote(&self) -> bool {
        !matches!(self, Encoded::Loaded(_)) && self.client().is_some()
    }

    /// Announces which images will be read soon, and when.
    pub fn expect(&self, samples: impl Iterator<Item = (usize, AccessTime)>) {
        if let Encoded::Files { root, paths, files, .. } = self {
            let Some(client) = files.client() else { return };
            return client.expect(samples.filter_map(|(sample, when)| {
                let (file, bytes) = client.file(&root.join(&paths[sample]))?;
                Some((ByteRange { file, offset: 0, bytes: u32::try_from(bytes).ok()? }, when))
            }));
        }
        let Some(handles) = self.handles() else { return };
        handles.expect(samples.filter_map(|(sample, when)| {
            let (file, offset, bytes) = match self {
                // Where a row's bytes lie is known only when its page is read.
                Encoded::Files { .. } | Encoded::Rows(_) | Encoded::Loaded(_) => return None,
                Encoded::Spans(spans) => spans.place(sample),
                Encoded::Shards(shards) => {
                    let entry = shards.places()[sample];
                    (entry.shard, entry.offset, entry.length())
                }
            };
            Some((file, offset, bytes, when))
        }));
    }

    /// Bytes of the file of one image, if known without a system call.
    pub fn known_bytes(&self, sample: usize) -> Option<u64> {
        match self {
            Encoded::Files { root, paths, files, .. } => Some(files.client()?.file(&root.join(&paths[sample]))?.1),
            Encoded::Spans(spans) => Some(u64::from(spans.spans[sample].bytes)),
            Encoded::Rows(_) => None,
            Encoded::Shards(shards) => Some(u64::from(shards.places()[sample].bytes)),
            Encoded::Loaded(loaded) => loaded.from.known_bytes(sample),
        }
    }

    /// Whether each image has a name, rather than a number in a file.
    pub fn is_named(&self) -> bool {
        match self {
            Encoded::Files { .. } | Encoded::Shards(_) => true,
            Encoded::Spans(spans) => matches!(spans.names, self::spans::Names::Each { .. }),
            Encoded::Rows(_) => false,
            Encoded::Loaded(loaded) => loaded.from.is_named(),
        }
    }

    /// Whether names must be read from the files.
    pub fn names_are_read(&self) -> bool {
        match self {
            Encoded::Shards(_) => true,
            Encoded::Files { .. } | Encoded::Spans(_) | Encoded::Rows(_) => false,
            Encoded::Loaded(loaded) => loaded.from.names_are_read(),
        }
    }

    /// Bytes of the file of one image; for rows of a table, those of the file that they lie in.
    pub fn bytes_of(&self, sample: usize) -> Result<u64, Error> {
        let refused = |source| Error::Read { name: self.name(sample), source };
        match self {
            Encoded::Loaded(loaded) => loaded.from.bytes_of(sample),
            Encoded::Rows(rows) => {
                rows.files().file(rows.places[sample].0).and_then(|file| file.length()).map_err(refused)
            }
            Encoded::Files { root, paths, .. } if self.known_bytes(sample).is_none() => {
                std::fs::metadata(root.join(&paths[sample])).map(|metadata| metadata.len()).map_err(refused)
            }
            Encoded::Files { .. } | Encoded::Spans(_) | Encoded::Shards(_) => Ok(self.known_bytes(sample).unwrap_or(0)),
        }
    }

    /// Bytes that reading all images takes, where `bytes` are those of each.
    pub fn all_bytes(&self, bytes: &[u64]) -> u64 {
        match self {
            Encoded::Rows(rows) => {
                let mut files: Vec<(u32, u64)> =
                    rows.places.iter().map(|(file, _)| *file).zip(bytes.iter().copied()).collect();
                files.sort_unstable();
                files.dedup();
                files.into_iter().map(|(_, bytes)| bytes).fold(0, u64::saturating_add)
            }
            Encoded::Loaded(loaded) => loaded.from.all_bytes(bytes),
            Encoded::Files { .. } | Encoded::Spans(_) | Encoded::Shards(_) => {
                bytes.iter().copied().fold(0, u64::saturating_add)
            }
        }
    }

    /// A hash of each image, if the data stores hashes.
    pub fn hashes(&self) -> Option<Vec<u64>> {
        match self {
            Encoded::Shards(shards) => Some(shards.places().iter().map(|entry| entry.hash).collect()),
            Encoded::Loaded(loaded) => loaded.from.hashes(),
            Encoded::Files { .. } | Encoded::Spans(_) | Encoded::Rows(_) => None,
        }
    }

    /// Like [`Encoded::read`]; `when` is the time at which the sample is needed.
    pub fn read_due(&self, sample: usize, bytes: &mut Vec<u8>, when: AccessTime) -> Result<(), Error> {
        match self {
            Encoded::Files { root, paths, files, .. } => files
                .read(&root.join(&paths[sample]), LARGEST_FILE + 1, when, bytes)
                .map_err(|source| Error::Read { name: self.name(sample), source })?,
            Encoded::Spans(spans) => spans.read(sample, bytes, when)?,
            Encoded::Rows(rows) => rows.read(sample, bytes)?,
            Encoded::Shards(shards) => shards.read(sample, bytes, when)?,
            Encoded::Loaded(loaded) => return loaded.read(sample, bytes, when),
        }
        check_length(bytes.len()).map_err(|why| Error::Image { name: self.name(sample), why: why.into() })
    }

    /// The file of one image: its bytes in memory, or else read into `buffer`.
    pub fn file<'a>(&'a self, sample: usize, buffer: &'a mut Vec<u8>, when: AccessTime) -> Result<&'a [u8], Error> {
        if let Encoded::Loaded(loaded) = self
            && let Some(file) = loaded.file(sample)
        {
            return Ok(file);
        }
        self.read_due(sample, buffer, when)?;
        Ok(buffer)
    }

    /// How the bytes of one image are to be understood.
    pub fn codec(&self, sample: usize) -> SampleCodec {
        match self {
            Encoded::Files { .. } | Encoded::Spans(_) | Encoded::Rows(_) => SampleCodec::Original,
            Encoded::Shards(shards) => shards.places()[sample].codec,
            Encoded::Loaded(loaded) => loaded.from.codec(sample),
        }
    }

    /// The metadata of one image, as JSON; often empty.
    pub fn note(&self, sample: usize) -> Result<Vec<u8>, Error> {
        match self {
            Encoded::Files { notes, .. } => Ok(notes.get(sample).map(|note| note.to_vec()).unwrap_or_default()),
            Encoded::Spans(spans) => spans.note(sample),
            Encoded::Rows(_) => Ok(Vec::new()),
            Encoded::Shards(shards) => shards.note(sample),
            Encoded::Loaded(loaded) => loaded.from.note(sample),
        }
    }

    /// The metadata of all images; an empty list if none has any.
    pub fn notes(&self) -> Result<Vec<Box<[u8]>>, Error> {
        let any = match self {
            Encoded::Loaded(loaded) => return loaded.from.notes(),
            Encoded::Files { notes, .. } => !notes.is_empty(),
            Encoded::Spans(spans) => !spans.beside.is_empty(),
            Encoded::Rows(_) => false,
            Encoded::Shards(shards) => shards.places().iter().any(|entry| entry.note > 0),
        };
        if !any {
            return Ok(Vec::new());
        }
        (0..self.len()).map(|sample| Ok(self.note(sample)?.into())).collect()
    }

    /// Keeps the images for which `keep` holds.
    pub fn retain(&mut self, keep: &[bool]) {
        let mut flags = keep.iter();
        match self {
            Encoded::Loaded(loaded) => loaded.retain(keep),
            Encoded::Files { paths, notes, .. } => {
                paths.retain(|_| flags.next() == Some(&true));
                let mut flags = keep.iter();
                notes.retain(|_| flags.next() == Some(&true));
            }
            Encoded::Spans(spans) => spans.retain(keep),
            Encoded::Rows(rows) => rows.places.retain(|_| flags.next() == Some(&true)),
            Encoded::Shards(shards) => shards.retain(keep),
        }
    }
}
