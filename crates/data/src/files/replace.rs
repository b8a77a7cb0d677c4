//! Atomic replacement of a file.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

/// Replaces a file atomically: readers see the old or the new contents, also after a crash.
pub(crate) fn replace(folder: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let temporary = folder.join(format!("{name}.tmp"));
    let mut file = fs::File::create(&temporary)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&temporary, folder.join(name))?;
    fs::File::open(folder)?.sync_all()
}
