//! What is asked of a provider and what it answers, as values: an answer may come late, in another order, or never.
//! As JSON they are also what is asked of a node over SSH ([`NodeRequest`]).

use serde::{Deserialize, Serialize};

use crate::id::InstanceId;
use crate::money::Rate;
use crate::offer::Offer;
use crate::run::Usage;
use crate::time::{Elapsed, Timestamp};
use crate::units::Duration;
use crate::wire::Entry;

/// What a provider is asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProviderCall {
    /// What can be rented now.
    Offers,
    /// Rent what the request describes. Asked again with the same token, nothing more is rented.
    Launch(Box<LaunchRequest>),
    /// What is seen of these machines, those that are gone included, and of all others of this owner that are not.
    Observe(Vec<InstanceId>),
    /// End these machines. Asked again, it does no harm.
    End(Vec<EndRequest>),
    /// What the agent of a machine that is gone had written down and may not have sent.
    LastEvents(InstanceId),
}

/// What `gradus node` reads from its stdin on a machine that is reached over SSH; it answers with a [`ProviderAnswer`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeRequest {
    /// Version of the message.
    pub schema: u32,
    /// Whose machines these are: the tag of all processes.
    pub owner: String,
    /// What the machine costs.
    pub rate: Rate,
    /// What is asked.
    pub call: ProviderCall,
}

/// The version of [`NodeRequest`].
pub const NODE_SCHEMA: u32 = 1;

/// A request to rent machines: all of them or none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchRequest {
    /// Our names of the machines. Each is tagged with its own.
    pub members: Vec<InstanceId>,
    /// The same token rents the same machines, for as long as [`ProviderTraits::token_lifetime`].
    pub token: String,
    /// What is rented.
    pub offer: Offer,
    /// The most that may be paid for one machine; none where the offer's own price is fixed.
    pub price_cap: Option<Rate>,
    /// When the provider, or whoever cleans up, may take the machines for forgotten; none where they never are.
    pub expires: Option<Timestamp>,
    /// How long its agent may wait for the loop's first answer, where a budget pays for less than the agent's own limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_answer: Option<Duration>,
    /// Whether the machine is one of several that must reach each other.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_peers: bool,
}

/// A machine to end, by the provider's name of it where that is known.
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

/// What a provider answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProviderAnswer {
    /// What can be rented now.
    Offers(Vec<Offer>),
    /// Every member was rented, each with the provider's name of it.
    Accepted(Vec<(InstanceId, MachineHandle)>),
    /// This request has rented nothing, and will not.
    Refused(Refusal),
    /// The request may or may not have been carried out. It is made again, with the same token.
    Doubt(String),
    /// What is seen.
    Observed(ProviderView),
    /// The request to end machines was taken; [`ProviderCall::Observe`] tells when they are gone.
    Ending,
    /// What was left behind, oldest first.
    LastEvents(Vec<Entry>),
    /// It could not be asked; nothing is known and nothing was changed. Not for [`ProviderCall::Launch`].
    Unavailable(String),
}

/// Why a request was refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// No such machine is free there now.
    Capacity {
        /// What the provider says.
        message: String,
    },
    /// The account may not have more of these.
    Quota {
        /// What the provider says.
        message: String,
    },
    /// Too many requests.
    Throttled {
        /// When to ask again, if the provider says so.
        after: Option<Elapsed>,
    },
    /// The credentials do not allow it.
    Denied {
        /// What the provider says.
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

/// What is wrong with a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DiskFault {
    /// No space is left.
    Full,
    /// It cannot be written.
    ReadOnly,
}

/// What a provider sees of one owner's machines at one moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProviderView {
    /// Whether everything was listed that the provider could list at that moment. What an incomplete view misses is not
    /// missing.
    pub is_complete: bool,
    /// Each machine, in any order.
    pub machines: Vec<SeenMachine>,
}

/// What a provider sees of one machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SeenMachine {
    /// The provider's name of it.
    pub handle: MachineHandle,
    /// Our name, by its tag.
    pub instance: InstanceId,
    /// Where it stands.
    pub state: MachineState,
    /// When the provider will take it back, if it has said so.
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
    /// It is gone and was metered; no usage when its rent never began.
    Gone(Option<Usage>),
}

/// What a provider promises about time, by which absence is told from the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProviderTraits {
    /// A machine that was rented may be missing in what the provider lists for so long.
    pub visible_within: Elapsed,
    /// A request that was sent has had its effect after so long, or never will.
    pub effective_within: Elapsed,
    /// The agent of a machine that was rented calls within this time, or the machine is given up.
    pub boots_within: Elapsed,
    /// The same token rents the same machine for so long; none where the provider knows no tokens, so that what is in
    /// doubt must be looked for before it is asked for again.
    pub token_lifetime: Option<Elapsed>,
    /// Between two looks while something is about to change.
    pub observe_every: Elapsed,
    /// Rent is counted in steps of this length; 0 where it is exact.
    pub billing_step: Elapsed,
    /// A machine that has answered nobody for so long has ended by itself, and nobody else could prove it; none where the
    /// provider can, so that its word is waited for.
    pub abandoned_within: Option<Elapsed>,
    /// Whether last events of a machine that is gone can be read ([`ProviderCall::LastEvents`]).
    pub keeps_events: bool,
    /// Requests that may be under way at the same time.
    pub concurrency: usize,
    /// Machines that it has, each of which runs one instance; none where they are rented as they are needed.
    pub places: Option<usize>,
}

impl Refusal {
    /// What the provider says, for people.
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
