//! A call that is answered on the machine itself: `gradus node` reads a [`NodeRequest`] and prints a [`ProviderAnswer`].

use domain::Rate;
use domain::rental::{NODE_SCHEMA, NodeRequest};

use super::bootstrap::Site;
use super::connection::{Connection, SshError};
use crate::provider::{ProviderAnswer, ProviderCall};

/// Calls the provider on the machine.
pub fn ask(connection: &Connection, site: &Site, owner: &str, rate: Rate, call: &ProviderCall) -> ProviderAnswer {
    let request = NodeRequest { schema: NODE_SCHEMA, owner: owner.to_owned(), rate, call: call.clone() };
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
