//! `data pack`: converts a data set of any format to shards, shuffled once, with an index and hashes.
//!
//! The contents of each shard are decided before the first byte is read: the samples of a part in an order drawn by the
//! seed, divided where a shard is full. So the bytes do not depend on the number of threads, a second run finds nothing
//! to do, and a killed run resumes after the last synced shard. Read on in `flow` (many threads, one order), `contents`
//! (what is in which shard), `journal` (progress) and `encode` (conversion of a sample).

mod contents;
mod encode;
mod flow;
pub(crate) mod inspect;
mod journal;
mod tars;

use flow::in_order;
pub(crate) use tars::CLASSES;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use self::contents::Contents;
use self::encode::{Encoder, Prepared};
use self::journal::{Done, Journal};
use self::tars::TarWriter;
use crate::shard::manifest::{PackSettings, ShardFile, ShardManifest, SkippedSample};
use crate::shard::{Sample, SampleCodec, Writer};
use crate::texts::tokens::TOKENIZER;
use crate::texts::vocabulary::TextOptions;
use crate::{Error, Part};

/// How a data set is packed.
#[derive(Debug, Clone, PartialEq)]
pub struct PackOptions {
    /// Bytes of samples after which a shard is full.
    pub shard_bytes: u64,
    /// Seed of the order and of a drawn split.
    pub seed: u64,
    /// Shares of training, validation and test; without, the parts are those that the data names, or none.
    pub split: Option<[f64; 3]>,
    /// What becomes of an image.
    pub codec: SampleCodec,
    /// The short side that larger images are shrunk to.
    pub shrink: Option<u32>,
    /// Output format.
    pub format: PackFormat,
    /// Whether damaged samples are skipped and counted.
    pub skip: bool,
    /// How text is packed, if the data is text.
    pub text: Option<TextOptions>,
    /// Threads that read and encode.
    pub threads: usize,
}

/// Output format of a pack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PackFormat {
    /// Our shards.
    Shards,
    /// Tars in the form of WebDataset.
    Webdataset,
}

impl Default for PackOptions {
    fn default() -> PackOptions {
        PackOptions {
            shard_bytes: 64 << 20,
            seed: 0,
            split: None,
            codec: SampleCodec::Original,
            shrink: None,
            format: PackFormat::Shards,
            skip: false,
            text: None,
            threads: 1,
        }
    }
}

impl PackOptions {
    /// Whether samples may become others than they were.
    fn converts(&self) -> bool {
        self.codec != SampleCodec::Original || self.shrink.is_some() || self.text.is_some()
    }
}

/// How far packing has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PackProgress {
    /// Samples that are written or skipped.
    pub done: u64,
    /// Samples of the data.
    pub samples: u64,
    /// Bytes of samples that were written by this call.
    pub bytes: u64,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq)]
pub struct PackSummary {
    /// Contents of the folder.
    pub manifest: ShardManifest,
    /// Whether all of it was there already.
    pub nothing_to_do: bool,
    /// Shards that an earlier call had finished.
    pub resumed: usize,
    /// Names of image files that are skipped because their format is not supported.
    pub unread: Vec<String>,
}

