//! Numbers: one rank's share of a run, as the library behind `gradus-rank`.
//!
//! It knows nothing of clouds, money or HTTP. Begin with [`torch`], the thin shim over the tensor library.

pub mod torch;
