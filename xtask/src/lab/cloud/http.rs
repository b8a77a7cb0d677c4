//! One HTTP request for each connection: read, passed on, answered. The tests of the provider have a proxy on the same ground.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

/// Status and body.
pub type Reply = (u16, Vec<u8>);

/// Head and body of a request.
pub fn read(stream: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if line == "\r\n" {
            break;
        }
        head.push_str(&line);
    }
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
    });
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body).ok()?;
    Some((head, body))
}

/// Forwards a request unchanged, because its host is part of the signature.
pub fn pass(port: u16, head: &str, body: &[u8]) -> Option<Reply> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.write_all(format!("{head}Connection: close\r\n\r\n").as_bytes()).ok()?;
    stream.write_all(body).ok()?;
    let mut whole = Vec::new();
    stream.read_to_end(&mut whole).ok()?;
    let end = whole.windows(4).position(|window| window == b"\r\n\r\n")?;
    let status = String::from_utf8_lossy(&whole[..end]).split(' ').nth(1)?.parse().ok()?;
    Some((status, whole[end + 4..].to_vec()))
}

/// Answers and closes.
pub fn answer(stream: &mut TcpStream, (status, body): &Reply) -> Option<()> {
    let head = format!("HTTP/1.1 {status} x\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    stream.write_all(head.as_bytes()).ok()?;
    stream.write_all(body).ok()
}
