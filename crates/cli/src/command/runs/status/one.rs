//! The state of one run: its current state, progress and cost, and what to type next.

use std::collections::BTreeMap;

use domain::files::STILL_SENDING;
use domain::rank::{DeviceUse, Evaluated, EvaluatedSplit, Report};
use domain::run::{AttemptEnd, InstanceState, Outcome, RunState, StopBy, Usage};
use domain::{InstanceId, Money, RunId};
use plan::{AttemptState, Goodput, Instance, Run, World};
use serde_json::json;
use server::secrets::SecretKey;
use server::series::newest_step;
use server::{Home, Loading, Series, State, goodput_json};

use super::silent::silent_node;
use crate::error::{Error, exit};
use crate::figures::{clock, grouped, hang_limits, time};
use crate::follow::liveness::{Liveness, meters, unheard_step, waiting};
use crate::follow::progress::{ProgressLine, newest_loss, ready_of};
use crate::printer::Printer;
use crate::remote::{KnownRun, Server};

/// Number of measurements from which loss, rate and remaining time are computed.
const NEWEST: u64 = 200;

/// The facts about a run: from the home's databases, or from a server.
pub struct RunFacts<'a> {
    /// Its name.
    pub id: &'a RunId,
    /// The run with its attempts and machines.
    pub world: &'a World,
    /// Whether a process supervises it.
    pub liveness: Liveness,
    /// The run that uses the machine which it waits for.
    pub waits_for: Option<RunId>,
    /// The newest step that is known of.
    pub step: Option<u64>,
    /// Its newest measurements.
    pub newest: Vec<Report>,
    /// How its time was spent.
    pub goodput: Option<Goodput>,
    /// Its cost until now.
    pub spent: Money,
    /// Usage of machines whose agent is gone.
    pub ended: BTreeMap<InstanceId, Usage>,
    /// What of it is refused for want of disk space on the machine of the loop.
    pub refused: Vec<String>,
}

/// The facts about a run of a home.
///
/// # Errors
/// [`Error`].
pub fn of_home<'a>(
    home: &Home,
    state: &'a State,
    series: Option<&Series>,
    id: &'a RunId,
) -> Result<RunFacts<'a>, Error> {
    let world = state.world();
    let Some(run) = world.runs.get(id) else { return Err(server::Error::NoRun(id.to_string()).into()) };
    let gone = |id: &InstanceId| Some((id.clone(), crate::follow::liveness::ended(home, id)?));
    Ok(RunFacts {
        id,
        world,
        liveness: Liveness::of(home, world, id, run),
        waits_for: world.instance_before(id, run).map(|instance| instance.run.clone()),
        step: step(home, world, series, id, run),
        newest: newest_with_devices(series, id),
        goodput: goodput(state, series, id)?,
        spent: plan::spent(world, run, &meters(home, world)),
        ended: run.instances.iter().filter_map(gone).collect(),
        refused: refused(home, id),
    })
}

/// The facts about a run of a server, which supervises all of them.
///
/// # Errors
/// [`Error::Code`] if it cannot be reached.
pub fn of_server(server: &Server, id: &RunId) -> Result<KnownRun, Error> {
    server.run(id, NEWEST)
}

impl<'a> From<&'a KnownRun> for RunFacts<'a> {
    fn from(known: &'a KnownRun) -> RunFacts<'a> {
        RunFacts {
            id: &known.id,
            world: &known.world,
            liveness: Liveness::Logged,
            waits_for: known.waits_for.clone(),
            step: known.step,
            newest: known.newest.iter().map(|(_, report)| report.clone()).collect(),
            goodput: known.goodput,
            spent: known.cost,
            ended: BTreeMap::new(),
            refused: known.refused.clone(),
        }
    }
}

