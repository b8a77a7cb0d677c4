//! Files, treated as untrusted and read by position, whether their bytes are local or remote.
//!
//! `plain_file` and `text` open local files; `remote` reads ranges through a server that holds the credentials, and
//! `cache` caches some of them; `handles` hides whether a file is local, and `sequential` reads one from front to back.
//! `installed` finds the format libraries that an executable may be built without.

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
