//! Server-Sent Events of a server, resumed after the last one when the connection is lost.

use std::io::{BufRead, BufReader, Read};
use std::time::Instant;

use serde_json::Value;

use super::retry::{AGAIN, Silence};
use super::{Server, failure};
use crate::error::{Error, exit};

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
        let mut silence = Silence::default();
        loop {
            let accept = ("accept".to_owned(), "text/event-stream".to_owned());
            let after = last.iter().map(|id| ("last-event-id".to_owned(), id.clone()));
            let headers: Vec<(String, String)> = std::iter::once(accept).chain(after).collect();
            let (is_heard, error) = match self.open(path, &headers) {
                Ok(body) => match read(body, &mut last, take) {
                    Ended::Whole => return Ok(()),
                    Ended::Refused(message) => {
                        return Err(Error::Code { message, hint: None, code: exit::WORLD });
                    }
                    Ended::Lost { is_heard } => (is_heard, failure::broken_off(self.url())),
                },
                Err(error) if error.code() != exit::WORLD => return Err(error),
                Err(error) => (false, error),
            };
            if silence.lasts(is_heard, Instant::now()) {
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
    Lost {
        /// Whether a message or a sign of life came before.
        is_heard: bool,
    },
}

fn read(body: Box<dyn Read + Send>, last: &mut Option<String>, take: &mut dyn FnMut(StreamMessage) -> bool) -> Ended {
    let mut messages = Messages::new(body);
    for message in messages.by_ref() {
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
    Ended::Lost { is_heard: messages.is_heard }
}

/// The messages in a body, until it ends or breaks off.
struct Messages<R> {
    lines: std::io::Lines<BufReader<R>>,
    /// Whether a message or a comment has come, which is a sign of life.
    is_heard: bool,
}

impl<R: Read> Messages<R> {
    fn new(body: R) -> Messages<R> {
        Messages { lines: BufReader::new(body).lines(), is_heard: false }
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
                self.is_heard = true;
                return Some(StreamMessage { kind, id, data });
            }
            self.is_heard |= line.starts_with(':');
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
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    #[test]
    fn a_stream_is_read_until_it_breaks_off() {
        let text = ": alive\n\nevent: log\nid: {\"a\":1}\ndata: {\"text\":\ndata: \"x\"}\n\nretry: 5\n\nevent:end\ndata:{}\n\nevent: log\ndata: {";
        let messages: Vec<StreamMessage> = Messages::new(text.as_bytes()).collect();
        let message = |kind: &str, id: &str, data| StreamMessage { kind: kind.into(), id: id.into(), data };
        assert_eq!(messages, [message("log", "{\"a\":1}", json!({ "text": "x" })), message("end", "", json!({}))]);
    }

    #[test]
    fn a_connection_that_brings_nothing_is_no_answer() {
        let check = |text: &str, expected: bool| {
            let mut messages = Messages::new(text.as_bytes());
            while messages.next().is_some() {}
            assert_eq!(messages.is_heard, expected, "{text}");
        };
        check("", false);
        check("<html>no stream</html>\n\n", false);
        check(": alive\n\n", true);
        check("data: {}\n\n", true);
        let begun = Instant::now();
        let mut silence = Silence::default();
        for (second, is_heard, expected) in
            [(0, false, false), (119, false, false), (121, false, true), (200, true, false), (321, false, true)]
        {
            let now = begun + Duration::from_secs(second);
            assert_eq!(silence.lasts(is_heard, now), expected, "after {second} s");
        }
    }
}
