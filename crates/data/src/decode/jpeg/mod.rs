//! A JPEG decoder (ITU-T T.81) whose output is bit-identical to libjpeg-turbo, and which decodes only the requested
//! region.
//!
//! A file is read up to its first scan ([`JpegFile::open`]), which yields its size; then a [`PixelRegion`] of it is
//! decoded: every code has to be read, but only the blocks of the region are transformed, and rows are converted to RGB
//! on demand. The accurate IDCT, fancy upsampling and colour conversion match libjpeg-turbo bit for bit, so training
//! sees the same pixels as with Pillow and torchvision. Damaged data is an error, never approximated.
//!
//! Read on in `file`, then in `markers` (segments), `sequential` (entropy decoding), `planes` and `rows` (from blocks
//! to pixels), and `packed` (another encoding of the coefficients, for shards).

mod bits;
mod coefficients;
mod fault;
mod file;
mod huffman;
mod markers;
mod packed;
mod planes;
mod progressive;
mod region;
mod rows;
mod sequential;
#[cfg(test)]
mod tests;

pub use self::coefficients::Coefficients;
pub use self::fault::{JpegError, MOST_PIXELS};
pub use self::file::{Decoder, JpegFile, rgb};
pub use self::markers::{Colour, Component, FrameHeader};
pub use self::packed::{PackedJpeg, encode_strips};
pub use self::region::PixelRegion;
pub(crate) use self::rows::Rows;
