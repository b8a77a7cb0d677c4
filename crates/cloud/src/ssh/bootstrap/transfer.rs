//! Files that are installed on a machine: what it does not hold yet of them is sent, compressed, in chunks
//! ([`node::blobs`]).

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use domain::Bytes;
use domain::rental::FailedPeer;
use node::blobs::{
    self, CHUNK, INSTALL_SCHEMA, InstallAnswer, InstallBlob, InstallRequest, InstallStep, InstallTarget,
};

use super::Site;
use crate::ssh::connection::{Connection, SshError};

const DOING: &str = "install programs and libraries";

/// What was copied to a machine.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CopiedFiles {
    /// Contents of all files that it needed; of equal ones once.
    pub whole: Bytes,
    /// What of these it held, of a copy that broke off or of another version.
    pub held: Bytes,
    /// What was sent from here, compressed.
    pub sent: Bytes,
    /// What came from other nodes.
    pub peers: Vec<PeerCopy>,
}

impl CopiedFiles {
    /// Contents that were sent from here, as they are when they are not compressed.
    pub fn from_here(&self) -> Bytes {
        let of_peers: u64 = self.peers.iter().map(|copied| copied.bytes.0).sum();
        Bytes(self.whole.0.saturating_sub(self.held.0).saturating_sub(of_peers))
    }

    /// The nodes that could not send everything that they were asked for and have.
    pub fn failed_peers(&self) -> Vec<FailedPeer> {
        let failed = |copied: &PeerCopy| {
            let why = copied.failed.clone()?;
            Some(FailedPeer { peer: copied.peer.clone(), why, sent: self.from_here() })
        };
        self.peers.iter().filter_map(failed).collect()
    }
}

/// What was fetched from one other node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerCopy {
    /// Its name.
    pub peer: String,
    /// Contents that came from it, as they are when they are not compressed.
    pub bytes: Bytes,
    /// Why not everything came that it was asked for.
    pub failed: Option<String>,
}

/// A folder there, and the files here that it is to have.
#[derive(Debug)]
pub(super) struct SourceFolder {
    /// Its path below `.gradus`.
    pub folder: String,
    /// Whether it appears with all files at once.
    pub is_whole: bool,
    /// Path of each file in it, and where the file is here.
    pub files: Vec<(String, PathBuf)>,
}

/// The contents of one file here, or of several equal ones.
#[derive(Debug)]
struct SourceBlob {
    path: PathBuf,
    bytes: u64,
    blob: InstallBlob,
}

/// A copy of folders to a machine: what they are made of, and what of it is there.
#[derive(Debug)]
pub(super) struct InstallCopy<'a> {
    connection: &'a Connection,
    site: &'a Site,
    targets: Vec<InstallTarget>,
    sources: Vec<SourceBlob>,
}

