//! An all-reduce over the nodes: one rank on each, which meet at the first node as the ranks of a job do.
//!
//! Each is `gradus facts --all-reduce` over SSH, whose standard input stays open: where this process ends, so do they.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use cloud::ssh::{Connection, Host, Site};
use domain::all_reduce::{AllReduceFigures, AllReduceRequest};
use domain::finding::{Cause, Finding};

use super::between::Waiting;
use super::visit::NodeVisit;
use crate::doctor::{AllReduceOutcome, LinkResult};

/// Nodes are waited for at most so long; each has ended its rank by then.
const LIMIT: Duration = Duration::from_secs(110);

/// A node that was reached.
type Reached<'a> = (&'a str, &'a Connection, &'a Site);

/// What came of it between all nodes that were reached; none for a single one.
pub fn measure<'a>(nodes: &[(&'a Host, &'a NodeVisit)], links: &[LinkResult]) -> Option<AllReduceOutcome> {
    let site = |(host, visit): &(&'a Host, &'a NodeVisit)| {
        let (connection, site) = visit.site.as_ref()?;
        Some((host.name.as_str(), connection, site))
    };
    let reached: Vec<Reached> = nodes.iter().filter_map(site).collect();
    let name = |(name, _, _): &Reached| (*name).to_owned();
    if reached.len() < 2 {
        return None;
    }
    let without: Vec<String> = reached.iter().filter(|(_, _, site)| site.libtorch.is_none()).map(name).collect();
    if !without.is_empty() {
        return Some(AllReduceOutcome::NoLibtorch(without));
    }
    if links.iter().any(|link| link.sent.is_err()) {
        return Some(AllReduceOutcome::NoNetwork);
    }
    let names = reached.iter().map(name).collect();
    Some(match measured(&reached) {
        Ok(figures) => AllReduceOutcome::Measured { nodes: names, figures },
        Err((node, finding)) => AllReduceOutcome::Failed { nodes: names, node, finding },
    })
}

/// The ranks that were started; dropping it ends those that still run.
struct Ranks(Vec<Child>);

impl Drop for Ranks {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // The end of its standard input ends the rank there.
            drop(child.stdin.take());
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A line that one of them has printed, or none at its end.
type Line = (usize, Option<String>);

/// The slowest rank's figures, or the first that fails and why.
fn measured(reached: &[Reached]) -> Result<AllReduceFigures, (String, Finding)> {
    let begun = Instant::now();
    let (sender, lines) = channel::<Line>();
    let mut ranks = Ranks(Vec::new());
    let size = u32::try_from(reached.len()).unwrap_or(u32::MAX);
    let fault = |place: usize, finding: Finding| (reached[place].0.to_owned(), finding);
    let left = || LIMIT.saturating_sub(begun.elapsed());
    let next = |awaited: usize| lines.recv_timeout(left()).map_err(|_| fault(awaited, late()));

    let first = AllReduceRequest { rank: 0, size, host: String::new(), port: 0 };
    start(&mut ranks, reached[0], &first, &sender).map_err(|finding| fault(0, finding))?;
    let (_, line) = next(0)?;
    let waiting: Waiting = line.and_then(|line| serde_json::from_str(&line).ok()).ok_or_else(|| fault(0, silent()))?;
    let host = waiting.address.unwrap_or_else(|| reached[0].1.host().to_owned());
    for (place, rank) in (1..reached.len()).zip(1..) {
        let request = AllReduceRequest { rank, size, host: host.clone(), port: waiting.port };
        start(&mut ranks, reached[place], &request, &sender).map_err(|finding| fault(place, finding))?;
    }
    let mut slowest: Option<AllReduceFigures> = None;
    let mut answered = vec![false; reached.len()];
    while let Some(awaited) = answered.iter().position(|has_answered| !has_answered) {
        let (place, line) = next(awaited)?;
        // The end of a rank that has answered is no news.
        let Some(line) = line else {
            match answered[place] {
                true => continue,
                false => return Err(fault(place, silent())),
            }
        };
        let figures = read(&line).map_err(|finding| fault(place, finding))?;
        answered[place] = true;
        slowest = Some(slowest.filter(|known| known.micros >= figures.micros).unwrap_or(figures));
    }
    slowest.ok_or_else(|| fault(0, silent()))
}

/// Starts one rank; a thread sends on what it prints.
fn start(
    ranks: &mut Ranks,
    (_, connection, site): Reached,
    request: &AllReduceRequest,
    sender: &Sender<Line>,
) -> Result<(), Finding> {
    let question = serde_json::to_string(request).unwrap_or_default();
    let mut command = connection.command(&site.command(&["facts", "--all-reduce", &question]));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let spawned = command.spawn();
    let mut child = spawned.map_err(|error| Finding::new(Cause::Internal, format!("cannot run `ssh`: {error}")))?;
    let (place, output, sender) = (ranks.0.len(), child.stdout.take(), sender.clone());
    std::thread::spawn(move || {
        let lines = output.into_iter().flat_map(|output| BufReader::new(output).lines().map_while(Result::ok));
        // If nobody receives, all is over.
        lines
            .map(|line| (place, Some(line)))
            .chain([(place, None)])
            .map_while(|line| sender.send(line).ok())
            .for_each(drop);
    });
    ranks.0.push(child);
    Ok(())
}

fn read(line: &str) -> Result<AllReduceFigures, Finding> {
    serde_json::from_str::<Result<AllReduceFigures, Finding>>(line).unwrap_or_else(|_| Err(silent()))
}

fn silent() -> Finding {
    Finding::new(Cause::Internal, "its rank has ended without an answer")
}

fn late() -> Finding {
    Finding::new(Cause::Hang, format!("it was not over after {} s", LIMIT.as_secs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_node_prints_is_figures_or_a_finding() {
        let figures = r#"{"Ok":{"backend":"nccl","size":2,"bytes":8,"rounds":3,"micros":5}}"#;
        assert_eq!(read(figures).unwrap().micros, 5);
        let finding = r#"{"Err":{"cause":"rank_lost","message":"rank 1 did not arrive","hint":null}}"#;
        assert_eq!(read(finding).unwrap_err().message, "rank 1 did not arrive");
        assert_eq!(read("error: unexpected argument").unwrap_err(), silent());
    }
}
