//! A proxy in front of moto that does what AWS does and moto does not: a token rents once, lists lag behind, and requests fail
//! in every way that is documented, by a seed.

#[path = "../../../../xtask/src/lab/cloud/http.rs"]
mod http;

use std::collections::BTreeMap;
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use domain::random::Draws;
use http::{Reply, answer, pass, read};

/// A running proxy.
pub struct Proxy {
    pub port: u16,
    inside: Arc<Mutex<Inside>>,
}

/// The fate of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    /// It is carried out and answered.
    Answered,
    /// It is carried out, and the connection breaks before the reply.
    ReplyLost,
    /// The connection breaks before it is carried out.
    RequestLost,
    /// It is carried out, but a gateway returns 502.
    BadGateway,
    /// AWS breaks before it carries it out.
    InternalError,
    Throttled,
    /// Of a launch: there is no such machine; with status 500, as AWS has it.
    NoCapacity,
}

#[derive(Default)]
struct Inside {
    draws: Option<Draws>,
    /// Body and answer of launches, by their token.
    launches: BTreeMap<String, (String, Reply)>,
    /// Answers to looks, by their body.
    looks: BTreeMap<String, Vec<Reply>>,
    counts: BTreeMap<Fate, u32>,
}

impl Proxy {
    /// Starts one; without a seed nothing fails.
    pub fn start(moto: u16, seed: Option<u64>) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let inside = Arc::new(Mutex::new(Inside { draws: seed.map(Draws::new), ..Inside::default() }));
        let shared = inside.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let inside = shared.clone();
                std::thread::spawn(move || serve(stream, moto, &inside));
            }
        });
        Proxy { port, inside }
    }

    /// From now on nothing fails and nothing lags.
    pub fn calm(&self) {
        self.inside.lock().unwrap().draws = None;
    }

    /// The number of requests by fate.
    pub fn counts(&self) -> BTreeMap<Fate, u32> {
        self.inside.lock().unwrap().counts.clone()
    }
}

/// One request for each connection.
fn serve(mut stream: TcpStream, moto: u16, inside: &Mutex<Inside>) -> Option<()> {
    let (head, body) = read(&mut stream)?;
    let text = String::from_utf8_lossy(&body).into_owned();
    // One request at a time: the order in which they come decides everything else.
    let mut inside = inside.lock().unwrap();
    let fate = inside.fate(&text);
    *inside.counts.entry(fate).or_default() += 1;
    let error = |status: u16, code: &str| {
        let text = format!(
            "<Response><Errors><Error><Code>{code}</Code><Message>by the proxy</Message></Error></Errors></Response>"
        );
        (status, text.into_bytes())
    };
    let reply = match fate {
        Fate::RequestLost => return None,
        Fate::InternalError => error(500, "InternalError"),
        Fate::Throttled => error(503, "RequestLimitExceeded"),
        Fate::NoCapacity => error(500, "InsufficientInstanceCapacity"),
        Fate::Answered | Fate::ReplyLost | Fate::BadGateway => inside.forward(moto, &head, &body, &text)?,
    };
    match fate {
        Fate::ReplyLost => None,
        Fate::BadGateway => answer(&mut stream, &(502, b"<html>Bad gateway</html>".to_vec())),
        _ => answer(&mut stream, &reply),
    }
}

impl Inside {
    fn fate(&mut self, text: &str) -> Fate {
        let Some(draws) = &mut self.draws else { return Fate::Answered };
        let is_launch = text.starts_with("Action=RunInstances");
        match draws.below(100) {
            0..8 => Fate::ReplyLost,
            8..12 => Fate::RequestLost,
            12..16 => Fate::BadGateway,
            16..20 => Fate::InternalError,
            20..25 => Fate::Throttled,
            25..45 if is_launch => Fate::NoCapacity,
            _ => Fate::Answered,
        }
    }

    fn forward(&mut self, moto: u16, head: &str, body: &[u8], text: &str) -> Option<Reply> {
        if text.starts_with("Action=RunInstances") && !text.contains("DryRun") {
            let token = text.split('&').find_map(|pair| pair.strip_prefix("ClientToken="))?.to_owned();
            if let Some((before, reply)) = self.launches.get(&token) {
                let code = "<Response><Errors><Error><Code>IdempotentParameterMismatch</Code><Message>other words\
                            </Message></Error></Errors></Response>";
                return Some(if before == text { reply.clone() } else { (400, code.into()) });
            }
            let reply = pass(moto, head, body)?;
            if reply.0 == 200 {
                self.launches.insert(token, (text.to_owned(), reply.clone()));
            }
            return Some(reply);
        }
        let reply = pass(moto, head, body)?;
        if text.starts_with("Action=DescribeInstances") {
            let answers = self.looks.entry(text.to_owned()).or_default();
            answers.push(reply.clone());
            // A list may lag by up to three views; before the first one it was empty.
            let lag = self.draws.as_mut().map_or(0, |draws| draws.below(4) as usize);
            let nothing =
                || (200, b"<DescribeInstancesResponse><reservationSet/></DescribeInstancesResponse>".to_vec());
            return Some(answers.len().checked_sub(1 + lag).map_or_else(nothing, |at| answers[at].clone()));
        }
        Some(reply)
    }
}
