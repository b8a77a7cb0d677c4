//! The way from a handler to the control loop, which is another thread.

use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use domain::Event;
use plan::World;
use tokio::sync::oneshot;

use super::failure::ApiError;
use crate::control::{Question, Wake};
use crate::home::{DiskSpace, StoredKind};

/// Timeout for an answer of the loop.
const ANSWER: Duration = Duration::from_secs(10);

/// A handle to the control loop.
#[derive(Debug, Clone)]
pub struct LoopDoor {
    inbox: Sender<Wake>,
    space: Arc<DiskSpace>,
}

impl LoopDoor {
    /// The loop that reads from the other end, and refuses what `space` says.
    pub fn new(inbox: Sender<Wake>, space: Arc<DiskSpace>) -> LoopDoor {
        LoopDoor { inbox, space }
    }

    /// Has an event appended; its number, once it is durable.
    pub(super) async fn request(&self, event: Event) -> Result<u64, ApiError> {
        self.request_holding(event, ()).await
    }

    /// The same, and keeps `held` until the loop has answered, also where the caller has gone away or waits no longer: the
    /// event may be appended later.
    pub(super) async fn request_holding(&self, event: Event, held: impl Send + 'static) -> Result<u64, ApiError> {
        let (reply, answer) = oneshot::channel();
        self.inbox.send(Wake::Request(Box::new(event), reply)).map_err(|_| ApiError::away())?;
        let answered = tokio::spawn(async move {
            let answer = answer.await;
            drop(held);
            answer
        });
        match tokio::time::timeout(ANSWER, answered).await {
            Ok(Ok(Ok(Ok(seq)))) => Ok(seq),
            Ok(Ok(Ok(Err(illegal)))) => Err(ApiError::new(409, illegal.why)),
            Ok(Ok(Err(_)) | Err(_)) | Err(_) => Err(self.unanswered()),
        }
    }

    /// Why the loop has appended nothing.
    fn unanswered(&self) -> ApiError {
        let shortages = self.space.shortages();
        let full = shortages.iter().find(|shortage| shortage.stored == StoredKind::Events);
        full.map_or_else(ApiError::away, |full| ApiError::full(507, std::slice::from_ref(full)))
    }

    /// Queries the world between two decisions of the loop.
    pub(super) async fn look<T: Send + 'static>(
        &self,
        look: impl FnOnce(&World) -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        let (reply, answer) = oneshot::channel();
        let question = Question::new(move |world| {
            // A caller that has disconnected needs no answer.
            let _ = reply.send(look(world));
        });
        self.inbox.send(Wake::Question(question)).map_err(|_| ApiError::away())?;
        match tokio::time::timeout(ANSWER, answer).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) | Err(_) => Err(ApiError::away()),
        }
    }
}
