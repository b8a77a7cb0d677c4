//! The measured process: the real loop and API over a provider whose machines always exist.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::channel;

use cloud::{Provider, ProviderAnswer, ProviderCall, ProviderTraits};
use domain::rental::{BillingRule, MachineHandle, MachineState, ProviderView, SeenMachine};
use domain::{Elapsed, InstanceId};
use server::api;
use server::control::Control;
use server::{Home, Series, State, routes};

use crate::{Failure, history};

/// Machines that exist as soon as they are requested.
struct Yes;

/// Its traits.
pub fn traits() -> ProviderTraits {
    ProviderTraits {
        visible_within: Elapsed(0),
        effective_within: Elapsed(0),
        boots_within: Elapsed(600_000_000),
        token_lifetime: Some(Elapsed(u64::MAX)),
        observe_every: Elapsed(5_000_000),
        rents_together: false,
        billing: BillingRule::EXACT,
        places: None,
        abandoned_within: None,
        keeps_events: false,
        concurrency: 8,
    }
}

/// Its answer.
pub fn answer(call: &ProviderCall) -> ProviderAnswer {
    let handle = |instance: &InstanceId| MachineHandle(instance.to_string());
    let seen = |instance: &InstanceId| SeenMachine {
        handle: handle(instance),
        instance: instance.clone(),
        state: MachineState::Running,
        notice: None,
    };
    match call {
        ProviderCall::Offers => ProviderAnswer::Offers(Vec::new()),
        ProviderCall::Launch(request) => {
            ProviderAnswer::Accepted(request.members.iter().map(|one| (one.clone(), handle(one))).collect())
        }
        ProviderCall::Observe(asked) => {
            let machines = asked.iter().map(seen).collect();
            ProviderAnswer::Observed(ProviderView { is_complete: true, machines, unseen: Vec::new() })
        }
        ProviderCall::End(_) => ProviderAnswer::Ending,
        ProviderCall::LastEvents(_) => ProviderAnswer::LastEvents(Vec::new()),
    }
}

impl Provider for Yes {
    fn name(&self) -> &'static str {
        "yes"
    }

    fn traits(&self) -> ProviderTraits {
        traits()
    }

    fn call(&self, call: &ProviderCall) -> ProviderAnswer {
        answer(call)
    }
}

/// Serves a home until it is killed.
pub fn serve(root: &Path) -> Result<(), Failure> {
    let home = Home::open(root)?;
    let _lock = home.try_loop()?.ok_or("another process runs the loop")?;
    let state = State::open_lean(&home)?;
    let (sender, inbox) = channel();
    let _door = routes::serve(&home, sender.clone(), None)?;
    let answers = api::Answers {
        planner: Arc::new(|_| {
            let (job, plan) = history::job();
            Ok(api::PlannedJob { job, plan, known: None, warnings: Vec::new() })
        }),
        due_planner: Arc::new(|_, _| {
            let (job, plan) = history::job();
            Ok(api::PlannedJob { job, plan, known: None, warnings: Vec::new() })
        }),
        task_planner: Arc::new(|_, _| {
            let (job, plan) = history::job();
            Ok(api::PlannedJob { job, plan, known: None, warnings: Vec::new() })
        }),
        admitter: Arc::new(|_| Ok(Box::new(()))),
        resume_check: Arc::new(|_, _| Ok(())),
        offers: Arc::new(|_| Ok(Vec::new())),
        user: None,
    };
    api::serve(&home, None, sender.clone(), answers, None)?;
    let providers: Vec<Arc<dyn Provider>> = vec![Arc::new(Yes)];
    let mut control = Control::new(state, Series::open(&home)?, &home, &providers);
    control.keeps_all = true;
    control.policy.slots = usize::MAX;
    control.run(&sender, &inbox, |_| false)?;
    Ok(())
}
