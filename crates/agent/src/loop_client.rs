//! The thread that calls the loop: one call at a time, each with a deadline.

use std::sync::mpsc::{self, Sender};
use std::time::Duration;

use domain::wire::{Heartbeat, HeartbeatReply};
use hyper::Method;

use crate::event::Wakeup;
use crate::loop_request::{LoopCaller, LoopPlace, LoopRequest};

/// Sends calls to the loop; every one is followed by one [`Wakeup::Answered`].
pub struct LoopClient {
    calls: Sender<Heartbeat>,
}

impl LoopClient {
    /// Starts the thread.
    pub fn start(place: LoopPlace, deadline: Duration, events: Sender<Wakeup>) -> LoopClient {
        let (calls, inbox) = mpsc::channel::<Heartbeat>();
        std::thread::spawn(move || {
            let mut caller = LoopCaller::new(place);
            for heartbeat in inbox {
                if events.send(Wakeup::Answered(call(&mut caller, deadline, &heartbeat))).is_err() {
                    return;
                }
            }
        });
        LoopClient { calls }
    }

    /// Makes a call.
    pub fn send(&self, heartbeat: Heartbeat) {
        // The thread lives as long as this end of its channel.
        let _ = self.calls.send(heartbeat);
    }
}

fn call(caller: &mut LoopCaller, deadline: Duration, heartbeat: &Heartbeat) -> Result<HeartbeatReply, String> {
    let request = LoopRequest::json(Method::POST, "tick", heartbeat).map_err(|error| error.to_string())?;
    let answer = caller.send(&request, deadline)?;
    match answer.status.is_success() {
        true => serde_json::from_slice(&answer.body).map_err(|error| error.to_string()),
        false => Err(answer.refusal()),
    }
}
