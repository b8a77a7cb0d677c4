//! The part of the library for CUDA devices that is loaded at run time where it is found ([`super::open_cuda`]).

pub mod graph;
pub mod norm;
