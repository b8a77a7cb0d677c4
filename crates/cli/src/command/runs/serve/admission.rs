//! Whether what a server is asked for may be spent: as the commands of this machine decide it.

use std::sync::Arc;

use server::Home;
use server::api::{self, PaidRequest};

use crate::command::runs::run::planners::refusal;
use crate::error::Error;
use crate::local::spending::{self, SpendingRequest};

/// Admits what `gradus run` and `gradus resume` would.
pub fn admitter(home: Home) -> Arc<api::Admitter> {
    Arc::new(move |request| {
        let asked = match request {
            PaidRequest::Submit(job, plan, user) => SpendingRequest::submitted(job, plan, user),
            PaidRequest::Resume(id, run, budget) => SpendingRequest::resumed(id, run, budget).hinting("send `budget`"),
            PaidRequest::ResumeSweep(sweep, budget) => {
                SpendingRequest::resumed_sweep(sweep, budget).hinting("send `budget`")
            }
        };
        // A list that cannot be read is no fault of who asks.
        spending::allowances(&home).map_err(|error| refusal(500, error))?;
        match spending::admit(&asked, &home) {
            Ok(admitted) => Ok(Box::new(admitted)),
            Err(error @ Error::Usage { .. }) => Err(refusal(422, error)),
            Err(error @ Error::Code { .. }) => Err(refusal(409, error)),
            Err(error) => Err(refusal(500, error)),
        }
    })
}
