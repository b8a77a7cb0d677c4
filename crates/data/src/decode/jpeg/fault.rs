//! Why a JPEG file cannot be decoded, phrased to follow "the image `x` cannot be read".

/// An error in a JPEG file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum JpegError {
    /// The data ends too early.
    #[error("the file ends before the image does")]
    Truncated,
    /// The file contradicts itself or the standard.
    #[error("the JPEG is damaged: {0}")]
    Damaged(&'static str),
    /// An unsupported kind of JPEG.
    #[error("{0}")]
    Unsupported(&'static str),
    /// More pixels than a training image has.
    #[error("it claims to be {width}×{height} pixels; the limit is {MOST_PIXELS} pixels")]
    Size {
        /// Pixels in a row.
        width: usize,
        /// Rows.
        height: usize,
    },
}

/// A file claiming more is refused: it is 300 MB decoded, and no training image.
pub const MOST_PIXELS: usize = 100_000_000;
