//! Connections over TLS whose client has not shown a right token: `watched` closes them after a while, and
//! accepts only so many of them at a time.

use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::{ConnectInfo, Request};
use tokio::sync::OwnedSemaphorePermit;

/// The client of a connection, known to the connection and to the requests on it.
#[derive(Debug, Clone, Default)]
pub struct Visitor {
    /// Its place among those that have not shown a right token; `None` once it has.
    pub(super) place: Arc<Mutex<Option<OwnedSemaphorePermit>>>,
}

/// Notes that a request had a right token: its connection may stay.
pub(super) fn trust(request: &Request) {
    let Some(ConnectInfo(visitor)) = request.extensions().get::<ConnectInfo<Visitor>>() else { return };
    drop(visitor.place.lock().unwrap_or_else(PoisonError::into_inner).take());
}
