//! When a piece is needed next: a rank looks it up in the order of the epochs, which can be computed backwards too, and
//! says so with each request.

/// The next use of what is never needed again.
pub const NEVER: u64 = u64::MAX;

/// What is known of the reads to come. Time is counted in samples.
pub trait AccessSchedule: Send + Sync {
    /// The time of the read that is being served.
    fn now(&self) -> u64;
    /// The time at which a piece is read next, after now; [`NEVER`] if it is not.
    fn next_use(&self, piece: u64) -> u64;
}
