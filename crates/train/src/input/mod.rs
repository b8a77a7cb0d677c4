//! The data of a run: opened and compared with that of its checkpoint, and its batches on the device.

pub(crate) mod provenance;
mod targets;
mod train_order;
mod training_data;

pub use training_data::{DeviceBatch, DeviceLoader, TrainingData, objective};
