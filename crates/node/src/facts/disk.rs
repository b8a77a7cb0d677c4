//! The disk: room, and how fast it writes, reads and syncs.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::{Duration, Instant};

use domain::Bytes;
use rustix::fs::{Advice, fadvise};
use serde::{Deserialize, Serialize};

/// The disk where gradus keeps its files.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct DiskFacts {
    /// The folder that was looked at.
    pub folder: String,
    /// Kind of its file system, such as `ext4`.
    pub kind: String,
    /// All of it.
    pub total: Bytes,
    /// What may still be written.
    pub free: Bytes,
    /// Files that may still be made, in thousandths of all; none where the file system does not count them.
    pub files_free_permille: Option<u64>,
    /// How fast it is, where that was measured.
    pub figures: Option<DiskFigures>,
    /// Why it cannot be used, or not be measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// How fast a disk is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DiskFigures {
    /// Bytes written per second, to the disk and not only to the cache.
    pub write: u64,
    /// Bytes read per second, from the start of a file to its end.
    pub read: u64,
    /// Reads per second of 4 KiB each, anywhere in a file, one at a time.
    pub random_reads: u64,
    /// How long it takes until a small write is on the disk, in microseconds: the median.
    pub sync_us: u64,
}

/// The part that is written at once.
const PART: usize = 1 << 20;

/// Bytes of the file that is measured with.
const SIZE: u64 = 64 << 20;

/// One measurement at most.
const PATIENCE: Duration = Duration::from_millis(1000);

/// Small writes of which the median is taken.
const SYNCS: usize = 21;

pub(super) fn disk(folder: &Path, measures: bool) -> DiskFacts {
    let mut facts = DiskFacts { folder: folder.display().to_string(), ..DiskFacts::default() };
    if let Err(error) = fs::create_dir_all(folder).and_then(|()| room(folder, &mut facts)) {
        facts.error = Some(format!("cannot use `{}`: {error}", folder.display()));
        return facts;
    }
    if measures {
        match measured(folder, facts.free) {
            Ok(figures) => facts.figures = Some(figures),
            Err(error) => facts.error = Some(format!("cannot measure the disk of `{}`: {error}", folder.display())),
        }
    }
    facts
}

fn room(folder: &Path, facts: &mut DiskFacts) -> io::Result<()> {
    let disk = rustix::fs::statvfs(folder)?;
    facts.total = Bytes(disk.f_blocks.saturating_mul(disk.f_frsize));
    facts.free = Bytes(disk.f_bavail.saturating_mul(disk.f_frsize));
    facts.files_free_permille = (disk.f_files > 0).then(|| disk.f_favail.saturating_mul(1000) / disk.f_files);
    let device = fs::metadata(folder)?.dev();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    facts.kind = file_system(&mounts, device);
    Ok(())
}

/// The kind of the file system on a device, by `/proc/self/mountinfo`.
fn file_system(mounts: &str, device: u64) -> String {
    let wanted = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    let line = mounts.lines().find(|line| line.split(' ').nth(2) == Some(wanted.as_str()));
    let kind = line.and_then(|line| line.split(" - ").nth(1)?.split(' ').next());
    kind.unwrap_or("unknown").to_owned()
}

fn measured(folder: &Path, free: Bytes) -> io::Result<DiskFigures> {
    if free.0 < 2 * SIZE {
        return Err(io::ErrorKind::StorageFull.into());
    }
    let path = folder.join(format!(".measured-{}", std::process::id()));
    let mut options = OpenOptions::new();
    let file = options.create(true).truncate(true).read(true).write(true).open(&path)?;
    // Without a name nothing is left behind, whatever happens.
    fs::remove_file(&path)?;
    let written = write(&file)?;
    Ok(DiskFigures {
        write: written.1,
        read: read(&file, written.0)?,
        random_reads: random_reads(&file, written.0)?,
        sync_us: sync(&file, written.0)?,
    })
}

fn per_second(amount: u64, begun: Instant) -> u64 {
    let micros = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX).max(1);
    u64::try_from(u128::from(amount) * 1_000_000 / u128::from(micros)).unwrap_or(u64::MAX)
}

/// Bytes that were written, and how many a second.
fn write(mut file: &File) -> io::Result<(u64, u64)> {
    // A disk that compresses, or does not write zeros, would show a speed that data does not get.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut part = vec![0_u8; PART];
    for bytes in part.chunks_exact_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.copy_from_slice(&state.to_le_bytes());
    }
    let (begun, mut bytes) = (Instant::now(), 0);
    while bytes < SIZE && (begun.elapsed() < PATIENCE || bytes == 0) {
        part[0] = part[0].wrapping_add(1);
        file.write_all(&part)?;
        bytes += PART as u64;
    }
    file.sync_data()?;
    Ok((bytes, per_second(bytes, begun)))
}

/// What is in memory says nothing of the disk.
fn forget(file: &File) -> io::Result<()> {
    Ok(fadvise(file, 0, None, Advice::DontNeed)?)
}

fn read(file: &File, bytes: u64) -> io::Result<u64> {
    forget(file)?;
    let (begun, mut part, mut offset) = (Instant::now(), vec![0; PART], 0);
    while offset < bytes && (begun.elapsed() < PATIENCE || offset == 0) {
        file.read_exact_at(&mut part, offset)?;
        offset += PART as u64;
    }
    Ok(per_second(offset, begun))
}

fn random_reads(file: &File, bytes: u64) -> io::Result<u64> {
    forget(file)?;
    fadvise(file, 0, None, Advice::Random)?;
    let pages = bytes / 4096;
    // Every page once, in an order that no disk foresees: an odd stride goes round the whole file.
    let stride = (pages * 618 / 1000) | 1;
    let (begun, mut page, mut count, mut buffer) = (Instant::now(), 0, 0, [0; 4096]);
    while count < pages && (begun.elapsed() < PATIENCE || count == 0) {
        file.read_exact_at(&mut buffer, page * 4096)?;
        page = (page + stride) % pages;
        count += 1;
    }
    Ok(per_second(count, begun))
}

fn sync(file: &File, bytes: u64) -> io::Result<u64> {
    let (begun, mut times) = (Instant::now(), Vec::new());
    while times.len() < SYNCS && (begun.elapsed() < PATIENCE || times.is_empty()) {
        let one = Instant::now();
        file.write_all_at(&[1; 4096], bytes + 4096 * times.len() as u64)?;
        file.sync_data()?;
        times.push(u64::try_from(one.elapsed().as_micros()).unwrap_or(u64::MAX));
    }
    times.sort_unstable();
    Ok(times[times.len() / 2])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_system_is_found_by_its_device() {
        let mounts = "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue\n\
                      37 35 0:21 / /run rw shared:5 - tmpfs tmpfs rw\n";
        assert_eq!(file_system(mounts, rustix::fs::makedev(98, 0)), "ext3");
        assert_eq!(file_system(mounts, rustix::fs::makedev(0, 21)), "tmpfs");
        assert_eq!(file_system(mounts, rustix::fs::makedev(8, 1)), "unknown");
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let facts = disk(&file.join("below"), true);
        assert!(facts.error.unwrap().contains("cannot use"), "{:?}", facts.figures);
    }
}
