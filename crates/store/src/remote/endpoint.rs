//! The host that requests go to, and whether it is reachable.
//!
//! An unanswered request may be retried for minutes, because networks recover. Before the first answer, a wrong address
//! is more likely, and a person is waiting: so a connection is probed before the first request.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// The host that a location's requests go to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Endpoint {
    host: String,
    port: u16,
    /// The variable that names it, where one does.
    pub named_by: Option<&'static str>,
}

/// Pause after the first failed probe of a host, because a service may be starting. It doubles up to the longest.
const PAUSE: Duration = Duration::from_millis(300);
const LONGEST_PAUSE: Duration = Duration::from_secs(8);

impl Endpoint {
    /// The host of an address such as `https://host:8080/path`; `None` if there is none.
    pub fn of(address: &str, named_by: Option<&'static str>) -> Option<Endpoint> {
        let (scheme, rest) = address.split_once("://")?;
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let authority = authority.rsplit('@').next().unwrap_or_default();
        let usual = if scheme.eq_ignore_ascii_case("http") { 80 } else { 443 };
        // An address of version 6 stands in brackets, and has colons in it.
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()?),
            Some(_) | None => (authority, usual),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        (!host.is_empty()).then(|| Endpoint { host: host.to_owned(), port, named_by })
    }

    /// Connects and disconnects.
    ///
    /// # Errors
    /// A short reason why the host is unreachable: no address, connection refused, no answer within `patience`.
    pub fn knock(&self, patience: Duration) -> Result<(), String> {
        let began = Instant::now();
        let mut pause = PAUSE;
        loop {
            let left = patience.saturating_sub(began.elapsed());
            match self.knock_once(left.max(PAUSE)) {
                Ok(()) => return Ok(()),
                Err(why) if began.elapsed() + pause >= patience => return Err(why),
                Err(_) => std::thread::sleep(pause),
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    fn knock_once(&self, patience: Duration) -> Result<(), String> {
        let addresses = self.addresses(patience)?;
        let mut why = format!("`{}` has no address", self.host);
        // Those that do not answer must leave time for the others.
        let each = patience / u32::try_from(addresses.len().max(1)).unwrap_or(u32::MAX);
        for address in addresses {
            match TcpStream::connect_timeout(&address, each.max(Duration::from_millis(1))) {
                Ok(_) => return Ok(()),
                Err(error) => why = in_words(&error, each),
            }
        }
        Err(why)
    }

    /// Resolves the host, on a thread that is abandoned after a timeout.
    fn addresses(&self, patience: Duration) -> Result<Vec<SocketAddr>, String> {
        let (sender, answer) = channel();
        let (host, port) = (self.host.clone(), self.port);
        std::thread::spawn(move || {
            let found = (host.as_str(), port).to_socket_addrs().map(Iterator::collect::<Vec<_>>);
            let _ = sender.send(found);
        });
        match answer.recv_timeout(patience) {
            Ok(Ok(found)) => Ok(found),
            Ok(Err(_)) => Err(format!("no address is known for the name `{}`", self.host)),
            Err(_) => Err(format!("nobody tells the address of `{}`", self.host)),
        }
    }
}

fn in_words(error: &std::io::Error, patience: Duration) -> String {
    match error.kind() {
        ErrorKind::ConnectionRefused => "the connection was refused: nothing listens at that port".to_owned(),
        ErrorKind::TimedOut | ErrorKind::WouldBlock => format!("nobody answered for {:.0} s", patience.as_secs_f64()),
        _ => error.to_string(),
    }
}

impl std::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_read_from_addresses() {
        let check = |address: &str, expected: &str| {
            let found = Endpoint::of(address, None).map_or("none".to_owned(), |endpoint| endpoint.to_string());
            assert_eq!(found, expected, "{address}");
        };
        check("http://host", "host:80");
        check("https://host/bucket", "host:443");
        check("http://127.0.0.1:9000/", "127.0.0.1:9000");
        check("https://user:secret@host:1/x", "host:1");
        check("http://[::1]:9000", "[::1]:9000");
        check("http://[::1]", "[::1]:80");
        check("host:80", "none");
        check("http://", "none");
        check("http://host:port", "none");
    }

    #[test]
    fn who_listens_is_found_and_who_does_not_is_told() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let endpoint = Endpoint::of(&address, None).unwrap();
        assert_eq!(endpoint.knock(Duration::from_secs(2)), Ok(()));
        let address = listener.local_addr().unwrap();
        drop(listener);
        let told = endpoint.knock(Duration::from_millis(400)).unwrap_err();
        assert!(told.contains("nothing listens"), "{told}");
        // A server that starts to listen within the patience is found.
        let begins = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(700));
            std::net::TcpListener::bind(address).map(|listener| listener.accept().is_ok())
        });
        let found = endpoint.knock(Duration::from_secs(30));
        assert!(found.is_ok() || begins.join().unwrap().is_err(), "{found:?}");
    }
}
