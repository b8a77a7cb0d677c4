//! Looking at a node over SSH: its facts, its clock, and what its connection carries.

use std::io::Write;
use std::time::{Duration, Instant};

use cloud::ssh::{Connection, Executables, Host, NodeLink, Site, SshError, bootstrap};
use domain::Bytes;
use node::facts::link::SentFigures;
use node::facts::{NodeFacts, now};

use crate::doctor::{ClockOffset, Diagnosis, LinkResult, Severity};

/// Bytes that are sent each way, at most.
const AMOUNT: u64 = 32 << 20;

/// For so long, at most.
const PATIENCE: Duration = Duration::from_secs(2);

/// What was found out about a node.
#[derive(Default)]
pub struct NodeVisit {
    /// How to reach it again, where it was reached.
    pub site: Option<(Connection, Site)>,
    /// What it says of itself.
    pub facts: Option<NodeFacts>,
    /// Its clock, compared with the one here.
    pub clock: Option<ClockOffset>,
    /// Bandwidth to it and from it.
    pub links: Vec<LinkResult>,
    /// Why it was not reached, or said nothing.
    pub failure: Option<Diagnosis>,
}

impl NodeVisit {
    /// Writes down what does not change from one minute to the next.
    pub fn note(&self, host: &mut Host) {
        let Some(facts) = &self.facts else { return };
        let mut facts = facts.clone();
        let is_same = host.facts.as_ref().is_some_and(|known| known.fingerprint() == facts.fingerprint());
        if facts.disk.figures.is_none() && is_same {
            facts.disk.figures = host.facts.as_ref().and_then(|known| known.disk.figures);
        }
        facts.kernel_log.clear();
        facts.kernel_log_error = None;
        host.node.disk_free = facts.disk.free;
        host.facts = Some(Box::new(facts));
        let rates: Vec<&SentFigures> = self.links.iter().filter_map(|link| link.sent.as_ref().ok()).collect();
        if let [to, from] = rates[..] {
            host.link = Some(NodeLink { to: Bytes(to.rate), from: Bytes(from.rate), round_trip_us: to.connect_us });
        }
    }
}

/// Looks at nodes, all at once.
pub fn all(hosts: &[&Host], program: &Executables, owner: &str, measures: bool) -> Vec<NodeVisit> {
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            hosts.iter().map(|host| scope.spawn(move || visit(host, program, owner, measures))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_default()).collect()
    })
}

/// Looks at one node. What cannot be found out is left out; why, says `failure`.
pub fn visit(host: &Host, program: &Executables, owner: &str, measures: bool) -> NodeVisit {
    let connection = Connection::new(host, owner);
    let mut visit = NodeVisit::default();
    // Facts need no libtorch, which would take a minute to copy.
    let program = Executables { libtorch: None, ..program.clone() };
    let site = match bootstrap::prepare(&connection, &program, owner) {
        Ok(site) => site,
        Err(error) => {
            visit.failure = Some(unreached(host, &error));
            return visit;
        }
    };
    visit.clock = clock(&connection).ok();
    let words: &[&str] = if measures { &["facts", "--measure-disk"] } else { &["facts"] };
    let said = connection.run("run `gradus facts`", &site.command(words), b"");
    match said.map(|text| serde_json::from_slice(&text)) {
        Ok(Ok(facts)) => visit.facts = Some(facts),
        Ok(Err(error)) => {
            visit.failure = Some(unusable(format!("`gradus facts` answered what cannot be read: {error}")))
        }
        Err(error) => visit.failure = Some(unusable(error.to_string())),
    }
    if measures && visit.failure.is_none() {
        visit.links = links(host, &connection);
    }
    visit.site = Some((connection, site));
    visit
}

