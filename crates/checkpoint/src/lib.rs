//! The state of a run on disk, written atomically.
//!
//! A checkpoint is a few data files and one manifest that lists them with their sizes and SHA-256. Data files are
//! written under a temporary name, hashed, synced and renamed; only then is the manifest, in the same way. So an
//! existing manifest refers to existing data, whenever the process is killed, and [`newest_verified`] returns the
//! newest checkpoint of which every byte has been verified.
//!
//! ```text
//! checkpoints/
//!   lock                             held while a manifest or the fence changes
//!   fence                            highest attempt that has claimed the folder
//!   manifest-00000120.json           step 120 is durable; lists the three files below
//!   step-00000120-a3/model.safetensors
//!   step-00000120-a3/training.safetensors
//!   best-00000100-a2.safetensors     best weights so far; written once, named by every later manifest
//! ```
//!
//! With `codec: delta` the two files of a step are `model.delta` and `training.delta`, and the manifest also lists
//! those of the steps that they build on, back to a full one. They are retained as long as a manifest refers to them.
//!
//! If several ranks each hold a part of every tensor, each writes its part:
//! `step-00000120-a3/model-00001-of-00004.safetensors` and so on, also for the best weights, which are a folder then.
//! The first rank's manifest lists all of them, and any number of ranks can read them.
//!
//! Data file names contain the attempt's number (`a3`), so no attempt overwrites what a durable manifest lists, even if
//! an attempt presumed dead is still running. The manifest of such an attempt is refused: [`claim`] raises the fence
//! before a new attempt's ranks start, and a commit checks it under the lock.
//!
//! Each module uses only those to its left:
//!
//! ```text
//! files (disk → manifest → tensor, fence) → delta → chain → parts → save (snapshot → part → commit → writer), restore
//! ```
//!
//! Read next: `save/commit.rs` (the order of a commit), `restore.rs` (verification), `save/writer.rs` (the thread that
//! commits in the background), `chain.rs` (deltas), `interval.rs` (the checkpoint interval), `frameworks` (checkpoints
//! that are not ours). This crate does not depend on libtorch.

mod chain;
pub mod delta;
mod error;
mod files;
pub mod frameworks;
pub mod interval;
#[cfg(feature = "mutants")]
mod mutant;
mod parts;
mod restore;
mod save;
#[cfg(test)]
mod tests;
mod verify;

use files::{disk, fence, layout, manifest, ranges, tensor};
use save::{commit, part, snapshot, sweep, writer};

pub use disk::write_file;
pub use error::Error;
pub use fence::claim;
pub use files::stream::TensorFileWriter;
pub use layout::Placement;
pub use manifest::{
    BestEntry, CHAIN_SCHEMA, ChainEntry, CheckpointManifest, FileEntry, PARTS_SCHEMA, SCHEMA, StateKind,
};
#[cfg(feature = "mutants")]
pub use mutant::Mutant;
pub use parts::TensorSource;
pub use restore::{LoadedCheckpoint, lost_best, newest_usable, newest_verified};
pub use snapshot::{BestWeights, Snapshot, SnapshotPart, WriterIdentity};
pub use tensor::{Dtype, Tensor, read_tensors, write_tensors};
pub use verify::{Rejected, check_file, read_manifest, steps};
pub use writer::{CheckpointWriter, PartFolders, Retention};
