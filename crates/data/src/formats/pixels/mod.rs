//! Formats of raw pixels: CIFAR's records, the idx files of MNIST, NumPy's archives, and the CSV of 8×8 images. They
//! are read completely.

pub(super) mod cifar;
pub(super) mod idx;
mod npy;
pub(super) mod npz;
pub(super) mod table;
