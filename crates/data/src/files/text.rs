//! Small text files, plain or gzipped, distinguished by their first bytes rather than their names.

use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;

/// A few compressed bytes may claim to hold very many.
const LONGEST: u64 = 256 << 20;

/// Returns the text of a file in UTF-8 of at most 256 MiB.
///
/// # Errors
/// That it cannot be read, is no UTF-8 or is longer.
pub fn text(path: &Path) -> io::Result<String> {
    let mut plain = BufReader::new(crate::files::plain_file::open(path)?);
    let is_packed = plain.fill_buf()?.starts_with(&[0x1f, 0x8b]);
    let mut reader: Box<dyn Read> = match is_packed {
        true => Box::new(MultiGzDecoder::new(plain)),
        false => Box::new(plain),
    };
    let mut text = String::new();
    reader.by_ref().take(LONGEST + 1).read_to_string(&mut text)?;
    match text.len() as u64 > LONGEST {
        true => Err(io::Error::new(io::ErrorKind::FileTooLarge, "it holds more than 256 MiB of text")),
        false => Ok(text),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;

    use super::*;

    #[test]
    fn packed_and_plain_text_read_alike() {
        let folder = tempfile::tempdir().unwrap();
        let (plain, packed) = (folder.path().join("plain"), folder.path().join("packed"));
        std::fs::write(&plain, "0,1\n").unwrap();
        let mut encoder = flate2::write::GzEncoder::new(File::create(&packed).unwrap(), flate2::Compression::fast());
        encoder.write_all(b"0,1\n").unwrap();
        encoder.finish().unwrap();
        assert_eq!(text(&plain).unwrap(), "0,1\n");
        assert_eq!(text(&packed).unwrap(), "0,1\n");
        std::fs::write(&plain, [0xff, 0xfe]).unwrap();
        assert!(text(&plain).is_err() && text(folder.path()).is_err());
    }
}
