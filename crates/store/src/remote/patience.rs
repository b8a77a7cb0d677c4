//! Requests tried again while that may help, and the host looked for before the first one.

use std::future::Future;
use std::sync::atomic::Ordering;
use std::time::Duration;

use object_store::Error as StoreError;
use tokio::time::{Instant, sleep};

use super::Remote;
use crate::Error;
use crate::failure::{answered, may_pass};
use crate::location::Location;

impl Remote {
    /// Tries `step` again while it fails for reasons that may pass, with growing pauses.
    pub(crate) async fn patiently<T, F>(
        &self,
        doing: &'static str,
        name: &str,
        mut step: impl FnMut() -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        self.knock(name)?;
        let began = Instant::now();
        let mut pause = Duration::from_millis(100);
        loop {
            match step().await {
                Ok(value) => {
                    self.is_reached.store(true, Ordering::Relaxed);
                    return Ok(value);
                }
                Err(error) => {
                    let is_answer = answered(&error);
                    let is_reached = self.is_reached.fetch_or(is_answer, Ordering::Relaxed) || is_answer;
                    let patience = if is_reached { self.limits.patience } else { self.limits.reach };
                    if !may_pass(&error) || began.elapsed() + pause >= patience {
                        return Err(self.told(doing, name, &error));
                    }
                    sleep(pause).await;
                    pause = (pause * 2).min(Duration::from_secs(8));
                }
            }
        }
    }

    /// Checks, before the first request, whether the host is reachable.
    fn knock(&self, name: &str) -> Result<(), Error> {
        let Some(endpoint) = self.endpoint.as_ref().filter(|_| !self.is_reached.load(Ordering::Relaxed)) else {
            return Ok(());
        };
        endpoint.knock(self.limits.reach).map_err(|why| {
            let hint = match (endpoint.named_by, &self.location) {
                (Some(variable), _) => {
                    format!("`{variable}` names that host: correct it, or start what should listen there")
                }
                (None, Location::Web { .. }) => {
                    "check host and port in the address, or start what should listen there".to_owned()
                }
                (None, _) => "check this machine's network, and the region".to_owned(),
            };
            Error::Unreachable { host: endpoint.to_string(), location: self.address(name), why, hint }
        })
    }
}
