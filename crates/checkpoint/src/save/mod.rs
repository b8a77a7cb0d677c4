//! Saving: a snapshot of the state in memory, the commit that makes it durable, the removal of what it replaces, and
//! the thread that commits in the background.

pub mod commit;
pub mod part;
pub mod snapshot;
pub mod sweep;
pub mod writer;
