//! Unix sockets that no other user can open, from the start.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Sockets that this process has made.
static MADE: AtomicU32 = AtomicU32::new(0);

/// Listens at `path`, of at most 100 bytes, where only this user can connect. A socket is created with the permissions
/// that the umask allows, so it is created in a folder of mode 0700, restricted there, and then moved to its path,
/// which must be free.
///
/// # Errors
/// If something cannot be created, or `path` exists.
pub fn listen(path: &Path) -> io::Result<UnixListener> {
    if path.symlink_metadata().is_ok() {
        return Err(io::ErrorKind::AddrInUse.into());
    }
    let folder = Private::beside(path)?;
    // A short name: a path of a socket has at most 108 bytes.
    let file = folder.0.join("s");
    let listener = UnixListener::bind(&file)?;
    fs::set_permissions(&file, Permissions::from_mode(0o600))?;
    fs::rename(&file, path)?;
    Ok(listener)
}

/// A folder of mode 0700; dropping it removes it and the socket in it.
struct Private(PathBuf);

impl Private {
    fn beside(path: &Path) -> io::Result<Private> {
        let beside = path.parent().unwrap_or(Path::new("."));
        let process = std::process::id();
        loop {
            let number = MADE.fetch_add(1, Ordering::Relaxed);
            let folder = beside.join(format!(".{process:x}-{number:x}"));
            match DirBuilder::new().mode(0o700).create(&folder) {
                Ok(()) => return Ok(Private(folder)),
                // Of an earlier process with this number that was killed.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.0.join("s"));
        let _ = fs::remove_dir(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_socket_is_private_and_takes_no_place_of_another() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("rank.sock");
        let listener = listen(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let _reader = UnixStream::connect(&path).unwrap();
        listener.accept().unwrap();
        assert_eq!(listen(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        let left: Vec<_> = fs::read_dir(root.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["rank.sock"], "what it was made in is gone");
    }

    #[test]
    fn what_a_killed_process_left_is_in_nobodys_way() {
        let root = tempfile::tempdir().unwrap();
        let first = MADE.load(Ordering::Relaxed);
        for number in first..first + 8 {
            fs::create_dir(root.path().join(format!(".{:x}-{number:x}", std::process::id()))).unwrap();
        }
        listen(&root.path().join("s")).unwrap();
    }
}
