//! Files that many threads read by position, of which only some are open at a time.
//!
//! A file is local, or a sparse placeholder whose bytes are remote ([`crate::files::remote`]), or unpacked in memory;
//! readers need not know which. A data set may have more shards than a process may have open files (1024 is a common
//! limit), so the files opened first are closed when there are too many. Reads need no lock: they hold a reference to
//! their file.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use plugin::ReadAt;
pub(crate) use plugin::{LARGEST_FILE, Window};

use super::plain_file;
use super::remote::{AccessTime, ByteRange, Client};

/// Whether so many bytes of a file, of which at most one more than [`LARGEST_FILE`] were read, can be an image.
///
/// # Errors
/// Why they cannot.
pub(crate) fn check_length(bytes: usize) -> Result<(), &'static str> {
    match bytes as u64 {
        0 => Err("the file is empty"),
        1..=LARGEST_FILE => Ok(()),
        _ => Err("the file is larger than 256 MiB"),
    }
}

/// An open file, or one that is remote.
#[derive(Debug)]
pub(crate) enum Opened {
    Local(File),
    Remote {
        client: Arc<Client>,
        file: u32,
        bytes: u64,
    },
    /// The unpacked bytes of a compressed file.
    Memory(Vec<u8>),
}

impl Opened {
    /// Opens a file for reading by position: a local one, or one that is served from the cache of remote data.
    pub fn open(path: &Path) -> io::Result<Opened> {
        Opened::with(Client::of(path)?.as_ref(), path)
    }

    fn with(client: Option<&Arc<Client>>, path: &Path) -> io::Result<Opened> {
        match client.and_then(|client| Some((client, client.file(path)?))) {
            Some((client, (file, bytes))) => Ok(Opened::Remote { client: Arc::clone(client), file, bytes }),
            None => Ok(Opened::Local(plain_file::open(path)?)),
        }
    }

    /// Length of the file in bytes.
    pub fn length(&self) -> io::Result<u64> {
        match self {
            Opened::Local(file) => Ok(file.metadata()?.len()),
            Opened::Remote { bytes, .. } => Ok(*bytes),
            Opened::Memory(held) => Ok(held.len() as u64),
        }
    }

    /// Fills `bytes` from `offset`, which may be needed again some time.
    pub fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.read_due(bytes, offset, AccessTime::SOME_TIME)
    }

    /// Fills `bytes` from `offset`; `when` is the time at which they are needed.
    pub fn read_due(&self, bytes: &mut [u8], offset: u64, when: AccessTime) -> io::Result<()> {
        let (client, file, length) = match self {
            Opened::Local(file) => return file.read_exact_at(bytes, offset),
            Opened::Remote { client, file, bytes } => (client, *file, *bytes),
            Opened::Memory(held) => {
                let there = rest(held, offset).get(..bytes.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
                bytes.copy_from_slice(there);
                return Ok(());
            }
        };
        let ends = offset.checked_add(bytes.len() as u64).is_none_or(|end| end > length);
        match u32::try_from(bytes.len()) {
            Ok(0) => Ok(()),
            Ok(count) if !ends => client.read(ByteRange { file, offset, bytes: count }, when, bytes),
            Ok(_) | Err(_) => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Reads at most `bytes.len()` bytes from `offset`; 0 at the end.
    pub fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        let length = match self {
            Opened::Local(file) => return file.read_at(bytes, offset),
            Opened::Remote { bytes, .. } => *bytes,
            Opened::Memory(held) => held.len() as u64,
        };
        let count = bytes.len().min(usize::try_from(length.saturating_sub(offset)).unwrap_or(usize::MAX));
        self.read_due(&mut bytes[..count], offset, AccessTime::SOME_TIME)?;
        Ok(count)
    }
}

/// The bytes in memory from `offset` on.
fn rest(held: &[u8], offset: u64) -> &[u8] {
    usize::try_from(offset).ok().and_then(|offset| held.get(offset..)).unwrap_or_default()
}

/// Bytes that a window reads at a time: here, and elsewhere, where every read is a trip.
const WINDOW: u64 = 16 << 10;
const WINDOW_REMOTE: u64 = 4 << 20;

impl ReadAt for Opened {
    fn length(&self) -> io::Result<u64> {
        Opened::length(self)
    }

    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        Opened::read_exact_at(self, bytes, offset)
    }

    fn read_once(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.read_due(bytes, offset, AccessTime::ONCE)
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        Opened::read_at(self, bytes, offset)
    }

    fn window(&self) -> u64 {
        match self {
            Opened::Local(_) | Opened::Memory(_) => WINDOW,
            Opened::Remote { .. } => WINDOW_REMOTE,
        }
    }
}

