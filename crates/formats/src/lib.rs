//! `formats`: Parquet, Arrow and tokenizers, whose libraries take longest to build.
//!
//! An executable calls [`install`] first thing in `main`; `data` then finds the libraries through `plugin`. Without the
//! feature `libraries`, as in a first build, there is nothing to install, and data that needs them is refused with a
//! hint. `columns` finds the relevant columns of a table; `arrow` (with `compressed`) and `parquet` (with `pages`) read
//! them; `tokenizer`, with `words`, is independent of both.

#[cfg(feature = "libraries")]
mod arrow;
#[cfg(feature = "libraries")]
mod columns;
#[cfg(feature = "libraries")]
mod compressed;
#[cfg(feature = "libraries")]
mod libraries;
#[cfg(feature = "libraries")]
mod pages;
#[cfg(feature = "libraries")]
mod parquet;
#[cfg(feature = "libraries")]
mod tokenizer;
#[cfg(feature = "libraries")]
mod words;

/// Makes the formats known to this process, those that were built.
pub fn install() {
    #[cfg(feature = "libraries")]
    plugin::install(&libraries::Libraries);
}
