//! How much fits through the network between two machines: one receives on a port of its own choice, the other sends.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// For how long is sent.
const SENDING: Duration = Duration::from_millis(1000);

/// How long a connection may take.
const CONNECTING: Duration = Duration::from_secs(5);

/// What was sent, as the sender has measured it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SentFigures {
    /// How long it took to connect, in microseconds: about one round trip.
    pub connect_us: u64,
    /// Bytes per second.
    pub rate: u64,
}

/// A port that waits for one sender.
#[derive(Debug)]
pub struct Receiver {
    listener: TcpListener,
}

impl Receiver {
    /// Listens on any free port, at every address.
    ///
    /// # Errors
    /// When no port is free.
    pub fn listen() -> io::Result<Receiver> {
        let both = TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0));
        Ok(Receiver { listener: both.or_else(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)))? })
    }

    /// Its port.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn port(&self) -> io::Result<u16> {
        Ok(self.listener.local_addr()?.port())
    }

    /// Takes what one sender sends, and says so at the end; nobody is waited for longer than `within`.
    ///
    /// # Errors
    /// When nobody came.
    pub fn receive(self, within: Duration) -> io::Result<u64> {
        self.listener.set_nonblocking(true)?;
        let begun = Instant::now();
        let mut stream = loop {
            match self.listener.accept() {
                Ok((stream, _)) => break stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock && begun.elapsed() < within => {
                    std::thread::sleep(Duration::from_millis(2));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Err(ErrorKind::TimedOut.into()),
                Err(error) => return Err(error),
            }
        };
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(within))?;
        stream.set_write_timeout(Some(within))?;
        let (mut part, mut bytes) = (vec![0; 256 << 10], 0);
        loop {
            match stream.read(&mut part)? {
                0 => break,
                read => bytes += read as u64,
            }
        }
        stream.write_all(b"!")?;
        Ok(bytes)
    }
}

/// Sends for a second, and waits until all of it has arrived.
///
/// # Errors
/// When the other machine cannot be reached, or goes away.
pub fn send(host: &str, port: u16) -> io::Result<SentFigures> {
    let addresses: Vec<SocketAddr> = (host, port).to_socket_addrs()?.collect();
    let first = addresses.first().ok_or(ErrorKind::AddrNotAvailable)?;
    let begun = Instant::now();
    let mut stream = TcpStream::connect_timeout(first, CONNECTING)?;
    let connect_us = micros(begun.elapsed());
    stream.set_write_timeout(Some(CONNECTING))?;
    stream.set_read_timeout(Some(CONNECTING))?;
    let (part, mut bytes) = (vec![0x5a; 256 << 10], 0_u64);
    let begun = Instant::now();
    while begun.elapsed() < SENDING {
        stream.write_all(&part)?;
        bytes += part.len() as u64;
    }
    stream.shutdown(std::net::Shutdown::Write)?;
    // What the kernel has taken from this program is not yet there.
    stream.read_exact(&mut [0])?;
    let rate = u128::from(bytes) * 1_000_000 / u128::from(micros(begun.elapsed()).max(1));
    Ok(SentFigures { connect_us, rate: u64::try_from(rate).unwrap_or(u64::MAX) })
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_arrives_and_is_measured() {
        let receiver = Receiver::listen().unwrap();
        let port = receiver.port().unwrap();
        let received = std::thread::spawn(move || receiver.receive(Duration::from_secs(30)));
        let sent = send("127.0.0.1", port).unwrap();
        let bytes = received.join().unwrap().unwrap();
        assert!(sent.rate > 0 && bytes > 0, "{sent:?}");
        // All of it arrived within the time that the rate was computed with, which is a second and a little.
        assert!(u128::from(bytes) >= u128::from(sent.rate) * 9 / 10, "{bytes} {sent:?}");
        assert!(send("127.0.0.1", port).is_err(), "the port is closed after one sender");
        let nobody = Receiver::listen().unwrap().receive(Duration::from_millis(10));
        assert_eq!(nobody.unwrap_err().kind(), ErrorKind::TimedOut);
    }
}