/// Prints everything about a run; with a key, also the values of `envs` that it has sealed.
///
/// # Errors
/// [`Error`].
pub fn show(facts: &RunFacts<'_>, key: Option<&SecretKey>, printer: &mut Printer) -> Result<u8, Error> {
    let RunFacts { id, world, liveness, .. } = *facts;
    let Some(run) = world.runs.get(id) else { return Err(server::Error::NoRun(id.to_string()).into()) };
    if printer.is_json() {
        let attempts = run.attempts.iter().filter_map(|id| world.attempts.get_key_value(id));
        let instances = run.instances.iter().filter_map(|id| world.instances.get_key_value(id));
        let attempts: Vec<_> = attempts.map(|(id, attempt)| json!({ "attempt": id, "body": attempt })).collect();
        let instances: Vec<_> = instances.map(|(id, one)| json!({ "instance": id, "body": one })).collect();
        let word = liveness.word(&run.state);
        let mut value = json!({ "run": id, "word": word, "body": run, "attempts": attempts, "instances": instances });
        value["refused"] = json!(facts.refused);
        value["devices"] = json!(devices(facts));
        value["goodput"] = json!(facts.goodput.as_ref().map(goodput_json));
        value["hang_after"] = json!(agent::hang_limits(&run.job, &facts.newest));
        value["saving"] = json!(plan::saving_of(world, run, &facts.newest));
        if let Some(key) = key.filter(|_| printer.shows_values()) {
            key.unseal_envs(&mut value);
        }
        printer.json(&value);
        return Ok(exit::DONE);
    }
    printer.data(format!("run      {id}: {}", liveness.word(&run.state)));
    if let Some(why) = why(facts, run) {
        printer.data(format!("why      {why}"));
    }
    for refused in facts.refused.iter().filter(|_| !run.state.is_final()) {
        printer.data(format!("disk     {refused}"));
    }
    printer.data(format!("job      {}", run.file));
    printer.data(format!("since    {}", time(run.submitted)));
    for line in progress(facts, run) {
        printer.data(line);
    }
    for id in &run.instances {
        if let Some(instance) = world.instances.get(id) {
            let state = machine(instance, facts.ended.get(id));
            let before = instance.machine.as_ref().map_or(String::new(), |name| format!(", rented as {name}"));
            printer.data(format!("machine  {id}: {state}{before}, {}", instance.offer.rate));
        }
    }
    for id in &run.attempts {
        if let Some(attempt) = world.attempts.get(id) {
            printer.data(format!("attempt  {id}: {}", attempt_words(&attempt.state, liveness)));
            for slow in &attempt.stragglers {
                printer
                    .data(format!("slow     {slow}: its steps took more than 1.5 times as long as the median of all"));
            }
        }
    }
    if let Some(goodput) = facts.goodput.filter(|goodput| goodput.wall().0 > 0) {
        printer.data(format!("time     {}: {goodput}", clock(goodput.wall())));
    }
    printer.data(format!("cost     {}", facts.spent));
    Ok(exit::DONE)
}

/// What of a run is refused for want of disk space.
fn refused(home: &Home, id: &RunId) -> Vec<String> {
    let shortages = home.shortages(server::clock::now());
    shortages.iter().filter(|shortage| shortage.concerns(id)).map(ToString::to_string).collect()
}

/// How the time of a run was spent until now; `None` if its measurements cannot be read.
fn goodput(state: &State, series: Option<&Series>, id: &RunId) -> Result<Option<Goodput>, Error> {
    let Some(series) = series else { return Ok(None) };
    let now = domain::Timestamp(jiff::Timestamp::now().as_microsecond());
    Ok(Some(series.goodput(id, &state.records(id, 0)?, now)?))
}

/// Why a run makes no progress, if so, and how to continue.
fn why(facts: &RunFacts<'_>, run: &Run) -> Option<String> {
    let RunFacts { id, liveness, .. } = *facts;
    match (liveness, &run.state) {
        (Liveness::Unattended { lease }, _) => Some(format!(
            "no process runs it; it saves a checkpoint and stops within {lease} of its last contact with one; resume it with \
             `gradus resume {id}`"
        )),
        (Liveness::Interrupted { since: Some(since) }, _) => Some(format!(
            "no process runs it, and its machine ended at {}; resume it with `gradus resume {id}`",
            time(since)
        )),
        (Liveness::Interrupted { since: None }, _) => {
            Some(format!("no process runs it; resume it with `gradus resume {id}`"))
        }
        (Liveness::Logged, RunState::Queued) => facts.waits_for.as_ref().map(|other| waiting(other, &run.plan.offer)),
        (Liveness::Logged, RunState::Recovering { finding, .. }) => {
            Some(silent_node(facts.world, run).unwrap_or_else(|| finding.message.clone()))
        }
        (Liveness::Logged, RunState::Renting { .. }) => silent_node(facts.world, run),
        (Liveness::Logged, RunState::Done { outcome: Outcome::Failed { finding } }) => Some(finding.message.clone()),
        (Liveness::Logged, RunState::Stopped { by }) => Some(stopped(id, run, *by)),
        (Liveness::Logged, RunState::Running { .. } | RunState::Stopping { .. }) => sending(&facts.newest),
        (Liveness::Logged, RunState::Staging { .. } | RunState::Done { .. }) => None,
    }
}