impl<'a> InstallCopy<'a> {
    /// Reads what is to be copied. It is not known yet what the machine holds of it.
    ///
    /// # Errors
    /// When a file here cannot be read.
    pub fn new(connection: &'a Connection, site: &'a Site, from: &[SourceFolder]) -> Result<InstallCopy<'a>, SshError> {
        let (targets, sources) = hashed(from)
            .map_err(|(path, source)| SshError::Here { doing: format!("read `{}`", path.display()), source })?;
        Ok(InstallCopy { connection, site, targets, sources })
    }

    /// Where things are on the machine.
    pub fn site(&self) -> &'a Site {
        self.site
    }

    /// Contents of all blobs.
    pub fn whole(&self) -> Bytes {
        Bytes(self.sources.iter().map(|source| source.bytes).sum())
    }

    /// What the machine held of them when it was looked at last.
    pub fn held(&self) -> Bytes {
        held(&self.sources)
    }

    /// The blobs that the machine does not hold whole, each with the first chunk that is missing.
    pub fn missing(&self) -> Vec<InstallBlob> {
        let missing = self.sources.iter().map(|source| &source.blob).filter(|blob| blob.from < blob.chunks);
        missing.cloned().collect()
    }

    /// Asks the machine what it holds.
    ///
    /// # Errors
    /// [`SshError`].
    pub fn look(&mut self) -> Result<(), SshError> {
        let blobs = self.sources.iter().map(|source| source.blob.clone()).collect();
        let answer = self.ask(InstallStep::Look, blobs)?;
        let held = self.read(answer)?;
        for (source, held) in self.sources.iter_mut().zip(held) {
            source.blob.from = held.min(source.blob.chunks);
        }
        Ok(())
    }

    /// Makes a request that no frames follow. Where it runs it says itself what goes wrong, and ends well.
    ///
    /// # Errors
    /// [`SshError`].
    pub fn ask(&self, step: InstallStep, blobs: Vec<InstallBlob>) -> Result<InstallAnswer, SshError> {
        let line = self.line(step, blobs)?;
        let said = self.connection.run(super::RUN_GRADUS, &self.command(), &line)?;
        self.parse(&said)
    }

    /// Sends what the machine does not hold, and has the folders made; returns how many bytes were sent.
    ///
    /// # Errors
    /// [`SshError`].
    pub fn send(&self) -> Result<u64, SshError> {
        let blobs = self.sources.iter().map(|source| source.blob.clone()).collect();
        let line = self.line(InstallStep::Receive, blobs)?;
        // What went wrong here is known better than what the machine makes of it.
        let (mut sent, mut own) = (0, None);
        let said = self.connection.feed(DOING, &self.command(), |pipe| match send(&line, &self.sources, pipe) {
            Ok(bytes) => {
                sent = bytes;
                Ok(())
            }
            Err(error) => {
                let kind = error.kind();
                own = Some(error);
                Err(kind.into())
            }
        })?;
        // It stops reading where it cannot continue, and says why.
        if let Some(source) = own.filter(|error| error.kind() != ErrorKind::BrokenPipe) {
            return Err(SshError::Here { doing: format!("send files to `{}`", self.connection.host()), source });
        }
        self.read(self.parse(&said)?)?;
        Ok(sent)
    }

    fn command(&self) -> String {
        self.site.command(&["node-files"])
    }

    fn line(&self, step: InstallStep, blobs: Vec<InstallBlob>) -> Result<Vec<u8>, SshError> {
        let (root, targets) = (PathBuf::from(&self.site.installed), self.targets.clone());
        let request = InstallRequest { schema: INSTALL_SCHEMA, root, step, blobs, targets };
        let mut line = serde_json::to_vec(&request).map_err(|error| self.failed(error.to_string()))?;
        line.push(b'\n');
        Ok(line)
    }

    fn parse(&self, said: &[u8]) -> Result<InstallAnswer, SshError> {
        serde_json::from_slice(said).map_err(|error| self.failed(format!("`gradus node-files` answered: {error}")))
    }

    fn read(&self, answer: InstallAnswer) -> Result<Vec<u32>, SshError> {
        match answer.failed {
            Some(why) => Err(self.failed(why)),
            None => Ok(answer.held),
        }
    }

    fn failed(&self, why: String) -> SshError {
        SshError::Failed { host: self.connection.host().to_owned(), doing: DOING.to_owned(), why }
    }
}

fn held(sources: &[SourceBlob]) -> Bytes {
    Bytes(sources.iter().map(|source| source.bytes.min(u64::from(source.blob.from) * CHUNK)).sum())
}

