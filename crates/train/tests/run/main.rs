//! Complete runs in this process, on the digits of the repository.
//!
//! Every run uses the process' random number generator, so runs take turns.

mod boxes;
mod changed;
mod deferred;
mod finite;
mod labels;
mod learn;
mod memory;
mod modules;
mod options;
mod resume;
mod scene;
mod texts;
