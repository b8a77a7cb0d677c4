//! Loader statistics of each step, and the one note about a run that is bound by its data.

use std::thread::available_parallelism;
use std::time::Duration;

use data::LoaderStats;
use data::bound::{LoaderActivity, bound};
use domain::rank::{Fetching, Spec};

use crate::input::TrainingData;

/// Measurements of steps and of the loader.
pub struct LoaderMonitor {
    seen: LoaderActivity,
    before: Option<LoaderStats>,
    told: bool,
}

impl LoaderMonitor {
    /// From the first step on.
    pub fn new(spec: &Spec, data: &TrainingData) -> LoaderMonitor {
        let cores = available_parallelism().map_or(1, |cores| u32::try_from(cores.get()).unwrap_or(u32::MAX));
        let (kept, size) = data.kept();
        let seen = LoaderActivity {
            steps: 0,
            seconds: 0.0,
            waited: 0.0,
            busy: 0.0,
            workers: spec.train.data.workers,
            cores: (cores / spec.world_size.max(1)).max(1),
            kept,
            size,
            reads: None,
        };
        LoaderMonitor { seen, before: None, told: false }
    }

    /// Records a step, and returns the loader's activity since the last one. The first is not representative, because
    /// its batch was prepared while nothing else was running.
    pub fn stepped(&mut self, took: Duration, waited: Duration, now: Option<LoaderStats>) -> Fetching {
        let Some(now) = now else { return Fetching::default() };
        let Some(before) = self.before.replace(now) else {
            return Fetching::default();
        };
        let samples = now.samples.saturating_sub(before.samples);
        let busy = now.busy.saturating_sub(before.busy);
        self.seen.steps += 1;
        self.seen.seconds += took.as_secs_f64();
        self.seen.waited += waited.as_secs_f64();
        self.seen.busy += busy.as_secs_f64();
        let reads = now
            .reads
            .zip(before.reads)
            .map(|(now, before)| [now.hits.saturating_sub(before.hits), now.misses.saturating_sub(before.misses)]);
        if let Some([hits, misses]) = reads {
            let [all_hits, all_misses] = self.seen.reads.unwrap_or_default();
            self.seen.reads = Some([all_hits + hits, all_misses + misses]);
        }
        Fetching {
            sample_us: (samples > 0).then(|| busy.as_secs_f64() * 1e6 / samples as f64),
            queue: u32::try_from(now.ready).ok(),
            cache_hits: reads.map(|[hits, _]| hits),
            cache_misses: reads.map(|[_, misses]| misses),
        }
    }

    /// The note that the run is bound by its data, with remedies, once.
    pub fn note(&mut self) -> Option<String> {
        if self.told {
            return None;
        }
        let found = bound(&self.seen)?;
        self.told = true;
        Some(found.to_string())
    }
}

#[cfg(test)]
mod tests {
    use data::bound::ImageStorage;

    use super::*;

    #[test]
    fn a_run_that_waits_is_told_once() {
        let seen = LoaderActivity {
            steps: 0,
            seconds: 0.0,
            waited: 0.0,
            busy: 0.0,
            workers: 1,
            cores: 4,
            kept: ImageStorage::Files,
            size: 224,
            reads: None,
        };
        let mut watch = LoaderMonitor { seen, before: None, told: false };
        let mut notes = Vec::new();
        for step in 0..60_u64 {
            let now = LoaderStats {
                samples: 64 * step,
                busy: Duration::from_millis(900 * step),
                read: 0,
                ready: 2,
                reads: Some(data::cache::CacheCounts { hits: 60 * step, misses: 4 * step }),
            };
            let told = watch.stepped(Duration::from_secs(1), Duration::from_millis(500), Some(now));
            let (each, reads) = (900_000.0 / 64.0, Some(60));
            match step {
                0 => assert!(told.is_empty()),
                _ => assert_eq!((told.sample_us, told.queue, told.cache_hits), (Some(each), Some(2), reads)),
            }
            notes.extend(watch.note());
        }
        assert_eq!(notes, ["training waits for data 50 % of the time; write `data.workers: 2`"]);
    }
}
