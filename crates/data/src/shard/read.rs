//! Reads shards: the indexes when the data is opened, a sample by position when it is needed.
//!
//! Each sample that is read is compared with the first 64 bits of its BLAKE3, which is in shards of every version, so a
//! bit flip on disk is an error that names the shard and never a wrong pixel. Of one that was compared before, in an
//! earlier epoch, the CRC32C is enough, which takes less than a tenth of the time.
//!
//! Every value of a shard is checked against the length in its manifest and against the neighbouring values, so a
//! damaged or hostile shard is an error that names it, and later code can rely on these values.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use super::manifest::ShardManifest;
use super::{FOOT, FOOT_MAGIC, HASH, HEAD, HEAD_MAGIC, RECORD, Record, SampleCodec, VERSION, long, short};
use crate::Error;
use crate::files::handles::{Handles, LARGEST_FILE, Opened};
use crate::files::remote::AccessTime;

/// A longer name is not read.
const LONGEST_NAME: u64 = 1 << 16;
/// No index has more bytes of names for each of its samples: no path in a tar is longer.
const MOST_NAMES: u64 = 1 << 20;

/// All samples of a folder of shards, in the order of their ids.
#[derive(Debug)]
pub(crate) struct Shards {
    files: Handles,
    /// Where the names of each shard lie.
    names: Vec<Names>,
    places: Vec<Place>,
    /// The CRC32C of the bytes of each sample that were found to have its hash; 0 before that.
    verified: Vec<AtomicU32>,
}

/// One sample.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub id: u64,
    pub offset: u64,
    pub bytes: u32,
    pub note: u32,
    pub label: u32,
    pub shard: u32,
    /// Its number in the shard.
    pub slot: u32,
    pub codec: SampleCodec,
    /// The first 64 bits of the BLAKE3 of its bytes and note, as the index has them.
    pub hash: u64,
}

impl Place {
    /// Its bytes and its note's, which are read and checked together.
    pub fn length(&self) -> u32 {
        self.bytes + self.note
    }
}

#[derive(Debug, Clone, Copy)]
struct Names {
    count: u64,
    /// Where the ends of the names lie; their text is behind them.
    ends: u64,
    /// Bytes of the text.
    text: u64,
}

impl Shards {
    /// Reads the indexes of all shards of a folder.
    pub fn open(folder: &Path, manifest: &ShardManifest) -> Result<Shards, Error> {
        let paths: Vec<PathBuf> = manifest.shards.iter().map(|shard| folder.join(&shard.file)).collect();
        let files = Handles::new(paths);
        let (mut names, mut places) = (Vec::new(), Vec::new());
        for (shard, number) in manifest.shards.iter().zip(0_u32..) {
            let path = files.path(number);
            let refused = |source| Error::Read { name: path.display().to_string(), source };
            let file = files.file(number).map_err(refused)?;
            let foot = Foot::read(&file, shard.bytes).map_err(refused)?.map_err(|why| damaged(path, why))?;
            if foot.count != shard.count {
                return Err(damaged(
                    path,
                    format!("it has {} samples, but its manifest says {}", foot.count, shard.count),
                ));
            }
            let table = foot.table(&file).map_err(refused)?.map_err(|why| damaged(path, why))?;
            let (records, rest) = table.split_at((foot.count * RECORD) as usize);
            let hashes = rest.chunks_exact(HASH as usize);
            for ((record, hash), slot) in records.chunks_exact(RECORD as usize).zip(hashes).zip(0_u32..) {
                let record = Record::read(record).ok_or_else(|| damaged(path, "a sample has an unknown codec"))?;
                let entry = foot.place(record, number, slot, manifest.classes.len());
                places.push(Place { hash: long(hash, 0), ..entry.map_err(|why| damaged(path, why))? });
            }
            names.push(Names { count: foot.count, ends: foot.index + foot.count * (RECORD + HASH), text: foot.names });
        }
        places.sort_unstable_by_key(|entry| entry.id);
        if let Some(pair) = places.windows(2).find(|pair| pair[0].id == pair[1].id) {
            let why = format!("sample {} is there twice", pair[0].id);
            return Err(damaged(folder, why));
        }
        let verified = unverified(&places);
        Ok(Shards { files, names, places, verified })
    }

    /// The index entry of each sample.
    pub fn places(&self) -> &[Place] {
        &self.places
    }

    /// The shard files.
    pub fn files(&self) -> &Handles {
        &self.files
    }

    /// The name of a sample in the data that was packed; its position if the name cannot be read.
    pub fn name(&self, sample: usize) -> String {
        let Place { shard, slot, .. } = self.places[sample];
        self.stored_name(shard, slot).unwrap_or_else(|| {
            let file = self.files.path(shard).file_name().unwrap_or_default().to_string_lossy();
            format!("{file}, sample {}", slot + 1)
        })
    }

