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
//! Each module uses only those to its left:
//!
//! ```text
//! remote (location, access → open → requests), local → dataset (head, inventory, lock, deletions) → push, pull, plain → serve, stage
//! ```
//!
//! Async stands in `remote` and in the two loops that move bytes; everything above is plain functions. Nothing from
//! elsewhere is trusted: names and numbers are checked in `data::chunk`, and `local::folder` refuses every path that would
//! leave the target.

mod dataset;
mod ends;
mod error;
mod local;
mod meter;
mod plain;
mod pull;
mod push;
mod remote;
mod serve;
mod stage;
mod streams;
#[cfg(test)]
mod tests;

use dataset::{deletions, head, inventory, lock};
use local::{folder, source};
use remote::{access, endpoint, failure, location};

pub use access::{Access, VARIABLES};
pub use ends::{may_pull, may_push};
pub use error::Error;
pub use inventory::{Checked, check};
pub use location::Location;
pub use meter::{Meter, Reading};
pub use pull::{Pulled, pull};
pub use push::{GRACE, Options, Pushed, StoreFormat, push};
pub use remote::Remote;
pub use remote::limits::Limits;
pub use remote::open::open;
pub use remote::tls::install_tls;
pub use serve::{Places, Served, listen, serve};
pub use stage::{Staged, stage};
