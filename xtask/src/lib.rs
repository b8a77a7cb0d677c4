//! What `cargo xtask` and the benchmarks share: the checkout, libtorch, builds, and the programs of others.

pub mod bench;
pub mod build;
pub mod doing;
pub mod draws;
pub mod gpu;
pub mod lab;
pub mod root;
pub mod setup;

pub use setup::peers;
