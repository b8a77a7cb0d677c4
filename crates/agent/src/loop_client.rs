//! The thread that calls the loop: one call at a time, each with a deadline.

use std::path::PathBuf;
use std::sync::mpsc::{self, Sender};
use std::time::Duration;

use domain::wire::{Heartbeat, HeartbeatReply};

use crate::event::Wakeup;

/// Sends calls to the loop; every one is followed by one [`Wakeup::Answered`].
pub struct LoopClient {
    calls: Sender<Heartbeat>,
}

impl LoopClient {
    /// Starts the thread. `socket` is the loop's; it need not exist yet, and may vanish and come back.
    pub fn start(socket: PathBuf, deadline: Duration, events: Sender<Wakeup>) -> LoopClient {
        let (calls, inbox) = mpsc::channel::<Heartbeat>();
        std::thread::spawn(move || {
            store::install_tls();
            // Made here, for it takes a few milliseconds that the agent's own thread has better use for.
            let client = reqwest::blocking::Client::builder().unix_socket(socket).no_proxy().timeout(deadline).build();
            for heartbeat in inbox {
                let answer = match &client {
                    Ok(client) => call(client, &heartbeat).map_err(|error| error.to_string()),
                    Err(error) => Err(error.to_string()),
                };
                if events.send(Wakeup::Answered(answer)).is_err() {
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

fn call(client: &reqwest::blocking::Client, heartbeat: &Heartbeat) -> reqwest::Result<HeartbeatReply> {
    // The host's name is not looked up; the socket takes its place.
    client.post("http://loop/v1/tick").json(heartbeat).send()?.error_for_status()?.json()
}
