//! The assumptions of the protocol. Each rule can be broken, one at a time, and the simulation must notice.

/// A rule that a simulation may break.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// A call or a reply is sent only when the events that it depends on are on disk.
    DurableBeforeTold,
    /// Every request for a machine carries the same token.
    OneToken,
    /// A launch in doubt is no refusal.
    DoubtIsNoRefusal,
    /// A machine missing from views counts as gone only after the time that listing may take.
    MissingIsNotGone,
    /// A request that was not answered may still have its effect for a while.
    LateRequestsCount,
    /// Without a valid token, an uncertain request is queried before it is repeated.
    LookBeforeAskingAgain,
    /// An incomplete view proves nothing about missing machines.
    IncompleteProvesNothing,
    /// A machine is released only when the provider reports it as gone.
    EndIsProved,
    /// A machine that the log does not know is ended.
    StrangersAreEnded,
    /// An agent without answers ends its ranks and its machine.
    DeadManSwitch,
    /// A machine is given its time to boot.
    BootingIsNotSilence,
    /// An agent that is silent for too long is given up.
    SilenceIsGivenUp,
    /// The last events of a dead agent are read before its machine is settled.
    LastEventsAreRead,
    /// An agent's decisions are on its disk before they are sent.
    DecisionsAreSpooled,
    /// Every call has a deadline.
    CallsHaveDeadlines,
    /// Waits are measured on a monotonic clock.
    WaitsAreMonotonic,
    /// The usage is what the provider has metered.
    UsageIsMetered,
    /// The time for a run to save and leave is limited by its budget's reserve.
    SavingIsReserved,
    /// An agent without answers continues no longer than its run's budget allows.
    LeaseWithinBudget,
    /// The end of a machine is requested repeatedly until it is gone.
    EndIsRepeated,
    /// A replaced attempt cannot overwrite what a newer one has saved.
    StaleWritesAreFenced,
    /// All machines carry the owner's tag, so that those that the log does not know are listed too.
    MachinesAreTagged,
    /// Ranks on several machines start once all of them are prepared.
    AllArePrepared,
    /// Machines that wait too long for the others of their run are given back.
    WaitingIsBounded,
    /// What runs on a machine that its provider is about to take back saves its state and ends before.
    ReclaimIsHeeded,
    /// An agent that is silent for a while is suspected, and looked at.
    SuspectsAreLookedAt,
    /// A machine that cannot be reached is replaced before its end is proved.
    LostIsReplaced,
    /// A machine that does not boot in time is given up.
    BootsAreBounded,
    /// An agent that the log does not know is told to leave in the end.
    UnknownAgentsLeave,
    /// The wait between two requests to end a machine is bounded.
    EndsAreRepeatedSoon,
    /// What a machine that is gone had written down is not asked for without end.
    LastEventsAreGivenUp,
    /// The wait between two tries is bounded.
    WaitsAreBounded,
    /// Between two tries is a wait.
    TriesAreSpaced,
    /// A provider that wants to be left alone for a while is.
    ThrottlingIsHeeded,
    /// Ranks that do not save in time are killed.
    SavingIsBounded,
    /// Ranks are told when those of another machine have failed.
    NodeLossIsTold,
    /// A machine whose agent nobody answers, or that has none, powers itself off.
    MachinesPowerOff,
    /// A machine is rented only where the budget pays for ending it too.
    RentIsAdmitted,
    /// Usage is whole microseconds all the way to the bill.
    UsageIsExact,
    /// What the loop knows at its start is what the log says, and nothing else.
    StateIsTheLog,
    /// Agents of two machines that one request has rented are told apart, whatever their clocks say.
    AgentsAreToldApart,
    /// Rent is billed in the steps of its provider, and what it bills at least.
    RentIsRounded,
    /// A loop that starts takes it that an earlier one may have asked for what it intended.
    EarlierCallsCount,
    /// A machine that nobody reaches any more, and whose end only itself could prove, counts as gone in the end.
    AbandonedIsSettled,
    /// An offer that was refused is asked for again after a while.
    ShortagesEnd,
    /// A job that can do with fewer machines starts with those that are up.
    ShrinkIsBounded,
    /// What the trials of a sweep cost counts against the budget of all of them.
    TrialsShareABudget,
    /// What has ended an attempt decides whether another one follows.
    CausesDecide,
    /// A machine costs what it was offered for, whatever the market does meanwhile.
    PricesAreAgreed,
    /// What is asked for on demand beside spot machines is no spot machine.
    AnchorsAreOnDemand,
    /// The run of a due time has the name that follows from it, so that it is found again after a crash.
    DueTimesAreRunOnce,
    /// Of the due times that have passed, those are run that the schedule's `catch_up` names.
    CatchUpIsHeeded,
    /// A due time is not run beside the run before.
    OverlapIsHeeded,
    /// The design of before, not one rule: a launch in doubt counts as refused, what is not listed as gone, and a
    /// machine that boots as silent.
    DesignOfBefore,
}

