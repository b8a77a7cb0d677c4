//! The next use of a chunk: a rank computes it from the order of the epochs, which can be inverted, and sends it with
//! each request.

/// The next use of a chunk that is never needed again.
pub const NEVER: u64 = u64::MAX;

/// Knowledge of future reads. Time is counted in samples.
pub trait AccessSchedule: Send + Sync {
    /// The time of the read that is being served.
    fn now(&self) -> u64;
    /// The time at which a chunk is next read, after now; [`NEVER`] if it is not.
    fn next_use(&self, piece: u64) -> u64;
}
