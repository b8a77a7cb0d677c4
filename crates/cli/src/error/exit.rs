//! The exit codes: a stable interface for scripts.

/// Success.
pub const DONE: u8 = 0;
/// An internal error: a bug in gradus.
pub const INTERNAL: u8 = 1;
/// A usage error on the command line or in the job file. A file, folder, bucket or object that does not exist, or is of
/// another kind than the command takes, counts as one too.
pub const USAGE: u8 = 2;
/// An environment error: permissions, disk space, damaged data, the network, a provider.
pub const WORLD: u8 = 3;
/// The run failed.
pub const RUN_FAILED: u8 = 100;
/// The run has not finished.
pub const NOT_FINISHED: u8 = 101;
/// No run has this name.
pub const NOT_FOUND: u8 = 102;
/// The run was stopped before its end.
pub const RUN_STOPPED: u8 = 103;
/// `gradus doctor` warns of something.
pub const WARNED: u8 = 104;
/// `gradus doctor` has found what makes jobs fail.
pub const SICK: u8 = 105;
/// Interrupted by Ctrl-C.
pub const INTERRUPTED: u8 = 130;