/// The client of remote files, if any; or the error of finding out, which is reported when a file is read, because its
/// placeholder must not be mistaken for its contents.
#[derive(Debug)]
struct Served(io::Result<Option<Arc<Client>>>);

impl Served {
    fn client(&self) -> Option<&Client> {
        self.0.as_ref().ok()?.as_deref()
    }

    fn open(&self, path: &Path) -> io::Result<Opened> {
        match &self.0 {
            Ok(client) => Opened::with(client.as_ref(), path),
            Err(error) => {
                let why = format!("the location of its data cannot be read from `.gradus/elsewhere.json`: {error}");
                Err(io::Error::new(error.kind(), why))
            }
        }
    }
}

/// Files by number, opened when they are first read.
#[derive(Debug)]
pub(crate) struct Handles {
    paths: Vec<PathBuf>,
    client: Served,
    /// Files that were unpacked into memory, by number.
    held: Arc<HashMap<u32, Arc<Opened>>>,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    files: HashMap<u32, Arc<Opened>>,
    /// Numbers in the order in which they were opened.
    order: VecDeque<u32>,
}

/// Files open at a time: a quarter of the usual limit, so that a process may have some data sets.
const MOST_OPEN: usize = 256;

impl Handles {
    /// Handles of some files, none of which is open yet.
    pub fn new(paths: Vec<PathBuf>) -> Handles {
        Handles::with_held(paths, HashMap::new())
    }

    /// Like [`Handles::new`], with the unpacked bytes of some files in `held`.
    pub fn with_held(paths: Vec<PathBuf>, held: HashMap<u32, Arc<Opened>>) -> Handles {
        let client = Served(paths.first().map_or(Ok(None), |path| Client::of(path)));
        Handles { paths, client, held: Arc::new(held), open: Mutex::default() }
    }

    /// The path of a file, by its number.
    pub fn path(&self, number: u32) -> &Path {
        &self.paths[number as usize]
    }

    /// The paths of all files, in the order of their numbers.
    pub fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    /// Fills `bytes` from `offset` of file `number`.
    pub fn read_exact_at(&self, number: u32, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.file(number)?.read_exact_at(bytes, offset)
    }

    /// Like reading, with `when`, the time at which the bytes are needed.
    pub fn read_due(&self, number: u32, bytes: &mut [u8], offset: u64, when: AccessTime) -> io::Result<()> {
        self.file(number)?.read_due(bytes, offset, when)
    }

    /// The client of remote files; `None` if they are local.
    pub fn client(&self) -> Option<&Client> {
        self.client.client()
    }

    /// Announces which bytes will be read soon: file, offset, length and time.
    pub fn expect(&self, spans: impl Iterator<Item = (u32, u64, u32, AccessTime)>) {
        let Some(client) = self.client() else { return };
        client.expect(spans.filter(|(number, ..)| !self.held.contains_key(number)).filter_map(
            |(number, offset, bytes, when)| {
                let (file, _) = client.file(&self.paths[number as usize])?;
                Some((ByteRange { file, offset, bytes }, when))
            },
        ));
    }

