//! What the protocol rests on. Each rule can be broken, one at a time, and the simulation must find it.

/// A rule that a simulation may do without.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// A call or a reply goes out only when the events that it rests on are on disk.
    DurableBeforeTold,
    /// Every request for a machine carries the same token.
    OneToken,
    /// A launch in doubt is no refusal.
    DoubtIsNoRefusal,
    /// What the provider does not list is gone only after the time that it may take to list it.
    MissingIsNotGone,
    /// A request that was not answered may still have its effect for a while.
    LateRequestsCount,
    /// Without a token that holds, what is in doubt is looked for before it is asked for again.
    LookBeforeAskingAgain,
    /// A view that is incomplete proves nothing of what it misses.
    IncompleteProvesNothing,
    /// A machine is released only when the provider says that it is gone.
    EndIsProved,
    /// A machine that the log does not know is ended.
    StrangersAreEnded,
    /// An agent that nobody answers ends its ranks and its machine.
    DeadManSwitch,
    /// A machine is given its time to boot.
    BootingIsNotSilence,
    /// An agent that is silent for too long is given up.
    SilenceIsGivenUp,
    /// What a dead agent had written down is read before its machine is settled.
    LastEventsAreRead,
    /// What an agent decides is on its disk before it is sent.
    DecisionsAreSpooled,
    /// Every call has a deadline.
    CallsHaveDeadlines,
    /// Waits are counted on a clock that never goes back.
    WaitsAreMonotonic,
    /// What was used is what the provider has metered.
    UsageIsMetered,
    /// A run is given no longer to save and leave than its budget keeps back.
    SavingIsReserved,
    /// An agent that nobody answers goes on no longer than its run's budget allows.
    LeaseWithinBudget,
    /// A machine is asked to end again until it is gone.
    EndIsRepeated,
    /// An attempt that was replaced cannot write over what a newer one has saved.
    StaleWritesAreFenced,
    /// All machines carry the owner's tag, so that those that the log does not know are listed too.
    MachinesAreTagged,
    /// Ranks on several machines start once all of them are prepared.
    AllArePrepared,
    /// Machines that wait too long for the others of their run are given back.
    WaitingIsBounded,
    /// What runs on a machine that its provider is about to take back saves its state and ends before.
    ReclaimIsHeeded,
}

impl Rule {
    /// Every rule.
    pub const ALL: [Rule; 25] = [
        Rule::DurableBeforeTold,
        Rule::OneToken,
        Rule::DoubtIsNoRefusal,
        Rule::MissingIsNotGone,
        Rule::LateRequestsCount,
        Rule::LookBeforeAskingAgain,
        Rule::IncompleteProvesNothing,
        Rule::EndIsProved,
        Rule::StrangersAreEnded,
        Rule::DeadManSwitch,
        Rule::BootingIsNotSilence,
        Rule::SilenceIsGivenUp,
        Rule::LastEventsAreRead,
        Rule::DecisionsAreSpooled,
        Rule::CallsHaveDeadlines,
        Rule::WaitsAreMonotonic,
        Rule::UsageIsMetered,
        Rule::SavingIsReserved,
        Rule::LeaseWithinBudget,
        Rule::EndIsRepeated,
        Rule::StaleWritesAreFenced,
        Rule::MachinesAreTagged,
        Rule::AllArePrepared,
        Rule::WaitingIsBounded,
        Rule::ReclaimIsHeeded,
    ];
}
