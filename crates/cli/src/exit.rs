//! The exit codes, a promise to scripts.

/// Everything went as asked.
pub const DONE: u8 = 0;
/// A fault of gradus itself.
pub const INTERNAL: u8 = 1;
/// Wrong words on the command line or in the job file. A name is a word: a file, folder, bucket or object that is not
/// there, or is of another kind than what is asked for, is this too, whichever command was given it.
pub const USAGE: u8 = 2;
/// What is there refuses: rights, room, damage, the network, a provider.
pub const WORLD: u8 = 3;
/// The run ended without result.
pub const RUN_FAILED: u8 = 100;
/// The run is not at its end yet.
pub const NOT_FINISHED: u8 = 101;
/// No run has this name.
pub const NOT_FOUND: u8 = 102;
/// The run was stopped before its end.
pub const RUN_STOPPED: u8 = 103;
/// Interrupted by Ctrl-C.
pub const INTERRUPTED: u8 = 130;
