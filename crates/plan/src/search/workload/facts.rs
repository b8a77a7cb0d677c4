//! Facts about a job's data and this machine before anything runs.

use domain::{Bytes, Duration};

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
    /// What steps of a user's program took on this machine, if they were timed.
    pub program: Option<ProgramProfile>,
}

/// What steps of a user's program took on this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProgramProfile {
    /// Steps that were timed.
    pub timed: u64,
    /// Mean time of a step.
    pub step: Duration,
    /// The time that one step in ten is faster than, and that one in ten is slower than.
    pub range: [Duration; 2],
    /// From the start of the program to the end of its first step.
    pub start: Duration,
    /// Steps in all, if known.
    pub steps: Option<u64>,
    /// Samples of a step, if known.
    pub samples: Option<u64>,
    /// Parameters of its models, if known.
    pub parameters: Option<u64>,
    /// Peak memory of the process.
    pub memory: Bytes,
    /// Peak memory of its GPU, if it has used one.
    pub gpu_memory: Option<Bytes>,
}
