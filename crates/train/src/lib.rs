//! One rank's share of a run, as the library behind `gradus-rank`.
//!
//! It does not depend on clouds, money or HTTP: it reads a specification and local files, communicates with its agent
//! over a Unix socket, and writes checkpoints and a model. Each folder is a layer and uses only those before it:
//!
//! ```text
//! torch → detect, model → optim → ranks → step → input → state → run
//! ```
//!
//! [`torch`] is a thin shim over libtorch; [`model`] has the architectures, [`detect`] the loss and the metrics of
//! object detection, [`optim`] the update rules and learning-rate schedules, [`ranks`] communication between ranks,
//! [`step`] one optimizer step, [`input`] data on the device, [`state`] saving and resuming, and [`run`] the loop.
//! [`bench`] measures steps, [`fold`] rewrites an exported model and [`run::exported`] evaluates one. Begin with
//! [`run`].

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
