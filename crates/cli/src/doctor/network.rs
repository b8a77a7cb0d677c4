//! Names, the clock, and how much fits through the network.

use node::facts::NameFacts;
use node::facts::link::SentFigures;

use super::{Diagnosis, Severity};
use crate::figures::size;

/// How far a machine's clock is from the one here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockOffset {
    /// Ahead of this machine's, in microseconds.
    pub offset_us: i64,
    /// It is that, give or take so much: half of the time that the answer took.
    pub uncertainty_us: i64,
}

/// What came of a measurement between two machines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkResult {
    /// Who has sent.
    pub from: String,
    /// To whom, with the address that was used.
    pub to: String,
    /// What was measured, or why nothing was.
    pub sent: Result<SentFigures, String>,
}

/// Microseconds from which logs of several machines are out of order.
const UNTIDY: i64 = 50_000;

/// Microseconds from which certificates, tokens and schedules go wrong.
const WRONG: i64 = 5_000_000;

/// S3 refuses requests whose time is 15 minutes off.
const REFUSED: i64 = 900_000_000;

/// Bytes per second of a gigabit network, less what protocols take: what plans assume between nodes.
pub(super) const GIGABIT: u64 = 110_000_000;

/// Bytes per second below which a checkpoint of 1 GB takes more than 100 s.
const SLOW: u64 = 10_000_000;

/// The host's own name.
pub(super) fn names(names: &NameFacts) -> Vec<Diagnosis> {
    if names.host.is_empty() && names.error.is_none() {
        return Vec::new();
    }
    if let Some(error) = &names.error {
        let symptom = format!("the machine does not find its own name `{}`: {error}", names.host);
        let cause = "Gloo and NCCL ask for the address of their own name when ranks meet, and programs with them fail at the start";
        let remedy = format!("add a line to `/etc/hosts`: the machine's address, then `{}`", names.host);
        return vec![Diagnosis::found(Severity::Warning, "names", symptom, cause, remedy)];
    }
    let is_loopback = |address: &String| address.starts_with("127.") || address == "::1";
    if names.addresses.iter().all(is_loopback) {
        let symptom = format!("`{}` is {} to the machine itself", names.host, names.addresses.join(" and "));
        let cause = "a program of your own that lets Gloo choose tells other nodes an address that only this machine has; the \
                     built-in trainer is not affected";
        let remedy = "for jobs on several nodes set `envs: {GLOO_SOCKET_IFNAME: eth0, NCCL_SOCKET_IFNAME: eth0}` with the \
                      interface of `ip -br addr`, or put the machine's address into `/etc/hosts`";
        return vec![Diagnosis::found(Severity::Info, "names", symptom, cause, remedy)];
    }
    vec![Diagnosis::pass("names", format!("`{}` is {}", names.host, names.addresses.join(", ")))]
}

/// The clock, compared with the one here.
pub(super) fn clock(clock: ClockOffset) -> Diagnosis {
    let ClockOffset { offset_us, uncertainty_us } = clock;
    let direction = if offset_us < 0 { "behind" } else { "ahead of" };
    let text = format!("{} {direction} this machine (± {})", time(offset_us.abs()), time(uncertainty_us));
    let sure = offset_us.abs() - uncertainty_us;
    let cause = match sure {
        sure if sure >= REFUSED => {
            "object stores refuse requests with such a time, and certificates may not hold yet or any more"
        }
        sure if sure >= WRONG => "certificates and tokens that are young or old are refused, and logs are out of order",
        sure if sure >= UNTIDY => "lines of logs from several machines are out of order; runs do not depend on it",
        _ => return Diagnosis::pass("clock", text),
    };
    let severity = match sure {
        sure if sure >= REFUSED => Severity::Critical,
        sure if sure >= WRONG => Severity::Warning,
        _ => Severity::Info,
    };
    let remedy = "`sudo timedatectl set-ntp true`, or install `chrony`; in a virtual machine look at the host's clock";
    Diagnosis::found(severity, "clock", text, cause, remedy)
}

