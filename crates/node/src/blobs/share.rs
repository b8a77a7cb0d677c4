//! Blobs that one node reads from another, so that programs leave the machine of their user once and not once per node.
//!
//! The sender runs `gradus node-serve` on a node that holds them, with a [`ServeRequest`] as a line on standard input. It
//! listens on the address at which `ssh` reached it, for one reader that knows the secret of the request, and ends with that
//! reader, with its standard input, or after [`WAIT`]. Then the sender has the other node [fetch](super::InstallStep::Fetch).
//! Nothing can be read but blobs that the request names, and nothing can be written. Both nodes run the executable of one hash,
//! so these messages have no version. Neither the secret nor the blobs are encrypted: they are programs, the secret is good
//! for one connection, and what arrives is compared with hashes that came by SSH.

use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::store::BlobFolder;
use super::{CHUNK, InstallBlob, sha256, write_frame};

/// For so long a reader may connect.
const WAIT: Duration = Duration::from_secs(30);

/// Within this time a connection names its blobs and the secret.
const HELLO_WITHIN: Duration = Duration::from_secs(5);

/// The most bytes of that.
const HELLO: usize = 64 << 10;

/// How long is waited before it is checked again whether anything has happened.
const PAUSE: Duration = Duration::from_millis(50);

/// A reader that takes nothing for so long is given up: meanwhile it may be writing a library to a slow disk.
const STALLED: Duration = Duration::from_secs(120);

/// Within this time a peer can be connected to, or is not used.
const CONNECT: Duration = Duration::from_secs(5);

/// A peer that sends nothing for so long is given up.
const SILENCE: Duration = Duration::from_secs(10);

/// A peer is given up as too slow after this time of waiting for it, not before.
const GRACE: Duration = Duration::from_secs(10);

/// What a reader must know; it is never printed.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FetchSecret(String);

impl FetchSecret {
    /// A new one.
    ///
    /// # Errors
    /// When the system has no random bytes.
    pub fn draw() -> io::Result<FetchSecret> {
        let mut bytes = [0; 32];
        File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        Ok(FetchSecret(bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    /// Whether both are the same. Hashes are compared, so that the time that it takes says nothing of the secret.
    fn matches(&self, other: &FetchSecret) -> bool {
        let hash = |secret: &FetchSecret| sha256(secret.0.as_bytes()).ok();
        hash(self).is_some() && hash(self) == hash(other)
    }
}

impl fmt::Debug for FetchSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FetchSecret")
    }
}

/// What a node is asked to serve: one line of JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServeRequest {
    /// SHA-256 of the blobs that may be read.
    pub blobs: Vec<String>,
    /// What the reader must know.
    pub secret: FetchSecret,
}

/// What it answers before it serves: one line of JSON.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServeOffer {
    /// Where it listens, unless it holds none of the blobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<SocketAddr>,
    /// Those of the blobs that it holds whole.
    #[serde(default)]
    pub held: Vec<String>,
    /// Why it cannot serve.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

/// Another node from which blobs are fetched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlobPeer {
    /// Where it listens.
    pub address: SocketAddr,
    /// What it must be shown.
    pub secret: FetchSecret,
    /// The bytes per second, compressed, below which it is given up.
    pub floor: u64,
}

/// The first line of a reader.
#[derive(Debug, Serialize, Deserialize)]
struct FetchHello {
    secret: FetchSecret,
    blobs: Vec<InstallBlob>,
}

/// A node that serves.
#[derive(Debug)]
struct BlobServer<'a> {
    folder: BlobFolder,
    listener: TcpListener,
    held: &'a [String],
    secret: &'a FetchSecret,
}

/// Serves blobs below `root` to one reader, at this address of the machine; returns once that has read them, `is_over` is set or
/// nobody came. `announce` gets the offer first.
pub fn serve(
    root: &Path,
    request: &ServeRequest,
    address: Option<&str>,
    is_over: &AtomicBool,
    announce: impl FnOnce(&ServeOffer),
) {
    let failed = |why: String| ServeOffer { failed: Some(why), ..ServeOffer::default() };
    let folder = match BlobFolder::open(root) {
        Ok(folder) => folder,
        Err(why) => return announce(&failed(why)),
    };
    let held: Vec<String> = request.blobs.iter().filter(|sha256| folder.open_whole(sha256).is_ok()).cloned().collect();
    if held.is_empty() {
        return announce(&ServeOffer::default());
    }
    match listen(address) {
        Err(why) => announce(&failed(why)),
        Ok((listener, address)) => {
            announce(&ServeOffer { address: Some(address), held: held.clone(), failed: None });
            BlobServer { folder, listener, held: &held, secret: &request.secret }.run(is_over);
        }
    }
}

