//! What a machine fetches from another node of its pool before the rest is sent from here.
//!
//! A peer only ever fills the folder of blobs: what is there afterwards is looked at as after a copy that broke off, and what is
//! missing is sent from here. So no peer is needed, and none can make a copy fail.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use domain::Bytes;
use node::blobs::{BlobPeer, FetchSecret, InstallBlob, InstallStep, ServeOffer, ServeRequest};

use super::Site;
use super::transfer::{CopiedFiles, InstallCopy, PeerCopy, SourceFolder};
use crate::ssh::connection::{Connection, SshError};
use crate::ssh::inventory::Host;
use crate::ssh::peers::{PeerNodes, slowest_peer};

/// Within this time a peer says what it serves, or is not used.
const ANSWER: Duration = Duration::from_secs(20);

/// Installs folders below `.gradus` of a machine, on which `gradus` is already: from other nodes what they have, the rest from
/// here. `peers` is called where something is missing.
///
/// # Errors
/// [`SshError`].
pub(super) fn install<'a>(
    connection: &Connection,
    site: &Site,
    from: &[SourceFolder],
    peers: impl FnOnce() -> Option<PeerNodes<'a>>,
) -> Result<CopiedFiles, SshError> {
    let mut copy = InstallCopy::new(connection, site, from)?;
    copy.look()?;
    let held = copy.held();
    let peers = if copy.missing().is_empty() { None } else { peers() };
    let fetched = match &peers {
        Some(peers) => fetch(&mut copy, peers)?,
        None => Vec::new(),
    };
    let sent = match copy.send() {
        // Of a blob that came in part from a peer the hash is known only now. What was wrong is deleted, and comes from here.
        Err(SshError::Failed { .. }) if fetched.iter().any(|copied| copied.bytes.0 > 0) => {
            copy.look()?;
            copy.send()?
        }
        sent => sent?,
    };
    Ok(CopiedFiles { whole: copy.whole(), held, sent: Bytes(sent), peers: fetched })
}

/// Fetches from one node after the other, until nothing is missing or none is left to ask. Those that are not asked, because they
/// have just failed, are reported like those that fail.
fn fetch(copy: &mut InstallCopy, peers: &PeerNodes) -> Result<Vec<PeerCopy>, SshError> {
    let skipped = |(peer, why)| PeerCopy { peer, bytes: Bytes(0), failed: Some(why) };
    let mut fetched: Vec<PeerCopy> = peers.skipped().into_iter().map(skipped).collect();
    let mut asked = BTreeSet::new();
    while !copy.missing().is_empty()
        && let Some(slot) = peers.take_slot(&asked)
    {
        let peer = slot.host.name.clone();
        asked.insert(peer.clone());
        let before = copy.held();
        let failed = fetch_from(copy, peers, slot.host).err();
        // Where the machine itself cannot be reached any more, the peer is not to blame.
        copy.look()?;
        if let Some(why) = &failed {
            slot.note_failed(&peers.node.name, why);
        }
        let bytes = Bytes(copy.held().0.saturating_sub(before.0));
        if bytes.0 > 0 || failed.is_some() {
            fetched.push(PeerCopy { peer, bytes, failed });
        }
    }
    Ok(fetched)
}

/// Has the machine fetch from this node what that holds; why it did not get it all.
fn fetch_from(copy: &InstallCopy, peers: &PeerNodes, peer: &Host) -> Result<(), String> {
    let secret = FetchSecret::draw().map_err(|error| format!("no secret can be made: {error}"))?;
    let missing = copy.missing();
    let blobs = missing.iter().map(|blob| blob.sha256.clone()).collect();
    let request = ServeRequest { blobs, secret: secret.clone() };
    let Some(serving) = ServingPeer::start(&Connection::new(peer, peers.owner), copy.site(), &request)? else {
        return Ok(());
    };
    let offer = &serving.offer;
    if let Some(why) = &offer.failed {
        return Err(why.clone());
    }
    let Some(address) = offer.address else { return Ok(()) };
    if let Some(why) = peers.refusal(address.ip()) {
        return Err(why);
    }
    let wanted: Vec<InstallBlob> = missing.into_iter().filter(|blob| offer.held.contains(&blob.sha256)).collect();
    let floor = slowest_peer(peers.node.link);
    let answer = copy.ask(InstallStep::Fetch(BlobPeer { address, secret, floor }), wanted);
    match answer.map_err(|error| error.to_string())?.failed {
        Some(why) => Err(why),
        None => Ok(()),
    }
}

/// A node that serves blobs, until this is dropped.
#[derive(Debug)]
struct ServingPeer {
    child: Child,
    /// The node stops serving when this ends.
    _input: Option<ChildStdin>,
    offer: ServeOffer,
}

impl ServingPeer {
    /// Starts it; `None` where the node has not the same `gradus`.
    fn start(connection: &Connection, site: &Site, request: &ServeRequest) -> Result<Option<ServingPeer>, String> {
        let mut line = serde_json::to_vec(request).map_err(|error| error.to_string())?;
        line.push(b'\n');
        let mut command = connection.command(&site.serving_command());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let child = command.spawn().map_err(|error| format!("cannot run `ssh`: {error}"))?;
        let mut serving = ServingPeer { child, _input: None, offer: ServeOffer::default() };
        let (Some(mut input), Some(output)) = (serving.child.stdin.take(), serving.child.stdout.take()) else {
            return Err("`ssh` has no pipes".to_owned());
        };
        // What it does not read, it does not answer either.
        let _ = input.write_all(&line);
        serving._input = Some(input);
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || {
            let mut line = String::new();
            let _ = BufReader::new(output).read_line(&mut line);
            let _ = sender.send(line);
        });
        let answer =
            receiver.recv_timeout(ANSWER).map_err(|_| format!("it did not answer within {} s", ANSWER.as_secs()))?;
        if answer.trim() == Site::ABSENT {
            return Ok(None);
        }
        serving.offer =
            serde_json::from_str(&answer).map_err(|_| "`ssh` cannot run `gradus node-serve` there".to_owned())?;
        Ok(Some(serving))
    }
}

impl Drop for ServingPeer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
