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
    /// The whole of an image.
    pub fn whole(width: usize, height: usize) -> PixelRegion {
        PixelRegion { x: 0, y: 0, width, height }
    }

    pub(super) fn lies_in(&self, frame: &FrameHeader) -> bool {
        let inside = |start: usize, length: usize, whole: usize| {
            length > 0 && start.checked_add(length).is_some_and(|end| end <= whole)
        };
        inside(self.x, self.width, frame.width) && inside(self.y, self.height, frame.height)
    }
}

/// What is said of a region that is not in the image.
pub(super) const OUTSIDE: JpegError = JpegError::Damaged("a region outside the image");
