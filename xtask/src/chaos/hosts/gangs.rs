//! What became of attempts on several hosts: whether the right one was named, and whether the others were kept.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::chaos::recoveries::{HostFault, RELATED, instances};

/// What the event log says of attempts on several hosts that failed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct GangFailures {
    /// Those after a fault of a host of theirs.
    failed: u64,
    /// Those of which a host with a fault was named.
    named: u64,
    /// What was named otherwise.
    misnamed: Vec<String>,
    /// Those that no fault explains.
    unexplained: Vec<String>,
    /// Machines without a fault that the next attempt was free to continue on, and those on which it did, or could have.
    survivors: u64,
    kept: u64,
}

/// Of attempts that failed after a fault, one of its hosts is named in at least this share.
const NAMED: f64 = 0.99;

/// An attempt on several hosts, from its intent on.
struct GangAttempt<'a> {
    instances: Vec<&'a str>,
    /// Instances without a fault, once it has failed.
    survivors: Option<BTreeSet<&'a str>>,
}

impl GangFailures {
    /// Reads them from a log. `host_of` gives the host of an instance. Where faults were made by ones and twos, `schedules` are
    /// the times at which each such schedule began, and faults of an earlier one explain nothing.
    pub(super) fn read(
        log: &[Value],
        (faults, schedules): (&[HostFault], &[i64]),
        host_of: &dyn Fn(&str) -> Option<String>,
    ) -> GangFailures {
        let mut found = GangFailures::default();
        // The newest attempt of each run.
        let mut newest: BTreeMap<&str, GangAttempt<'_>> = BTreeMap::new();
        let mut released: BTreeSet<&str> = BTreeSet::new();
        for record in log {
            if record["event"].as_str() == Some("release_intended") {
                released.extend(record["instance"].as_str());
            }
            let Some(attempt) = record["attempt"].as_str() else { continue };
            let run = attempt.rsplit_once("-a").map_or(attempt, |(run, _)| run);
            match record["event"].as_str() {
                Some("attempt_intended") => {
                    let instances = instances(record);
                    let before = newest.insert(run, GangAttempt { instances: instances.clone(), survivors: None });
                    if let Some(survivors) = before.and_then(|before| before.survivors) {
                        found.survivors += survivors.len() as u64;
                        // One that is in no attempt stands by.
                        let is_kept = |one: &&&str| instances.contains(one) || !released.contains(*one);
                        found.kept += survivors.iter().filter(is_kept).count() as u64;
                    }
                }
                Some("attempt_ended") => {
                    if let Some(gang) = newest.get_mut(run).filter(|gang| gang.instances.len() > 1) {
                        gang.survivors = found.judge(record, &gang.instances, (faults, schedules), host_of);
                    }
                }
                _ => {}
            }
        }
        found
    }

    /// Judges the end of an attempt on these instances. Returns those without a fault, where it has failed by one of another.
    fn judge<'a>(
        &mut self,
        record: &Value,
        instances: &[&'a str],
        (faults, schedules): (&[HostFault], &[i64]),
        host_of: &dyn Fn(&str) -> Option<String>,
    ) -> Option<BTreeSet<&'a str>> {
        let message = record["end"]["finding"]["message"].as_str()?;
        let at = record["at"].as_i64().unwrap_or(0);
        let since = schedules.iter().copied().filter(|begun| *begun <= at).max().unwrap_or(at - RELATED);
        let had_fault = |instance: &str| {
            let host = host_of(instance);
            let is_near = |fault: &HostFault| (since..=at).contains(&fault.at);
            faults.iter().any(|fault| Some(&fault.host) == host.as_ref() && is_near(fault))
        };
        let well: BTreeSet<&str> = instances.iter().copied().filter(|instance| !had_fault(instance)).collect();
        let said = || format!("{}: {message}", record["attempt"].as_str().unwrap_or(""));
        if well.len() == instances.len() {
            self.unexplained.push(said());
            return None;
        }
        self.failed += 1;
        match named(message).and_then(|rank| instances.get(rank)) {
            Some(instance) if had_fault(instance) => self.named += 1,
            Some(_) | None => self.misnamed.push(said()),
        }
        // A full disk ends the run, and its machines are given back.
        Some(well).filter(|_| record["end"]["finding"]["cause"].as_str() != Some("disk_full"))
    }

    /// What is wrong where every fault was over before the next one was made.
    pub(super) fn problem(&self) -> Option<String> {
        let share = self.named as f64 / self.failed.max(1) as f64;
        if self.failed > 0 && share < NAMED {
            return Some(format!("a host with a fault is named in {} of {} failures", self.named, self.failed));
        }
        if !self.unexplained.is_empty() {
            return Some(format!("{} attempts failed without a fault of their hosts", self.unexplained.len()));
        }
        let lost = self.survivors - self.kept;
        (lost > 0).then(|| format!("{lost} of {} machines without a fault were not kept", self.survivors))
    }

    /// What there is to print; nothing where no attempt was on several hosts.
    pub(super) fn lines(&self) -> Vec<String> {
        if self.failed == 0 && self.unexplained.is_empty() {
            return Vec::new();
        }
        let mut lines = vec![
            format!(
                "attempts on several hosts that failed after a fault: {}, with the host of one named: {}",
                self.failed, self.named
            ),
            format!("machines without a fault: {}, kept for the next attempt: {}", self.survivors, self.kept),
        ];
        lines.extend(self.misnamed.iter().map(|said| format!("another host is named: {said}")));
        lines.extend(self.unexplained.iter().map(|said| format!("without a fault: {said}")));
        lines
    }
}

