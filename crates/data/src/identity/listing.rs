//! The samples of a data set as columns, of which those that are not known are empty.

use std::collections::HashMap;
use std::fs;
use std::num::NonZero;
use std::path::Path;
use std::sync::Mutex;
use std::thread;

use serde::{Deserialize, Serialize};

use super::Reads;
use crate::Error;
use crate::files::remote::{AccessTime, Client};
use crate::formats::Encoded;
use crate::identity::preparation::Preparation;

/// Contents are hashed if all samples together have at most this many bytes: seconds from the page cache, and about a
/// minute from a disk, which the first epoch then need not read again.
const COMPARED: u64 = 4 << 30;
/// Names that must be read from the files are stored for up to this many samples.
const NAMED: usize = 1 << 17;
/// Samples that one thread takes at a time.
const TAKEN: usize = 64;

/// One row for each sample, in the order of the data.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SampleList {
    /// Its path; empty for forms that only number their samples.
    pub names: Vec<String>,
    /// Its size in bytes; empty where only its content is known.
    pub bytes: Vec<u64>,
    /// A hash of its content; empty where reading all of it would take long.
    pub contents: Vec<u64>,
    /// Its class, or a hash of its annotations.
    pub targets: Vec<u64>,
}

/// The first 64 bits of the BLAKE3 of some bytes: enough to notice a change, but no protection against an attacker.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    let mut first = [0; 8];
    first.copy_from_slice(&blake3::hash(bytes).as_bytes()[..8]);
    u64::from_le_bytes(first)
}

impl SampleList {
    /// Lists encoded images with their targets. `reads` says whether contents may be read.
    pub fn of_encoded(encoded: &Encoded, targets: Vec<u64>, reads: Reads<'_>) -> Result<SampleList, Error> {
        let names = match encoded.is_named() && (!encoded.names_are_read() || encoded.len() <= NAMED) {
            true => (0..encoded.len()).map(|sample| encoded.name(sample)).collect(),
            false => Vec::new(),
        };
        let bytes = in_parallel(encoded.len(), reads.preparation, |sample, _| encoded.bytes_of(sample))?;
        let contents = match encoded.hashes() {
            Some(hashes) => hashes,
            None if !reads.contents || encoded.reads().is_some() || encoded.all_bytes(&bytes) > COMPARED => Vec::new(),
            None => in_parallel(encoded.len(), reads.preparation, |sample, buffer| {
                encoded.file(sample, buffer, AccessTime::SOME_TIME).map(hash)
            })?,
        };
        Ok(SampleList { names, bytes, contents, targets })
    }

    /// Lists separate files, with the annotations of each.
    pub fn of_files<'a>(
        names: Vec<String>,
        targets: Vec<u64>,
        client: Option<&Client>,
        reads: Reads<'_>,
        path: impl Fn(usize) -> &'a Path + Sync,
    ) -> Result<SampleList, Error> {
        let refused = |sample: usize| {
            let name = names[sample].clone();
            move |source| Error::Read { name, source }
        };
        let bytes = in_parallel(names.len(), reads.preparation, |sample, _| {
            match client.and_then(|client| client.file(path(sample))) {
                Some((_, bytes)) => Ok(bytes),
                None => fs::metadata(path(sample)).map(|metadata| metadata.len()).map_err(refused(sample)),
            }
        })?;
        let all = bytes.iter().copied().fold(0, u64::saturating_add);
        let contents = match reads.contents && client.is_none() && all <= COMPARED {
            true => in_parallel(names.len(), reads.preparation, |sample, _| {
                fs::read(path(sample)).map(|bytes| hash(&bytes)).map_err(refused(sample))
            })?,
            false => Vec::new(),
        };
        Ok(SampleList { names, bytes, contents, targets })
    }

    /// Samples that are known by their content alone.
    pub fn of_contents(contents: Vec<u64>, targets: Vec<u64>) -> SampleList {
        SampleList { names: Vec::new(), bytes: Vec::new(), contents, targets }
    }

    /// Number of samples.
    pub fn len(&self) -> usize {
        self.targets.len()
    }

    /// Whether columns have equal lengths, or are empty.
    pub fn is_consistent(&self) -> bool {
        let lengths = [self.names.len(), self.bytes.len(), self.contents.len()];
        lengths.into_iter().all(|length| length == 0 || length == self.len())
    }

    /// Whether the first samples are those of an earlier list, as far as sizes and targets tell.
    pub fn begins_with(&self, earlier: &SampleList) -> bool {
        let begins = |all: &[u64], first: &[u64]| all.is_empty() || first.is_empty() || all.starts_with(first);
        let is_as_long = self.len() >= earlier.len();
        is_as_long && begins(&self.bytes, &earlier.bytes) && begins(&self.targets, &earlier.targets)
    }

    /// A key that identifies each sample: its name, else its content, else its position; with a counter for duplicates.
    pub fn keys(&self, by: Key) -> Vec<(u64, u32)> {
        let mut times: HashMap<u64, u32> = HashMap::with_capacity(self.len());
        let key = |sample: usize| match by {
            Key::Name => hash(self.names[sample].as_bytes()),
            Key::Content => self.contents[sample] ^ self.targets[sample].rotate_left(32),
            Key::Place => sample as u64,
        };
        let numbered = |key: u64| {
            let time = times.entry(key).or_default();
            *time += 1;
            (key, *time)
        };
        (0..self.len()).map(key).map(numbered).collect()
    }

    /// The name of a sample in messages.
    pub fn name(&self, sample: usize) -> String {
        self.names.get(sample).map_or_else(|| format!("sample {}", sample + 1), |name| format!("`{name}`"))
    }
}

/// By what samples of two listings are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Key {
    Name,
    Content,
    Place,
}

impl Key {
    /// The best one that both have.
    pub fn of_both(left: &SampleList, right: &SampleList) -> Key {
        let both = |column: fn(&SampleList) -> bool| column(left) && column(right);
        if both(|listing| !listing.names.is_empty()) {
            Key::Name
        } else if both(|listing| !listing.contents.is_empty()) {
            Key::Content
        } else {
            Key::Place
        }
    }
}

/// A figure of each sample, found by all cores; the error of the first sample that has one.
fn in_parallel(
    samples: usize,
    preparation: &Preparation,
    find: impl Fn(usize, &mut Vec<u8>) -> Result<u64, Error> + Sync,
) -> Result<Vec<u64>, Error> {
    let mut found: Vec<Result<u64, Error>> = (0..samples).map(|_| Ok(0)).collect();
    let work = Mutex::new(found.chunks_mut(TAKEN).zip((0..).step_by(TAKEN)));
    let work_through = || {
        let mut buffer = Vec::new();
        loop {
            let taken = work.lock().ok().and_then(|mut work| work.next());
            let Some((found, first)) = taken else { return };
            for (slot, sample) in found.iter_mut().zip(first..) {
                *slot = find(sample, &mut buffer);
            }
            preparation.advance(found.len());
        }
    };
    let threads = thread::available_parallelism().map_or(1, NonZero::get).min(samples.div_ceil(TAKEN));
    thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(work_through);
        }
        work_through();
    });
    found.into_iter().collect()
}
