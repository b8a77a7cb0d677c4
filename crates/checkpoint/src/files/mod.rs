//! The files of a checkpoint folder: how they are written, what they are called, what is in them and who may write.

pub mod disk;
pub mod fence;
pub mod layout;
pub mod manifest;
pub mod ranges;
pub mod stream;
pub mod tensor;
