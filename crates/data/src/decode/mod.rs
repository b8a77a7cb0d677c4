//! From the bytes of one image file to pixels.
//!
//! `kernels` holds the inner loops, `jpeg` decodes JPEG files and packed coefficients, and `rgb` decodes a file of any
//! kind.

pub mod jpeg;
pub(crate) mod kernels;
pub(crate) mod rgb;
