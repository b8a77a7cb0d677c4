//! Files that hold many samples one behind another: tars and TFRecords.

mod archive;
mod example;
pub(super) mod tfrecord;
pub(super) mod webdataset;
