//! Machines: what clouds offer, and the nodes of the home with what runs on them.

use axum::Json;
use axum::extract::State;
use cloud::ssh::Inventory;
use domain::InstanceId;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Api;
use super::failure::ApiError;
use super::reading::{Checked, blocking, query};

/// Offers in one answer by default, and at most.
const OFFERS: [usize; 2] = [100, 1_000];

/// Which offers to list.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OfferQuery {
    /// GPUs of a machine, such as `A100:8`.
    pub gpu: Option<String>,
    /// Only this cloud.
    pub cloud: Option<String>,
    /// Only this region: a name, a prefix with `*`, or a country.
    pub region: Option<String>,
    /// Spot prices.
    pub spot: bool,
    /// Maximum number of offers, cheapest first.
    pub limit: Option<usize>,
}

/// Lists offers, the cheapest first: the command line's own way.
pub type OfferLister = dyn Fn(&OfferQuery) -> Result<Vec<Value>, ApiError> + Send + Sync;

/// Lists what clouds offer, from the catalog of the home.
pub(super) async fn offers(State(api): State<Api>, wanted: Checked<OfferQuery>) -> Result<Json<Value>, ApiError> {
    let mut wanted = query(wanted)?;
    let [usual, most] = OFFERS;
    let limit = wanted.limit.unwrap_or(usual).min(most);
    wanted.limit = Some(limit + 1);
    let mut offers = blocking(move || (api.answers.offers)(&wanted)).await?;
    let has_more = offers.len() > limit;
    offers.truncate(limit);
    Ok(Json(json!({ "offers": offers, "has_more": has_more })))
}

/// Lists the nodes of the home, with the instances that are not released there.
pub(super) async fn nodes(State(api): State<Api>) -> Result<Json<Value>, ApiError> {
    let root = api.home.root().to_owned();
    let inventory = blocking(move || Inventory::read(&root).map_err(ApiError::inside)).await?;
    let used = api.door.look(|world| {
        let live = world.live_instances().filter(|(_, instance)| instance.offer.provider == cloud::ssh::NAME);
        let used: Vec<(String, InstanceId, Value)> = live
            .map(|(id, instance)| {
                let place = instance.handle.as_ref().map_or(instance.offer.kind.clone(), |handle| handle.0.clone());
                (place, id.clone(), json!(instance.run))
            })
            .collect();
        used
    });
    let used = used.await?;
    let node = |host: &cloud::ssh::Host| {
        let here = used.iter().filter(|(place, ..)| place.split('/').next() == Some(host.name.as_str()));
        let here: Vec<Value> = here.map(|(_, id, run)| json!({ "instance": id, "run": run })).collect();
        json!({ "node": host, "instances": here })
    };
    Ok(Json(json!({ "nodes": inventory.hosts.iter().map(node).collect::<Vec<Value>>() })))
}