/// Packs the data at `source` into the folder `out`, which is made if it is not there.
///
/// # Errors
/// [`Error`] if the data cannot be read, the folder holds something else, or the disk refuses.
pub fn pack(
    source: &Path,
    out: &Path,
    options: &PackOptions,
    progress: &mut dyn FnMut(PackProgress),
) -> Result<PackSummary, Error> {
    let mut contents = Contents::list(source, options, out)?;
    let unread = std::mem::take(&mut contents.unread);
    fs::create_dir_all(out).map_err(refusing(out))?;
    let (journal, done) = Journal::open(out, &contents.fingerprint)?;
    let manifest = match options.format {
        PackFormat::Shards => ShardManifest::read(out)?,
        PackFormat::Webdataset => done.manifest.clone(),
    };
    let manifest = manifest.filter(|manifest| is_complete(out, manifest));
    let skipped = manifest.as_ref().map_or(&done.skipped, |manifest| &manifest.skipped);
    if let (Some(first), false) = (skipped.first(), options.skip) {
        return Err(Error::Image { name: first.name.clone(), why: first.why.clone() });
    }
    if let Some(manifest) = manifest {
        return Ok(PackSummary { manifest, nothing_to_do: true, resumed: done.shards.len(), unread });
    }
    let resumed = done.shards.len();
    let encoder = Encoder::new(&contents, options, out)?;
    let tokens = encoder.tokens();
    let state = PackProgress { samples: contents.samples() as u64, ..PackProgress::default() };
    let (contents, encoder) = (&contents, &encoder);
    let mut packing = Packing { out, contents, encoder, options, journal, done, progress, state };
    packing.run()?;
    let Done { shards, skipped, .. } = packing.done;
    let recipe = PackSettings {
        codec: if tokens.is_some() { SampleCodec::Tokens } else { options.codec },
        shrink: options.shrink,
        seed: options.seed,
        split: options.split,
        shard_bytes: options.shard_bytes,
        tokens,
    };
    let coefficients = options.codec == SampleCodec::Coefficients || contents.has_coefficients();
    let manifest = ShardManifest::new(contents.classes.clone(), recipe, coefficients, shards, skipped);
    if manifest.samples == 0 {
        let why = "not one sample of it can be read";
        return Err(Error::Layout {
            path: source.into(),
            why: why.into(),
            hint: "look at it with `gradus data inspect`".into(),
        });
    }
    match options.format {
        PackFormat::Shards => manifest.write(out),
        PackFormat::Webdataset => tars::finish(out, &contents.classes).and_then(|()| packing.journal.finish(&manifest)),
    }
    .map_err(refusing(out))?;
    Ok(PackSummary { manifest, nothing_to_do: false, resumed, unread })
}

/// Whether every shard exists with the expected length.
fn is_complete(out: &Path, manifest: &ShardManifest) -> bool {
    let there = |shard: &ShardFile| fs::metadata(out.join(&shard.file)).is_ok_and(|file| file.len() == shard.bytes);
    manifest.shards.iter().all(there) && (manifest.recipe.tokens.is_none() || out.join(TOKENIZER).is_file())
}

struct Packing<'a> {
    out: &'a Path,
    contents: &'a Contents,
    encoder: &'a Encoder<'a>,
    options: &'a PackOptions,
    journal: Journal,
    done: Done,
    progress: &'a mut dyn FnMut(PackProgress),
    state: PackProgress,
}

/// The shard that is being filled.
struct Filling {
    file: String,
    output: Output,
    /// Bytes of its samples before they were converted.
    source: u64,
    /// Bytes that its samples would take if none were larger than its file.
    plain: u64,
    /// Samples skipped since the last shard.
    skipped: Vec<SkippedSample>,
}

enum Output {
    Shard(Writer),
    Tar(TarWriter),
}

