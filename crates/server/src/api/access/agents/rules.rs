//! Who may join as the agent of which instance: pure decisions over hashes.

use std::collections::BTreeMap;

use domain::run::InstanceState;
use domain::{InstanceId, Timestamp};
use plan::World;
use serde::{Deserialize, Serialize};

/// What is known of the agent of one instance; secrets only as their SHA-256, in hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct AgentEntry {
    /// Its join tokens: more than one where the start of the agent was asked for again.
    pub tokens: Vec<JoinToken>,
    /// Once it has joined.
    #[serde(default)]
    pub session: Option<AgentSession>,
}

/// A join token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct JoinToken {
    pub sha256: String,
    pub expires: Timestamp,
}

/// The secret of an agent that has joined.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct AgentSession {
    pub sha256: String,
    pub since: Timestamp,
}

pub(super) type Agents = BTreeMap<InstanceId, AgentEntry>;

/// Why an agent may not join.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JoinRefusal {
    /// No such token was made here, or it was forgotten.
    Unknown,
    /// It was made for this other instance.
    OtherInstance(InstanceId),
    /// An agent has joined for the instance before, with another secret.
    Used(InstanceId),
    /// It was good until then.
    Expired(InstanceId, Timestamp),
}

impl std::fmt::Display for JoinRefusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            JoinRefusal::Unknown => f.write_str("unknown_token: the join token is not known to this server"),
            JoinRefusal::OtherInstance(instance) => {
                write!(f, "other_instance: the join token was made for `{instance}`")
            }
            JoinRefusal::Used(instance) => {
                write!(f, "used_token: another agent has joined for `{instance}`, and a join token is good once")
            }
            JoinRefusal::Expired(instance, at) => {
                let at = jiff::Timestamp::from_microsecond(at.0).unwrap_or_default();
                write!(f, "expired_token: the join token for `{instance}` has expired at {at:.0}")
            }
        }
    }
}

/// Lets the agent of an instance join, by the hashes of its token and its secret; returns whether that is new. An agent that
/// has joined is known by its secret, whatever token it sends: the answer may have been lost, and its start asked for again
/// with another token, or the token may be one that the agent could not delete.
pub(super) fn join(
    agents: &mut Agents,
    instance: &InstanceId,
    (token, secret): (&str, &str),
    now: Timestamp,
) -> Result<bool, JoinRefusal> {
    if agents.get(instance).and_then(|entry| entry.session.as_ref()).is_some_and(|session| session.sha256 == secret) {
        return Ok(false);
    }
    let found = agents.iter().find_map(|(owner, entry)| {
        let known = entry.tokens.iter().find(|known| known.sha256 == token)?;
        Some((owner.clone(), known.expires))
    });
    let (owner, expires) = found.ok_or(JoinRefusal::Unknown)?;
    if owner != *instance {
        return Err(JoinRefusal::OtherInstance(owner));
    }
    let entry = agents.get_mut(&owner).ok_or(JoinRefusal::Unknown)?;
    if entry.session.is_some() {
        return Err(JoinRefusal::Used(owner));
    }
    if expires <= now {
        return Err(JoinRefusal::Expired(owner, expires));
    }
    entry.session = Some(AgentSession { sha256: secret.to_owned(), since: now });
    Ok(true)
}

/// A token is forgotten so long after it has expired, in microseconds: until then, who uses it is told that it has.
const TOKEN_KEPT: u64 = 24 * 3600 * 1_000_000;

/// An agent that has joined is asked for in the event log after so long, in microseconds. A log that was put back from an
/// older copy does not know agents that are at work.
const SESSION_KEPT: u64 = 7 * 24 * 3600 * 1_000_000;

/// Drops tokens that expired long ago, and instances whose agents have not joined with any that is left.
pub(super) fn drop_expired(agents: &mut Agents, now: Timestamp) {
    agents.retain(|_, entry| {
        entry.tokens.retain(|token| token.expires.0.saturating_add_unsigned(TOKEN_KEPT) > now.0);
        entry.session.is_some() || !entry.tokens.is_empty()
    });
}

/// The instances whose agents have joined long ago: they may have ended since.
pub(super) fn joined_long_ago(agents: &Agents, now: Timestamp) -> Vec<InstanceId> {
    let is_old = |since: Timestamp| since.0.saturating_add_unsigned(SESSION_KEPT) <= now.0;
    let old = agents.iter().filter(|(_, entry)| entry.session.as_ref().is_some_and(|session| is_old(session.since)));
    old.map(|(instance, _)| instance.clone()).collect()
}

/// Whether an agent may still have work: its machine is known, and is not known to be gone.
pub(super) fn is_at_work(world: &World, agent: &InstanceId) -> bool {
    let holder = world.holder(agent).unwrap_or(agent);
    world.instances.get(holder).is_some_and(|instance| !matches!(instance.state, InstanceState::Released { .. }))
}