/// What the machine is to install, and each blob of it once, in the order in which they are needed.
fn hashed(from: &[SourceFolder]) -> Result<(Vec<InstallTarget>, Vec<SourceBlob>), (PathBuf, io::Error)> {
    let (mut targets, mut sources, mut known) =
        (Vec::new(), Vec::<SourceBlob>::new(), BTreeMap::<PathBuf, String>::new());
    for folder in from {
        let mut files = Vec::new();
        for (name, path) in &folder.files {
            let at = |error| (path.clone(), error);
            // Links to one file are read once.
            let place = fs::canonicalize(path).map_err(at)?;
            let sha256 = match known.get(&place) {
                Some(sha256) => sha256.clone(),
                None => node::sha256(File::open(path).map_err(at)?).map_err(at)?,
            };
            if !sources.iter().any(|source| source.blob.sha256 == sha256) {
                let bytes = fs::metadata(path).map_err(at)?.len();
                let blob = InstallBlob { sha256: sha256.clone(), chunks: blobs::chunks(bytes), from: 0 };
                sources.push(SourceBlob { path: path.clone(), bytes, blob });
            }
            known.insert(place, sha256.clone());
            files.push((name.clone(), sha256));
        }
        targets.push(InstallTarget { folder: folder.folder.clone(), is_whole: folder.is_whole, files });
    }
    Ok((targets, sources))
}

/// Writes the request, and each blob from the chunk on that the machine does not hold; returns how many bytes that were.
fn send(line: &[u8], sources: &[SourceBlob], pipe: &mut dyn Write) -> io::Result<u64> {
    pipe.write_all(line)?;
    let (mut sent, mut raw) = (line.len() as u64, Vec::new());
    for SourceBlob { path, blob, .. } in sources.iter().filter(|source| source.blob.from < source.blob.chunks) {
        let at = |error: io::Error| io::Error::new(error.kind(), format!("cannot read `{}`: {error}", path.display()));
        let mut file = File::open(path).map_err(at)?;
        file.seek(SeekFrom::Start(u64::from(blob.from) * CHUNK)).map_err(at)?;
        for _ in blob.from..blob.chunks {
            raw.clear();
            Read::by_ref(&mut file).take(CHUNK).read_to_end(&mut raw).map_err(at)?;
            sent += blobs::write_frame(&raw, pipe)?;
        }
    }
    pipe.flush()?;
    Ok(sent)
}