/// Why an attempt without processes has not ended, if that is the newest that is known of it.
fn sending(newest: &[Report]) -> Option<String> {
    match newest.iter().rfind(|report| !matches!(report, Report::Devices { .. }))? {
        Report::Note { text } if text.starts_with(STILL_SENDING) => Some(text.clone()),
        _ => None,
    }
}

/// Which limit stopped a run, and how to resume it.
fn stopped(id: &RunId, run: &Run, by: StopBy) -> String {
    match by {
        StopBy::User => format!("stopped with `gradus stop`; resume it with `gradus resume {id}`"),
        StopBy::Idle => {
            let idle = run.job.idle_timeout.map_or(String::new(), |timeout| format!(" for {timeout}"));
            format!("its program was idle{idle}; resume it with `gradus resume {id}`")
        }
        StopBy::Budget => {
            let budget = run.job.budget.map_or(String::new(), |budget| format!(" of {}", budget.max));
            format!("its budget{budget} is spent; resume it with `gradus resume {id} --budget AMOUNT`")
        }
        StopBy::Deadline => {
            let deadline = run.job.deadline.map_or(String::new(), |deadline| format!(" of {deadline}"));
            format!("its deadline{deadline} has passed; resume it with `gradus resume {id} --deadline DURATION`")
        }
    }
}

/// Step, loss, accuracy, and while it runs the remaining time and its cost.
fn progress(facts: &RunFacts<'_>, run: &Run) -> Vec<String> {
    let mut lines = Vec::new();
    let newest = &facts.newest;
    if let Some(step) = facts.step {
        let ready = run.ready.as_ref().or_else(|| newest.iter().rev().find_map(ready_of));
        let ready = ready.filter(|ready| ready.steps > 0);
        let of = ready.map_or(String::new(), |ready| format!(" of {}", grouped(ready.steps)));
        lines.push(format!("step     {}{of}", grouped(step)));
    }
    let steps = || newest.iter().filter_map(|report| if let Report::Step(step) = report { Some(step) } else { None });
    lines.extend(newest_loss(newest).map(|loss| format!("loss     {loss:.4}")));
    if let Some(evaluated) = newest.iter().rev().find_map(validation) {
        let name = evaluated.figures.accuracy_name();
        lines.push(format!(
            "{name:<8} {:.2} % on validation after step {}",
            100.0 * evaluated.accuracy,
            evaluated.step
        ));
    }
    let mut progress = ProgressLine::since(run.ready.clone());
    newest.iter().for_each(|report| {
        progress.take(report);
    });
    if let (Liveness::Logged, RunState::Running { .. }, Some(left)) = (facts.liveness, &run.state, progress.left()) {
        let rate = run.rate();
        let end = facts.spent + rate.cost(left);
        lines.push(format!("left     {} at the pace of the newest steps; {end} at the end, {rate}", clock(left)));
    }
    lines.extend(Loading::of(steps()).map(|loading| format!("data     {loading}")));
    if let (Liveness::Logged, RunState::Running { .. }) = (facts.liveness, &run.state) {
        lines.extend(plan::saving_of(facts.world, run, newest).map(|saving| format!("save     {saving}")));
        lines.extend(hang_limits(&run.job, newest).map(|limits| format!("hang     {limits}")));
        lines.extend(devices(facts).iter().map(|device| format!("gpu      {}", device_line(device))));
    }
    lines
}

