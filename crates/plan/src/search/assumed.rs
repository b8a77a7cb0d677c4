//! Assumptions about machines without measurements: orders of magnitude, each with its source.

/// Seconds from asking for a machine to its first command. Recalled from public logs of launches (2 to 8 minutes),
/// unverified.
pub const BOOT: f64 = 240.0;

/// Seconds from getting a machine back to the first new step: boot, then reading the checkpoint. Used to replay traces of
/// spot machines.
pub const RESTART: f64 = 300.0;

/// Bytes per second from a machine to its checkpoint storage.
pub const WRITE: f64 = 1e9;

/// Bytes per second at which a machine fetches its data, limited by the bucket and not the network.
pub const FETCH: f64 = 1.25e9;

/// Seconds between checkpoints on on-demand machines.
pub const CHECKPOINT: f64 = 1800.0;

/// Seconds that a run waits for spot machines before it continues on machines on demand; used
/// by `gradus plan spot-check`.
pub const PATIENCE: f64 = 1800.0;
/// The least seconds that a run stays on machines on demand, once it has fallen back to them.
pub const HOLD: f64 = 3600.0;

/// Standard deviation of the logarithm of a spot price from one month to the next. Assumed.
pub const SPOT_PRICE_MOVES: f64 = 0.2;
/// Seconds after which a spot price no longer depends on what it was, by a factor of e: a month. Assumed.
pub const SPOT_PRICE_MEMORY: f64 = 30.0 * 86400.0;
