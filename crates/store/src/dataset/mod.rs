//! A data set as it is stored in chunks: its head and manifests, and what else lies beside them.

pub mod deletions;
pub mod head;
pub mod inventory;
pub mod lock;