/// A free port of this address and of no other one.
fn listen(address: Option<&str>) -> Result<(TcpListener, SocketAddr), String> {
    let address: IpAddr = address
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| "the address at which other nodes reach it is not known".to_owned())?;
    let failed = |error: io::Error| format!("it cannot listen at {address}: {error}");
    let listener = TcpListener::bind((address, 0)).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    Ok((listener, address))
}

impl BlobServer<'_> {
    fn run(&self, is_over: &AtomicBool) {
        let until = Instant::now() + WAIT;
        while Instant::now() < until && !is_over.load(Ordering::Relaxed) {
            let Ok((stream, _)) = self.listener.accept() else {
                std::thread::sleep(PAUSE);
                continue;
            };
            // Anybody may connect; the one reader may still come.
            if let Some(wanted) = self.greeted(&stream, is_over) {
                // What it did not get, it gets from the sender.
                let _ = self.send(&wanted, stream, is_over);
                return;
            }
        }
    }

    /// What a reader wants that knows the secret and asks for nothing else than what is offered.
    fn greeted(&self, mut stream: &TcpStream, is_over: &AtomicBool) -> Option<Vec<InstallBlob>> {
        stream.set_nonblocking(false).ok()?;
        stream.set_read_timeout(Some(PAUSE)).ok()?;
        let (until, mut line, mut buffer) = (Instant::now() + HELLO_WITHIN, Vec::new(), [0; 4096]);
        while !line.ends_with(b"\n") {
            if Instant::now() > until || line.len() > HELLO || is_over.load(Ordering::Relaxed) {
                return None;
            }
            match stream.read(&mut buffer) {
                Ok(0) => return None,
                Ok(read) => line.extend_from_slice(&buffer[..read]),
                Err(error) if is_timeout(&error) || error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return None,
            }
        }
        let hello: FetchHello = serde_json::from_slice(&line).ok()?;
        let is_offered = hello.blobs.iter().all(|blob| self.held.contains(&blob.sha256));
        (hello.secret.matches(self.secret) && is_offered).then_some(hello.blobs)
    }

    fn send(&self, wanted: &[InstallBlob], mut stream: TcpStream, is_over: &AtomicBool) -> io::Result<()> {
        stream.set_write_timeout(Some(STALLED))?;
        let mut raw = Vec::new();
        for blob in wanted {
            let mut file = self.folder.open_whole(&blob.sha256)?;
            file.seek(SeekFrom::Start(u64::from(blob.from) * CHUNK))?;
            for _ in blob.from..blob.chunks {
                raw.clear();
                Read::by_ref(&mut file).take(CHUNK).read_to_end(&mut raw)?;
                if raw.is_empty() || is_over.load(Ordering::Relaxed) {
                    return Ok(());
                }
                write_frame(&raw, &mut stream)?;
            }
        }
        Ok(())
    }
}

/// Fetches blobs from a peer, each from its chunk `from` on. What has come whole stays, also when it fails.
///
/// # Errors
/// Why the peer is not used any more.
pub(super) fn fetch(folder: &BlobFolder, blobs: &[InstallBlob], peer: &BlobPeer) -> Result<(), String> {
    let failed = |error: io::Error| format!("cannot connect to {}: {error}", peer.address);
    let mut stream = TcpStream::connect_timeout(&peer.address, CONNECT).map_err(failed)?;
    stream.set_read_timeout(Some(SILENCE)).map_err(failed)?;
    let hello = FetchHello { secret: peer.secret.clone(), blobs: blobs.to_vec() };
    let mut line = serde_json::to_vec(&hello).map_err(|error| error.to_string())?;
    line.push(b'\n');
    stream.write_all(&line).map_err(failed)?;
    let mut input = PacedReader { from: stream, floor: peer.floor, bytes: 0, waited: Duration::ZERO };
    blobs.iter().try_for_each(|blob| folder.receive(blob, &mut input))
}

