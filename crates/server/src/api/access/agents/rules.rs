//! Who may join as the agent of which instance: pure decisions over hashes.

use std::collections::BTreeMap;

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

/// The secret of an agent that has joined, and the token that it has used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct AgentSession {
    pub sha256: String,
    pub token: String,
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

/// Lets the agent of an instance join, by the hashes of its token and its secret; returns whether that is new. The same
/// request again is no second use: its answer may have been lost.
pub(super) fn join(
    agents: &mut Agents,
    instance: &InstanceId,
    (token, secret): (&str, &str),
    now: Timestamp,
) -> Result<bool, JoinRefusal> {
    let found = agents.iter().find_map(|(owner, entry)| {
        let known = entry.tokens.iter().find(|known| known.sha256 == token)?;
        Some((owner.clone(), known.expires))
    });
    let (owner, expires) = found.ok_or(JoinRefusal::Unknown)?;
    if owner != *instance {
        return Err(JoinRefusal::OtherInstance(owner));
    }
    let entry = agents.get_mut(&owner).ok_or(JoinRefusal::Unknown)?;
    if let Some(session) = &entry.session {
        let is_same = session.token == token && session.sha256 == secret;
        return if is_same { Ok(false) } else { Err(JoinRefusal::Used(owner)) };
    }
    if expires <= now {
        return Err(JoinRefusal::Expired(owner, expires));
    }
    entry.session = Some(AgentSession { sha256: secret.to_owned(), token: token.to_owned(), since: now });
    Ok(true)
}

/// The instance whose agent has this secret, by its hash.
pub(super) fn instance_of<'a>(agents: &'a Agents, secret: &str) -> Option<&'a InstanceId> {
    let is_its = |entry: &AgentEntry| entry.session.as_ref().is_some_and(|session| session.sha256 == secret);
    agents.iter().find(|(_, entry)| is_its(entry)).map(|(instance, _)| instance)
}

/// Whether an agent may use the files of a run: only of the one that has its machine now.
pub(super) fn may_use(world: &World, agent: &InstanceId, run: &str) -> bool {
    let holder = world.holder(agent).unwrap_or(agent);
    world.instances.get(holder).is_some_and(|instance| instance.run.as_str() == run)
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
        check(&one, "t1", "s2", 99, Err(JoinRefusal::Used(one.clone())));
        check(&two, "t2", "s3", 99, Ok(true));
        assert_eq!((instance_of(&agents, "s1"), instance_of(&agents, "s3")), (Some(&one), Some(&two)));
        assert_eq!((instance_of(&agents, "s2"), instance_of(&agents, "t1")), (None, None));
    }
}
