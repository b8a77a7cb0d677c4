//! A call that is answered on the machine itself: `gradus node` reads a [`NodeRequest`] and prints a [`ProviderAnswer`].

use domain::Rate;
use domain::joining::JoinOffer;
use domain::rental::{NODE_SCHEMA, NodeRequest};

use super::bootstrap::Site;
use super::connection::{Connection, SshError};
use crate::provider::{ProviderAnswer, ProviderCall};

/// Calls the provider on the machine.
pub fn ask(connection: &Connection, site: &Site, owner: &str, rate: Rate, call: &ProviderCall) -> ProviderAnswer {
    ask_joining(connection, site, owner, rate, (call, None))
}

/// The same, where an agent that the call starts joins the server directly.
pub fn ask_joining(
    connection: &Connection,
    site: &Site,
    owner: &str,
    rate: Rate,
    (call, join): (&ProviderCall, Option<JoinOffer>),
) -> ProviderAnswer {
    // It holds a secret, so it travels on stdin only.
    let request = NodeRequest { schema: NODE_SCHEMA, owner: owner.to_owned(), rate, call: call.clone(), join };
    let remote = site.command(&["node"]);
    let said = serde_json::to_vec(&request)
        .map_err(|error| error.to_string())
        .and_then(|request| connection.run("run `gradus node`", &remote, &request).map_err(|error| said(&error)))
        .and_then(|answer| serde_json::from_slice(&answer).map_err(|error| format!("`gradus node` answered: {error}")));
    said.unwrap_or_else(ProviderAnswer::Unavailable)
}

fn said(error: &SshError) -> String {
    error.to_string()
}
