//! Reads networks from files by their contents, never by their names.
//!
//! [`model`] inspects the first bytes and calls [`config`], [`onnx`] or [`safetensors`]. All are pure functions of
//! bytes; a file with absurd sizes, a truncated one or one of another format gives a [`Problem`], not a panic.

pub mod config;
pub mod onnx;
pub mod safetensors;

use domain::problem::Problem;

use super::Graph;

/// What files of models leave open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SampleShape {
    /// Tokens per sample; `None` for the maximum of the file, but at most 512.
    pub sequence: Option<u64>,
    /// Channels, height and width of an image; `None` for those of the file.
    pub image: Option<[u64; 3]>,
    /// Number of classes; `None` for that of the file.
    pub classes: Option<u64>,
}

/// How files begin that people take for a network's, what they are, and what to do.
const STRANGERS: [(&[u8], &str, &str); 7] = [
    (b"version https://git-lfs", "a pointer of Git LFS", "fetch the file itself: `git lfs pull`"),
    (b"PK\x03\x04", "an archive, as `torch.save` writes", "export the network to ONNX, or give its `config.json`"),
    (b"\x80\x02", "a pickle of Python's", "export the network to ONNX, or give its `config.json`"),
    (b"\x89HDF", "a file in HDF5", "export the network to ONNX, or give its `config.json`"),
    (b"<", "a page of the web", "download the file itself"),
    (b"[", "a list in JSON", "give the network's `config.json`"),
    (b"//", "text with comments, which JSON does not have", "take the comments out"),
];

/// Reads a network from the bytes of a file.
pub fn model(bytes: &[u8], shape: &SampleShape) -> Result<Graph, Problem> {
    // Some editors put a mark before text.
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    // The length before a header may begin with the byte of a brace, so it is looked for first.
    if safetensors::is_one(bytes) {
        return safetensors::read(bytes, shape);
    }
    let text = bytes.trim_ascii_start();
    if let Some((_, what, hint)) = STRANGERS.iter().find(|(first, _, _)| text.starts_with(first)) {
        return Err(Problem::at("", format!("the file is {what}, and no network")).hint(*hint));
    }
    match text.first() {
        None => Err(Problem::at("", "the file is empty").hint("give a `config.json`, an ONNX or a safetensors file")),
        Some(b'{') => config::read(bytes, shape),
        Some(_) => onnx::read(bytes, shape),
    }
}
