//! The list of machines: one of all zones, page by page.

use super::{AggregatedPage, Gcp, Instance, OWNER_LABEL, owner_label};
use crate::aws::wire::query::word;
use crate::rented::{CloudFailure, CloudMachine};

/// Pages of one list that are read; more is taken for a mistake.
const PAGES: usize = 1000;

impl Gcp {
    /// Every machine of the project, or of an owner there.
    pub(super) fn listed(&self, owner: Option<&str>) -> Result<Vec<CloudMachine>, CloudFailure> {
        let filter = owner.map(|owner| word(&format!("labels.{OWNER_LABEL}={}", owner_label(owner))));
        let filter = filter.map(|filter| format!("filter={filter}&")).unwrap_or_default();
        let (mut found, mut page) = (Vec::new(), String::new());
        for _ in 0..PAGES {
            let path = self.path(&format!("aggregated/instances?{filter}maxResults=500{page}"));
            let list: AggregatedPage = self.client.get(&path)?;
            if !list.unreachables.is_empty() {
                return Err(CloudFailure::Doubt(format!("could not look at {}", list.unreachables.join(", "))));
            }
            found.extend(list.items.into_values().flat_map(|scope| scope.instances).map(Instance::machine));
            match list.next_page_token.filter(|token| !token.is_empty()) {
                Some(token) => page = format!("&pageToken={}", word(&token)),
                None => return Ok(found),
            }
        }
        Err(CloudFailure::Doubt("the list of machines has no end".to_owned()))
    }
}
