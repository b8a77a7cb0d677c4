//! What is done to a host or to the server, and what ends it.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::HostsStorm;
use crate::chaos::recoveries::HostFault;

/// Something that is done to a host or to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fault {
    /// `kill -9` of the server, which is started again after a while.
    Server,
    /// `kill -9` of the agent, or of the ranks.
    Agent,
    Rank,
    /// Power off, and on again after a while.
    Power,
    /// The network is cut, and healed after a while.
    Network,
    /// Every SSH connection of the server is cut.
    Connections,
    /// The same while gradus is being installed on a host without jobs.
    Bootstrap,
    /// The disk is full, and has space again after a while.
    Full,
    /// Writes to the disk wait for a while.
    Slow,
    /// The clock jumps by ten minutes, or back.
    Clock,
    /// The ranks are stopped by SIGSTOP for a while.
    Pause,
    /// The ranks run for a quarter of the time only, for a while.
    Throttle,
}

/// Every kind of fault.
pub(super) const FAULTS: [Fault; 12] = [
    Fault::Server,
    Fault::Agent,
    Fault::Rank,
    Fault::Power,
    Fault::Network,
    Fault::Connections,
    Fault::Bootstrap,
    Fault::Full,
    Fault::Slow,
    Fault::Clock,
    Fault::Pause,
    Fault::Throttle,
];

/// A full disk ends runs for good, so it is freed before all of them wait.
const FULL_AT_MOST: Duration = Duration::from_secs(20);

/// How far a clock may be ahead, in seconds.
const CLOCKS: [i64; 3] = [-600, 0, 600];

/// What the command lines of ranks match: of a program, of the process that trains, and not of `torchrun`. A shell that has the
/// pattern in its own does not match it.
const RANKS: &str = "[g]radus-rank|python3 -u [d]dp.py";

/// What is done to ranks, beside the verbs of the lab.
const PAUSE: &str = "pause";
const THROTTLE: &str = "throttle";
const CONTINUE: &str = "continue";

/// Stops ranks for three quarters of every 0.4 s, until `$1` seconds are over.
const THROTTLED: &str = "exec < /dev/null > /dev/null 2>&1; over=$((SECONDS + $1)); while [ $SECONDS -lt $over ]; do \
                         pkill -STOP -f \"$2\"; sleep 0.3; pkill -CONT -f \"$2\"; sleep 0.1; done";

impl Fault {
    /// The word for it.
    pub(super) fn word(self) -> &'static str {
        match self {
            Fault::Server => "server",
            Fault::Agent => "agent",
            Fault::Rank => "rank",
            Fault::Power => "power",
            Fault::Network => "network",
            Fault::Connections => "connections",
            Fault::Bootstrap => "bootstrap",
            Fault::Full => "full",
            Fault::Slow => "slow",
            Fault::Clock => "clock",
            Fault::Pause => "pause",
            Fault::Throttle => "throttle",
        }
    }

    /// The fault of that word.
    pub(super) fn named(word: &str) -> Option<Fault> {
        FAULTS.into_iter().find(|fault| fault.word() == word)
    }

    /// Whether it is done to a disk or a clock that the host must have of its own.
    pub(super) fn needs_refit(self) -> bool {
        match self {
            Fault::Full | Fault::Slow | Fault::Clock => true,
            Fault::Server | Fault::Agent | Fault::Rank | Fault::Power | Fault::Network | Fault::Connections => false,
            Fault::Pause | Fault::Throttle | Fault::Bootstrap => false,
        }
    }

    /// How long after it is over an attempt may still end by it, at most.
    pub(super) fn settles_within(self) -> Duration {
        Duration::from_secs(match self {
            // A machine is given up after 45 s of silence and 10 s for proof, and ranks without a step after 120 s.
            Fault::Agent | Fault::Power | Fault::Network => 140,
            Fault::Rank | Fault::Slow => 30,
            Fault::Server | Fault::Connections | Fault::Bootstrap | Fault::Full => 15,
            Fault::Clock | Fault::Pause | Fault::Throttle => 15,
        })
    }

    /// What the command lines of the processes match that it kills or stops, as `pkill -f` reads it.
    fn pattern(self) -> Option<&'static str> {
        match self {
            Fault::Agent => Some("gradus agent|/gradus .*agent"),
            Fault::Rank | Fault::Pause | Fault::Throttle => Some(RANKS),
            Fault::Connections => Some("sshd: root"),
            Fault::Server | Fault::Power | Fault::Network | Fault::Bootstrap => None,
            Fault::Full | Fault::Slow | Fault::Clock => None,
        }
    }

    /// What begins it on a host and what ends it, where it lasts.
    fn verbs(self) -> Option<(&'static str, &'static str)> {
        match self {
            Fault::Power => Some(("kill", "start")),
            Fault::Network => Some(("partition", "heal")),
            Fault::Full => Some(("fill", "empty")),
            Fault::Slow => Some(("freeze", "thaw")),
            Fault::Pause => Some((PAUSE, CONTINUE)),
            Fault::Throttle => Some((THROTTLE, CONTINUE)),
            Fault::Server | Fault::Agent | Fault::Rank | Fault::Connections | Fault::Bootstrap | Fault::Clock => None,
        }
    }
}

