//! The files of a checkpoint folder: writing them, their names and formats, and the fence.

pub mod disk;
pub mod fence;
pub mod layout;
pub mod manifest;
pub mod ranges;
pub mod stream;
pub mod tensor;