/// The node rank that a finding names.
fn named(message: &str) -> Option<usize> {
    message.strip_prefix("node ")?.split_once(':')?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn intended(attempt: &str, instance: &str, others: &[&str]) -> Value {
        json!({ "event": "attempt_intended", "attempt": attempt, "instance": instance, "others": others, "at": 0 })
    }

    fn failed(attempt: &str, message: &str, seconds: i64) -> Value {
        let end = json!({ "end": "failed", "finding": { "cause": "killed", "message": message } });
        json!({ "event": "attempt_ended", "attempt": attempt, "end": end, "at": seconds * 1_000_000 })
    }

    #[test]
    fn the_host_with_the_fault_is_to_be_named_and_the_others_kept() {
        let log = [
            intended("r-1-a1", "i1", &["i2", "i3"]),
            failed("r-1-a1", "node 1: killed", 20),
            // One without a fault was not kept.
            json!({ "event": "release_intended", "instance": "i3", "at": 0 }),
            intended("r-1-a2", "i1", &["i4", "i5"]),
            failed("r-1-a2", "node 0: rank 2 is gone", 40),
            intended("r-1-a3", "i1", &["i4", "i6"]),
            failed("r-1-a3", "node 2: code 1", 900),
            intended("r-2-a1", "i7", &[]),
            failed("r-2-a1", "killed", 41),
        ];
        let fault =
            |host: &str, seconds: i64| HostFault { word: "rank".into(), host: host.into(), at: seconds * 1_000_000 };
        let faults = [fault("host-2", 19), fault("host-5", 39), fault("host-7", 40)];
        let host_of = |instance: &str| Some(instance.replace('i', "host-"));
        let found = GangFailures::read(&log, (&faults, &[]), &host_of);
        let expected = GangFailures {
            failed: 2,
            named: 1,
            misnamed: vec!["r-1-a2: node 0: rank 2 is gone".to_owned()],
            unexplained: vec!["r-1-a3: node 2: code 1".to_owned()],
            // i1 and i3 after the first, i1 and i4 after the second.
            survivors: 4,
            kept: 3,
        };
        assert_eq!(found, expected);
        assert_eq!(found.lines().len(), 4);
        assert!(GangFailures::default().lines().is_empty() && GangFailures::default().problem().is_none());
        assert_eq!(found.problem().unwrap(), "a host with a fault is named in 1 of 2 failures");
    }

    #[test]
    fn what_was_over_before_explains_nothing() {
        let log = [
            intended("r-1-a1", "i1", &["i2"]),
            failed("r-1-a1", "node 1: killed", 20),
            intended("r-1-a2", "i1", &["i2"]),
            failed("r-1-a2", "node 0: code 1", 60),
        ];
        let fault =
            |host: &str, seconds: i64| HostFault { word: "rank".into(), host: host.into(), at: seconds * 1_000_000 };
        let faults = [fault("host-2", 19), fault("host-1", 18), fault("host-2", 59)];
        let host_of = |instance: &str| Some(instance.replace('i', "host-"));
        let named = |schedules: &[i64]| GangFailures::read(&log, (&faults, schedules), &host_of).named;
        assert_eq!((named(&[]), named(&[17_000_000, 50_000_000])), (2, 1));
        let faults = [fault("host-2", 19)];
        let found = GangFailures::read(&log, (&faults, &[17_000_000, 50_000_000]), &host_of);
        assert_eq!(found.problem().unwrap(), "1 attempts failed without a fault of their hosts");
        let found = GangFailures { survivors: 3, kept: 2, ..GangFailures::default() };
        assert_eq!(found.problem().unwrap(), "1 of 3 machines without a fault were not kept");
    }
}
