//! Server-Sent Events of a server, resumed after the last one when the connection is lost.

use std::io::{BufRead, BufReader, Read};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::Server;
use crate::error::{Error, exit};

/// How long an unreachable server is retried.
const PATIENCE: Duration = Duration::from_secs(120);

/// Between two tries.
const AGAIN: Duration = Duration::from_millis(500);

/// A message of a stream.
#[derive(Debug, Clone, PartialEq)]
pub struct StreamMessage {
    /// Its kind.
    pub kind: String,
    /// Sent back to continue after it.
    pub id: String,
    /// Its data.
    pub data: Value,
}

impl Server {
    /// Passes every message of a stream after `last` to `take`, until the stream ends or `take` stops it.
    ///
    /// # Errors
    /// [`Error::Code`] if the server refuses, or is unreachable for longer than two minutes.
    pub fn follow(
        &self,
        path: &str,
        mut last: Option<String>,
        take: &mut dyn FnMut(StreamMessage) -> bool,
    ) -> Result<(), Error> {
        let mut heard = Instant::now();
        loop {
            let accept = ("accept".to_owned(), "text/event-stream".to_owned());
            let after = last.iter().map(|id| ("last-event-id".to_owned(), id.clone()));
            let headers: Vec<(String, String)> = std::iter::once(accept).chain(after).collect();
            let lost = match self.open(path, &headers) {
                Ok(body) => match read(body, &mut last, &mut heard, take) {
                    Ended::Whole => return Ok(()),
                    Ended::Refused(message) => {
                        return Err(Error::Code { message, hint: None, code: exit::WORLD });
                    }
                    Ended::Lost => None,
                },
                Err(error) if error.code() != exit::WORLD => return Err(error),
                Err(error) => Some(error),
            };
            if let Some(error) = lost.filter(|_| heard.elapsed() > PATIENCE) {
                return Err(error);
            }
            std::thread::sleep(AGAIN);
        }
    }
}

/// How a connection ended.
enum Ended {
    /// The stream has ended, or was stopped.
    Whole,
    /// The server's reason why it cannot continue.
    Refused(String),
    /// In the middle.
    Lost,
}

fn read(
    body: Box<dyn Read + Send>,
    last: &mut Option<String>,
    heard: &mut Instant,
    take: &mut dyn FnMut(StreamMessage) -> bool,
) -> Ended {
    for message in Messages::new(body) {
        *heard = Instant::now();
        match message.kind.as_str() {
            "end" => return Ended::Whole,
            "error" => return Ended::Refused(message.data["message"].as_str().unwrap_or_default().to_owned()),
            _ => {}
        }
        if !message.id.is_empty() {
            *last = Some(message.id.clone());
        }
        if !take(message) {
            return Ended::Whole;
        }
    }
    Ended::Lost
}

/// The messages in a body, until it ends or breaks off.
struct Messages<R> {
    lines: std::io::Lines<BufReader<R>>,
}

impl<R: Read> Messages<R> {
    fn new(body: R) -> Messages<R> {
        Messages { lines: BufReader::new(body).lines() }
    }
}

impl<R: Read> Iterator for Messages<R> {
    type Item = StreamMessage;

    fn next(&mut self) -> Option<StreamMessage> {
        let (mut kind, mut id, mut data) = ("message".to_owned(), String::new(), None::<String>);
        loop {
            let line = self.lines.next()?.ok()?;
            if line.is_empty() {
                let Some(text) = data.take() else { continue };
                let Ok(data) = serde_json::from_str(&text) else { continue };
                return Some(StreamMessage { kind, id, data });
            }
            let (field, value) = line.split_once(':').unwrap_or((&line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match field {
                "event" => kind = value.to_owned(),
                "id" => id = value.to_owned(),
                "data" => {
                    let before = data.take().map_or(String::new(), |before| before + "\n");
                    data = Some(before + value);
                }
                // A comment, or a field of a later version.
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_stream_is_read_until_it_breaks_off() {
        let text = ": alive\n\nevent: log\nid: {\"a\":1}\ndata: {\"text\":\ndata: \"x\"}\n\nretry: 5\n\nevent:end\ndata:{}\n\nevent: log\ndata: {";
        let messages: Vec<StreamMessage> = Messages::new(text.as_bytes()).collect();
        let message = |kind: &str, id: &str, data| StreamMessage { kind: kind.into(), id: id.into(), data };
        assert_eq!(messages, [message("log", "{\"a\":1}", json!({ "text": "x" })), message("end", "", json!({}))]);
    }
}