fn time(micros: i64) -> String {
    match micros {
        micros if micros >= 60_000_000 => format!("{:.1} min", micros as f64 / 60e6),
        micros if micros >= 1_000_000 => format!("{:.1} s", micros as f64 / 1e6),
        micros => format!("{:.1} ms", micros as f64 / 1e3),
    }
}

/// What the network between machines is worth. `is_between_nodes` are those that train together; else it is what carries
/// files between a node and this machine.
pub fn links(results: &[LinkResult], is_between_nodes: bool) -> Vec<Diagnosis> {
    let one = |link: &LinkResult| {
        let who = format!("{} → {}", link.from, link.to);
        let sent = match &link.sent {
            Ok(sent) => sent,
            Err(why) => {
                let symptom = format!("{who}: {why}");
                let cause =
                    "a firewall closes the ports between the machines, or the address is one that only you can reach";
                let remedy = "open all TCP ports between the nodes for each other; jobs on one node each need none";
                return Diagnosis::found(Severity::Critical, "network", symptom, cause, remedy);
            }
        };
        let trip = if is_between_nodes {
            format!(", {} to connect", time(i64::try_from(sent.connect_us).unwrap_or(0)))
        } else {
            String::new()
        };
        let text = format!("{who}: {}/s{trip}", size(sent.rate));
        let (severity, cause, remedy) = match (is_between_nodes, sent.rate) {
            (true, rate) if rate < GIGABIT => (
                Severity::Warning,
                "plans assume 1 Gbit/s between nodes; gradients are exchanged at each step, so a job on both is slower than planned",
                "train on one of them, or look at `ethtool` for the speed of the interface",
            ),
            (false, rate) if rate < SLOW => (
                Severity::Warning,
                "programs, data and checkpoints travel at this speed: 1 GB takes more than 100 s",
                "keep data on the node or in an object store near it, and checkpoint less often",
            ),
            _ => return Diagnosis::pass("network", text),
        };
        Diagnosis::found(severity, "network", text, cause, remedy)
    };
    results.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_is_wrong_where_that_is_sure() {
        let check = |offset_us, uncertainty_us, severity, part: &str| {
            let found = clock(ClockOffset { offset_us, uncertainty_us });
            assert_eq!(found.severity, severity, "{found:?}");
            assert!(found.symptom.contains(part), "{found:?}");
        };
        check(20_000, 1_000, Severity::Pass, "20.0 ms ahead of this machine (± 1.0 ms)");
        check(-200_000, 1_000, Severity::Info, "200.0 ms behind");
        check(-200_000, 190_000, Severity::Pass, "behind");
        check(6_000_000, 10_000, Severity::Warning, "6.0 s ahead");
        check(-3_600_000_000, 10_000, Severity::Critical, "60.0 min behind");
    }

    #[test]
    fn names_and_links_are_judged() {
        let host = |addresses: &[&str]| NameFacts {
            host: "a".into(),
            addresses: addresses.iter().map(|address| (*address).to_owned()).collect(),
            error: None,
        };
        assert_eq!(names(&host(&["10.0.0.7"]))[0].severity, Severity::Pass);
        assert_eq!(names(&host(&["127.0.1.1", "::1"]))[0].severity, Severity::Info);
        let lost = NameFacts { error: Some("not known".into()), ..host(&[]) };
        assert_eq!(names(&lost)[0].severity, Severity::Warning);
        let check = |rate: Result<u64, &str>, is_between_nodes, severity| {
            let sent = rate.map(|rate| SentFigures { connect_us: 300, rate }).map_err(str::to_owned);
            let result = LinkResult { from: "a".into(), to: "b (10.0.0.8)".into(), sent };
            let found = &links(&[result], is_between_nodes)[0];
            assert_eq!(found.severity, severity, "{found:?}");
            assert!(found.symptom.starts_with("a → b (10.0.0.8): "), "{found:?}");
        };
        check(Ok(120_000_000), true, Severity::Pass);
        check(Ok(60_000_000), true, Severity::Warning);
        check(Ok(60_000_000), false, Severity::Pass);
        check(Ok(1_000_000), false, Severity::Warning);
        check(Err("connection refused"), true, Severity::Critical);
    }
}
