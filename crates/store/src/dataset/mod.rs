//! A data set stored in chunks: its head and manifests, and its auxiliary objects.

pub mod deletions;
pub mod head;
pub mod inventory;
pub mod lock;
