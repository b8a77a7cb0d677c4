//! Numbers: one rank's share of a run, as the library behind `gradus-rank`.
//!
//! It knows nothing of clouds, money or HTTP: it reads a specification and local files, talks to its agent over a Unix
//! socket, and writes checkpoints and a model. Begin with [`run`], the one loop; then [`mod@step`], what is done with a
//! batch; [`state`], what is saved; [`model`], the architectures; [`detect`], how objects are found; [`torch`], the thin shim over the tensor library.

pub mod average;
mod begin;
pub mod bench;
pub mod by_hand;
pub mod channel;
pub mod detect;
mod error;
pub mod evaluate;
mod export;
pub mod fold;
pub mod material;
pub mod model;
pub mod optim;
pub mod precision;
pub mod pretrained;
pub mod profile;
mod provenance;
pub mod ranks;
pub mod recompute;
pub mod repeated;
pub mod run;
mod saving;
pub mod schedule;
pub mod state;
pub mod step;
pub mod torch;
mod trial;
mod watching;

pub use error::Error;
