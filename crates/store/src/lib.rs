//! `store`: transfers between this machine and remote storage, by path or URI.
//!
//! A [`Location`] is a folder, a bucket or a web address; opened with credentials from the settings ([`Access`]) it is
//! a [`Remote`]. A data set is [`push`]ed there and [`pull`]ed back in one of two formats: as chunks (`data::chunk`;
//! only new data is sent, and many small files become few large objects) or plainly, one object per file, for other
//! programs. Both can be killed at any time and resume: finished work is recognized by its content, so the journal is
//! small and may be lost.
//!
//! Training may also start before the data is local: [`serve`] serves ranges on demand.
//!
//! Each module uses only those to its left:
//!
//! ```text
//! terms → remote (open → requests), local → dataset (head, inventory, lock, deletions) → push, pull, plain → serve, stage
//! ```
//!
//! Without the feature `buckets` only `terms` and `ends` remain; `left_out` then refuses every transfer.
//!
//! Async code is in `remote` and in the two loops that transfer bytes; everything above is synchronous. Remote data is
//! untrusted: names and numbers are checked in `data::chunk`, and `local::folder` refuses every path that would leave
//! the target.

#![cfg_attr(not(feature = "buckets"), allow(dead_code, reason = "used by the modules behind the feature"))]

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

/// Whether object stores and web servers can be reached.
pub const HAS_CLIENTS: bool = cfg!(feature = "buckets");

/// The status, the headers and the body of a reply.
pub type WholeReply = (u16, Vec<(String, String)>, Vec<u8>);

pub use access::{Access, VARIABLES};
pub use ends::{may_pack, may_pull, may_push};
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
pub use terms::transfer::{
    Checked, GRACE, Options, PartedUpload, Places, Pulled, Pushed, Staged, StoreFormat, left_out_objects,
};
#[cfg(feature = "buckets")]
pub use {
    pull::pull,
    push::push,
    remote::{Remote, open::open, web::WebClient},
    serve::{Served, serve},
    stage::stage,
};
