//! Measures how fast a disk is under a loader's access pattern: sequential large reads and random small ones.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::sampling::random::{Draws, Purpose, key};

/// The measurements.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct DiskSpeed {
    /// Bytes of the file that was measured with.
    pub bytes: u64,
    /// Bytes a second, written in a row and synced.
    pub write_bytes_per_s: f64,
    /// Bytes a second, read in a row.
    pub read_bytes_per_s: f64,
    /// Reads of 4 KiB a second, anywhere, by all threads.
    pub reads_4k_per_s: f64,
    /// Reads of 100 KiB a second, anywhere, by all threads: about an image each.
    pub reads_100k_per_s: f64,
    /// Threads that read anywhere.
    pub threads: usize,
}

/// Measures the disk below `folder` with a temporary file of `bytes` bytes, for about `time` per figure. The page cache
/// of the file is dropped; on a file system without support for that, memory is measured.
///
/// # Errors
/// If the folder cannot be written, or is full.
pub fn probe(folder: &Path, bytes: u64, threads: usize, time: Duration) -> io::Result<DiskSpeed> {
    let mut file = unnamed(folder)?;
    // Noise, for some disks compress.
    let mut block = Draws::new(key(Purpose::Order, 0, &[])).bytes(1 << 20);
    let began = Instant::now();
    for _ in 0..bytes >> 20 {
        file.write_all(&block)?;
    }
    file.sync_all()?;
    let write_bytes_per_s = bytes as f64 / began.elapsed().as_secs_f64();
    forget(&file)?;
    let began = Instant::now();
    let mut reader = io::Seek::rewind(&mut file).map(|()| &file)?;
    while reader.read(&mut block)? > 0 {}
    let read_bytes_per_s = bytes as f64 / began.elapsed().as_secs_f64();
    let reads_4k_per_s = anywhere(&file, bytes, 4 << 10, threads, time)?;
    let reads_100k_per_s = anywhere(&file, bytes, 100 << 10, threads, time)?;
    Ok(DiskSpeed { bytes, write_bytes_per_s, read_bytes_per_s, reads_4k_per_s, reads_100k_per_s, threads })
}

/// A file without a name, which never outlives the process.
fn unnamed(folder: &Path) -> io::Result<File> {
    let path = folder.join(format!(".gradus-probe-{}", std::process::id()));
    let file = File::options().read(true).write(true).create_new(true).open(&path)?;
    std::fs::remove_file(path)?;
    Ok(file)
}

fn forget(file: &File) -> io::Result<()> {
    Ok(rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed)?)
}

/// Random reads of `length` bytes per second.
fn anywhere(file: &File, bytes: u64, length: u64, threads: usize, time: Duration) -> io::Result<f64> {
    forget(file)?;
    let began = Instant::now();
    let work = |number: u64| -> io::Result<u64> {
        let mut draws = Draws::new(key(Purpose::Order, number, &[length]));
        let mut buffer = vec![0; length as usize];
        let mut count = 0;
        while began.elapsed() < time {
            let blocks = (bytes.saturating_sub(length) / 4096).max(1);
            file.read_exact_at(&mut buffer, draws.below(blocks) * 4096)?;
            count += 1;
        }
        Ok(count)
    };
    let counts = thread::scope(|scope| {
        let threads: Vec<_> = (0..threads as u64).map(|number| scope.spawn(move || work(number))).collect();
        let lost = |_| io::Error::other("a thread that reads has failed");
        threads.into_iter().map(|thread| thread.join().map_err(lost)?).collect::<io::Result<Vec<u64>>>()
    })?;
    Ok(counts.iter().sum::<u64>() as f64 / began.elapsed().as_secs_f64())
}
