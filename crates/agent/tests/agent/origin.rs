//! A web server of one file, which can be made unavailable.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Bytes of the file: more than are fetched when serving begins.
pub const BYTES: u64 = 100_000;

/// Serves `/images.tar`; returns its address. A range of it is answered only after `outage`.
pub fn serve(outage: Duration) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}/images.tar", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || respond(stream, outage));
        }
    });
    address
}

fn respond(mut stream: TcpStream, outage: Duration) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let request = lines.next().unwrap_or(Ok(String::new()))?;
    let mut range = None;
    for line in lines.map_while(Result::ok).take_while(|line| !line.is_empty()) {
        if let Some((begin, end)) =
            line.to_ascii_lowercase().strip_prefix("range: bytes=").and_then(|r| r.split_once('-'))
        {
            range = Some((begin.parse::<u64>().unwrap(), end.parse::<u64>().unwrap()));
        }
    }
    if !request.contains(" /images.tar ") {
        return stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    }
    let (status, length) = match range {
        Some((begin, end)) => {
            let over = Instant::now() + outage;
            while let Some(rest) = over.checked_duration_since(Instant::now()) {
                std::thread::park_timeout(rest);
            }
            (format!("206 Partial Content\r\nContent-Range: bytes {begin}-{end}/{BYTES}"), end + 1 - begin)
        }
        None => ("200 OK".to_owned(), BYTES),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nETag: \"1\"\r\nContent-Length: {length}\r\nContent-Type: application/x-tar\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes())?;
    if request.starts_with("HEAD") { Ok(()) } else { stream.write_all(&vec![7; length as usize]) }
}
