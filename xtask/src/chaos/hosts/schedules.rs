//! Faults by ones and twos: the next ones are made once the jobs train again, so that what follows is theirs.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::Value;

use super::faults::Fault;
use super::options::HostsOptions;
use super::{HostsStorm, PATIENCE};
use crate::chaos::recoveries::{HostFault, instances};

/// So often a fault is drawn that finds nothing to be made to, such as a rank on a host without one.
const DRAWN: u64 = 200;

/// Between two looks at what has come of the faults.
const LOOKS: Duration = Duration::from_secs(1);

impl HostsStorm {
    /// Makes one or two faults, so many times. Returns how many were made.
    pub(super) fn by_schedules(&mut self, number: u64, job: &str, options: &HostsOptions) -> Result<u64, String> {
        let mut made = 0;
        for schedule in 1..=number {
            self.until_calm(job, options)?;
            self.schedules.push(now()?);
            let count = 1 + self.draws.below(2);
            made += self.made(count, job, options)?;
            if schedule.is_multiple_of(10) {
                eprintln!("{schedule} of {number} schedules, {made} faults");
            }
        }
        self.until_calm(job, options)?;
        Ok(made)
    }

    /// Makes so many faults within a few seconds, fewer where too many find nothing to be made to.
    fn made(&mut self, count: u64, job: &str, options: &HostsOptions) -> Result<u64, String> {
        let mut made = 0;
        for _ in 0..DRAWN {
            made += u64::from(self.fault(&options.kinds, options.hosts)?);
            if made == count {
                break;
            }
            self.mend()?;
            self.keep_busy(job, options.jobs_at_once())?;
            std::thread::sleep(Duration::from_millis(100 + self.draws.below(900)));
        }
        Ok(made)
    }

    /// Waits until the faults of the last schedule are over and have done what they do, and all jobs train.
    fn until_calm(&mut self, job: &str, options: &HostsOptions) -> Result<(), String> {
        let begun = Instant::now();
        let mut over = None;
        loop {
            self.mend()?;
            self.resume_full()?;
            self.keep_busy(job, options.jobs_at_once())?;
            if self.away.is_empty() && self.home.is_served() {
                let over = *over.get_or_insert_with(Instant::now);
                let live: Vec<_> = self.home.runs()?.into_iter().filter(|run| !run.is_over()).collect();
                if live.iter().all(|run| run.word == "running") && self.has_settled(over.elapsed())? {
                    return Ok(());
                }
                if begun.elapsed() > PATIENCE {
                    let seconds = PATIENCE.as_secs();
                    return Err(format!("{seconds} s after faults these runs do not train again: {live:?}"));
                }
            }
            std::thread::sleep(LOOKS);
        }
    }

    /// Whether the faults of the last schedule, which are over for so long, end nothing any more.
    fn has_settled(&self, over: Duration) -> Result<bool, String> {
        let begun = self.schedules.last().copied().unwrap_or(i64::MAX);
        let faults: Vec<&HostFault> = self.faults.iter().filter(|fault| fault.at >= begun).collect();
        let waits = |fault: &&HostFault| Fault::named(&fault.word).is_some_and(|kind| over < kind.settles_within());
        if !faults.iter().any(waits) {
            return Ok(true);
        }
        let ends = ends(&self.home.log()?, &|instance: &str| self.host_of(instance));
        let has_ended = |fault: &HostFault| ends.iter().any(|(at, on)| *at >= fault.at && on.contains(&fault.host));
        Ok(faults.iter().all(|fault| !waits(fault) || has_ended(fault)))
    }
}

/// When attempts have failed, and on which hosts.
fn ends(log: &[Value], host_of: &dyn Fn(&str) -> Option<String>) -> Vec<(i64, Vec<String>)> {
    let mut hosts: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut ends = Vec::new();
    for record in log {
        let Some(attempt) = record["attempt"].as_str() else { continue };
        match record["event"].as_str() {
            Some("attempt_intended") => {
                hosts.insert(attempt, instances(record).into_iter().filter_map(host_of).collect());
            }
            Some("attempt_ended") if record["end"]["finding"].is_object() => {
                ends.push((record["at"].as_i64().unwrap_or(0), hosts.get(attempt).cloned().unwrap_or_default()));
            }
            _ => {}
        }
    }
    ends
}

/// The time in microseconds since 1970.
fn now() -> Result<i64, String> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_err(|error| error.to_string())?;
    Ok(i64::try_from(now.as_micros()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn attempts_that_failed_are_found_with_all_of_their_hosts() {
        let log = [
            json!({ "event": "attempt_intended", "attempt": "r-1-a1", "instance": "i1", "others": ["i2"], "at": 1 }),
            json!({ "event": "attempt_intended", "attempt": "r-2-a1", "instance": "i3", "others": [], "at": 1 }),
            json!({ "event": "attempt_ended", "attempt": "r-2-a1", "end": { "end": "succeeded" }, "at": 5 }),
            json!({ "event": "attempt_ended", "attempt": "r-1-a1", "end": { "finding": { "cause": "hang" } }, "at": 7 }),
        ];
        let host_of = |instance: &str| Some(instance.replace('i', "host-"));
        assert_eq!(ends(&log, &host_of), [(7, vec!["host-1".to_owned(), "host-2".to_owned()])]);
    }
}
