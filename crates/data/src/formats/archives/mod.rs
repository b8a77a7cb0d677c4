//! Files that hold many samples one behind another: tars, zips and TFRecords.

mod archive;
mod example;
pub(super) mod tfrecord;
mod unpacked;
pub(super) mod webdataset;
pub(super) mod zip;

pub(super) use unpacked::is_compressed;
