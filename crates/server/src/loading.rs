//! How a run's data came: what its steps say of waiting, decoding and caching, in one line.

use std::fmt;

use domain::rank::Step;

/// Activity of the loader over some steps, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Loading {
    /// Share of the time that was spent waiting for data.
    pub wait: f64,
    /// Microseconds that a thread spent on a sample, on average.
    pub sample_us: Option<f64>,
    /// Batches that were ready when a step ended, on average.
    pub queue: Option<f64>,
    /// Share of reads of data elsewhere that the cache answered.
    pub hit_rate: Option<f64>,
}

impl Loading {
    /// Over these steps; none without any.
    pub fn of<'a>(steps: impl Iterator<Item = &'a Step>) -> Option<Loading> {
        let (mut took, mut waited) = (0.0, 0.0);
        let (mut spent, mut samples, mut queues, mut queued) = (0.0, 0.0, 0.0, 0.0);
        let (mut hits, mut reads) = (0.0, 0.0);
        for step in steps {
            took += step.step_us as f64;
            waited += step.data_wait_us as f64;
            if let Some(each) = step.data.sample_us {
                spent += each * f64::from(step.samples);
                samples += f64::from(step.samples);
            }
            if let Some(queue) = step.data.queue {
                queues += f64::from(queue);
                queued += 1.0;
            }
            if let (Some(found), Some(missed)) = (step.data.cache_hits, step.data.cache_misses) {
                hits += found as f64;
                reads += (found + missed) as f64;
            }
        }
        let ratio = |sum: f64, count: f64| (count > 0.0).then(|| sum / count);
        Some(Loading {
            wait: ratio(waited, took)?,
            sample_us: ratio(spent, samples),
            queue: ratio(queues, queued),
            hit_rate: ratio(hits, reads),
        })
    }

    /// The figures that there are, for people.
    pub fn lines(&self) -> Vec<(&'static str, String)> {
        let all = [
            ("data wait", Some(format!("{:.1} % of the time", 100.0 * self.wait))),
            ("work on a sample", self.sample_us.map(|each| format!("{each:.0} µs of a thread"))),
            ("batches ready", self.queue.map(|queue| format!("{queue:.1} on average"))),
            ("cache hits", self.hit_rate.map(|rate| format!("{:.1} % of reads", 100.0 * rate))),
        ];
        all.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }
}

impl fmt::Display for Loading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.lines().into_iter().map(|(name, value)| format!("{name} {value}")).collect();
        f.write_str(&lines.join(" · "))
    }
}

#[cfg(test)]
mod tests {
    use domain::rank::Fetching;

    use super::*;

    fn step(step_us: u64, data_wait_us: u64, data: Fetching) -> Step {
        Step { step: 1, epoch: 0, loss: 1.0, lr: 0.1, samples: 64, step_us, data_wait_us, checkpoint_us: 0, data }
    }

    #[test]
    fn figures_are_told_where_they_are_known() {
        assert_eq!(Loading::of([].iter()), None);
        let old = [step(1000, 250, Fetching::default()), step(1000, 0, Fetching::default())];
        assert_eq!(Loading::of(old.iter()).unwrap().to_string(), "data wait 12.5 % of the time");
        let data = |sample_us, queue, hits, misses| Fetching {
            sample_us: Some(sample_us),
            queue: Some(queue),
            cache_hits: Some(hits),
            cache_misses: Some(misses),
        };
        let new = [step(1000, 0, data(500.0, 3, 1, 3)), step(3000, 40, data(700.0, 2, 8, 0)), old[1]];
        assert_eq!(
            Loading::of(new.iter()).unwrap().to_string(),
            "data wait 0.8 % of the time · work on a sample 600 µs of a thread · batches ready 2.5 on average · cache hits 75.0 % of reads"
        );
    }
}
