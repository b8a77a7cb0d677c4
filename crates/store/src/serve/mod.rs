//! Serves remote data during training: ranges of its objects, over a Unix socket and cached on disk.
//!
//! Ranks hold neither credentials nor HTTP clients. Each sees a folder with sparse files of the right lengths (`data::remote`)
//! and requests the bytes of a sample when it needs them, and a batch earlier announces what it will need; each request
//! says when the bytes are needed again. All ranks of a machine share one server, so there is one cache, one budget and
//! one fetch for data that several of them need. Read on in `pieces`.

mod origin;
mod pieces;
#[cfg(test)]
mod tests;

use std::fs;
use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use data::ShardManifest;
use data::cache::{CacheCounts, DiskCache};
use data::chunk::check_name;
use data::remote::{RangeRequest, RemoteFile, RemoteListing, SCHEMA, lay_out, read_request, write_answer};
use futures::{StreamExt, TryStreamExt, stream};

use self::origin::Source;
use self::pieces::Pieces;
use crate::remote::{Object, Remote};
use crate::{Access, Error, Limits, Location, Meter, Places, head, listen, open, plain};

/// Data from elsewhere that is being served. Dropping it ends that.
#[derive(Debug)]
pub struct Served {
    /// The file or folder to open.
    pub path: PathBuf,
    /// Keys of objects that were left out, because no file can have them.
    pub unreadable: Vec<String>,
    socket: PathBuf,
    is_over: Arc<AtomicBool>,
    pieces: Arc<Pieces>,
}

impl Served {
    /// Reads served from the cache, and from the remote location.
    pub fn counts(&self) -> CacheCounts {
        self.pieces.counts()
    }

    /// For how long the origin has sent nothing while a rank waits for bytes; `None` if none waits. It waits no longer
    /// than a failing request is retried ([`Limits::patience`]), and then gets an error.
    pub fn silence(&self) -> Option<Duration> {
        self.pieces.silence()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // Wakes the thread that waits for a connection.
        let _ = UnixStream::connect(&self.socket);
        let _ = fs::remove_file(&self.socket);
        self.pieces.end();
    }
}

/// How the location is opened: once for each thread that fetches.
type Opener = Arc<dyn Fn() -> Result<Remote, Error> + Send + Sync>;

/// Between two tries to accept a reader.
const PAUSE: Duration = Duration::from_millis(50);
/// Smaller files that are not images are fetched at the start, and so are formats that are read completely.
const SMALL: u64 = 64 << 10;
/// These files are held in memory in transit, and stored next to the cache.
const LARGEST_WHOLE: u64 = 256 << 20;
/// Extensions of formats that are read completely.
const WHOLE: [&str; 9] = [".json", ".jsonl", ".csv", ".txt", ".gz", ".u16", ".u32", ".names", ".bin"];

/// Serves the data at `uri`, caching at most `budget` bytes of it.
///
/// # Errors
/// [`Error`] on network errors, or if the format cannot be read in ranges.
pub fn serve(uri: &str, budget: u64, places: Places<'_>, access: &Access, limits: Limits) -> Result<Served, Error> {
    let location: Location = uri.parse()?;
    let access = access.clone();
    let at = location.clone();
    let opener: Opener = Arc::new(move || open(&at, &access, limits));
    serve_from(&location, opener, budget, places)
}

fn serve_from(location: &Location, opener: Opener, budget: u64, places: Places<'_>) -> Result<Served, Error> {
    let remote = opener()?;
    let at = places.folder;
    fs::create_dir_all(at).map_err(Error::file("make", at))?;
    let (files, is_itself) = files(&remote, at)?;
    let single = files.first().filter(|_| is_itself).map(|file| at.join(&file.name));
    let (mut sources, mut holes) = (Vec::new(), Vec::new());
    let (mut small, mut large) = (Vec::new(), Vec::new());
    for source in files {
        let Source { name, bytes, .. } = &source;
        check_name(name)
            .map_err(|why| remote.damaged(name, format!("its key cannot be used as a file name: {why}")))?;
        let is_by_pieces = *bytes > SMALL || (*bytes > 0 && is_image(name));
        if is_by_pieces && !ends(name, &WHOLE) {
            holes.push(RemoteFile { name: name.clone(), bytes: *bytes });
            sources.push(source);
            continue;
        }
        if *bytes > LARGEST_WHOLE {
            let message =
                format!("`{location}` holds `{name}`, which is read whole, and its {bytes} bytes are too many");
            let hint = "leave `data.cache` out, and all of the data is fetched before training begins";
            return Err(Error::Usage { message, hint: hint.into() });
        }
        let group = if *bytes > SMALL { &mut large } else { &mut small };
        group.push(source);
    }
    // Large files are held in memory one at a time.
    remote.wait(bring(&remote, at, small, remote.limits.streams))?;
    remote.wait(bring(&remote, at, large, 1))?;
    let folder = places.cache.join(crate::stage::folder_name(location));
    let cache = DiskCache::open(&folder, budget).map_err(Error::file("open", &folder))?;
    let pieces = Arc::new(Pieces::new(cache, sources, opener));
    let listener = listen(places.socket).map_err(Error::file("listen at", places.socket))?;
    let listing = RemoteListing { schema: SCHEMA, socket: places.socket.to_owned(), files: holes };
    lay_out(at, &listing).map_err(Error::file("write", at))?;
    let is_over = Arc::new(AtomicBool::new(false));
    let (ending, answering) = (Arc::clone(&is_over), Arc::clone(&pieces));
    std::thread::spawn(move || accept(&listener, &ending, &answering));
    Pieces::fetch_ahead(&pieces);
    let path = single.unwrap_or_else(|| at.to_owned());
    Ok(Served { path, unreadable: remote.unreadable(), socket: places.socket.to_owned(), is_over, pieces })
}

