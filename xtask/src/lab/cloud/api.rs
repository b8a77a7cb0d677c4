//! The API of the lab's cloud: moto, and what AWS does beside it. A token rents once, lists lag behind, there are only as many
//! machines as hosts, and requests fail in every way that is documented, by a seed.

use std::collections::BTreeMap;

use super::http::{Reply, pass};
use super::machines::LabMachines;
use super::prices;
use crate::draws::Draws;

/// What becomes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LabFate {
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
    /// There were too many requests.
    Throttled,
    /// Of a launch: there is no such machine.
    NoCapacity,
    /// Of a launch of a spot machine: it costs more now than is bid.
    Outbid,
}

impl LabFate {
    /// The fate of a request by a number below 100.
    fn of(number: u64, is_launch: bool) -> LabFate {
        match number {
            0..4 => LabFate::ReplyLost,
            4..7 => LabFate::RequestLost,
            7..10 => LabFate::BadGateway,
            10..13 => LabFate::InternalError,
            13..17 => LabFate::Throttled,
            17..30 if is_launch => LabFate::NoCapacity,
            _ => LabFate::Answered,
        }
    }
}

/// What a request has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MachineChange {
    /// A host is this machine now, with this user data in base64.
    Rented { handle: String, host: u8, user_data: String },
    /// It is not any more.
    Ended { handle: String, host: u8 },
}

/// The API, in front of a moto on this port.
pub struct LabApi {
    moto: u16,
    luck: Option<Draws>,
    /// From which the prices of spot machines follow; none where they are moto's.
    seed: Option<u64>,
    /// Body and answer of launches, by their token.
    launches: BTreeMap<String, (String, Reply)>,
    /// Answers to looks, by their body.
    looks: BTreeMap<String, Vec<Reply>>,
    counts: BTreeMap<LabFate, u64>,
    /// The head of the last launch, with which the cloud ends machines itself.
    head: String,
}

impl LabApi {
    /// Without a seed nothing fails and nothing lags.
    pub fn new(moto: u16, seed: Option<u64>) -> LabApi {
        let (launches, looks, counts) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        LabApi { moto, luck: seed.map(Draws::new), seed, launches, looks, counts, head: String::new() }
    }

    /// From now on nothing fails and nothing lags.
    pub fn calm(&mut self) {
        self.luck = None;
    }

    /// The number of requests by what became of them.
    pub fn counts(&self) -> &BTreeMap<LabFate, u64> {
        &self.counts
    }

    /// Carries a request out as its fate has it: the reply, none where the connection breaks, and what has changed.
    pub fn answer(
        &mut self,
        machines: &mut LabMachines,
        (head, body): (&str, &[u8]),
        now: f64,
    ) -> (Option<Reply>, Vec<MachineChange>) {
        let text = String::from_utf8_lossy(body).into_owned();
        let is_launch = is_launch(&text);
        let number = self.luck.as_mut().map(|luck| luck.below(100));
        let mut fate = number.map_or(LabFate::Answered, |number| LabFate::of(number, is_launch));
        let is_known = value(&text, "ClientToken").is_some_and(|token| self.launches.contains_key(token));
        let count = value(&text, "MinCount").and_then(|count| count.parse().ok()).unwrap_or(1);
        if fate == LabFate::Answered && is_launch && !is_known && !machines.has(count) {
            fate = LabFate::NoCapacity;
        }
        if fate == LabFate::Answered && is_launch && !is_known && self.is_outbid(&text, now) {
            fate = LabFate::Outbid;
        }
        *self.counts.entry(fate).or_default() += 1;
        match fate {
            LabFate::RequestLost => (None, Vec::new()),
            // With status 500, as AWS has it.
            LabFate::NoCapacity => (Some(error(500, "InsufficientInstanceCapacity")), Vec::new()),
            LabFate::Outbid => (Some(error(400, "SpotMaxPriceTooLow")), Vec::new()),
            LabFate::InternalError => (Some(error(500, "InternalError")), Vec::new()),
            LabFate::Throttled => (Some(error(503, "RequestLimitExceeded")), Vec::new()),
            LabFate::Answered | LabFate::ReplyLost | LabFate::BadGateway => {
                let (reply, changes) = self.forward(machines, (head, body, &text), now);
                match fate {
                    LabFate::ReplyLost => (None, changes),
                    LabFate::BadGateway => (Some((502, b"<html>Bad gateway</html>".to_vec())), changes),
                    _ => (reply, changes),
                }
            }
        }
    }

    /// The cloud itself ends a machine, as it does after a notice.
    pub fn end(&mut self, machines: &mut LabMachines, handle: &str, now: f64) -> Vec<MachineChange> {
        let body = format!("Action=TerminateInstances&Version=2016-11-15&InstanceId.1={handle}");
        let head = with_length(&self.head, body.len());
        self.forward(machines, (&head, body.as_bytes(), &body), now).1
    }

