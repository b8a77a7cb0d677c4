//! The messages between an agent and the control loop: JSON over HTTP, on a Unix socket here and TLS elsewhere.
//!
//! The agent calls. Each [`Heartbeat`] carries the events that the loop has not acknowledged yet, and renews the lease; the
//! [`HeartbeatReply`] carries the commands that are not done yet. Both sides repeat themselves until the other has
//! answered, so a lost message costs time only. The names in the JSON are those of the first version and stay. Either side
//! may be of a later version: fields, commands and measurements that this one does not know are passed over; an end that it
//! cannot read counts as a failure.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::finding::{Cause, Finding};
use crate::id::{AttemptId, Fence, InstanceId, RunId};
use crate::job::Job;
use crate::rank::Report;
use crate::run::AttemptEnd;
use crate::time::{Elapsed, Timestamp};
use crate::units::Duration;

/// The version of these messages.
pub const SCHEMA: u32 = 1;

/// Bytes of a call, at most: the loop refuses a longer one.
pub const HEARTBEAT_MAX: usize = 64 << 20;

/// A call of an agent, `POST /v1/tick`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Heartbeat {
    /// Version of the message.
    pub schema: u32,
    /// Who calls.
    pub instance: InstanceId,
    /// Start of the rent on the machine's wall clock.
    pub started: Timestamp,
    /// The rented time, on a monotonic clock.
    pub elapsed: Elapsed,
    /// Events that were not acknowledged yet, oldest first.
    pub entries: Vec<Entry>,
    /// The remaining time of the machine, if its provider has announced a reclaim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reclaim: Option<Duration>,
    /// Which life of an agent calls, a number drawn at its start; 0 from agents of earlier versions. Two machines that
    /// one request has rented have the same name, and may have started at the same time on clocks that are wrong.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub incarnation: u64,
    /// The attempt that runs there, on this machine alone: the order to start it need not be repeated. `None` from agents
    /// of earlier versions, to which every order is repeated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<AttemptId>,
}

pub(crate) fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// One event of an attempt, held in the agent's spool until it is acknowledged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// From 1, without gaps, for one instance.
    pub seq: u64,
    /// Its attempt.
    pub attempt: AttemptId,
    /// The event.
    #[serde(rename = "word", deserialize_with = "known_event")]
    pub event: AgentEvent,
}

/// The address of a machine for ranks on other machines: that of node rank 0 is the rendezvous.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeAddress {
    /// Name or address.
    pub host: String,
    /// A port that was free when it was chosen.
    pub port: u16,
}

/// An agent's report about an attempt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "word", rename_all = "snake_case")]
pub enum AgentEvent {
    /// The inputs of its ranks are staged: they are started once all machines of the attempt have reported this.
    Prepared {
        /// Where ranks on other machines reach this one.
        address: NodeAddress,
    },
    /// Its ranks were started.
    Started,
    /// A rank reported.
    Reported {
        /// Which rank.
        rank: u32,
        /// The report, nested because its tag has a different name.
        report: Report,
    },
    /// Its program has been idle for the job's `idle_timeout`.
    Idle,
    /// All its ranks have ended.
    Ended {
        /// How.
        end: AttemptEnd,
    },
    /// An event of a later version.
    Unknown,
}

/// Reports on which decisions rest: one that cannot be read is an error, and is sent again to a loop that can.
const DECISIVE: [&str; 6] = ["ready", "result", "exported", "trained", "stopped", "failed"];

fn known_event<'de, D: Deserializer<'de>>(deserializer: D) -> Result<AgentEvent, D::Error> {
    let value = Value::deserialize(deserializer)?;
    let is_end = value["word"] == "ended";
    let is_decisive = value["word"] == "prepared" || DECISIVE.iter().any(|report| value["report"]["report"] == *report);
    serde_json::from_value(value).or_else(|error| match (is_end, is_decisive) {
        (true, _) => {
            let message = format!("the attempt ended, and its agent is of a later version that says how: {error}");
            let finding = Finding::new(Cause::Internal, message);
            Ok(AgentEvent::Ended { end: AttemptEnd::Failed { finding, exit_code: None } })
        }
        (false, true) => Err(D::Error::custom(error)),
        (false, false) => Ok(AgentEvent::Unknown),
    })
}

fn known_commands<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<AgentCommand>, D::Error> {
    let commands = Vec::<Value>::deserialize(deserializer)?;
    let is_known =
        |command: &Value| ["start", "prepare", "go", "stop", "leave"].iter().any(|known| command["order"] == *known);
    let known = commands.into_iter().filter(is_known);
    // A known command that cannot be parsed is not a reply: the lease runs out as without one.
    known.map(|command| serde_json::from_value(command).map_err(D::Error::custom)).collect()
}

/// The loop's reply.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HeartbeatReply {
    /// The decisions among the entries up to this one are durable.
    pub acknowledged: u64,
    /// The measurements among the entries up to this one are stored; 0 if they cannot be stored now. `None` from loops
    /// of the first version, which acknowledged both together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<u64>,
    /// How long the agent may continue without an answer.
    pub lease: Duration,
    /// How long its ranks get to save when the lease is over, if that is less than the agent's own limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saving: Option<Duration>,
    /// How long the agent waits before its next call.
    pub next: Duration,
    /// Commands, repeated until they are done.
    #[serde(deserialize_with = "known_commands")]
    pub orders: Vec<AgentCommand>,
}

