//! How often a run will fail: what is usual for the machines that it rents, corrected by what it has seen of them.

use domain::{Duration, Elapsed, Offer};

/// Mean time between failures of a run, and where the figure comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hazard {
    /// The time.
    pub mtbf: Duration,
    /// In words.
    pub reason: String,
}

/// A spot machine is taken back every so many hours, in the mean of the clouds' bands.
const SPOT: u64 = 6;

/// A machine with eight GPUs on demand fails every so many hours.
const ON_DEMAND: u64 = 30 * 24;

/// A machine of the user's own may be switched off.
const OWN: u64 = 24;

/// No interval is chosen for more failures than this: what fails every minute never ends.
const LEAST: u64 = 60_000_000;

/// How often a run on so many of these machines fails, after it has worked for a time and failed a number of times. What is
/// usual counts as one failure in its time, so that a few of its own soon weigh more.
pub fn hazard(offer: &Offer, nodes: u32, worked: Elapsed, failures: u32) -> Hazard {
    let is_cloud = offer.kind.contains('/');
    let (hours, what) = match (offer.kind.ends_with("/spot"), is_cloud) {
        (true, _) => (SPOT, "a spot machine"),
        (false, true) => (ON_DEMAND, "a machine on demand"),
        (false, false) => (OWN, "a machine of your own"),
    };
    let prior = hours * 3_600_000_000 / u64::from(nodes.max(1));
    let mtbf = (prior.saturating_add(worked.0) / (1 + u64::from(failures))).max(LEAST);
    let machines = if nodes > 1 { format!(", {nodes} of them") } else { String::new() };
    let seen = match failures {
        0 => String::new(),
        1 => format!("; 1 failure in {}", human(worked)),
        count => format!("; {count} failures in {}", human(worked)),
    };
    let mtbf = Duration::from_micros(mtbf);
    Hazard { mtbf, reason: format!("one failure in {} h is usual for {what}{machines}{seen}", hours) }
}

fn human(time: Elapsed) -> Duration {
    Duration::from_secs(time.0 / 1_000_000)
}

#[cfg(test)]
mod tests {
    use domain::{Node, Rate};

    use super::*;

    fn check(kind: &str, nodes: u32, hours: u64, failures: u32, expected: &str) {
        let rate = Rate::from_micros_per_hour(1);
        let offer =
            Offer { provider: "p".into(), kind: kind.into(), node: Node::default(), rate, price_source: String::new() };
        let found = hazard(&offer, nodes, Elapsed(hours * 3_600_000_000), failures);
        assert_eq!(format!("{}: {}", found.mtbf, found.reason), expected);
    }

    #[test]
    fn what_is_usual_is_corrected_by_what_was_seen() {
        check("us-east-1/p4d.24xlarge/spot", 1, 0, 0, "6h: one failure in 6 h is usual for a spot machine");
        check("us-east-1/p4d.24xlarge/spot", 8, 0, 0, "45m: one failure in 6 h is usual for a spot machine, 8 of them");
        check("us-east-1/p4d.24xlarge", 1, 0, 0, "30d: one failure in 720 h is usual for a machine on demand");
        // Five failures in six hours: one in two hours, with what was thought before.
        check(
            "us-east-1/p4d.24xlarge/spot",
            1,
            6,
            5,
            "2h: one failure in 6 h is usual for a spot machine; 5 failures in 6h",
        );
        check("any", 1, 0, 0, "1d: one failure in 24 h is usual for a machine of your own");
        check("any", 1, 0, 5_000, "1m: one failure in 24 h is usual for a machine of your own; 5000 failures in 0s");
    }
}
