//! Agents that reach the loop directly over TLS: join tokens, sessions, and what an agent may do.
//!
//! `agents.json` holds hashes only: of 256 random bits each, so that how long a comparison takes tells nobody a secret.
//! [`rules`] decides, [`gate`] has the routes.

pub(in crate::api) mod gate;
mod rules;

use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use domain::joining::{AccessSecret, AgentServer, JoinOffer, JoinRequest};
use domain::{Elapsed, InstanceId, Timestamp};
use node::durable;

use super::tokens::{random, sha256};
use crate::error::Error;
use crate::home::Home;
pub use rules::JoinRefusal;
use rules::{AgentEntry, Agents, JoinToken};

/// Prefix of a join token, so that leaked ones are recognized.
const PREFIX: &str = "gradus_join_";

/// The agents that may reach the loop of a home directly.
#[derive(Debug)]
pub struct AgentAccess {
    path: PathBuf,
    server: AgentServer,
    /// As on disk. Never held while the disk is waited for: requests are answered meanwhile.
    agents: Mutex<Agents>,
    /// One change at a time.
    changes: Mutex<()>,
}

impl AgentAccess {
    /// Those of a home, which reach the server at `server`.
    ///
    /// # Errors
    /// [`Error::File`] if they cannot be read.
    pub fn open(home: &Home, server: AgentServer) -> Result<Arc<AgentAccess>, Error> {
        let path = home.root().join("agents.json");
        let agents = match fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text).map_err(|error| Error::file("read", &path)(error.into()))?,
            Err(error) if error.kind() == ErrorKind::NotFound => Agents::new(),
            Err(error) => return Err(Error::file("read", &path)(error)),
        };
        Ok(Arc::new(AgentAccess { path, server, agents: Mutex::new(agents), changes: Mutex::default() }))
    }

    /// Makes a join token for an instance, good for so long.
    ///
    /// # Errors
    /// [`Error::File`] if it cannot be stored.
    pub fn offer(&self, instance: &InstanceId, lasts: Elapsed, now: Timestamp) -> Result<JoinOffer, Error> {
        let token = format!("{PREFIX}{}", random(&self.path)?);
        let expires = Timestamp(now.0.saturating_add_unsigned(lasts.0));
        self.change(|agents| {
            rules::drop_expired(agents, now);
            let empty = || AgentEntry { tokens: Vec::new(), session: None };
            let entry = agents.entry(instance.clone()).or_insert_with(empty);
            entry.tokens.push(JoinToken { sha256: sha256(&token), expires });
            true
        })?;
        Ok(JoinOffer { server: self.server.clone(), token: AccessSecret(token) })
    }

    /// Whether the agent of an instance has joined, with whatever token.
    pub fn has_joined(&self, instance: &InstanceId) -> bool {
        self.known().get(instance).is_some_and(|entry| entry.session.is_some())
    }

    /// Lets an agent join; it is stored before this returns.
    pub(super) fn join(&self, request: &JoinRequest, now: Timestamp) -> Result<Result<(), JoinRefusal>, Error> {
        let (token, secret) = (sha256(&request.token.0), sha256(&request.secret.0));
        let mut refusal = None;
        self.change(|agents| match rules::join(agents, &request.instance, (&token, &secret), now) {
            Ok(is_new) => is_new,
            Err(why) => {
                refusal = Some(why);
                false
            }
        })?;
        Ok(refusal.map_or(Ok(()), Err))
    }

    /// The instance whose agent has this secret.
    pub(super) fn instance_of(&self, secret: &str) -> Option<InstanceId> {
        rules::instance_of(&self.known(), &sha256(secret)).cloned()
    }

    /// The instances whose agents have joined long ago.
    pub(super) fn joined_long_ago(&self, now: Timestamp) -> Vec<InstanceId> {
        rules::joined_long_ago(&self.known(), now)
    }

    /// Forgets agents, which are not let in any more.
    pub(super) fn forget(&self, gone: &[InstanceId]) -> Result<(), Error> {
        self.change(|agents| {
            let before = agents.len();
            agents.retain(|instance, _| !gone.contains(instance));
            agents.len() < before
        })
    }

    fn known(&self) -> MutexGuard<'_, Agents> {
        self.agents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a change, which is on disk before anybody sees it; `change` says whether there was one.
    fn change(&self, change: impl FnOnce(&mut Agents) -> bool) -> Result<(), Error> {
        let _alone = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        let mut changed = self.known().clone();
        if !change(&mut changed) {
            return Ok(());
        }
        let failed = || Error::file("write", &self.path);
        let text = serde_json::to_vec_pretty(&changed).map_err(|error| failed()(error.into()))?;
        // An agent deletes its join token once it has joined, so that must outlast a loss of power.
        durable::replace(&self.path, &text).map_err(failed())?;
        *self.known() = changed;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use domain::joining::{JOIN_SCHEMA, ServerTrust};

    use super::*;

    #[test]
    fn an_agent_is_known_again_after_a_restart_and_only_by_hashes() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::open(folder.path()).unwrap();
        let server = AgentServer { url: "https://192.0.2.7:7070".into(), trust: ServerTrust::System };
        let open = || AgentAccess::open(&home, server.clone()).unwrap();
        let (access, instance) = (open(), InstanceId::new("r-1-i1"));
        let offer = access.offer(&instance, Elapsed(60_000_000), Timestamp(0)).unwrap();
        let request = |secret: &str| JoinRequest {
            schema: JOIN_SCHEMA,
            instance: instance.clone(),
            token: offer.token.clone(),
            secret: AccessSecret(secret.to_owned()),
        };
        assert!(!access.has_joined(&instance), "a token was made, and not used");
        assert_eq!(access.join(&request("mine"), Timestamp(1)).unwrap(), Ok(()));
        let again = open();
        assert!(again.has_joined(&instance) && !again.has_joined(&InstanceId::new("r-1-i2")));
        assert_eq!(again.instance_of("mine"), Some(instance.clone()));
        assert_eq!(again.instance_of("other"), None);
        assert_eq!(again.join(&request("other"), Timestamp(2)).unwrap(), Err(JoinRefusal::Used(instance.clone())));
        let text = fs::read_to_string(folder.path().join("agents.json")).unwrap();
        assert!(!text.contains(&offer.token.0) && !text.contains("mine"), "{text}");
        again.forget(std::slice::from_ref(&instance)).unwrap();
        assert_eq!((again.instance_of("mine"), open().instance_of("mine")), (None, None));
    }
}
