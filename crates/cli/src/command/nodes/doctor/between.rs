//! The network between nodes: each receives on a port of its own, and another sends to the address at which SSH reached it.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use cloud::ssh::{Connection, Host, Site};
use node::facts::link::SentFigures;
use serde::Deserialize;

use super::visit::NodeVisit;
use crate::doctor::LinkResult;

/// Up to so many nodes each sends to each; of more, each to the next.
const EACH: usize = 4;

/// Where a receiver waits.
#[derive(Debug, Deserialize)]
pub(super) struct Waiting {
    /// The address at which SSH reached it, where its sshd says so.
    pub(super) address: Option<String>,
    /// The port of its choice.
    pub(super) port: u16,
}

/// Measures between the nodes that were reached.
pub fn measure(nodes: &[(&Host, &NodeVisit)]) -> Vec<LinkResult> {
    let sites: Vec<(&str, &(Connection, Site))> =
        nodes.iter().filter_map(|(host, visit)| Some((host.name.as_str(), visit.site.as_ref()?))).collect();
    pairs(sites.len()).into_iter().map(|(from, to)| one(sites[from], sites[to])).collect()
}

/// Who sends to whom.
fn pairs(count: usize) -> Vec<(usize, usize)> {
    match count {
        0 | 1 => Vec::new(),
        count if count <= EACH => {
            let all = (0..count).flat_map(|from| (0..count).map(move |to| (from, to)));
            all.filter(|(from, to)| from != to).collect()
        }
        count => (0..count).map(|from| (from, (from + 1) % count)).collect(),
    }
}

fn one((from, sender): (&str, &(Connection, Site)), (to, receiver): (&str, &(Connection, Site))) -> LinkResult {
    let mut place = to.to_owned();
    let sent = sent(sender, receiver, &mut place);
    LinkResult { from: from.to_owned(), to: place, sent }
}

fn sent(
    (sender, sender_site): &(Connection, Site),
    (receiver, receiver_site): &(Connection, Site),
    place: &mut String,
) -> Result<SentFigures, String> {
    let mut command = receiver.command(&receiver_site.command(&["facts", "--receive"]));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(|error| format!("cannot run `ssh`: {error}"))?;
    let mut line = String::new();
    let read = child.stdout.take().map(|pipe| BufReader::new(pipe).read_line(&mut line));
    let waiting = match (read, serde_json::from_str::<Waiting>(&line)) {
        (Some(Ok(_)), Ok(waiting)) => Ok(waiting),
        _ => Err("it did not listen".to_owned()),
    };
    let sent = waiting.and_then(|waiting| {
        let address = waiting.address.unwrap_or_else(|| receiver.host().to_owned());
        *place = format!("{place} ({address})");
        let words = ["facts", "--send", &format!("{address}:{}", waiting.port)];
        let said = sender.run("send to the other", &sender_site.command(&words), b"");
        let said = said.map_err(|error| error.to_string())?;
        serde_json::from_slice(&said).map_err(|error| format!("it answered what cannot be read: {error}"))
    });
    // A receiver that nobody reached waits a while; its `ssh` need not.
    if sent.is_err() {
        let _ = child.kill();
    }
    let _ = child.wait();
    sent
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_sends_to_each_until_that_takes_too_long() {
        assert_eq!(pairs(1), []);
        assert_eq!(pairs(2), [(0, 1), (1, 0)]);
        assert_eq!(pairs(4).len(), 12);
        assert_eq!(pairs(5), [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0)]);
    }
}