impl Packing<'_> {
    fn run(&mut self) -> Result<(), Error> {
        for number in 0..self.contents.parts.len() {
            let done = self.done.position(self.contents.parts[number].part);
            self.state.done += done;
            self.part(number, done)?;
        }
        Ok(())
    }

    /// Writes the samples of one part, from a position on.
    fn part(&mut self, number: usize, from: u64) -> Result<(), Error> {
        let (contents, encoder) = (self.contents, self.encoder);
        let list = &contents.parts[number];
        let work = |position: u64| encoder.encode(list.at(position));
        let weigh = |result: &Result<Prepared, Error>| result.as_ref().map_or(0, Prepared::weight);
        let mut filling: Option<Filling> = None;
        let mut skipped = Vec::new();
        in_order(from..list.len(), self.options.threads, work, weigh, |position, result| {
            let prepared = match result {
                Ok(found) => found,
                Err(Error::Image { name, why }) if self.options.skip => {
                    skipped.push(SkippedSample { name, why });
                    return self.report(0);
                }
                Err(error) => return Err(error),
            };
            let full = filling.as_ref().is_some_and(|filling| {
                filling.output.bytes() + prepared.sample.bytes.len() as u64 > self.options.shard_bytes
                    && filling.output.count() > 0
            });
            if full && let Some(mut filled) = filling.take() {
                filled.skipped = std::mem::take(&mut skipped);
                self.close(filled, list.part, position)?;
            }
            let mut open = match filling.take() {
                Some(open) => open,
                None => self.open(list.part)?,
            };
            open.source += prepared.source;
            let (sample, length) = prepared.settled(open.output.bytes(), open.plain);
            open.plain += length;
            open.output.append(&sample).map_err(refusing(self.out))?;
            filling = Some(open);
            self.report(sample.bytes.len() as u64)
        })?;
        match filling {
            Some(mut filled) => {
                filled.skipped = skipped;
                self.close(filled, list.part, list.len())
            }
            None if skipped.is_empty() => Ok(()),
            None => {
                self.done.skipped.extend(skipped.iter().cloned());
                self.journal.passed(list.part, list.len(), &skipped).map_err(refusing(self.out))
            }
        }
    }

    fn open(&self, part: Option<Part>) -> Result<Filling, Error> {
        let number = self.done.shards.iter().filter(|shard| shard.part == part).count();
        let prefix = part.map_or("data", Part::word);
        let file = match self.options.format {
            PackFormat::Shards => format!("{prefix}-{number:06}.shard"),
            PackFormat::Webdataset => format!("{prefix}-{number:06}.tar"),
        };
        let path = self.temporary(&file);
        let output = match self.options.format {
            PackFormat::Shards => Writer::create(&path, part.map_or(3, |part| part as u32)).map(Output::Shard),
            PackFormat::Webdataset => TarWriter::create(&path).map(Output::Tar),
        };
        Ok(Filling { file, output: output.map_err(refusing(&path))?, source: 0, plain: 0, skipped: Vec::new() })
    }

    /// Syncs a shard, moves it into place, and records that everything before `position` is done.
    fn close(&mut self, filling: Filling, part: Option<Part>, position: u64) -> Result<(), Error> {
        let Filling { file, output, source, skipped, .. } = filling;
        let count = output.count();
        let path = self.out.join(&file);
        let finished = match output {
            Output::Shard(writer) => writer.finish(),
            Output::Tar(writer) => writer.finish(),
        };
        let (bytes, hash) = finished.map_err(refusing(&path))?;
        let placed = fs::rename(self.temporary(&file), &path).and_then(|()| fs::File::open(self.out)?.sync_all());
        placed.map_err(refusing(&path))?;
        let source_bytes = self.options.converts().then_some(source);
        let shard = ShardFile { file, part, count, bytes, source_bytes, blake3: hash.to_hex().to_string() };
        self.journal.shard(&shard, position, &skipped).map_err(refusing(self.out))?;
        self.done.shards.push(shard);
        self.done.skipped.extend(skipped);
        Ok(())
    }

    fn temporary(&self, file: &str) -> PathBuf {
        self.out.join(format!("{file}.tmp"))
    }

    fn report(&mut self, bytes: u64) -> Result<(), Error> {
        self.state.done += 1;
        self.state.bytes += bytes;
        (self.progress)(self.state);
        Ok(())
    }
}

impl Output {
    fn append(&mut self, sample: &Sample) -> io::Result<()> {
        match self {
            Output::Shard(writer) => writer.append(sample),
            Output::Tar(writer) => writer.append(sample),
        }
    }

    fn bytes(&self) -> u64 {
        match self {
            Output::Shard(writer) => writer.bytes(),
            Output::Tar(writer) => writer.bytes(),
        }
    }

    fn count(&self) -> u64 {
        match self {
            Output::Shard(writer) => writer.count(),
            Output::Tar(writer) => writer.count(),
        }
    }
}

/// Adds the name of a file that is being written to an I/O error.
fn refusing(path: &Path) -> impl Fn(io::Error) -> Error {
    let name = path.display().to_string();
    move |source| Error::Write { name: name.clone(), source }
}