impl HostsStorm {
    /// Makes one fault of these kinds; says whether there was something to make it to.
    pub(super) fn fault(&mut self, kinds: &[Fault], hosts: u64) -> Result<bool, String> {
        let fault = kinds[usize::try_from(self.draws.below(kinds.len() as u64)).unwrap_or(0)];
        let host = 1 + self.draws.below(hosts);
        // Some are shorter than any time that the loop knows, some longer than 45 s and 60 s.
        let longest = [3_000, 20_000, 75_000][usize::try_from(self.draws.below(3)).unwrap_or(0)];
        let away = Duration::from_millis(500 + self.draws.below(longest));
        let clock = CLOCKS[usize::try_from(self.draws.below(CLOCKS.len() as u64)).unwrap_or(0)];
        // Before it is made, which takes a moment itself.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_err(|error| error.to_string())?;
        let at = i64::try_from(now.as_micros()).unwrap_or(i64::MAX);
        let is_made = match fault {
            Fault::Server if !self.home.is_served() => false,
            Fault::Server => {
                self.home.kill_for(away / 4);
                true
            }
            Fault::Agent | Fault::Rank | Fault::Connections => self.kill(fault, host)?,
            Fault::Bootstrap => self.cut_bootstrap()?,
            Fault::Power | Fault::Network | Fault::Full | Fault::Slow | Fault::Pause | Fault::Throttle => {
                self.begin(fault, host, away, hosts)?
            }
            Fault::Clock => {
                self.lab_done(&["clock", &host.to_string(), &clock.to_string()])?;
                true
            }
        };
        *self.done.entry(fault).or_default() += u64::from(is_made);
        if is_made && !matches!(fault, Fault::Server | Fault::Bootstrap) {
            self.faults.push(HostFault { word: fault.word().to_owned(), host: format!("host-{host}"), at });
        }
        Ok(is_made)
    }

    /// Kills processes of a host; those of one that is off or cut off would not be there, or not be missed.
    fn kill(&self, fault: Fault, host: u64) -> Result<bool, String> {
        let Some(pattern) = fault.pattern() else { return Ok(false) };
        if fault != Fault::Connections && self.away.contains_key(&host) {
            return Ok(false);
        }
        let killed = self.lab(&["exec", &host.to_string(), "pkill", "-9", "-e", "-f", pattern])?;
        Ok(killed.contains("killed"))
    }

    /// Does what begins a fault; says whether there was something to do it to.
    fn begun(&self, verb: &str, host: u64, lasting: Duration) -> Result<bool, String> {
        let number = host.to_string();
        let stopped = ["exec", &number, "pkill", "-STOP", "-e", "-f", RANKS];
        match verb {
            PAUSE => Ok(self.lab(&stopped)?.contains("killed")),
            THROTTLE if self.lab(&["exec", &number, "pgrep", "-f", RANKS])?.trim().is_empty() => Ok(false),
            THROTTLE => {
                // It is over before the last word is that they continue.
                let seconds = lasting.as_secs().to_string();
                let shell = ["exec", &number, "setsid", "--fork", "bash", "-c", THROTTLED, "throttle", &seconds, RANKS];
                self.lab_done(&shell).map(|()| true)
            }
            verb => self.lab_done(&[verb, &number]).map(|()| true),
        }
    }

    /// Does what ends a fault.
    pub(super) fn end(&self, verb: &str, host: u64) -> Result<(), String> {
        let number = host.to_string();
        match verb {
            CONTINUE => self.lab(&["exec", &number, "pkill", "-CONT", "-f", RANKS]).map(drop),
            verb => self.lab(&[verb, &number]).map(drop),
        }
    }

    /// Begins what lasts. One host is always left well.
    fn begin(&mut self, fault: Fault, host: u64, lasting: Duration, hosts: u64) -> Result<bool, String> {
        let Some((verb, back)) = fault.verbs() else { return Ok(false) };
        if self.away.contains_key(&host) || self.away.len() as u64 + 1 >= hosts {
            return Ok(false);
        }
        if !self.begun(verb, host, lasting)? {
            return Ok(false);
        }
        let lasting = if fault == Fault::Full { lasting.min(FULL_AT_MOST) } else { lasting };
        self.away.insert(host, (back, Instant::now() + lasting));
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_has_a_word_and_what_lasts_ends() {
        for fault in FAULTS {
            assert_eq!(Fault::named(fault.word()), Some(fault));
        }
        assert_eq!(Fault::named("fire"), None);
        let lasting: Vec<&str> = FAULTS.into_iter().filter_map(Fault::verbs).map(|(_, back)| back).collect();
        assert_eq!(lasting, ["start", "heal", "empty", "thaw", "continue", "continue"]);
    }
}
