//! A running moto server, which speaks S3; the tests of the command line start it too.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A running moto with the bucket `bucket`, ended when dropped.
pub struct Moto {
    process: Child,
    pub port: u16,
}

impl Moto {
    pub fn start() -> Moto {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut python = Command::new("python3");
        python.args(["-c", "from moto.server import main; main()", "-H", "127.0.0.1", "-p", &port.to_string()]);
        let process = python.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let moto = Moto { process, port };
        let began = Instant::now();
        while moto.request("GET", "/moto-api/data.json") != Some(200) {
            assert!(began.elapsed() < Duration::from_secs(120), "moto does not answer");
            std::thread::sleep(Duration::from_millis(50));
        }
        assert_eq!(moto.request("PUT", "/bucket"), Some(200));
        moto
    }

    /// The status of one request without a body.
    pub fn request(&self, method: &str, path: &str) -> Option<u16> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        // moto recognizes S3 by this header.
        let head = "Host: s3.amazonaws.com\r\nContent-Length: 0\r\nConnection: close";
        stream.write_all(format!("{method} {path} HTTP/1.1\r\n{head}\r\n\r\n").as_bytes()).ok()?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).ok()?;
        String::from_utf8_lossy(&answer).split(' ').nth(1)?.parse().ok()
    }
}

impl Drop for Moto {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
