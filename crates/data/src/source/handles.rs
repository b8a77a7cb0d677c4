//! Files that many threads read by position, of which only some are open at a time.
//!
//! A data set may have more shards than a process may have open files (1024 is a usual limit), so those opened first
//! are closed when there are too many. Reads need no lock: they hold the file that they read.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Files by number, opened when they are first read.
#[derive(Debug)]
pub(crate) struct Handles {
    paths: Vec<PathBuf>,
    open: Mutex<Opened>,
}

#[derive(Debug, Default)]
struct Opened {
    files: HashMap<u32, Arc<File>>,
    /// Numbers in the order in which they were opened.
    order: VecDeque<u32>,
}

/// Files open at a time: a quarter of the usual limit, so that a process may have some data sets.
const MOST_OPEN: usize = 256;

impl Handles {
    pub fn new(paths: Vec<PathBuf>) -> Handles {
        Handles { paths, open: Mutex::default() }
    }

    pub fn path(&self, number: u32) -> &Path {
        &self.paths[number as usize]
    }

    pub fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    /// Fills `bytes` from `offset` of file `number`.
    pub fn read_exact_at(&self, number: u32, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.file(number)?.read_exact_at(bytes, offset)
    }

    /// File `number`, open.
    pub fn file(&self, number: u32) -> io::Result<Arc<File>> {
        // Nothing that can panic runs under the lock.
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = open.files.get(&number) {
            return Ok(Arc::clone(file));
        }
        while open.order.len() >= MOST_OPEN {
            if let Some(first) = open.order.pop_front() {
                open.files.remove(&first);
            }
        }
        let file = Arc::new(File::open(&self.paths[number as usize])?);
        open.files.insert(number, Arc::clone(&file));
        open.order.push_back(number);
        Ok(file)
    }
}

/// A file read by position through a small buffer, for those who look at many close places of it.
pub(crate) struct Window<'a> {
    file: &'a File,
    length: u64,
    start: u64,
    buffer: Vec<u8>,
}

/// Bytes read at a time.
const WINDOW: u64 = 16 << 10;

impl<'a> Window<'a> {
    pub fn new(file: &'a File) -> io::Result<Window<'a>> {
        let length = file.metadata()?.len();
        Ok(Window { file, length, start: 0, buffer: Vec::new() })
    }

    /// Bytes of the whole file.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Up to `most` bytes at `offset`; fewer only where the file ends.
    pub fn up_to(&mut self, offset: u64, most: u64) -> io::Result<&[u8]> {
        let end = self.length.min(offset.saturating_add(most));
        let offset = offset.min(end);
        let held = self.start..self.start + self.buffer.len() as u64;
        if !(held.contains(&offset) && end <= held.end) && offset < end {
            let end = self.length.min(offset.saturating_add(most.max(WINDOW)));
            self.buffer.resize((end - offset) as usize, 0);
            self.start = offset;
            if let Err(error) = self.file.read_exact_at(&mut self.buffer, offset) {
                self.buffer.clear();
                return Err(error);
            }
        }
        if offset == end {
            return Ok(&[]);
        }
        let from = (offset - self.start) as usize;
        Ok(&self.buffer[from..from + (end - offset) as usize])
    }

    /// Exactly `N` bytes at `offset`; `None` where the file ends before.
    pub fn array<const N: usize>(&mut self, offset: u64) -> io::Result<Option<[u8; N]>> {
        Ok(self.up_to(offset, N as u64)?.try_into().ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_files_than_may_be_open() {
        let root = tempfile::tempdir().unwrap();
        let number = MOST_OPEN as u32 + 100;
        let paths: Vec<PathBuf> = (0..number).map(|n| root.path().join(n.to_string())).collect();
        for (path, n) in paths.iter().zip(0_u32..) {
            std::fs::write(path, n.to_le_bytes()).unwrap();
        }
        let handles = Handles::new(paths);
        for n in (0..number).chain((0..number).rev()) {
            let mut bytes = [0; 4];
            handles.read_exact_at(n, &mut bytes, 0).unwrap();
            assert_eq!(u32::from_le_bytes(bytes), n);
        }
        assert_eq!(handles.open.lock().unwrap().files.len(), MOST_OPEN);
    }

    #[test]
    fn a_window_gives_what_the_file_has() {
        let root = tempfile::tempdir().unwrap();
        let bytes: Vec<u8> = (0..50_000_u32).map(|n| (n * 7) as u8).collect();
        std::fs::write(root.path().join("f"), &bytes).unwrap();
        let file = File::open(root.path().join("f")).unwrap();
        let mut window = Window::new(&file).unwrap();
        for (offset, most) in [(0, 10), (5, 0), (16_380, 20), (100, 40_000), (49_990, 100), (50_000, 5), (u64::MAX, 9)]
        {
            let from = bytes.len().min(offset as usize);
            let to = bytes.len().min(from + most as usize);
            assert_eq!(window.up_to(offset, most).unwrap(), &bytes[from..to], "{most} at {offset}");
        }
    }
}
