//! Calls to a provider and its answers, as values: an answer may arrive late, out of order, or never. As JSON they are
//! also the protocol of a node over SSH ([`NodeRequest`]).

use serde::{Deserialize, Serialize};

use crate::id::InstanceId;
use crate::joining::JoinOffer;
use crate::money::Rate;
use crate::offer::Offer;
use crate::run::Usage;
use crate::time::{Elapsed, Timestamp};
use crate::units::{Bytes, Duration};
use crate::wire::Entry;

/// A call to a provider.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProviderCall {
    /// List the current offers.
    Offers,
    /// Rent what the request describes. Idempotent for the same token.
    Launch(Box<LaunchRequest>),
    /// Report the state of these machines, including those that are gone, and of all others of this owner that are not.
    Observe(Vec<InstanceId>),
    /// End these machines. Idempotent.
    End(Vec<EndRequest>),
    /// Read the events that the agent of a machine that is gone had recorded and may not have sent.
    LastEvents(InstanceId),
}

/// What `gradus node` reads from its stdin on a machine that is reached over SSH; it answers with a [`ProviderAnswer`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeRequest {
    /// Version of the message.
    pub schema: u32,
    /// The owner of the machines: the tag of all processes.
    pub owner: String,
    /// The price of the machine.
    pub rate: Rate,
    /// The call.
    pub call: ProviderCall,
    /// Where an agent that is started reaches the loop directly; `None` for one that does so through a tunnel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub join: Option<JoinOffer>,
}

/// The version of [`NodeRequest`].
pub const NODE_SCHEMA: u32 = 1;

/// A request to rent machines: all of them or none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchRequest {
    /// Our names of the machines, with which they are tagged.
    pub members: Vec<InstanceId>,
    /// The idempotency token, valid for [`ProviderTraits::token_lifetime`].
    pub token: String,
    /// The offer to rent.
    pub offer: Offer,
    /// The maximum price of one machine where its price moves, disk included; `None` for what the provider takes for sensible.
    pub price_cap: Option<Rate>,
    /// When the provider, or a cleanup, may consider the machines abandoned; `None` for never.
    pub expires: Option<Timestamp>,
    /// How long its agent may wait for the loop's first answer, where a budget pays for less than the agent's own limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_answer: Option<Duration>,
    /// Whether the machine is one of several that must reach each other.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_peers: bool,
}

/// A machine to end, with the provider's name if it is known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndRequest {
    /// Our name.
    pub instance: InstanceId,
    /// The provider's.
    pub handle: Option<MachineHandle>,
}

/// The provider's own name of a machine, such as `i-0abc`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MachineHandle(pub String);

/// An answer of a provider.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProviderAnswer {
    /// The current offers.
    Offers(Vec<Offer>),
    /// Every member was rented, each with the provider's name of it.
    Accepted(Vec<(InstanceId, MachineHandle)>),
    /// The request has rented nothing, and will not.
    Refused(Refusal),
    /// The request may or may not have been carried out. It is made again, with the same token.
    Doubt(String),
    /// The view.
    Observed(ProviderView),
    /// The request to end machines was accepted; [`ProviderCall::Observe`] shows when they are gone.
    Ending,
    /// The remaining events, oldest first.
    LastEvents(Vec<Entry>),
    /// It could not be reached; nothing is known and nothing was changed. Not for [`ProviderCall::Launch`].
    Unavailable(String),
}

/// What a provider knows of machines that it has launched, besides its answer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LaunchDetails {
    /// The account in which they were rented, with the answer to the launch, where the provider has accounts.
    pub account: Option<String>,
    /// Other machines that could not send all files when one was prepared, each with that one.
    pub failed_peers: Vec<(InstanceId, FailedPeer)>,
}

/// A machine that could not send another one all files that it has, when that was prepared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedPeer {
    /// Its name.
    pub peer: String,
    /// Why not.
    pub why: String,
    /// What the loop's machine sent instead, as it is when it is not compressed.
    pub sent: Bytes,
}

/// Why a request was refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// No such machine is free there now.
    Capacity {
        /// The provider's message.
        message: String,
    },
    /// The account may not have more of these.
    Quota {
        /// The provider's message.
        message: String,
    },
    /// Too many requests.
    Throttled {
        /// When to retry, if the provider says so.
        after: Option<Elapsed>,
    },
    /// The credentials do not allow it.
    Denied {
        /// The provider's message.
        message: String,
    },
    /// The request cannot be carried out as it is, now or later.
    Invalid {
        /// Why not.
        message: String,
        /// Whether the disk of this machine is the cause: full, or not writable.
        disk: Option<DiskFault>,
    },
}

