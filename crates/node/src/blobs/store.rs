//! The folder of blobs on a node.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use sha2::{Digest, Sha256};

use super::{CHUNK, InstallBlob, InstallRequest, InstallTarget, read_frame};

/// What a copy has left that broke off so long ago is not continued any more, unless it is asked for.
const STALE: Duration = Duration::from_secs(24 * 3600);

/// Libraries are loaded and programs started from it; as several names may be links to it, none may change it.
const MODE: u32 = 0o555;

/// `blobs/` below the root.
#[derive(Debug)]
pub(super) struct BlobFolder {
    root: PathBuf,
    blobs: PathBuf,
}

impl BlobFolder {
    /// Makes it where there is none. Whoever may write to it chooses what others run from there, so that is its user alone,
    /// whatever the umask is.
    pub(super) fn open(root: &Path) -> Result<BlobFolder, String> {
        let blobs = root.join("blobs");
        DirBuilder::new().recursive(true).mode(0o700).create(&blobs).map_err(told("make", &blobs))?;
        Ok(BlobFolder { root: root.to_owned(), blobs })
    }

    fn whole(&self, sha256: &str) -> PathBuf {
        self.blobs.join(sha256)
    }

    fn parts(&self, sha256: &str) -> PathBuf {
        self.blobs.join(format!("{sha256}.parts"))
    }

    /// How many chunks are there, from the first. A blob that is whole has all of them.
    pub(super) fn held(&self, blob: &InstallBlob) -> u32 {
        if self.whole(&blob.sha256).is_file() {
            return blob.chunks;
        }
        let parts = self.parts(&blob.sha256);
        // After a power cut a file may have its name and nothing in it.
        let is_there = |number: &u32| fs::metadata(part(&parts, *number)).is_ok_and(|file| file.len() > 0);
        (0..blob.chunks).take_while(is_there).count() as u32
    }

    /// Opens a blob that is whole. A link is none: it may lead anywhere.
    pub(super) fn open_whole(&self, sha256: &str) -> io::Result<File> {
        let path = self.whole(sha256);
        match is_hash(sha256) && fs::symlink_metadata(&path)?.is_file() {
            true => File::open(path),
            false => Err(ErrorKind::NotFound.into()),
        }
    }

    /// Reads the frames of a blob that are sent, and makes it from its chunks.
    pub(super) fn receive(&self, blob: &InstallBlob, input: &mut impl Read) -> Result<(), String> {
        if !is_hash(&blob.sha256) {
            return Err(format!("`{}` is no SHA-256", blob.sha256));
        }
        let (whole, parts) = (self.whole(&blob.sha256), self.parts(&blob.sha256));
        // Another copy may have brought it meanwhile; what is sent nevertheless is passed over.
        let is_needed = !whole.is_file();
        if is_needed {
            fs::create_dir_all(&parts).map_err(told("make", &parts))?;
        }
        for number in blob.from..blob.chunks {
            let frame = read_frame(input).map_err(|error| match error.kind() {
                ErrorKind::UnexpectedEof => "the copy broke off".to_owned(),
                _ => format!("cannot read what is sent: {error}"),
            })?;
            let path = part(&parts, number);
            if is_needed && let Err(error) = replace(&path, &frame) {
                if whole.is_file() {
                    continue;
                }
                return Err(told("write", &path)(error));
            }
        }
        if whole.is_file() {
            let _ = fs::remove_dir_all(&parts);
            return Ok(());
        }
        self.finish(blob)
    }

    /// Makes a blob from its chunks. Those of another content are deleted, so that the next copy starts over.
    fn finish(&self, blob: &InstallBlob) -> Result<(), String> {
        let (whole, parts) = (self.whole(&blob.sha256), self.parts(&blob.sha256));
        let fresh = self.blobs.join(format!("{}.partial-{}", blob.sha256, std::process::id()));
        let joined = join(&parts, blob.chunks, &fresh);
        let done = match &joined {
            Ok(found) if *found == blob.sha256 => fs::rename(&fresh, &whole).map_err(told("rename", &fresh)),
            Ok(_) => Err("what came is not what was sent; it is copied again with the next try".to_owned()),
            Err(error) => Err(told("write", &fresh)(io::Error::new(error.kind(), error.to_string()))),
        };
        if done.is_err() {
            let _ = fs::remove_file(&fresh);
            if whole.is_file() {
                return Ok(());
            }
        }
        // With a full disk they are good, and are continued.
        let are_over = joined.as_ref().map_or_else(|error| error.kind() == ErrorKind::InvalidData, |_| true);
        if are_over {
            let _ = fs::remove_dir_all(&parts);
        }
        done
    }

