//! One rank's share of a run, as the library behind `gradus-rank`.
//!
//! It knows nothing of clouds, money or HTTP: it reads a specification and local files, talks to its agent over a Unix
//! socket, and writes checkpoints and a model. Each folder is a layer and uses only those before it:
//!
//! ```text
//! torch → detect, model → optim → ranks → step → input → state → run
//! ```
//!
//! [`torch`] is the thin shim over libtorch; [`model`] holds the architectures, [`detect`] the loss and the
//! metrics of object detection, [`optim`] the update rules and learning-rate schedules, [`ranks`] what several ranks do
//! together, [`step`] one optimiser step, [`input`] data on the device, [`state`] what is saved and resumed, and [`run`] the
//! loop. [`bench`] measures steps, [`fold`] rewrites an exported model and [`run::exported`] scores one. Begin with [`run`].

pub mod bench;
pub mod channel;
pub mod detect;
mod error;
pub mod fold;
pub mod input;
pub mod model;
pub mod optim;
pub mod ranks;
pub mod run;
pub mod state;
pub mod step;
pub mod torch;

pub use error::Error;
