//! Code shared by `cargo xtask` and the benchmarks: the checkout, libtorch, builds, and third-party programs.

pub mod bench;
pub mod build;
pub mod doing;
pub mod draws;
pub mod gpu;
pub mod lab;
pub mod root;
pub mod setup;

pub use setup::peers;
