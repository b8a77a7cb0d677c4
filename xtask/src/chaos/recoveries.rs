//! How long it took to notice faults, and until steps were made again: from the event log and the storm's own notes.

use std::collections::BTreeMap;

use serde_json::Value;

/// What ends longer after a fault than this has another cause.
pub const RELATED: i64 = 180_000_000;

/// A fault that was made to a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostFault {
    /// Of what kind.
    pub word: String,
    /// The name of the host.
    pub host: String,
    /// When, in microseconds since 1970.
    pub at: i64,
}

/// A line for each kind of fault, with the time until attempts on its host had ended, and one for each cause of such an end,
/// with the time until the next attempt of the run made steps. `host_of` gives the host of an instance.
pub fn table(log: &[Value], faults: &[HostFault], host_of: &dyn Fn(&str) -> Option<String>) -> Vec<String> {
    // Of each attempt, by node rank.
    let mut hosts: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut ended: BTreeMap<&str, (i64, &str, Vec<String>)> = BTreeMap::new();
    let (mut noticed, mut made_up) = (Durations::default(), Durations::default());
    for record in log {
        let at = record["at"].as_i64().unwrap_or(0);
        let Some(attempt) = record["attempt"].as_str() else { continue };
        let run = attempt.rsplit_once("-a").map_or(attempt, |(run, _)| run);
        match record["event"].as_str() {
            Some("attempt_intended") => {
                hosts.insert(attempt, instances(record).into_iter().filter_map(host_of).collect());
            }
            Some("attempt_ended") => {
                let Some(cause) = cause(record) else { continue };
                let hosts = hosts.get(attempt).cloned().unwrap_or_default();
                if let Some(fault) = last(faults, &hosts, at) {
                    noticed.add(format!("{}: the attempt had ended after", fault.word), at - fault.at);
                }
                ended.insert(run, (at, cause, hosts));
            }
            Some("attempt_ready") => {
                let Some((before, cause, was_on)) = ended.remove(run) else { continue };
                let place = if hosts.get(attempt) == Some(&was_on) { "the same host" } else { "another host" };
                made_up.add(format!("{cause}: steps again on {place} after"), at - before);
            }
            _ => {}
        }
    }
    noticed.lines().chain(made_up.lines()).collect()
}

/// Why an attempt has failed; none for another end.
fn cause(record: &Value) -> Option<&str> {
    record["end"]["finding"]["cause"].as_str()
}

/// The instances of an attempt, by node rank.
pub fn instances(record: &Value) -> Vec<&str> {
    let others = record["others"].as_array().into_iter().flatten();
    std::iter::once(&record["instance"]).chain(others).filter_map(Value::as_str).collect()
}

/// The newest fault that was made to one of these hosts before a time.
fn last<'a>(faults: &'a [HostFault], hosts: &[String], at: i64) -> Option<&'a HostFault> {
    let is_before = |fault: &&HostFault| hosts.contains(&fault.host) && (at - RELATED..=at).contains(&fault.at);
    let before = faults.iter().filter(is_before);
    before.max_by_key(|fault| fault.at)
}

/// The seconds that are aimed at, on a machine that does nothing else: a crash is told at once; a host is given up after 45 s
/// of silence and 10 s for proof; and a resumed run has its data and checkpoint here, or fetches them.
fn aim(what: &str) -> Option<u32> {
    let aims = [("rank: ", 1), ("power: ", 55), ("network: ", 55)];
    let of_fault = aims.into_iter().find(|(start, _)| what.starts_with(start));
    let of_steps = [("on the same host after", 5), ("on another host after", 60)];
    of_fault.or_else(|| of_steps.into_iter().find(|(end, _)| what.ends_with(end))).map(|(_, aim)| aim)
}

/// Lengths of time in microseconds, by what they are of.
#[derive(Debug, Default)]
struct Durations(BTreeMap<String, Vec<i64>>);

impl Durations {
    fn add(&mut self, what: String, micros: i64) {
        self.0.entry(what).or_default().push(micros);
    }

    /// The median and the longest of each.
    fn lines(&self) -> impl Iterator<Item = String> + '_ {
        self.0.iter().map(|(what, all)| {
            let mut all = all.clone();
            all.sort_unstable();
            let seconds = |index: usize| all[index] as f64 / 1e6;
            let (middle, longest) = (seconds(all.len() / 2), seconds(all.len() - 1));
            let aim = aim(what).map_or(String::new(), |aim| format!(", aim ≤ {aim} s"));
            format!("{what} {middle:.1} s (median), {longest:.1} s (longest), n = {}{aim}", all.len())
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn faults_are_timed_until_they_are_noticed_and_until_steps_are_made_again() {
        let failed = |cause: &str| json!({ "end": "failed", "finding": { "cause": cause, "message": "" } });
        let second = |seconds: f64| (seconds * 1e6) as i64;
        let log = [
            json!({ "event": "attempt_intended", "run": "r-1", "attempt": "r-1-a1", "instance": "i1", "at": second(1.0) }),
            json!({ "event": "attempt_ready", "attempt": "r-1-a1", "at": second(2.0) }),
            json!({ "event": "attempt_ended", "attempt": "r-1-a1", "end": failed("killed"), "at": second(10.5) }),
            json!({ "event": "attempt_intended", "run": "r-1", "attempt": "r-1-a2", "instance": "i1", "at": second(10.6) }),
            json!({ "event": "attempt_ready", "attempt": "r-1-a2", "at": second(12.5) }),
            json!({ "event": "attempt_ended", "attempt": "r-1-a2", "end": failed("instance_lost"), "at": second(80.0) }),
            json!({ "event": "attempt_intended", "run": "r-1", "attempt": "r-1-a3", "instance": "i2", "at": second(81.0) }),
            json!({ "event": "attempt_ready", "attempt": "r-1-a3", "at": second(90.0) }),
            json!({ "event": "attempt_ended", "attempt": "r-1-a3", "end": { "end": "trained" }, "at": second(99.0) }),
        ];
        let fault =
            |word: &str, host: &str, at: f64| HostFault { word: word.into(), host: host.into(), at: second(at) };
        let faults = [fault("rank", "host-1", 10.0), fault("power", "host-1", 25.0), fault("power", "host-2", 79.0)];
        let host_of = |instance: &str| Some(instance.replace('i', "host-"));
        assert_eq!(
            table(&log, &faults, &host_of),
            [
                "power: the attempt had ended after 55.0 s (median), 55.0 s (longest), n = 1, aim ≤ 55 s",
                "rank: the attempt had ended after 0.5 s (median), 0.5 s (longest), n = 1, aim ≤ 1 s",
                "instance_lost: steps again on another host after 10.0 s (median), 10.0 s (longest), n = 1, aim ≤ 60 s",
                "killed: steps again on the same host after 2.0 s (median), 2.0 s (longest), n = 1, aim ≤ 5 s",
            ]
        );
    }
}
