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
//! terms → remote (open → requests), local → dataset (head, inventory, lock, deletions) → push, pull, plain → serve, stage
//! ```
//!
//! `terms` and `ends` are all that is left without the feature `buckets`; `left_out` then refuses every transfer.
//!
//! Async stands in `remote` and in the two loops that move bytes; everything above is plain functions. Nothing from
//! elsewhere is trusted: names and numbers are checked in `data::chunk`, and `local::folder` refuses every path that would
//! leave the target.

#![cfg_attr(not(feature = "buckets"), allow(dead_code, reason = "used by what is left out"))]

#[cfg(feature = "buckets")]
mod dataset;
mod ends;
mod error;
#[cfg(not(feature = "buckets"))]
mod left_out;
#[cfg(feature = "buckets")]
mod local;
#[cfg(feature = "buckets")]
mod plain;
#[cfg(feature = "buckets")]
mod pull;
#[cfg(feature = "buckets")]
mod push;
#[cfg(feature = "buckets")]
mod remote;
#[cfg(feature = "buckets")]
mod serve;
#[cfg(feature = "buckets")]
mod stage;
#[cfg(feature = "buckets")]
mod streams;
mod terms;
#[cfg(all(test, feature = "buckets"))]
mod tests;

use terms::{access, location};
#[cfg(feature = "buckets")]
use {
    dataset::{deletions, head, inventory, lock},
    local::{folder, source},
    remote::{endpoint, failure},
};

pub use access::{Access, VARIABLES};
pub use ends::{may_pull, may_push};
pub use error::Error;
#[cfg(feature = "buckets")]
pub use inventory::check;
#[cfg(not(feature = "buckets"))]
pub use left_out::{
    NoRemote as Remote, NoWebClient as WebClient, NothingServed as Served, check, open, pull, push, serve, stage,
};
pub use location::Location;
pub use terms::limits::Limits;
pub use terms::meter::{Meter, Reading};
pub use terms::socket::listen;
pub use terms::transfer::{Checked, GRACE, Options, Places, Pulled, Pushed, Staged, StoreFormat};
#[cfg(feature = "buckets")]
pub use {
    pull::pull,
    push::push,
    remote::{Remote, open::open, web::WebClient},
    serve::{Served, serve},
    stage::stage,
};