/// Reads from a peer until that is too slow.
#[derive(Debug)]
struct PacedReader<R> {
    from: R,
    floor: u64,
    bytes: u64,
    /// How long was waited for these bytes; the time in which they are written here does not count.
    waited: Duration,
}

impl<R: Read> Read for PacedReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let begun = Instant::now();
        let read = self.from.read(buffer);
        self.waited += begun.elapsed();
        let slow = |why: String| io::Error::new(ErrorKind::TimedOut, why);
        let read = read.map_err(|error| match is_timeout(&error) {
            true => slow(format!("nothing came for {} s", SILENCE.as_secs())),
            false => error,
        })?;
        self.bytes += read as u64;
        match is_too_slow(self.bytes, self.waited, self.floor) {
            true => Err(slow(format!("it is slower than {} kB/s", self.floor / 1000))),
            false => Ok(read),
        }
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// Whether a peer is to be given up that has sent so many bytes while it was waited for that long.
fn is_too_slow(bytes: u64, waited: Duration, floor: u64) -> bool {
    waited >= GRACE && u128::from(bytes) * 1000 < u128::from(floor) * waited.as_millis()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::mpsc;

    use super::super::{InstallAnswer, InstallRequest, InstallStep, answer, chunks};
    use super::*;

    /// Contents of several chunks, the last of which is short.
    fn contents() -> Vec<u8> {
        (0..2 * CHUNK + 7).map(|at| (at / CHUNK) as u8).collect()
    }

    fn blob(contents: &[u8]) -> InstallBlob {
        InstallBlob { sha256: sha256(contents).unwrap(), chunks: chunks(contents.len() as u64), from: 0 }
    }

    /// A node with these bytes under the hash of those.
    fn holder(bytes: &[u8], named: &[u8]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("blobs")).unwrap();
        fs::write(root.path().join("blobs").join(sha256(named).unwrap()), bytes).unwrap();
        root
    }

    fn secret(text: &str) -> FetchSecret {
        FetchSecret(text.to_owned())
    }

    fn fetched(root: &Path, peer: BlobPeer, blobs: &[InstallBlob]) -> InstallAnswer {
        let request = InstallRequest {
            schema: super::super::INSTALL_SCHEMA,
            root: root.to_owned(),
            step: InstallStep::Fetch(peer),
            blobs: blobs.to_vec(),
            targets: Vec::new(),
        };
        answer(io::Cursor::new(format!("{}\n", serde_json::to_string(&request).unwrap())))
    }

    /// Has a node that holds the blobs of `asked` serve them while `read` reads with the address of its offer.
    fn while_served<T>(root: &Path, asked: &[InstallBlob], read: impl FnOnce(SocketAddr) -> T) -> T {
        let blobs = asked.iter().map(|blob| blob.sha256.clone()).collect();
        let request = ServeRequest { blobs, secret: secret("right") };
        let is_over = AtomicBool::new(false);
        let (sender, receiver) = mpsc::channel();
        std::thread::scope(|scope| {
            let is_over = &is_over;
            let request = &request;
            scope.spawn(move || {
                serve(root, request, Some("127.0.0.1"), is_over, |offer| sender.send(offer.clone()).unwrap());
            });
            let offer = receiver.recv().unwrap();
            let read = read(offer.address.expect("it holds them"));
            is_over.store(true, Ordering::Relaxed);
            read
        })
    }

    fn peer(address: SocketAddr, known: &str) -> BlobPeer {
        BlobPeer { address, secret: secret(known), floor: 1 }
    }

    #[test]
    fn a_node_fetches_from_another_what_it_lacks_and_compares_the_hash() {
        let (contents, reader) = (contents(), tempfile::tempdir().unwrap());
        let wanted = [blob(&contents)];
        let holder = holder(&contents, &contents);
        let found =
            while_served(holder.path(), &wanted, |address| fetched(reader.path(), peer(address, "right"), &wanted));
        assert_eq!(found, InstallAnswer { held: vec![3], failed: None });
        assert!(fs::read(reader.path().join("blobs").join(&wanted[0].sha256)).unwrap() == contents);
    }

    #[test]
    fn a_fetch_continues_behind_the_last_whole_chunk() {
        let (contents, reader) = (contents(), tempfile::tempdir().unwrap());
        let mut wanted = [blob(&contents)];
        let holder = holder(&contents, &contents);
        let parts = reader.path().join("blobs").join(format!("{}.parts", wanted[0].sha256));
        fs::create_dir_all(&parts).unwrap();
        let first = zstd::bulk::compress(&contents[..CHUNK as usize], 1).unwrap();
        fs::write(parts.join("00000"), first).unwrap();
        wanted[0].from = 1;
        let found =
            while_served(holder.path(), &wanted, |address| fetched(reader.path(), peer(address, "right"), &wanted));
        assert_eq!(found, InstallAnswer { held: vec![3], failed: None });
    }

    #[test]
    fn wrong_bytes_of_a_peer_get_no_name_and_leave_nothing_to_continue() {
        let (contents, reader) = (contents(), tempfile::tempdir().unwrap());
        let wanted = [blob(&contents)];
        let holder = holder(&vec![9; contents.len()], &contents);
        let found =
            while_served(holder.path(), &wanted, |address| fetched(reader.path(), peer(address, "right"), &wanted));
        assert_eq!(found.held, [0]);
        assert!(found.failed.unwrap().contains("is not what was sent"));
        assert_eq!(fs::read_dir(reader.path().join("blobs")).unwrap().count(), 0);
    }

    #[test]
    fn nothing_is_served_without_the_secret_and_nothing_that_is_not_offered() {
        let (contents, other) = (contents(), b"another program".to_vec());
        let holder = holder(&contents, &contents);
        fs::write(holder.path().join("blobs").join(sha256(&other[..]).unwrap()), &other).unwrap();
        let (wanted, reader) = ([blob(&contents)], tempfile::tempdir().unwrap());
        while_served(holder.path(), &wanted, |address| {
            let check = |known: &str, blobs: &[InstallBlob]| fetched(reader.path(), peer(address, known), blobs);
            assert_eq!(check("wrong", &wanted).held, [0], "the secret");
            assert_eq!(check("right", &[blob(&other)]).held, [0], "a blob that the request does not name");
            let outside = InstallBlob { sha256: "../secret".to_owned(), chunks: 1, from: 0 };
            assert_eq!(check("right", &[outside]).held, [0], "no blob");
            // These have not kept the reader out for whom it listens.
            assert_eq!(check("right", &wanted), InstallAnswer { held: vec![3], failed: None });
        });
    }

    #[test]
    fn a_node_without_the_blobs_opens_no_port_and_a_link_is_no_blob() {
        let (root, contents) = (tempfile::tempdir().unwrap(), contents());
        let wanted = blob(&contents);
        let request = ServeRequest { blobs: vec![wanted.sha256.clone(), "../x".to_owned()], secret: secret("right") };
        let is_over = AtomicBool::new(false);
        let mut offers = Vec::new();
        serve(root.path(), &request, Some("127.0.0.1"), &is_over, |offer| offers.push(offer.clone()));
        fs::write(root.path().join("private"), "private").unwrap();
        std::os::unix::fs::symlink("../private", root.path().join("blobs").join(&wanted.sha256)).unwrap();
        serve(root.path(), &request, Some("127.0.0.1"), &is_over, |offer| offers.push(offer.clone()));
        assert_eq!(offers, [ServeOffer::default(), ServeOffer::default()]);
        // Without an address of its own it does not listen at all of them.
        let holder = holder(&contents, &contents);
        serve(holder.path(), &request, None, &is_over, |offer| offers.push(offer.clone()));
        assert!(offers[2].address.is_none() && offers[2].failed.is_some(), "{offers:?}");
    }

    #[test]
    fn a_peer_is_given_up_once_it_was_slow_for_a_while() {
        let check = |bytes: u64, seconds: u64, expected: bool| {
            assert_eq!(is_too_slow(bytes, Duration::from_secs(seconds), 1_000_000), expected, "{bytes} in {seconds} s");
        };
        check(0, 9, false);
        check(0, 10, true);
        check(9_999_999, 10, true);
        check(10_000_000, 10, false);
        check(u64::MAX, 100, false);
    }

    #[test]
    fn a_secret_is_never_printed_and_never_the_same() {
        let (one, other) = (FetchSecret::draw().unwrap(), FetchSecret::draw().unwrap());
        assert!(one != other && one.matches(&one) && !one.matches(&other));
        assert_eq!(format!("{one:?}"), "FetchSecret");
    }
}
