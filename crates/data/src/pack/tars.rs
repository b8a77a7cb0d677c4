//! Tars in WebDataset format: an image, its class and its metadata, under one key.
//!
//! The key is the sample's id with leading zeros, so sorting by key restores the order of the packed data. Owner, time
//! and mode are fixed, so the same samples give the same bytes.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use image::ImageFormat;

use crate::files::replace::replace;
use crate::shard::{Sample, SampleCodec};

/// Where the names of the classes are: one a line, in label order.
pub(crate) const CLASSES: &str = "classes.txt";

pub(super) struct TarWriter {
    tar: tar::Builder<Hashing>,
    count: u64,
}

/// A file that is hashed while it is written.
struct Hashing {
    out: BufWriter<File>,
    hash: blake3::Hasher,
    bytes: u64,
}

impl Write for Hashing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write_all(bytes)?;
        self.hash.update(bytes);
        self.bytes += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl TarWriter {
    /// Creates the tar.
    pub fn create(path: &Path) -> io::Result<TarWriter> {
        let out = BufWriter::with_capacity(1 << 20, File::create(path)?);
        let tar = tar::Builder::new(Hashing { out, hash: blake3::Hasher::new(), bytes: 0 });
        Ok(TarWriter { tar, count: 0 })
    }

    /// Adds the members of a sample: the image, its class, and its note if it has one.
    pub fn append(&mut self, sample: &Sample) -> io::Result<()> {
        let key = format!("{:010}", sample.id);
        self.member(&format!("{key}.{}", ending(sample)?), &sample.bytes)?;
        self.member(&format!("{key}.cls"), sample.label.to_string().as_bytes())?;
        if !sample.note.is_empty() {
            self.member(&format!("{key}.json"), &sample.note)?;
        }
        self.count += 1;
        Ok(())
    }

    /// Bytes written.
    pub fn bytes(&self) -> u64 {
        self.tar.get_ref().bytes
    }

    /// Samples written.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Ends the tar and makes it durable; returns its length and hash.
    pub fn finish(self) -> io::Result<(u64, blake3::Hash)> {
        let Hashing { out, hash, bytes } = self.tar.into_inner()?;
        out.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
        Ok((bytes, hash.finalize()))
    }

    fn member(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let mut header = tar::Header::new_ustar();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        self.tar.append_data(&mut header, name, bytes)
    }
}

/// The extension that selects a reader's decoder for a member.
fn ending(sample: &Sample) -> io::Result<&'static str> {
    match sample.codec {
        SampleCodec::Original => Ok(match image::guess_format(&sample.bytes) {
            Ok(ImageFormat::Png) => "png",
            Ok(ImageFormat::WebP) => "webp",
            Ok(ImageFormat::Bmp) => "bmp",
            Ok(ImageFormat::Gif) => "gif",
            Ok(ImageFormat::Tiff) => "tiff",
            Ok(_) | Err(_) => "jpg",
        }),
        SampleCodec::Coefficients | SampleCodec::Pixels | SampleCodec::Tokens => {
            Err(io::Error::new(io::ErrorKind::InvalidInput, "only image files are put into tars"))
        }
    }
}

/// Writes the files that accompany the tars.
pub(super) fn finish(out: &Path, classes: &[String]) -> io::Result<()> {
    let lines: String = classes.iter().map(|class| class.replace(['\n', '\r'], " ") + "\n").collect();
    replace(out, CLASSES, lines.as_bytes())
}
