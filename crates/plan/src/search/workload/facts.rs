//! Facts about a job's data and this machine before anything runs.

use domain::Duration;

/// Facts about the data and the machine before anything runs; empty if the data is not opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct JobFacts {
    /// Samples of training, validation and test.
    pub samples: Option<[u64; 3]>,
    /// Channels, height and width of an image.
    pub input_shape: Option<[u32; 3]>,
    /// Number of classes.
    pub classes: Option<u32>,
    /// Bytes of the files of the data.
    pub bytes: Option<u64>,
    /// The time of an optimizer step on this machine, if it was measured.
    pub measured_step: Option<Duration>,
}
