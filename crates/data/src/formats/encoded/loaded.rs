//! Image files that were read into memory before the first step, for disks and networks that are slow.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use domain::train::Data;

use super::Encoded;
use crate::Error;
use crate::files::remote::AccessTime;
use crate::identity::preparation::Preparation;

/// Images with the bytes of their files.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub from: Box<Encoded>,
    /// The files; empty for one that could not be read, which is tried again when it is needed.
    files: Vec<Box<[u8]>>,
}

/// Trips to slow storage that are under way at a time.
const AT_A_TIME: usize = 16;
/// Images that a thread takes at a time.
const TAKEN: usize = 16;
/// Bytes per second of the slowest storage that is expected: a hard disk read out of order by several ranks, or a busy
/// network file system.
const SLOWEST: u64 = 20_000_000;

/// The additional time that a rank may be silent before its first step while it reads its images into memory: `preload`
/// ÷ 20 MB/s. Zero without `preload`.
pub fn preloading(data: &Data) -> Duration {
    Duration::from_secs(data.preload.map_or(0, |most| most.0.div_ceil(SLOWEST)))
}

impl Loaded {
    /// Reads all files of the images.
    ///
    /// # Errors
    /// The bytes that the files take, or more than so many, where those are more than `most`.
    pub fn read_all(from: Encoded, most: u64, preparation: &Preparation) -> Result<Loaded, u64> {
        // Each length of a local file would cost a system call; the readers find it anyway.
        let known = (0..from.len()).filter_map(|sample| from.known_bytes(sample)).fold(0, u64::saturating_add);
        if known > most {
            return Err(known);
        }
        let mut files: Vec<Box<[u8]>> = vec![Box::default(); from.len()];
        let (total, is_full) = (AtomicU64::new(0), AtomicBool::new(false));
        let work = Mutex::new(files.chunks_mut(TAKEN).zip((0..).step_by(TAKEN)));
        let read = || {
            let mut bytes = Vec::new();
            while !is_full.load(Ordering::Relaxed) {
                let taken = work.lock().ok().and_then(|mut work| work.next());
                let Some((files, first)) = taken else { return };
                for (file, sample) in files.iter_mut().zip(first..) {
                    if from.read(sample, &mut bytes).is_err() {
                        continue;
                    }
                    let before = total.fetch_add(bytes.len() as u64, Ordering::Relaxed);
                    if before + bytes.len() as u64 > most {
                        is_full.store(true, Ordering::Relaxed);
                        return;
                    }
                    *file = bytes.as_slice().into();
                    preparation.advance(1);
                }
            }
        };
        thread::scope(|scope| {
            for _ in 0..AT_A_TIME.min(from.len().div_ceil(TAKEN)) {
                scope.spawn(read);
            }
        });
        if is_full.into_inner() {
            return Err(total.into_inner());
        }
        Ok(Loaded { from: Box::new(from), files })
    }

    /// The file of one image, if it could be read.
    pub fn file(&self, sample: usize) -> Option<&[u8]> {
        Some(&*self.files[sample]).filter(|file| !file.is_empty())
    }

    /// The file of one image, copied.
    pub fn read(&self, sample: usize, bytes: &mut Vec<u8>, when: AccessTime) -> Result<(), Error> {
        let Some(file) = self.file(sample) else { return self.from.read_due(sample, bytes, when) };
        bytes.clear();
        bytes.extend_from_slice(file);
        Ok(())
    }

    /// Keeps the images for which `keep` holds.
    pub fn retain(&mut self, keep: &[bool]) {
        self.from.retain(keep);
        let mut flags = keep.iter();
        self.files.retain(|_| flags.next() == Some(&true));
    }
}

#[cfg(test)]
mod tests {
    use domain::units::Bytes;

    use super::*;

    #[test]
    fn a_rank_that_preloads_has_time_for_it() {
        let data: Data = serde_json::from_value(serde_json::json!({ "path": "" })).unwrap();
        for (preload, seconds) in [(None, 0), (Some(1), 1), (Some(20_000_000), 1), (Some(64 << 30), 3436)] {
            let data = Data { preload: preload.map(Bytes), ..data.clone() };
            assert_eq!(preloading(&data), Duration::from_secs(seconds), "{preload:?}");
        }
    }
}