/// A command of the loop to an agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "snake_case")]
pub enum AgentCommand {
    /// Start this attempt, unless it was started already.
    Start(Box<Start>),
    /// Stage the inputs of this attempt on several machines, and report [`AgentEvent::Prepared`], unless that was done
    /// already.
    Prepare(Box<Start>),
    /// Start the ranks of an attempt for which all its machines are prepared.
    Go {
        /// Which.
        attempt: AttemptId,
        /// Its machines by node rank.
        nodes: Vec<NodeAddress>,
    },
    /// Save the state, then end the attempt.
    Stop {
        /// Which.
        attempt: AttemptId,
        /// Whether another machine of the attempt has failed, so that its ranks can no longer save together.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_node_lost: bool,
        /// The time reserved for it; `None` for the agent's own limit.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        within: Option<Duration>,
    },
    /// End everything and leave.
    Leave,
}

/// An attempt to start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Start {
    /// For which run.
    pub run: RunId,
    /// Its name.
    pub attempt: AttemptId,
    /// Its number, which everything it writes carries.
    pub fence: Fence,
    /// The job.
    pub job: Job,
    /// SHA-256 of what defines the result.
    pub job_hash: String,
    /// Threads per rank.
    pub threads: u32,
    /// Whether a checkpoint is resumed although the data has changed since.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub accept_data_change: bool,
    /// Its position in an attempt on several machines; `None` for a single one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<NodeRank>,
    /// Folder of the run on the node: checkpoints, logs, export.
    pub folder: String,
}

/// A machine's position among those of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRank {
    /// From 0.
    pub rank: u32,
    /// Number of machines.
    pub nodes: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads the message of an earlier version, and writes the same bytes again.
    fn check<T: Serialize + serde::de::DeserializeOwned>(message: &str) {
        let read: T = serde_json::from_str(message).unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), message);
    }

    #[test]
    fn messages_of_earlier_versions_are_read_and_written_alike() {
        check::<Heartbeat>(concat!(
            r#"{"schema":1,"instance":"digits-1-i1","started":1700000000000000,"elapsed":250000,"entries":["#,
            r#"{"seq":1,"attempt":"digits-1-a1","word":{"word":"started"}},"#,
            r#"{"seq":2,"attempt":"digits-1-a1","word":{"word":"reported","rank":0,"#,
            r#""report":{"report":"note","text":"n"}}},"#,
            r#"{"seq":3,"attempt":"digits-1-a1","word":{"word":"ended","end":{"end":"succeeded"}}}]}"#,
        ));
        check::<Heartbeat>(r#"{"schema":1,"instance":"d-i1","started":1,"elapsed":2,"entries":[],"reclaim":"2m"}"#);
        check::<Heartbeat>(r#"{"schema":1,"instance":"d-i1","started":1,"elapsed":2,"entries":[],"attempt":"d-a1"}"#);
        check::<HeartbeatReply>(r#"{"acknowledged":3,"lease":"1m","next":"200ms","orders":[]}"#);
        check::<HeartbeatReply>(r#"{"acknowledged":3,"measured":0,"lease":"1m","next":"200ms","orders":[]}"#);
        check::<HeartbeatReply>(r#"{"acknowledged":3,"lease":"1m","saving":"5s","next":"200ms","orders":[]}"#);
        check::<AgentCommand>(r#"{"order":"stop","attempt":"digits-1-a1"}"#);
        check::<AgentCommand>(r#"{"order":"leave"}"#);
    }

    #[test]
    fn what_only_a_later_version_knows_is_passed_over() {
        let heartbeat: Heartbeat = serde_json::from_str(concat!(
            r#"{"schema":2,"incarnation":3,"instance":"d-i1","started":1,"elapsed":2,"entries":["#,
            r#"{"seq":1,"attempt":"d-a1","word":{"word":"started","at":7}},"#,
            r#"{"seq":2,"attempt":"d-a1","word":{"word":"moved","to":"d-i2"}},"#,
            r#"{"seq":3,"attempt":"d-a1","word":{"word":"reported","rank":0,"report":{"report":"hummed"}}},"#,
            r#"{"seq":4,"attempt":"d-a1","word":{"word":"ended","end":{"end":"handed_over"}}}]}"#,
        ))
        .unwrap();
        let events: Vec<_> = heartbeat.entries.iter().map(|entry| &entry.event).collect();
        assert_eq!(events[..3], [&AgentEvent::Started, &AgentEvent::Unknown, &AgentEvent::Unknown]);
        let AgentEvent::Ended { end: AttemptEnd::Failed { finding, .. } } = events[3] else { panic!("{events:?}") };
        assert!(finding.message.contains("handed_over"), "{}", finding.message);
        let reply: HeartbeatReply = serde_json::from_str(concat!(
            r#"{"acknowledged":4,"lease":"1m","next":"200ms","zone":"b","#,
            r#""orders":[{"order":"hum","loud":true},{"order":"leave","why":"done"}]}"#,
        ))
        .unwrap();
        assert_eq!(reply.orders, [AgentCommand::Leave]);
        let broken = r#"{"acknowledged":4,"lease":"1m","next":"200ms","orders":[{"order":"stop","attempt":7}]}"#;
        assert!(serde_json::from_str::<HeartbeatReply>(broken).is_err(), "a known command is not lost in silence");
        let ready = r#"{"seq":1,"attempt":"d-a1","word":{"word":"reported","rank":0,"report":{"report":"ready"}}}"#;
        assert!(serde_json::from_str::<Entry>(ready).is_err(), "nor is a report on which decisions rest");
    }
}
