//! The least of HTTP that is needed here: one request after the other on a Unix socket.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::Failure;

/// A persistent connection.
pub struct Connection {
    stream: BufReader<UnixStream>,
}

impl Connection {
    pub fn open(socket: &Path) -> Result<Connection, Failure> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        Ok(Connection { stream: BufReader::new(stream) })
    }

    /// Makes a request; the status and the body of the answer.
    pub fn call(&mut self, method: &str, path: &str, body: &str) -> Result<(u16, Vec<u8>), Failure> {
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: gradus\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        self.stream.get_mut().write_all(request.as_bytes())?;
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        let status = line.split_whitespace().nth(1).ok_or("no answer")?.parse()?;
        let mut length = 0;
        loop {
            line.clear();
            self.stream.read_line(&mut line)?;
            if line.trim().is_empty() {
                break;
            }
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse()?;
            }
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body)?;
        Ok((status, body))
    }
}

/// Waits until a path answers with 200, for ten minutes at most.
pub fn wait(socket: &Path, path: &str) -> Result<(), Failure> {
    let begun = Instant::now();
    loop {
        let answer = Connection::open(socket).and_then(|mut connection| connection.call("GET", path, ""));
        match answer {
            Ok((200, _)) => return Ok(()),
            answer if begun.elapsed() > Duration::from_secs(600) => {
                return Err(format!("`{path}` does not answer: {answer:?}").into());
            }
            _ => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}