/// What the GPUs of the run's machine did last.
fn devices<'a>(facts: &'a RunFacts<'_>) -> &'a [DeviceUse] {
    let newest = facts.newest.iter().rev();
    let mut known =
        newest.filter_map(|report| if let Report::Devices { devices } = report { Some(devices) } else { None });
    known.next().map_or(&[], |devices| devices)
}

/// One of them, such as `0: 97 % busy, 61.2 of 79.6 GiB, 643 W, 58 °C`.
fn device_line(device: &DeviceUse) -> String {
    let gibibytes = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    let place = device.mig.map_or_else(|| device.gpu.to_string(), |mig| format!("{} (MIG {mig})", device.gpu));
    let busy = device.busy_percent.map_or_else(String::new, |percent| format!("{percent} % busy, "));
    let watts = device.watts.map_or_else(String::new, |watts| format!(", {watts:.0} W"));
    let celsius = device.celsius.map_or_else(String::new, |celsius| format!(", {celsius} °C"));
    let [used, all] = [device.used_bytes, device.memory_bytes].map(gibibytes);
    format!("{place}: {busy}{used:.1} of {all:.1} GiB{watts}{celsius}")
}

/// The newest measurements of a run, with everything that is shown of it; none where they cannot be read, which was said
/// when they were opened.
fn newest_with_devices(series: Option<&Series>, id: &RunId) -> Vec<Report> {
    let points = series.and_then(|series| series.newest_with_devices(id, NEWEST).ok());
    points.unwrap_or_default().into_iter().map(|(_, point)| point.report).collect()
}

fn validation(report: &Report) -> Option<&Evaluated> {
    match report {
        Report::Evaluated(evaluated) if evaluated.split == EvaluatedSplit::Validation => Some(evaluated),
        _ => None,
    }
}

/// The newest step that is known of: in the measurements, or on a machine that no loop listens to.
pub fn step(home: &Home, world: &World, series: Option<&Series>, id: &RunId, run: &Run) -> Option<u64> {
    series.and_then(|series| newest_step(series, id).ok().flatten()).max(unheard_step(home, world, run))
}

/// Whether a machine works, as it shows itself.
fn machine(instance: &Instance, ended: Option<&Usage>) -> String {
    match &instance.state {
        InstanceState::Released { usage } => format!("released after {:.1} s", usage.elapsed.as_secs_f64()),
        InstanceState::Intended | InstanceState::Launching => "launching".to_owned(),
        InstanceState::Up => match ended {
            Some(usage) => format!("ended after {:.1} s", usage.elapsed.as_secs_f64()),
            None => "up".to_owned(),
        },
        InstanceState::Releasing => "releasing".to_owned(),
    }
}

fn attempt_words(state: &AttemptState, liveness: Liveness) -> String {
    let is_over = matches!(liveness, Liveness::Interrupted { .. });
    match state {
        AttemptState::Intended | AttemptState::Ready { .. } if is_over => "interrupted".to_owned(),
        AttemptState::Intended => "starting".to_owned(),
        AttemptState::Ready { step: Some(step) } => format!("training from step {step}"),
        AttemptState::Ready { step: None } => "running".to_owned(),
        AttemptState::Ended { end: AttemptEnd::Trained { .. }, .. } => "trained".to_owned(),
        AttemptState::Ended { end: AttemptEnd::Succeeded, .. } => "succeeded".to_owned(),
        AttemptState::Ended { end: AttemptEnd::Stopped { .. }, .. } => "stopped".to_owned(),
        AttemptState::Ended { end: AttemptEnd::Failed { finding, .. }, .. } => format!("failed: {}", finding.message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_is_not_released_says_what_it_still_sends() {
        let note = |text: String| Report::Note { text };
        let sent = format!("{STILL_SENDING}: 1.20 GB left");
        let devices = || Report::Devices { devices: Vec::new() };
        assert_eq!(sending(&[note("older".into()), note(sent.clone()), devices()]), Some(sent.clone()));
        assert_eq!(sending(&[note(sent), note("resumed".into()), devices()]), None);
        assert_eq!(sending(&[]), None);
    }
}
