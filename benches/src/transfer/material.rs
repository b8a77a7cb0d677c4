//! Test data: a tar of noise in the lengths of images, and text.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use xtask::draws::Draws;

/// Bytes of an image: 49 to 147 kB.
pub fn length(number: u64) -> usize {
    49_000 + Draws::new(number).below(98_000) as usize
}

/// Bytes of an image in the tar.
pub fn member(number: u64) -> u64 {
    512 + length(number).next_multiple_of(512) as u64
}

/// A tar of JPEG-like files named by their numbers: pseudo-random bytes of each number's [`length`].
pub fn tar(members: &[u64]) -> Vec<u8> {
    let mut file = Vec::new();
    for &member in members {
        let bytes = Draws::new(member).bytes(length(member));
        let mut header = [0_u8; 512];
        header[..10].copy_from_slice(format!("{member:06}.jpg").as_bytes());
        header[124..136].copy_from_slice(format!("{:011o}\0", bytes.len()).as_bytes());
        header[156] = b'0';
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum::<u32>() + 8 * 32;
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        file.extend(header);
        file.extend(&bytes);
        file.resize(file.len().next_multiple_of(512), 0);
    }
    file.resize(file.len() + 1024, 0);
    file
}

/// A folder with much source text: the crates that we are built from, else our own.
pub fn sources(root: &Path) -> PathBuf {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cargo")));
    home.map(|home| home.join("registry/src")).filter(|folder| folder.is_dir()).unwrap_or_else(|| root.to_owned())
}

/// Up to 40 MB of the text below a folder, in the order of names.
pub fn gather(folder: &Path, bytes: &mut Vec<u8>) -> Result<(), Box<dyn Error>> {
    let mut entries = fs::read_dir(folder)?.collect::<Result<Vec<_>, _>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for path in entries.iter().map(fs::DirEntry::path) {
        if bytes.len() >= 40_000_000 {
            return Ok(());
        }
        let is_text = path.extension().is_some_and(|end| ["rs", "md", "toml", "txt"].iter().any(|known| end == *known));
        if path.is_dir() && !path.is_symlink() {
            gather(&path, bytes)?;
        } else if is_text {
            bytes.extend(fs::read(&path)?);
        }
    }
    Ok(())
}
