//! `store`: bytes between here and elsewhere, by path or URI.
//!
//! A [`Location`] is a folder, a bucket or a web address; opened with what the settings know of credentials
//! ([`Access`]) it is a [`Remote`]. A data set is [`push`]ed there and [`pull`]ed back in one of two forms: as chunks
//! (`data::chunk`; only what is new travels, and many small files travel as few large objects) or plainly, a file an
//! object, for programs that know nothing of gradus. Both can be killed at any instant and go on where they were:
//! finished work is found again by its content, so the journal is small and may be lost.
//!
//! Training may also begin before all is here: [`serve`] hands out ranges while it goes on.
//!
//! Async stands in `remote` and in the two loops that move bytes; everything above is plain functions. Nothing from
//! elsewhere is trusted: names and numbers are checked in `data::chunk`, and `folder` refuses every path that would leave
//! the target.

mod access;
mod endpoint;
mod ends;
mod error;
mod failure;
mod folder;
mod head;
mod inventory;
mod location;
mod meter;
mod open;
mod plain;
mod pull;
mod push;
mod remote;
mod serve;
mod socket;
mod source;
mod stage;
mod streams;
#[cfg(test)]
mod tests;

pub use access::{Access, VARIABLES};
pub use ends::{may_pull, may_push};
pub use error::Error;
pub use inventory::{Checked, check};
pub use location::Location;
pub use meter::{Meter, Reading};
pub use open::{Limits, open};
pub use pull::{Pulled, pull};
pub use push::{Form, Options, Pushed, push};
pub use remote::Remote;
pub use serve::{Places, Served, serve};
pub use socket::listen;
pub use stage::{Staged, stage};
