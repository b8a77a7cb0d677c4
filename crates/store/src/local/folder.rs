//! A sandboxed folder: remote names become files below it, never outside.
//!
//! The kernel resolves each path below the opened folder and refuses links and `..` (`openat2` with `RESOLVE_BENEATH`
//! and `RESOLVE_NO_SYMLINKS`), so not even replacing a folder by a link meanwhile leads a write outside.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags};

/// An opened folder.
#[derive(Debug)]
pub(crate) struct Folder {
    fd: OwnedFd,
    path: PathBuf,
}

const RESOLVE: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS);

impl Folder {
    /// Opens a folder, which is made if it is not there. The path itself may be a link: it is the user's.
    pub fn open(path: &Path) -> io::Result<Folder> {
        std::fs::create_dir_all(path)?;
        let fd = rustix::fs::open(path, OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::RDONLY, Mode::empty())?;
        Ok(Folder { fd, path: path.to_owned() })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn at(&self, name: &str, flags: OFlags) -> io::Result<OwnedFd> {
        let mode = if flags.contains(OFlags::CREATE) { Mode::from_raw_mode(0o666) } else { Mode::empty() };
        Ok(rustix::fs::openat2(&self.fd, name, flags | OFlags::CLOEXEC, mode, RESOLVE)?)
    }

    /// Opens a file to read it, if it is a plain file.
    pub fn read(&self, name: &str) -> io::Result<Option<File>> {
        // Non-blocking, so that a pipe does not block us.
        match self.at(name, OFlags::RDONLY | OFlags::NONBLOCK) {
            Ok(fd) => {
                let file = File::from(fd);
                Ok(file.metadata()?.is_file().then_some(file))
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
            // A link is not read; it is replaced.
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Opens a file to read and write it, which is made if it is not there, with the folders above it.
    pub fn write(&self, name: &str) -> io::Result<File> {
        self.make_parents(name)?;
        Ok(File::from(self.at(name, OFlags::RDWR | OFlags::CREATE | OFlags::NONBLOCK | OFlags::NOFOLLOW)?))
    }

    /// Opens a file to read it and to write at its end, which is made if it is not there.
    pub fn append(&self, name: &str) -> io::Result<File> {
        self.make_parents(name)?;
        Ok(File::from(self.at(name, OFlags::RDWR | OFlags::CREATE | OFlags::APPEND | OFlags::NOFOLLOW)?))
    }

    /// Moves a finished file into place; an existing file is replaced, a folder is not.
    pub fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.make_parents(to)?;
        let (from_folder, from_name) = self.split(from)?;
        let (to_folder, to_name) = self.split(to)?;
        Ok(rustix::fs::renameat(&from_folder, from_name, &to_folder, to_name)?)
    }

    /// Removes a file; a missing one is not an error.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        let removed =
            self.split(name).and_then(|(folder, name)| Ok(rustix::fs::unlinkat(&folder, name, AtFlags::empty())?));
        match removed {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Removes an empty folder; that it is not empty or not there is no error.
    pub fn remove_folder(&self, name: &str) {
        if let Ok((folder, name)) = self.split(name) {
            let _ = rustix::fs::unlinkat(&folder, name, AtFlags::REMOVEDIR);
        }
    }

    /// Opens the parent folder of a name; also returns its last component.
    fn split<'a>(&self, name: &'a str) -> io::Result<(OwnedFd, &'a str)> {
        let (folder, name) = name.rsplit_once('/').unwrap_or((".", name));
        Ok((self.at(folder, OFlags::DIRECTORY | OFlags::RDONLY)?, name))
    }

    fn make_parents(&self, name: &str) -> io::Result<()> {
        for (end, _) in name.match_indices('/') {
            let folder = &name[..end];
            if self.at(folder, OFlags::DIRECTORY | OFlags::RDONLY).is_ok() {
                continue;
            }
            let (above, last) = self.split(folder)?;
            match rustix::fs::mkdirat(&above, last, Mode::from_raw_mode(0o777)) {
                Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Makes everything durable that was written to its disk.
    pub fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::syncfs(&self.fd)?)
    }

    /// Free bytes on its disk that are available to this user.
    pub fn free(&self) -> io::Result<u64> {
        let disk = rustix::fs::fstatvfs(&self.fd)?;
        Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn nothing_leaves_the_folder() {
        let temporary = tempfile::tempdir().unwrap();
        let (inner, outer) = (temporary.path().join("inner"), temporary.path().join("outer"));
        std::fs::create_dir_all(&outer).unwrap();
        std::fs::write(outer.join("kept"), "kept").unwrap();
        let folder = Folder::open(&inner).unwrap();
        symlink(&outer, inner.join("link")).unwrap();
        symlink(outer.join("kept"), inner.join("file")).unwrap();
        for name in ["../outer/x", "link/x", "link/kept", "file", "/etc/gradus-test", "a/../../outer/x"] {
            assert!(folder.write(name).is_err(), "{name}");
        }
        assert!(folder.read("link/kept").unwrap().is_none() && folder.read("file").unwrap().is_none());
        folder.write("new/deep/file").unwrap().write_all(b"x").unwrap();
        assert!(folder.rename("new/deep/file", "link/file").is_err());
        assert!(folder.rename("new/deep/file", "../file").is_err());
        // A link in place of a file is replaced, and its target is unchanged.
        folder.rename("new/deep/file", "file").unwrap();
        assert_eq!(std::fs::read_to_string(inner.join("file")).unwrap(), "x");
        assert_eq!(std::fs::read_to_string(outer.join("kept")).unwrap(), "kept");
        assert_eq!(std::fs::read_dir(&outer).unwrap().count(), 1);
    }
}
