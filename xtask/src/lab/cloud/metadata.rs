//! The metadata service of the lab's machines, version 2 alone: what asks without a token of its own is refused. It knows a
//! machine by the address that asks.

use std::collections::BTreeMap;
use std::net::{IpAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

use super::http::{Reply, answer, read};

/// Who is told what.
#[derive(Debug, Default)]
pub struct Told {
    /// The machine at each address.
    machines: BTreeMap<IpAddr, String>,
    /// When a machine is taken back, as AWS writes times.
    notices: BTreeMap<String, String>,
    /// Tokens, and for whom each was made.
    tokens: BTreeMap<String, IpAddr>,
}

impl Told {
    /// A machine is at this address from now on; none with `None`.
    pub fn place(&mut self, address: IpAddr, handle: Option<&str>) {
        match handle {
            Some(handle) => drop(self.machines.insert(address, handle.to_owned())),
            None => drop(self.machines.remove(&address)),
        }
    }

    /// A machine is taken back at this time.
    pub fn notice(&mut self, handle: &str, time: &str) {
        self.notices.insert(handle.to_owned(), time.to_owned());
    }

    /// What is said to a request with this head from this address.
    fn reply(&mut self, from: IpAddr, head: &str) -> Reply {
        let mut words = head.lines().next().unwrap_or_default().split(' ');
        let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let text = |text: &str| (200, text.as_bytes().to_vec());
        let nothing = |status: u16| (status, Vec::new());
        if (method, path) == ("PUT", "/latest/api/token") {
            if header(head, "x-aws-ec2-metadata-token-ttl-seconds").is_none() {
                return nothing(400);
            }
            let token = format!("token-{}", self.tokens.len());
            self.tokens.insert(token.clone(), from);
            return text(&token);
        }
        if header(head, "x-aws-ec2-metadata-token").and_then(|token| self.tokens.get(token)) != Some(&from) {
            return nothing(401);
        }
        let Some(handle) = self.machines.get(&from) else { return nothing(404) };
        match (method, path) {
            ("GET", "/latest/meta-data/instance-id") => text(handle),
            ("GET", "/latest/meta-data/spot/instance-action") => match self.notices.get(handle) {
                Some(time) => text(&format!(r#"{{"action": "terminate", "time": "{time}"}}"#)),
                None => nothing(404),
            },
            _ => nothing(404),
        }
    }
}

/// Answers requests at an address of this machine that hosts reach, from now on.
pub fn serve(listener: TcpListener, told: Arc<Mutex<Told>>) {
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let told = told.clone();
            // Who goes away before the answer asks again.
            std::thread::spawn(move || one(stream, &told));
        }
    });
}

fn one(mut stream: TcpStream, told: &Mutex<Told>) -> Option<()> {
    let from = stream.peer_addr().ok()?.ip();
    let (head, _) = read(&mut stream)?;
    let reply = told.lock().unwrap_or_else(PoisonError::into_inner).reply(from, &head);
    answer(&mut stream, &reply)
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let named = |line: &'a str| line.split_once(':').filter(|(key, _)| key.eq_ignore_ascii_case(name));
    head.lines().find_map(named).map(|(_, value)| value.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_reads_its_own_notice_and_only_with_its_own_token() {
        let [machine, other]: [IpAddr; 2] = ["10.77.0.1", "10.77.0.2"].map(|address| address.parse().unwrap());
        let mut told = Told::default();
        told.place(machine, Some("i-1"));
        told.place(other, Some("i-2"));
        let action = "/latest/meta-data/spot/instance-action";
        let mut ask = |from, line: &str, headers: &str| {
            let (status, body) = told.reply(from, &format!("{line} HTTP/1.1\r\nHost: a\r\n{headers}"));
            format!("{status} {}", String::from_utf8(body).unwrap())
        };
        assert_eq!(ask(machine, &format!("GET {action}"), ""), "401 ", "version 1 is off");
        assert_eq!(ask(machine, "PUT /latest/api/token", ""), "400 ");
        let lasts = "X-aws-ec2-metadata-token-ttl-seconds: 300\r\n";
        assert_eq!(ask(machine, "PUT /latest/api/token", lasts), "200 token-0");
        let token = "X-aws-ec2-metadata-token: token-0\r\n";
        assert_eq!(ask(machine, &format!("GET {action}"), token), "404 ");
        assert_eq!(ask(machine, "GET /latest/meta-data/instance-id", token), "200 i-1");
        assert_eq!(ask(other, &format!("GET {action}"), token), "401 ");
        told.notice("i-1", "2026-11-24T11:00:00Z");
        let (status, body) = told.reply(machine, &format!("GET {action} HTTP/1.1\r\n{token}"));
        let body = String::from_utf8(body).unwrap();
        assert_eq!((status, body.as_str()), (200, r#"{"action": "terminate", "time": "2026-11-24T11:00:00Z"}"#));
        told.place(machine, None);
        assert_eq!(told.reply(machine, &format!("GET {action} HTTP/1.1\r\n{token}")).0, 404);
    }
}