fn unreached(host: &Host, error: &SshError) -> Diagnosis {
    let (check, cause, remedy) = match error {
        SshError::Connect { .. } => (
            "ssh",
            "the machine is off or was given another address, its sshd is down, or its key has changed".to_owned(),
            format!(
                "`ssh {}` must connect without a question; then `gradus nodes add {} --address …` again",
                host.address, host.name
            ),
        ),
        SshError::Broken { .. } => (
            "ssh",
            "the network or its sshd ended a connection that had worked".to_owned(),
            format!("`gradus doctor {}` again; if it breaks again, the log of its sshd may show why", host.name),
        ),
        SshError::Failed { .. } | SshError::Here { .. } => (
            "programs",
            "gradus could not be copied there: the disk is full or read-only, or the home folder cannot be written"
                .to_owned(),
            format!("`gradus ssh {} df -h` shows its disks", host.name),
        ),
    };
    Diagnosis::found(Severity::Critical, check, error.to_string(), cause, remedy)
}

fn unusable(symptom: String) -> Diagnosis {
    let cause = "gradus does not start there: another processor than x86-64, a glibc older than 2.35, or a home folder \
                 mounted `noexec`";
    let remedy = "use a machine with Ubuntu 22.04, Debian 12 or newer on x86-64";
    Diagnosis::found(Severity::Critical, "programs", symptom, cause, remedy)
}

/// Compares the clocks: the node's was read somewhere between question and answer.
fn clock(connection: &Connection) -> Result<ClockOffset, String> {
    // The first command may have opened the connection.
    let before = now();
    let said = connection.run("read its clock", "date +%s%N", b"").map_err(|error| error.to_string())?;
    let after = now();
    let nanoseconds: i64 = String::from_utf8_lossy(&said).trim().parse().map_err(|_| "no number".to_owned())?;
    let middle = before.0 + (after.0 - before.0) / 2;
    Ok(ClockOffset { offset_us: nanoseconds / 1000 - middle, uncertainty_us: (after.0 - before.0) / 2 })
}

/// What the connection carries to the node and from it, in this order.
fn links(host: &Host, connection: &Connection) -> Vec<LinkResult> {
    let begun = Instant::now();
    let reached = connection.run("answer", "true", b"");
    let trip = begun.elapsed();
    let (here, there) = ("this machine".to_owned(), format!("{} (over SSH)", host.name));
    let rate = |bytes: u64, begun: Instant| {
        let micros = begun.elapsed().saturating_sub(trip).as_micros().max(1);
        let rate = u64::try_from(u128::from(bytes) * 1_000_000 / micros).unwrap_or(u64::MAX);
        SentFigures { connect_us: u64::try_from(trip.as_micros()).unwrap_or(u64::MAX), rate }
    };
    let sent = reached.map_err(|error| error.to_string()).and_then(|_| {
        let (begun, mut bytes) = (Instant::now(), 0);
        let sent = connection.feed("take what is sent", "cat > /dev/null", |pipe| send(pipe, begun, &mut bytes));
        sent.map(|_| rate(bytes, begun)).map_err(|error| error.to_string())
    });
    let begun = Instant::now();
    let pull = format!("timeout {} head -c {AMOUNT} /dev/urandom || true", PATIENCE.as_secs() + 1);
    let pulled = connection.run("send something", &pull, b"");
    let pulled = pulled.map(|bytes| rate(bytes.len() as u64, begun)).map_err(|error| error.to_string());
    let link = |from: &str, to: &str, sent| LinkResult { from: from.to_owned(), to: to.to_owned(), sent };
    vec![link(&here, &there, sent), link(&host.name, &here, pulled)]
}

/// Sends what no connection compresses.
fn send(pipe: &mut dyn Write, begun: Instant, bytes: &mut u64) -> std::io::Result<()> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut part = vec![0; 256 << 10];
    for word in part.chunks_exact_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        word.copy_from_slice(&state.to_le_bytes());
    }
    while *bytes < AMOUNT && begun.elapsed() < PATIENCE {
        pipe.write_all(&part)?;
        *bytes += part.len() as u64;
    }
    Ok(())
}