/// The instance whose agent has this secret, by its hash.
pub(super) fn instance_of<'a>(agents: &'a Agents, secret: &str) -> Option<&'a InstanceId> {
    let is_its = |entry: &AgentEntry| entry.session.as_ref().is_some_and(|session| session.sha256 == secret);
    agents.iter().find(|(_, entry)| is_its(entry)).map(|(instance, _)| instance)
}

/// Whether an agent may use the files of a run: only of the one that has its machine now, and no more once the machine is
/// gone, whoever has its disk then.
pub(super) fn may_use(world: &World, agent: &InstanceId, run: &str) -> bool {
    let holder = world.holder(agent).unwrap_or(agent);
    let is_its = world.instances.get(holder).is_some_and(|instance| instance.run.as_str() == run);
    is_its && is_at_work(world, agent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_join_token_is_good_once_for_a_while_and_for_one_instance() {
        let (one, two) = (InstanceId::new("r-1-i1"), InstanceId::new("r-1-i2"));
        let entry = |token: &str| {
            let tokens = vec![JoinToken { sha256: token.to_owned(), expires: Timestamp(100) }];
            AgentEntry { tokens, session: None }
        };
        let mut agents = Agents::from([(one.clone(), entry("t1")), (two.clone(), entry("t2"))]);
        let mut check = |instance: &InstanceId, token: &str, secret: &str, now: i64, expected| {
            assert_eq!(join(&mut agents, instance, (token, secret), Timestamp(now)), expected, "{token} {secret}");
        };
        check(&one, "t3", "s1", 1, Err(JoinRefusal::Unknown));
        check(&one, "t2", "s1", 1, Err(JoinRefusal::OtherInstance(two.clone())));
        check(&one, "t1", "s1", 100, Err(JoinRefusal::Expired(one.clone(), Timestamp(100))));
        check(&one, "t1", "s1", 99, Ok(true));
        check(&one, "t1", "s1", 500, Ok(false));
        // Its start was asked for again, or it could not delete a token that is forgotten by now.
        check(&one, "t4", "s1", 500, Ok(false));
        check(&one, "t4", "s2", 500, Err(JoinRefusal::Unknown));
        check(&one, "t1", "s2", 99, Err(JoinRefusal::Used(one.clone())));
        check(&two, "t2", "s3", 99, Ok(true));
        assert_eq!((instance_of(&agents, "s1"), instance_of(&agents, "s3")), (Some(&one), Some(&two)));
        assert_eq!((instance_of(&agents, "s2"), instance_of(&agents, "t1")), (None, None));
    }

    #[test]
    fn what_nobody_can_use_any_more_is_forgotten() {
        let id = |text: &str| InstanceId::new(text);
        let token = |expires: u64| JoinToken { sha256: format!("t{expires}"), expires: Timestamp(expires as i64) };
        let session = |since| AgentSession { sha256: "s".into(), since: Timestamp(since) };
        let later = TOKEN_KEPT + 1;
        let mut agents = Agents::from([
            (id("gone"), AgentEntry { tokens: vec![token(1)], session: None }),
            (id("asked-again"), AgentEntry { tokens: vec![token(1), token(2)], session: None }),
            (id("joined"), AgentEntry { tokens: vec![token(1)], session: Some(session(1)) }),
        ]);
        drop_expired(&mut agents, Timestamp(later as i64));
        let left: Vec<(&str, usize)> = agents.iter().map(|(id, entry)| (id.as_str(), entry.tokens.len())).collect();
        assert_eq!(left, [("asked-again", 1), ("joined", 0)]);
        let old = |now: u64| joined_long_ago(&agents, Timestamp(now as i64));
        assert_eq!((old(SESSION_KEPT), old(SESSION_KEPT + 1)), (vec![], vec![id("joined")]));
    }

    #[test]
    fn an_agent_uses_the_files_of_its_own_run_until_its_machine_is_gone() {
        let log = include_str!("../../../../tests/histories/first.jsonl");
        let records: Vec<domain::Record> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let up = |record: &domain::Record| matches!(record.event, domain::Event::AgentUp { .. });
        let until = records.iter().position(up).expect("an agent");
        let domain::Event::AgentUp { instance, .. } = &records[until].event else { unreachable!() };
        let world = World::replay(&records[..=until]).unwrap();
        let run = world.instances[instance].run.to_string();
        let check = |world: &World, agent: &InstanceId, run: &str, expected: bool| {
            assert_eq!(may_use(world, agent, run), expected, "{agent} {run}");
        };
        check(&world, instance, &run, true);
        check(&world, instance, "other", false);
        check(&world, instance, "../other", false);
        check(&world, &InstanceId::new("other-i1"), &run, false);
        let ended = World::replay(&records).unwrap();
        check(&ended, instance, &run, false);
        assert!(is_at_work(&world, instance) && !is_at_work(&ended, instance));
    }
}