impl Rule {
    /// Every rule.
    pub const ALL: [Rule; 53] = [
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
        Rule::SuspectsAreLookedAt,
        Rule::LostIsReplaced,
        Rule::BootsAreBounded,
        Rule::UnknownAgentsLeave,
        Rule::EndsAreRepeatedSoon,
        Rule::LastEventsAreGivenUp,
        Rule::WaitsAreBounded,
        Rule::TriesAreSpaced,
        Rule::ThrottlingIsHeeded,
        Rule::SavingIsBounded,
        Rule::NodeLossIsTold,
        Rule::MachinesPowerOff,
        Rule::RentIsAdmitted,
        Rule::UsageIsExact,
        Rule::StateIsTheLog,
        Rule::AgentsAreToldApart,
        Rule::RentIsRounded,
        Rule::EarlierCallsCount,
        Rule::AbandonedIsSettled,
        Rule::ShortagesEnd,
        Rule::ShrinkIsBounded,
        Rule::TrialsShareABudget,
        Rule::CausesDecide,
        Rule::PricesAreAgreed,
        Rule::AnchorsAreOnDemand,
        Rule::DueTimesAreRunOnce,
        Rule::CatchUpIsHeeded,
        Rule::OverlapIsHeeded,
    ];

    /// The promise that it is part of, by the number that it has in the list of requirements: R1 to R14 for what
    /// protects money and work, L1 to L3 for what the first design got wrong, T for times.
    pub fn promise(self) -> &'static str {
        match self {
            Rule::DurableBeforeTold => "R1",
            Rule::OneToken | Rule::LookBeforeAskingAgain | Rule::AgentsAreToldApart => "R2",
            Rule::MachinesAreTagged => "R3",
            Rule::EndIsProved | Rule::EndIsRepeated | Rule::IncompleteProvesNothing => "R4",
            Rule::StrangersAreEnded | Rule::UnknownAgentsLeave => "R5",
            Rule::MachinesPowerOff | Rule::DeadManSwitch => "R6",
            Rule::StaleWritesAreFenced => "R7",
            Rule::StateIsTheLog => "R8",
            Rule::UsageIsExact | Rule::UsageIsMetered | Rule::RentIsRounded | Rule::PricesAreAgreed => "R9",
            Rule::EarlierCallsCount | Rule::LastEventsAreRead | Rule::DecisionsAreSpooled => "R11",
            Rule::CallsHaveDeadlines | Rule::ThrottlingIsHeeded | Rule::TriesAreSpaced => "R12",
            Rule::WaitsAreMonotonic => "R13",
            Rule::RentIsAdmitted | Rule::SavingIsReserved | Rule::LeaseWithinBudget | Rule::TrialsShareABudget => "R14",
            Rule::DoubtIsNoRefusal => "L1",
            Rule::MissingIsNotGone | Rule::LateRequestsCount => "L2",
            Rule::BootingIsNotSilence => "L3",
            Rule::DesignOfBefore => "L1-L3",
            Rule::AllArePrepared
            | Rule::NodeLossIsTold
            | Rule::ReclaimIsHeeded
            | Rule::CausesDecide
            | Rule::AnchorsAreOnDemand
            | Rule::DueTimesAreRunOnce
            | Rule::CatchUpIsHeeded
            | Rule::OverlapIsHeeded => "-",
            Rule::SilenceIsGivenUp
            | Rule::WaitingIsBounded
            | Rule::SuspectsAreLookedAt
            | Rule::LostIsReplaced
            | Rule::BootsAreBounded
            | Rule::EndsAreRepeatedSoon
            | Rule::LastEventsAreGivenUp
            | Rule::WaitsAreBounded
            | Rule::SavingIsBounded
            | Rule::AbandonedIsSettled
            | Rule::ShortagesEnd
            | Rule::ShrinkIsBounded => "T",
        }
    }
}