    fn forward(
        &mut self,
        machines: &mut LabMachines,
        (head, body, text): (&str, &[u8], &str),
        now: f64,
    ) -> (Option<Reply>, Vec<MachineChange>) {
        if is_launch(text) {
            return self.launch(machines, (head, body, text), now);
        }
        if let Some(history) = self.history(text, now) {
            return (Some((200, history.into_bytes())), Vec::new());
        }
        let Some(reply) = pass(self.moto, head, body) else { return (None, Vec::new()) };
        match value(text, "Action") {
            Some("DescribeInstances") => (Some(self.lagging(text, reply)), Vec::new()),
            Some("TerminateInstances") if reply.0 == 200 && value(text, "DryRun").is_none() => {
                let ended = |handle: &str| {
                    let host = machines.end(handle, now)?;
                    Some(MachineChange::Ended { handle: handle.to_owned(), host })
                };
                let named = pairs(text).filter(|(name, _)| name.starts_with("InstanceId."));
                let changes = named.map(|(_, handle)| handle).filter_map(ended).collect();
                (Some(reply), changes)
            }
            _ => (Some(reply), Vec::new()),
        }
    }

    /// A token rents once; with other parameters it is refused.
    fn launch(
        &mut self,
        machines: &mut LabMachines,
        (head, body, text): (&str, &[u8], &str),
        now: f64,
    ) -> (Option<Reply>, Vec<MachineChange>) {
        let token = value(text, "ClientToken").unwrap_or_default().to_owned();
        if let Some((before, reply)) = self.launches.get(&token) {
            let again = if before == text { reply.clone() } else { error(400, "IdempotentParameterMismatch") };
            return (Some(again), Vec::new());
        }
        let Some(reply) = pass(self.moto, head, body) else { return (None, Vec::new()) };
        if reply.0 != 200 {
            return (Some(reply), Vec::new());
        }
        head.clone_into(&mut self.head);
        self.launches.insert(token, (text.to_owned(), reply.clone()));
        let handles = handles(&String::from_utf8_lossy(&reply.1));
        let hosts = machines.rent(&handles, tag(text, "gradus-instance").unwrap_or_default(), now);
        let user_data = value(text, "UserData").unwrap_or_default();
        let rented = handles.into_iter().zip(hosts);
        let change =
            |(handle, host): (String, u8)| MachineChange::Rented { handle, host, user_data: user_data.to_owned() };
        (Some(reply), rented.map(change).collect())
    }

    /// Whether a spot machine costs more than this launch bids.
    fn is_outbid(&self, text: &str, now: f64) -> bool {
        let bid = value(text, "InstanceMarketOptions.SpotOptions.MaxPrice").and_then(|bid| bid.parse::<f64>().ok());
        let (Some(seed), Some(bid)) = (self.seed, bid) else { return false };
        let (machine, zone) = (value(text, "InstanceType"), value(text, "Placement.AvailabilityZone"));
        let costs = machine.and_then(|machine| prices::price(seed, machine, zone, now));
        costs.is_some_and(|costs| costs as f64 / 1e6 > bid)
    }

    /// What spot machines cost, where all that are asked for have a series.
    fn history(&self, text: &str, now: f64) -> Option<String> {
        let seed = self.seed.filter(|_| value(text, "Action") == Some("DescribeSpotPriceHistory"))?;
        let machines: Vec<&str> =
            pairs(text).filter(|(name, _)| name.starts_with("InstanceType.")).map(|(_, machine)| machine).collect();
        prices::history(seed, &machines, now).filter(|_| value(text, "DryRun").is_none())
    }

    /// A list may lag by up to three views; before the first one it was empty.
    fn lagging(&mut self, text: &str, reply: Reply) -> Reply {
        let answers = self.looks.entry(text.to_owned()).or_default();
        answers.push(reply);
        let lag = self.luck.as_mut().map_or(0, |luck| luck.below(4) as usize);
        let nothing = || (200, b"<DescribeInstancesResponse><reservationSet/></DescribeInstancesResponse>".to_vec());
        answers.len().checked_sub(1 + lag).map_or_else(nothing, |at| answers[at].clone())
    }
}

fn is_launch(text: &str) -> bool {
    value(text, "Action") == Some("RunInstances") && value(text, "DryRun").is_none()
}

fn error(status: u16, code: &str) -> Reply {
    let text = format!(
        "<Response><Errors><Error><Code>{code}</Code><Message>by the lab</Message></Error></Errors></Response>"
    );
    (status, text.into_bytes())
}

/// Names and values of a form, as they are encoded.
fn pairs(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.split('&').filter_map(|pair| pair.split_once('='))
}

fn value<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    pairs(text).find(|(key, _)| *key == name).map(|(_, value)| value)
}

/// The value of a tag that a launch gives.
fn tag<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let (name, _) = pairs(text).find(|(name, value)| name.ends_with(".Key") && *value == key)?;
    value(text, &name.replace(".Key", ".Value"))
}

