//! Decides from measurements whether a run is bound by its data loader, and what would help.

use std::fmt;

/// Measurements of a run's steps and of its loader.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LoaderActivity {
    /// Steps that were made.
    pub steps: u64,
    /// Duration in seconds.
    pub seconds: f64,
    /// Seconds of those in which the step waited for its batch.
    pub waited: f64,
    /// Seconds that threads spent on samples, all threads together.
    pub busy: f64,
    /// Threads that decode.
    pub workers: u32,
    /// Cores of the machine that this rank may take.
    pub cores: u32,
    /// How images are stored.
    pub kept: ImageStorage,
    /// Height and width of a sample in pixels.
    pub size: u32,
    /// Reads of remote data that the cache served, and those that went to the remote store; `None` for local data.
    pub reads: Option<[u64; 2]>,
}

/// How images are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageStorage {
    /// Decoded, in memory.
    Memory,
    /// As packed coefficients.
    Coefficients,
    /// As they came, or as plain pixels.
    Files,
}

/// A run that waits for its data.
#[derive(Debug, Clone, PartialEq)]
pub struct DataBound {
    /// Share of the time that it waits.
    pub share: f64,
    /// Remedies, most effective first.
    pub remedies: Vec<String>,
}

/// Fewer steps or seconds are not representative: files are read for the first time, kernels are selected.
const FEWEST: u64 = 20;
const SHORTEST: f64 = 5.0;
/// A smaller share of waiting is not worth a change.
const WORTH: f64 = 0.1;
/// With a higher cache miss rate than this, remote reads are the bottleneck.
const MISSED: f64 = 0.2;

/// Decides whether a run is bound by its data, if enough was measured.
///
/// The number of threads that would suffice is the time that they spend on samples divided by the time of the steps
/// without waiting.
pub fn bound(seen: &LoaderActivity) -> Option<DataBound> {
    if seen.steps < FEWEST || seen.seconds < SHORTEST {
        return None;
    }
    let share = seen.waited / seen.seconds;
    if share < WORTH {
        return None;
    }
    let mut remedies = Vec::new();
    if let Some([hits, misses]) = seen.reads
        && misses as f64 > MISSED * (hits + misses) as f64
    {
        remedies.push("raise `data.cache.budget`, or leave `data.cache` out to fetch all of the data first".to_owned());
    }
    let needed = (seen.busy / (seen.seconds - seen.waited).max(1e-3)).ceil().clamp(1.0, 256.0) as u32;
    let cores = seen.cores.max(1);
    if needed > seen.workers && seen.workers < cores {
        let enough = if needed <= cores { "" } else { ", though they will not do alone" };
        remedies.push(format!("write `data.workers: {}`{enough}", needed.min(cores)));
    }
    if needed > cores || remedies.is_empty() {
        match seen.kept {
            ImageStorage::Memory => {}
            ImageStorage::Coefficients => remedies.push(shrink(seen.size)),
            ImageStorage::Files => {
                let pack = "pack the data once with `gradus data pack --codec coefficients`, which costs no quality";
                remedies.push(pack.to_owned());
                remedies.push(shrink(seen.size));
            }
        }
        remedies.push("take a simpler `data.augment`, a larger model for the same data, or more cores".to_owned());
    }
    Some(DataBound { share, remedies })
}

/// Scales the margin around a crop like that of 256 pixels around 224.
fn shrink(size: u32) -> String {
    let short = (size * 8).div_ceil(7).max(8);
    format!("pack it with `gradus data pack --shrink {short}`, which loses detail")
}

impl fmt::Display for DataBound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let share = 100.0 * self.share;
        write!(f, "training waits for data {share:.0} % of the time; {}", self.remedies.join("; or "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEEN: LoaderActivity = LoaderActivity {
        steps: 100,
        seconds: 20.0,
        waited: 0.1,
        busy: 15.0,
        workers: 1,
        cores: 8,
        kept: ImageStorage::Files,
        size: 224,
        reads: None,
    };

    #[track_caller]
    fn check(seen: LoaderActivity, expected: &str) {
        assert_eq!(bound(&seen).map_or_else(|| "fine".to_owned(), |bound| bound.to_string()), expected);
    }

    #[test]
    fn the_verdict_follows_from_the_measurements() {
        check(SEEN, "fine");
        check(LoaderActivity { waited: 12.0, steps: 19, ..SEEN }, "fine");
        check(LoaderActivity { waited: 2.0, seconds: 4.9, ..SEEN }, "fine");
        // 15 s of work in 8 s of steps take two threads.
        check(
            LoaderActivity { waited: 12.0, ..SEEN },
            "training waits for data 60 % of the time; write `data.workers: 2`",
        );
        let packs = "pack the data once with `gradus data pack --codec coefficients`, which costs no quality; or pack it with `gradus data pack --shrink 256`, which loses detail";
        let last = "take a simpler `data.augment`, a larger model for the same data, or more cores";
        check(
            LoaderActivity { waited: 19.0, busy: 60.0, ..SEEN },
            &format!(
                "training waits for data 95 % of the time; write `data.workers: 8`, though they will not do alone; or {packs}; or {last}"
            ),
        );
        check(
            LoaderActivity { waited: 12.0, busy: 100.0, workers: 8, ..SEEN },
            &format!("training waits for data 60 % of the time; {packs}; or {last}"),
        );
        check(
            LoaderActivity {
                waited: 12.0,
                busy: 100.0,
                workers: 8,
                kept: ImageStorage::Coefficients,
                size: 160,
                ..SEEN
            },
            &format!(
                "training waits for data 60 % of the time; pack it with `gradus data pack --shrink 183`, which loses detail; or {last}"
            ),
        );
        check(
            LoaderActivity { waited: 12.0, reads: Some([30, 70]), workers: 4, ..SEEN },
            "training waits for data 60 % of the time; raise `data.cache.budget`, or leave `data.cache` out to fetch all of the data first",
        );
        check(
            LoaderActivity { waited: 12.0, reads: Some([90, 10]), ..SEEN },
            "training waits for data 60 % of the time; write `data.workers: 2`",
        );
        // There is a remedy for any measurements.
        for busy in [0.0, 1.0, 1e6] {
            for storage in [ImageStorage::Memory, ImageStorage::Coefficients, ImageStorage::Files] {
                let seen = LoaderActivity { waited: 20.0, busy, kept: storage, ..SEEN };
                assert!(!bound(&seen).unwrap().remedies.is_empty(), "{seen:?}");
            }
        }
    }
}