    fn stored_name(&self, shard: u32, slot: u32) -> Option<String> {
        let Names { count, ends, text } = self.names[shard as usize];
        let end = |slot: u32| {
            let mut bytes = [0; 4];
            self.files.read_exact_at(shard, &mut bytes, ends + 4 * u64::from(slot)).ok()?;
            Some(u64::from(u32::from_le_bytes(bytes)))
        };
        let from = if slot == 0 { 0 } else { end(slot - 1)? };
        let to = end(slot)?;
        if from > to || to > text || to - from > LONGEST_NAME {
            return None;
        }
        let mut bytes = vec![0; (to - from) as usize];
        self.files.read_exact_at(shard, &mut bytes, ends + 4 * count + from).ok()?;
        String::from_utf8(bytes).ok().filter(|name| !name.is_empty())
    }

    /// Reads the bytes of one sample, and checks that they are those that were packed.
    ///
    /// # Errors
    /// [`Error::Read`] if the system refuses; [`Error::Image`] or, for text, [`Error::Layout`] if the bytes are others.
    pub fn read(&self, sample: usize, bytes: &mut Vec<u8>, when: AccessTime) -> Result<(), Error> {
        let entry = self.places[sample];
        bytes.clear();
        bytes.resize(entry.length() as usize, 0);
        let read = self.files.read_due(entry.shard, bytes, entry.offset, when);
        read.map_err(|source| Error::Read { name: self.name(sample), source })?;
        let checksum = crc32c::crc32c(bytes);
        let verified = &self.verified[sample];
        if checksum == 0 || verified.load(Ordering::Relaxed) != checksum {
            if long(blake3::hash(bytes).as_bytes(), 0) != entry.hash {
                return Err(self.altered(sample));
            }
            verified.store(checksum, Ordering::Relaxed);
        }
        bytes.truncate(entry.bytes as usize);
        Ok(())
    }

    /// The error of a sample that does not match its hash.
    fn altered(&self, sample: usize) -> Error {
        let Place { shard, slot, codec, .. } = self.places[sample];
        let path = self.files.path(shard);
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        let number = slot + 1;
        match codec {
            SampleCodec::Tokens => damaged(path, format!("document {number} does not match its checksum")),
            SampleCodec::Original | SampleCodec::Coefficients | SampleCodec::Pixels => Error::Image {
                name: self.name(sample),
                why: format!("sample {number} of `{file}` does not match its checksum"),
            },
        }
    }

    /// Reads the metadata of a sample.
    pub fn note(&self, sample: usize) -> Result<Vec<u8>, Error> {
        let entry = self.places[sample];
        let mut note = vec![0; entry.note as usize];
        let read = self.files.read_exact_at(entry.shard, &mut note, entry.offset + u64::from(entry.bytes));
        read.map_err(|source| Error::Read { name: self.name(sample), source })?;
        Ok(note)
    }

    /// Drops the samples whose flag is not set.
    pub fn retain(&mut self, keep: &[bool]) {
        let mut flags = keep.iter();
        self.places.retain(|_| flags.next() == Some(&true));
        self.verified = unverified(&self.places);
    }
}

fn unverified(places: &[Place]) -> Vec<AtomicU32> {
    std::iter::repeat_with(AtomicU32::default).take(places.len()).collect()
}

/// The footer of a shard.
struct Foot {
    index: u64,
    count: u64,
    names: u64,
    check: [u8; 16],
    length: u64,
}

impl Foot {
    /// Reads the footer of a shard that should have `bytes` bytes. The inner error describes the damage.
    fn read(file: &Opened, bytes: u64) -> io::Result<Result<Foot, String>> {
        let length = file.length()?;
        if length != bytes {
            return Ok(Err(format!("it has {length} bytes, but its manifest says {bytes}")));
        }
        if length < HEAD + FOOT {
            return Ok(Err("it is too short for a shard".into()));
        }
        let (mut head, mut foot) = ([0; HEAD as usize], [0; FOOT as usize]);
        file.read_exact_at(&mut head, 0)?;
        file.read_exact_at(&mut foot, length - FOOT)?;
        if &head[..8] != HEAD_MAGIC || &foot[40..] != FOOT_MAGIC {
            return Ok(Err("it is no shard".into()));
        }
        if short(&head, 8) != VERSION {
            return Ok(Err(format!("it is of version {}, this program reads {VERSION}", short(&head, 8))));
        }
        let mut check = [0; 16];
        check.copy_from_slice(&foot[24..40]);
        let foot = Foot { index: long(&foot, 0), count: long(&foot, 8), names: long(&foot, 16), check, length };
        let tables = foot.count.checked_mul(RECORD + HASH + 4);
        let end = tables.and_then(|tables| foot.index.checked_add(tables)?.checked_add(foot.names)?.checked_add(FOOT));
        let wordy = foot.count.checked_mul(MOST_NAMES).is_some_and(|most| foot.names > most);
        if end != Some(length) || foot.index < HEAD || u32::try_from(foot.count).is_err() || wordy {
            return Ok(Err("its foot does not fit its length".into()));
        }
        Ok(Ok(foot))
    }

