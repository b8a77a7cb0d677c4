//! The local end of a transfer: the files that a push reads, and the folder that a pull writes.

pub mod folder;
pub mod source;