    /// File `number`, open.
    pub fn file(&self, number: u32) -> io::Result<Arc<Opened>> {
        if let Some(held) = self.held.get(&number) {
            return Ok(Arc::clone(held));
        }
        // No code that can panic runs while the lock is held.
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = open.files.get(&number) {
            return Ok(Arc::clone(file));
        }
        while open.order.len() >= MOST_OPEN {
            if let Some(first) = open.order.pop_front() {
                open.files.remove(&first);
            }
        }
        let file = Arc::new(self.client.open(&self.paths[number as usize])?);
        open.files.insert(number, Arc::clone(&file));
        open.order.push_back(number);
        Ok(file)
    }
}

/// Files below one folder that are read completely.
#[derive(Debug)]
pub(crate) struct Whole(Served);

impl Whole {
    /// Those below `root`.
    pub fn below(root: &Path) -> Whole {
        Whole(Served(Client::of(root)))
    }

    /// The client of remote files; `None` if they are local.
    pub fn client(&self) -> Option<&Client> {
        self.0.client()
    }

    /// Reads a file into `bytes`, at most `most` + 1 bytes; `when` is the time at which it is needed.
    pub fn read(&self, path: &Path, most: u64, when: AccessTime, bytes: &mut Vec<u8>) -> io::Result<()> {
        bytes.clear();
        match self.0.open(path)? {
            Opened::Local(file) => {
                bytes.reserve(file.metadata()?.len().min(most) as usize);
                file.take(most).read_to_end(bytes).map(drop)
            }
            file @ (Opened::Remote { .. } | Opened::Memory(_)) => {
                bytes.resize(file.length()?.min(most) as usize, 0);
                file.read_due(bytes, 0, when)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_file_is_neither_empty_nor_too_large() {
        assert_eq!(check_length(0), Err("the file is empty"));
        assert_eq!([1, LARGEST_FILE as usize].map(check_length), [Ok(()); 2]);
        assert_eq!(check_length(LARGEST_FILE as usize + 1), Err("the file is larger than 256 MiB"));
    }

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

    /// A listing that cannot be read is reported; the hole below it is not read as if it were the file.
    #[test]
    fn a_hole_is_not_read_where_nobody_knows_who_serves_it() {
        let root = tempfile::tempdir().unwrap();
        let (own, file) = (root.path().join(".gradus"), root.path().join("image.jpg"));
        std::fs::create_dir(&own).unwrap();
        std::fs::write(own.join("elsewhere.json"), "{half").unwrap();
        File::create(&file).unwrap().set_len(100).unwrap();
        let mut bytes = Vec::new();
        let whole = Whole::below(root.path()).read(&file, 1000, AccessTime::SOME_TIME, &mut bytes);
        let part = Handles::new(vec![file]).read_exact_at(0, &mut [0; 10], 5);
        for error in [whole, part].map(Result::unwrap_err) {
            assert!(error.to_string().contains("cannot be read from `.gradus/elsewhere.json`"), "{error}");
        }
        assert!(bytes.is_empty());
    }

    #[test]
    fn a_window_gives_what_the_file_has() {
        let root = tempfile::tempdir().unwrap();
        let bytes: Vec<u8> = (0..50_000_u32).map(|n| (n * 7) as u8).collect();
        std::fs::write(root.path().join("f"), &bytes).unwrap();
        let file = Opened::open(&root.path().join("f")).unwrap();
        let mut window = Window::new(&file).unwrap();
        for (offset, most) in [(0, 10), (5, 0), (16_380, 20), (100, 40_000), (49_990, 100), (50_000, 5), (u64::MAX, 9)]
        {
            let from = bytes.len().min(offset as usize);
            let to = bytes.len().min(from + most as usize);
            assert_eq!(window.up_to(offset, most).unwrap(), &bytes[from..to], "{most} at {offset}");
        }
    }
}