/// A disk error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DiskFault {
    /// No space left.
    Full,
    /// It cannot be written.
    ReadOnly,
}

/// A provider's view of one owner's machines at one moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProviderView {
    /// Whether the list is complete as of that moment. A machine absent from an incomplete view is not missing.
    pub is_complete: bool,
    /// Each machine, in any order.
    pub machines: Vec<SeenMachine>,
    /// What could not be looked at, why, and what to do about it: a sentence each, for people.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unseen: Vec<String>,
}

/// A provider's view of one machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SeenMachine {
    /// The provider's name of it.
    pub handle: MachineHandle,
    /// Our name, by its tag.
    pub instance: InstanceId,
    /// Where it stands.
    pub state: MachineState,
    /// When the provider will reclaim it, if announced.
    pub notice: Option<Timestamp>,
}

/// Where a machine stands, in its provider's eyes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MachineState {
    /// It is being started, and may cost money.
    Pending,
    /// It runs, and costs money.
    Running,
    /// It is being ended.
    Ending,
    /// It is gone and was metered; without usage if its rent never began.
    Gone(Option<Usage>),
}

/// A provider's promises about time, by which absence is distinguished from the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProviderTraits {
    /// A rented machine may be missing from views for this long.
    pub visible_within: Elapsed,
    /// A request takes effect within this time, or never.
    pub effective_within: Elapsed,
    /// The agent of a rented machine calls within this time, or the machine is given up.
    pub boots_within: Elapsed,
    /// Lifetime of a token; `None` if the provider does not support tokens, so that an uncertain request must be
    /// queried before it is repeated.
    pub token_lifetime: Option<Elapsed>,
    /// Between two looks while something is about to change.
    pub observe_every: Elapsed,
    /// Whether it rents several machines for one request, all of them or none.
    pub rents_together: bool,
    /// How it counts rent.
    pub billing: BillingRule,
    /// A machine without contact for this long has ended by itself, and nothing else could prove it; `None` if the
    /// provider can, so that its confirmation is required.
    pub abandoned_within: Option<Elapsed>,
    /// Whether last events of a machine that is gone can be read ([`ProviderCall::LastEvents`]).
    pub keeps_events: bool,
    /// Requests that may be under way at the same time.
    pub concurrency: usize,
    /// Number of existing machines, each of which runs one instance; `None` if they are rented on demand.
    pub places: Option<usize>,
}

/// How a provider counts rent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BillingRule {
    /// Rent is counted in whole multiples of this; 0 if it is counted exactly.
    pub step: Elapsed,
    /// A machine that was rented at all costs so long at least.
    pub least: Elapsed,
}

impl BillingRule {
    /// Every microsecond counts, and no more.
    pub const EXACT: BillingRule = BillingRule { step: Elapsed(0), least: Elapsed(0) };

    /// What is billed for a rent of this length. What was counted so before stays as it is.
    pub fn billed(self, rent: Elapsed) -> Elapsed {
        if rent.0 == 0 {
            return rent;
        }
        let rent = rent.max(self.least).0;
        Elapsed(if self.step.0 == 0 { rent } else { rent.div_ceil(self.step.0).saturating_mul(self.step.0) })
    }
}

impl Refusal {
    /// The provider's message, for users.
    pub fn message(&self) -> String {
        match self {
            Refusal::Capacity { message } => format!("no capacity: {message}"),
            Refusal::Quota { message } => format!("the quota is used up: {message}"),
            Refusal::Throttled { .. } => "too many requests".to_owned(),
            Refusal::Denied { message } => format!("not allowed: {message}"),
            Refusal::Invalid { message, .. } => message.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rent_is_counted_in_whole_steps_and_once() {
        let check = |(step, least): (u64, u64), rent: u64, expected: u64| {
            let rule = BillingRule { step: Elapsed(step), least: Elapsed(least) };
            assert_eq!(rule.billed(Elapsed(rent)), Elapsed(expected), "{rule:?} of {rent}");
            assert_eq!(rule.billed(Elapsed(expected)), Elapsed(expected), "{rule:?} of {expected}");
        };
        check((0, 0), 7, 7);
        check((0, 60), 7, 60);
        check((0, 60), 61, 61);
        check((10, 0), 1, 10);
        check((10, 60), 61, 70);
        check((10, 60), 70, 70);
        check((10, 65), 1, 70);
        check((10, 60), 0, 0);
    }
}
