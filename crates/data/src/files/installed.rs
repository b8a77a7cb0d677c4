//! The libraries of formats that an executable may leave out.

use plugin::Formats;

use crate::Error;

/// The format libraries of this executable, to read `what`.
///
/// # Errors
/// [`Error::LeftOut`] if it has none.
pub(crate) fn library(what: &'static str) -> Result<&'static dyn Formats, Error> {
    #[cfg(test)]
    formats::install();
    plugin::formats().ok_or(Error::LeftOut { what })
}