    /// Makes a folder of links to blobs.
    pub(super) fn install(&self, target: &InstallTarget) -> Result<(), String> {
        let folder = self.root.join(inner(&target.folder)?);
        // Something may run from it.
        if self.is_installed(&folder, target) {
            return Ok(());
        }
        let fresh = match target.is_whole {
            true => beside(&folder),
            false => folder.clone(),
        };
        for (name, sha256) in &target.files {
            if !is_hash(sha256) {
                return Err(format!("`{sha256}` is no SHA-256"));
            }
            let path = fresh.join(inner(name)?);
            link(&self.whole(sha256), &path).map_err(told("write", &path))?;
        }
        if target.is_whole {
            match fs::remove_dir_all(&folder) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(told("replace", &folder)(error)),
                _ => {}
            }
            if let Err(error) = fs::rename(&fresh, &folder) {
                let _ = fs::remove_dir_all(&fresh);
                // Another copy may have been first.
                return self.is_installed(&folder, target).then_some(()).ok_or_else(|| told("make", &folder)(error));
            }
        }
        Ok(())
    }

    /// Whether each file of the folder is a link to its blob.
    fn is_installed(&self, folder: &Path, target: &InstallTarget) -> bool {
        let identity = |path: PathBuf| fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
        target.files.iter().all(|(name, sha256)| {
            let of_blob = identity(self.whole(sha256));
            of_blob.is_some() && of_blob == identity(folder.join(name))
        })
    }

    /// Deletes what copies have left that broke off a day ago or earlier, and blobs that no folder has; not what is asked for.
    /// What cannot be deleted stays.
    pub(super) fn sweep(&self, request: &InstallRequest) {
        let is_wanted = |name: &OsStr| {
            let name = name.to_string_lossy();
            let of = name.strip_suffix(".parts").unwrap_or(&name);
            request.blobs.iter().any(|blob| blob.sha256 == of)
        };
        for entry in entries(&self.blobs).filter(|entry| !is_wanted(&entry.file_name())) {
            let is_used = entry.metadata().is_ok_and(|file| file.is_file() && file.nlink() > 1);
            if !is_used {
                delete_stale(&entry);
            }
        }
        for target in &request.targets {
            let Ok(folder) = inner(&target.folder).map(|folder| self.root.join(folder)) else { continue };
            let (Some(parent), Some(name)) = (folder.parent(), folder.file_name()) else { continue };
            let left = format!("{}.partial-", name.to_string_lossy());
            let is_left = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with(&left);
            entries(parent).filter(is_left).for_each(|entry| delete_stale(&entry));
        }
    }
}

/// Where a chunk is.
fn part(parts: &Path, number: u32) -> PathBuf {
    parts.join(format!("{number:05}"))
}

/// Where a file or folder grows before it gets its name.
fn beside(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!("{name}.partial-{}", std::process::id()))
}

/// Writes a file that has its name only once it is whole.
fn replace(path: &Path, contents: &[u8]) -> io::Result<()> {
    let fresh = beside(path);
    fs::write(&fresh, contents)?;
    fs::rename(&fresh, path)
}

/// Decompresses chunks one after the other into a file; returns the SHA-256 of it. Durable when this returns.
fn join(parts: &Path, chunks: u32, to: &Path) -> io::Result<String> {
    let (mut file, mut digest) = (File::create(to)?, Sha256::new());
    for number in 0..chunks {
        let frame = fs::read(part(parts, number))?;
        let raw = zstd::bulk::decompress(&frame, CHUNK as usize)
            .map_err(|error| io::Error::new(ErrorKind::InvalidData, format!("a chunk is damaged: {error}")))?;
        digest.update(&raw);
        file.write_all(&raw)?;
    }
    file.set_permissions(fs::Permissions::from_mode(MODE))?;
    file.sync_all()?;
    Ok(digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Gives a blob one more name; where the file system has no links, a copy has it.
fn link(blob: &Path, path: &Path) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let fresh = beside(path);
    // One of the same process id may have been killed here.
    let _ = fs::remove_file(&fresh);
    if fs::hard_link(blob, &fresh).is_err() {
        fs::copy(blob, &fresh)?;
        // As durable as the blob: after a power cut it is taken for whole by its name.
        File::open(&fresh)?.sync_all()?;
    }
    fs::rename(&fresh, path)?;
    // Renaming one name of a file to another name of it does nothing.
    let _ = fs::remove_file(&fresh);
    Ok(())
}

/// A path that leads nowhere but below.
fn inner(path: &str) -> Result<&Path, String> {
    let path = Path::new(path);
    let is_inner = path.components().all(|part| matches!(part, Component::Normal(_)));
    if is_inner && path.file_name().is_some() {
        return Ok(path);
    }
    Err(format!("`{}` is no path below `.gradus`", path.display()))
}

fn is_hash(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|letter| matches!(letter, b'0'..=b'9' | b'a'..=b'f'))
}

fn entries(folder: &Path) -> impl Iterator<Item = fs::DirEntry> {
    fs::read_dir(folder).into_iter().flatten().flatten()
}

fn delete_stale(entry: &fs::DirEntry) {
    let Ok(metadata) = entry.metadata() else { return };
    // A clock that was set back makes nothing stale.
    let age = metadata.modified().ok().and_then(|at| at.elapsed().ok());
    if age.is_some_and(|age| age > STALE) {
        let path = entry.path();
        let _ = if metadata.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    }
}

fn told(doing: &str, path: &Path) -> impl FnOnce(io::Error) -> String + use<> {
    let what = format!("cannot {doing} `{}`", path.display());
    move |error| format!("{what}: {error}")
}