/// Fetches complete files into the folder, `at_a_time` concurrently.
async fn bring(remote: &Remote, folder: &Path, sources: Vec<Source>, at_a_time: usize) -> Result<(), Error> {
    let one = async |source: Source| {
        let path = folder.join(&source.name);
        fs::create_dir_all(path.parent().unwrap_or(folder)).map_err(Error::file("make", folder))?;
        fs::write(&path, source.fetch(remote, 0..source.bytes).await?).map_err(Error::file("write", &path))
    };
    stream::iter(sources).map(one).buffer_unordered(at_a_time).try_collect().await
}

/// The files that lie there, and whether there is one that is the data set itself.
fn files(remote: &Remote, folder: &Path) -> Result<(Vec<Source>, bool), Error> {
    if let Some(found) = remote.wait(head::load(remote, &Meter::default()))? {
        let sources = Source::of_chunks(found.manifest);
        let is_single = sources.len() == 1;
        return Ok((sources, is_single));
    }
    let objects = objects(remote, folder)?;
    let is_itself = matches!(&objects[..], [one] if one.name == remote.location().name())
        && remote.wait(remote.look(""))?.is_some();
    let source = |object: &Object| {
        let key = if is_itself { String::new() } else { object.name.clone() };
        Source::object(key, object)
    };
    Ok((objects.iter().map(source).collect(), is_itself))
}

/// The objects at the location. A web server cannot be listed; the manifest of shards is a list.
fn objects(remote: &Remote, folder: &Path) -> Result<Vec<Object>, Error> {
    if remote.can_list() {
        return remote.wait(plain::objects(remote));
    }
    const NAME: &str = "manifest.json";
    let Some((text, _)) = remote.wait(remote.get(NAME, 1 << 30))? else {
        return remote.wait(plain::objects(remote));
    };
    let path = folder.join(NAME);
    let bytes = text.len() as u64;
    fs::write(&path, text).map_err(Error::file("write", &path))?;
    let manifest = ShardManifest::read(folder).map_err(|error| remote.damaged(NAME, error.to_string()))?;
    let shards = manifest.map(|manifest| manifest.shards).unwrap_or_default();
    let mut objects = vec![Object { name: NAME.into(), bytes, etag: None, written: 0 }];
    for shard in shards {
        // The current version, so that a later one is not mistaken for it.
        let found = remote.wait(remote.look(&shard.file))?;
        let found = found.ok_or_else(|| remote.damaged(&shard.file, "its manifest names it, and it is not there"))?;
        objects.push(found);
    }
    Ok(objects)
}

/// Whether it is an image file, and so one chunk.
fn is_image(name: &str) -> bool {
    name.rsplit_once('.')
        .is_some_and(|(_, last)| data::IMAGE_EXTENSIONS.iter().any(|known| last.eq_ignore_ascii_case(known)))
}

fn ends(name: &str, endings: &[&str]) -> bool {
    let name = name.to_ascii_lowercase();
    endings.iter().any(|ending| name.ends_with(ending))
}

/// A thread for each reader.
fn accept(listener: &UnixListener, is_over: &AtomicBool, pieces: &Arc<Pieces>) {
    for stream in listener.incoming() {
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        let Ok(stream) = stream else {
            // Mostly too many open files: some will be closed, and retrying at once would not help.
            std::thread::sleep(PAUSE);
            continue;
        };
        let pieces = Arc::clone(pieces);
        // A reader that disconnects has ended, or reports the error itself.
        std::thread::spawn(move || answer(stream, &pieces));
    }
}

fn answer(mut stream: UnixStream, pieces: &Pieces) -> io::Result<()> {
    let mut fetcher = None;
    while let Some(request) = read_request(&mut stream)? {
        match request {
            RangeRequest::Expect(span, when) => pieces.expect(span, when),
            RangeRequest::Read(span, when) => match pieces.read(span, when, &mut fetcher) {
                Ok((kept, bytes)) => write_answer(&mut stream, Ok((kept, &bytes)))?,
                Err(why) => write_answer(&mut stream, Err(&why))?,
            },
        }
    }
    Ok(())
}