/// AWS's names of the machines in an answer to a launch, each once.
fn handles(xml: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for part in xml.split("<instanceId>").skip(1) {
        let Some((handle, _)) = part.split_once('<') else { continue };
        if !found.iter().any(|known| known == handle) {
            found.push(handle.to_owned());
        }
    }
    found
}

/// The head of another request with a body of this length.
fn with_length(head: &str, length: usize) -> String {
    let others = head.lines().filter(|line| !line.to_ascii_lowercase().starts_with("content-length:"));
    let others: String = others.map(|line| format!("{line}\r\n")).collect();
    format!("{others}Content-Length: {length}\r\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAUNCH: &str = "Action=RunInstances&ClientToken=t&MinCount=1&UserData=IyE%3D&TagSpecification.1.Tag.2.Key=\
                          gradus-instance&TagSpecification.1.Tag.2.Value=r-i1";

    #[test]
    fn forms_and_answers_are_read() {
        assert_eq!((value(LAUNCH, "MinCount"), value(LAUNCH, "MaxCount")), (Some("1"), None));
        assert_eq!((tag(LAUNCH, "gradus-instance"), tag(LAUNCH, "gradus-owner")), (Some("r-i1"), None));
        assert!(is_launch(LAUNCH) && !is_launch(&format!("{LAUNCH}&DryRun=true")));
        assert!(!is_launch("Action=RunInstancesNow"));
        let xml = "<R><item><instanceId>i-1</instanceId></item><item><instanceId>i-2</instanceId></item>\
                   <instanceId>i-1</instanceId></R>";
        assert_eq!(handles(xml), ["i-1", "i-2"]);
        let head = with_length("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n", 5);
        assert_eq!(head, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n");
    }

    #[test]
    fn a_token_that_was_answered_rents_nothing_more() {
        // Nobody listens there: what is asked of moto is lost.
        let mut api = LabApi::new(1, None);
        let mut machines = LabMachines::new(&[]);
        let mut ask = |api: &mut LabApi, text: &str| {
            let (reply, changes) = api.answer(&mut machines, ("", text.as_bytes()), 0.0);
            assert_eq!(changes, []);
            reply.map(|(status, body)| format!("{status} {}", String::from_utf8_lossy(&body)))
        };
        let full = ask(&mut api, LAUNCH).unwrap();
        assert!(full.starts_with("500 ") && full.contains("InsufficientInstanceCapacity"), "{full}");
        api.launches.insert("t".into(), (LAUNCH.to_owned(), (200, b"<R/>".to_vec())));
        assert_eq!(ask(&mut api, LAUNCH).as_deref(), Some("200 <R/>"));
        let other = ask(&mut api, &LAUNCH.replace("MinCount=1", "MinCount=2")).unwrap();
        assert!(other.starts_with("400 ") && other.contains("IdempotentParameterMismatch"), "{other}");
    }

    #[test]
    fn every_fate_comes_about() {
        for is_launch in [true, false] {
            let mut all: Vec<LabFate> = (0..100).map(|number| LabFate::of(number, is_launch)).collect();
            all.sort();
            all.dedup();
            assert_eq!(all.len(), if is_launch { 7 } else { 6 });
        }
    }

    #[test]
    fn a_spot_machine_is_had_for_what_it_costs_now() {
        let api = LabApi::new(1, Some(7));
        let costs = prices::price(7, "g4dn.xlarge", Some("us-east-1a"), 0.0).unwrap() as f64 / 1e6;
        let bids = |bid: f64, zone: &str| {
            let text = format!(
                "{LAUNCH}&InstanceType=g4dn.xlarge&Placement.AvailabilityZone={zone}&\
                 InstanceMarketOptions.SpotOptions.MaxPrice={bid:.6}"
            );
            api.is_outbid(&text, 0.0)
        };
        assert_eq!(
            (bids(costs, "us-east-1a"), bids(costs - 0.001, "us-east-1a"), bids(0.0, "x")),
            (false, true, false)
        );
        assert!(!api.is_outbid(&format!("{LAUNCH}&InstanceType=g4dn.xlarge"), 0.0), "one on demand bids nothing");
        let asked = "Action=DescribeSpotPriceHistory&InstanceType.1=g4dn.xlarge";
        assert!(api.history(asked, 0.0).is_some() && api.history(LAUNCH, 0.0).is_none());
        assert_eq!(api.history(&format!("{asked}&DryRun=true"), 0.0), None);
        assert_eq!(LabApi::new(1, None).history(asked, 0.0), None);
    }

    #[test]
    fn a_list_may_lag_and_a_calm_one_does_not() {
        let mut api = LabApi::new(1, Some(1));
        let mut seen = Vec::new();
        for number in 0..40_u8 {
            seen.push(api.lagging("look", (200, vec![number])).1);
        }
        let is_fresh = |(number, body): (usize, &Vec<u8>)| body.len() == 1 && usize::from(body[0]) == number;
        assert!(seen.iter().enumerate().any(|one| !is_fresh(one)), "{seen:?}");
        api.calm();
        assert_eq!(api.lagging("look", (200, vec![40])).1, [40]);
    }
}
