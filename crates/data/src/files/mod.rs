//! Files, opened without trust and read by position, whether their bytes are on this machine or remote.
//!
//! `plain_file` and `text` open what lies on a disk; `remote` reads ranges through a server that holds the credentials,
//! and `cache` keeps some of them; `handles` hides which of the two a file is, and `sequential` reads one
//! from front to back. `installed` finds the libraries of formats that an executable may leave out.

pub mod cache;
pub(crate) mod handles;
mod installed;
pub(crate) mod plain_file;
pub mod remote;
pub(crate) mod replace;
pub(crate) mod sequential;
mod text;

pub(crate) use installed::library;
pub use text::text;