/// The files that ranks need of a folder of libtorch, links followed: a pruned copy may consist of them.
///
/// # Errors
/// When a folder cannot be read.
pub(super) fn libraries(libtorch: &Path) -> io::Result<Vec<(String, PathBuf)>> {
    let mut files = Vec::new();
    let mut folders = vec!["lib".to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(libtorch.join(&folder))? {
            let name = format!("{folder}/{}", entry?.file_name().to_string_lossy());
            let path = libtorch.join(&name);
            let is_static = path.extension().is_some_and(|extension| extension == "a");
            match fs::metadata(&path)? {
                below if below.is_dir() => folders.push(name),
                _ if is_static => {}
                _ => files.push((name, path)),
            }
        }
    }
    // Each library in the same order, whatever the disk's is.
    files.sort();
    // A rank is started only if one of these has the right version.
    let versions = ["build-version", "version.py"].map(|name| (name.to_owned(), libtorch.join(name)));
    files.extend(versions.into_iter().filter(|(_, path)| path.is_file()));
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(path: &Path, contents: &[u8]) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, contents).unwrap();
    }

    /// A folder of libtorch whose large file has two names.
    fn library(folder: &Path) {
        let large: Vec<u8> = (0..2 * CHUNK + 5).map(|at| (at / CHUNK) as u8).collect();
        write(&folder.join("lib/liblarge.so"), &large);
        std::os::unix::fs::symlink("liblarge.so", folder.join("lib/liblarge.so.1")).unwrap();
        write(&folder.join("lib/below/libsmall.so"), b"small");
        write(&folder.join("lib/libstatic.a"), b"static");
        write(&folder.join("build-version"), b"2.11.0+cpu\n");
        write(&folder.join("include/torch.h"), b"header");
    }

    fn source(folder: &Path) -> SourceFolder {
        SourceFolder { folder: "lib/torch".into(), is_whole: true, files: libraries(folder).unwrap() }
    }

    #[test]
    fn a_node_that_failed_is_named_with_what_was_sent_from_here() {
        let copy = |peer: &str, bytes: u64, failed: Option<&str>| PeerCopy {
            peer: peer.into(),
            bytes: Bytes(bytes),
            failed: failed.map(str::to_owned),
        };
        let peers = vec![copy("west", 100, Some("it is off")), copy("east", 50, None)];
        let copied = CopiedFiles { whole: Bytes(500), held: Bytes(200), sent: Bytes(30), peers };
        let failed = FailedPeer { peer: "west".into(), why: "it is off".into(), sent: Bytes(150) };
        assert_eq!(copied.failed_peers(), [failed]);
        assert!(CopiedFiles::default().failed_peers().is_empty());
    }

    #[test]
    fn of_libtorch_go_the_libraries_and_the_version() {
        let folder = tempfile::tempdir().unwrap();
        library(folder.path());
        let files = libraries(folder.path()).unwrap();
        let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["lib/below/libsmall.so", "lib/liblarge.so", "lib/liblarge.so.1", "build-version"]);
        assert!(libraries(&folder.path().join("lib")).is_err());
    }

    #[test]
    fn what_is_sent_is_what_the_machine_does_not_hold_and_equal_files_once() {
        let folder = tempfile::tempdir().unwrap();
        library(folder.path());
        let (targets, mut sources) = hashed(&[source(folder.path())]).unwrap();
        assert_eq!(targets[0].files.len(), 4);
        let chunks = |sources: &[SourceBlob]| sources.iter().map(|source| source.blob.chunks).collect::<Vec<_>>();
        assert_eq!(chunks(&sources), [1, 3, 1]);
        let all = send(b"line\n", &sources, &mut io::sink()).unwrap();
        sources[1].blob.from = 2;
        let rest = send(b"line\n", &sources, &mut io::sink()).unwrap();
        assert!(rest < all, "{rest} of {all}");
        assert_eq!(held(&sources).0, 2 * CHUNK);
        for source in &mut sources {
            source.blob.from = source.blob.chunks;
        }
        assert_eq!(send(b"line\n", &sources, &mut io::sink()).unwrap(), 5);
        assert_eq!(held(&sources).0, 2 * CHUNK + 5 + 5 + 11, "the last chunk is short");
    }

    #[test]
    fn what_is_sent_is_installed_by_what_answers_there() {
        let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        library(here.path());
        let (targets, mut sources) = hashed(&[source(here.path())]).unwrap();
        let mut ask = |held: Option<&[u32]>| {
            for (at, from) in held.unwrap_or_default().iter().enumerate() {
                sources[at].blob.from = *from;
            }
            let step = held.map_or(InstallStep::Look, |_| InstallStep::Receive);
            let blobs = sources.iter().map(|source| source.blob.clone()).collect();
            let (schema, root) = (INSTALL_SCHEMA, there.path().to_owned());
            let request = InstallRequest { schema, root, step, blobs, targets: targets.clone() };
            let mut wire = Vec::<u8>::new();
            let line = format!("{}\n", serde_json::to_string(&request).unwrap());
            match held {
                None => wire.extend_from_slice(line.as_bytes()),
                Some(_) => {
                    send(line.as_bytes(), &sources, &mut wire).unwrap();
                }
            }
            let cut = wire.len() - if held.is_some_and(|held| held == [0, 0, 0]) { 40 } else { 0 };
            blobs::answer(io::Cursor::new(&wire[..cut]))
        };
        assert_eq!(ask(None), InstallAnswer { held: vec![0, 0, 0], failed: None });
        let cut = ask(Some(&[0, 0, 0][..]));
        assert!(cut.failed.is_some() && cut.held == ask(None).held, "{cut:?}");
        assert!(!there.path().join("lib/torch").exists());
        assert_eq!(ask(Some(&cut.held[..])), InstallAnswer { held: vec![1, 3, 1], failed: None });
        let copied = |name: &str| fs::read(there.path().join("lib/torch").join(name)).unwrap();
        for name in ["lib/below/libsmall.so", "lib/liblarge.so", "lib/liblarge.so.1", "build-version"] {
            assert!(copied(name) == fs::read(here.path().join(name)).unwrap(), "{name}");
        }
    }
}
