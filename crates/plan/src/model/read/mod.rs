//! Networks from files: what stands in them decides, never how they are called.
//!
//! [`model`] looks at the first bytes and asks [`config`], [`onnx`] or [`safetensors`]. All are pure functions of
//! bytes; a file that claims absurd sizes, ends early or is none of these gives a [`Problem`], not a panic.

pub mod config;
pub mod onnx;
pub mod safetensors;

use domain::problem::Problem;

use super::Graph;

/// What files of models leave open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Shape {
    /// Tokens of one sample; none: what the file says is the most, or 512 where that is more.
    pub sequence: Option<u64>,
    /// Channels, height and width of a picture; none: what the file says.
    pub picture: Option<[u64; 3]>,
    /// Classes to tell apart; none: what the file says.
    pub classes: Option<u64>,
}

/// Reads a network from the bytes of a file.
pub fn model(bytes: &[u8], shape: &Shape) -> Result<Graph, Problem> {
    // The length before a header may begin with the byte of a brace, so it is looked for first.
    if safetensors::is_one(bytes) {
        return safetensors::read(bytes, shape);
    }
    let start = bytes.iter().copied().find(|byte| !byte.is_ascii_whitespace());
    match start {
        None => Err(Problem::at("", "the file is empty").hint("give a `config.json`, an ONNX or a safetensors file")),
        Some(b'{') => config::read(bytes, shape),
        Some(_) => onnx::read(bytes, shape),
    }
}
