//! A file put in place as a whole.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

/// Puts a file in place at once: whoever looks sees the old one or the new one, also after a crash.
pub(crate) fn replace(folder: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let temporary = folder.join(format!("{name}.tmp"));
    let mut file = fs::File::create(&temporary)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&temporary, folder.join(name))?;
    fs::File::open(folder)?.sync_all()
}