    /// Index, hashes and names, checked.
    fn table(&self, file: &Opened) -> io::Result<Result<Vec<u8>, String>> {
        // Bounded by the length of the file; but a sparse file may still be huge.
        let bytes = (self.length - FOOT - self.index) as usize;
        let mut table = Vec::new();
        if table.try_reserve_exact(bytes).is_err() {
            return Ok(Err(format!("its index of {bytes} bytes does not fit into memory")));
        }
        table.resize(bytes, 0);
        file.read_exact_at(&mut table, self.index)?;
        if blake3::hash(&table).as_bytes()[..16] != self.check {
            return Ok(Err("its index is damaged".into()));
        }
        Ok(Ok(table))
    }

    fn place(&self, record: Record, shard: u32, slot: u32, classes: usize) -> Result<Place, String> {
        let Record { offset, bytes, note, id, label, codec } = record;
        // Reading a sample allocates this much memory.
        if u64::from(bytes) > LARGEST_FILE || u64::from(note) > LARGEST_FILE {
            return Err(format!("sample {} is larger than 256 MiB", slot + 1));
        }
        let end = offset.checked_add(u64::from(bytes)).and_then(|end| end.checked_add(u64::from(note)));
        if offset < HEAD || end.is_none_or(|end| end > self.index) {
            return Err(format!("sample {} lies outside it", slot + 1));
        }
        // Text without classes has none, and all of it is of the first.
        if label as usize >= classes.max(usize::from(codec == SampleCodec::Tokens)) {
            return Err(format!("sample {} is of class {label}, and there are {classes}", slot + 1));
        }
        Ok(Place { id, offset, bytes, note, label, shard, slot, codec, hash: 0 })
    }
}

/// Reads one shard completely and compares every hash; returns the damage, sample by sample.
///
/// # Errors
/// [`Error::Read`] on an I/O error.
pub(crate) fn verify(
    folder: &Path,
    shard: &crate::shard::manifest::ShardFile,
    classes: usize,
) -> Result<Vec<String>, Error> {
    let path = folder.join(&shard.file);
    let refused = |source| Error::Read { name: path.display().to_string(), source };
    let plain = crate::files::plain_file::open(&path).map_err(refused)?;
    let file = Opened::Local(plain.try_clone().map_err(refused)?);
    let foot = match Foot::read(&file, shard.bytes).map_err(refused)? {
        Ok(foot) => foot,
        Err(why) => return Ok(vec![format!("{}: {why}", shard.file)]),
    };
    let table = match foot.table(&file).map_err(refused)? {
        Ok(table) => table,
        Err(why) => return Ok(vec![format!("{}: {why}", shard.file)]),
    };
    let (records, rest) = table.split_at((foot.count * RECORD) as usize);
    let mut wrong = Vec::new();
    if foot.count != shard.count {
        wrong.push(format!("{}: it has {} samples, but its manifest says {}", shard.file, foot.count, shard.count));
    }
    let mut bytes = Vec::new();
    for (slot, (record, hash)) in
        records.chunks_exact(RECORD as usize).zip(rest.chunks_exact(HASH as usize)).enumerate()
    {
        let known = Record::read(record).ok_or_else(|| "it has an unknown codec".to_owned());
        let entry = known.and_then(|record| foot.place(record, 0, slot as u32, classes));
        match entry {
            Ok(entry) => {
                bytes.resize(entry.bytes as usize + entry.note as usize, 0);
                file.read_exact_at(&mut bytes, entry.offset).map_err(refused)?;
                if blake3::hash(&bytes).as_bytes() != hash {
                    wrong.push(format!(
                        "{}, sample {}: its bytes are not those that were packed",
                        shard.file,
                        slot + 1
                    ));
                }
            }
            Err(why) => wrong.push(format!("{}, sample {}: {why}", shard.file, slot + 1)),
        }
    }
    let mut total = blake3::Hasher::new();
    total.update_reader(&plain).map_err(refused)?;
    if wrong.is_empty() && total.finalize().to_hex().as_str() != shard.blake3 {
        wrong.push(format!("{}: it is not the shard that was packed", shard.file));
    }
    Ok(wrong)
}

fn damaged(path: &Path, why: impl Into<String>) -> Error {
    let why = format!("it is damaged: {}", why.into());
    Error::Layout {
        path: path.to_owned(),
        why,
        hint: "copy it again, or pack it again; `gradus data inspect --verify` lists what is wrong".into(),
    }
}
