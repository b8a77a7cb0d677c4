//! JPEG files (ITU-T T.81), decoded to the very pixels of libjpeg-turbo, and no more of them than are asked for.
//!
//! A file is read up to its first scan ([`JpegFile::open`]), which tells its size; then a [`PixelRegion`] of it is decoded:
//! every code has to be read, but only the blocks of the region are transformed, and rows become colours when somebody
//! asks. Accurate transform, smooth enlarging and colours are libjpeg-turbo's to the bit, so training sees what Pillow
//! and torchvision see. What is damaged is an error, never a guess.
//!
//! Read on in `file`, then in `markers` (what a file is made of), `sequential` (its codes), `planes` and `rows` (from blocks to pixels), and
//! `packed` (another form of the same coefficients, for shards).

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
