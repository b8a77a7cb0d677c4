//! A rectangle of an image.

use super::fault::JpegError;
use super::markers::FrameHeader;

/// A rectangle of an image, in pixels; not empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PixelRegion {
    /// First column.
    pub x: usize,
    /// First row.
    pub y: usize,
    /// Columns.
    pub width: usize,
    /// Rows.
    pub height: usize,
}

impl PixelRegion {
    /// The complete image.
    pub fn whole(width: usize, height: usize) -> PixelRegion {
        PixelRegion { x: 0, y: 0, width, height }
    }

    pub(super) fn lies_in(&self, frame: &FrameHeader) -> bool {
        let inside = |start: usize, length: usize, total: usize| {
            length > 0 && start.checked_add(length).is_some_and(|end| end <= total)
        };
        inside(self.x, self.width, frame.width) && inside(self.y, self.height, frame.height)
    }
}

/// The error of a region outside the image.
pub(super) const OUTSIDE: JpegError = JpegError::Damaged("a region outside the image");
