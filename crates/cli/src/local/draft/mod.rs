//! The plan of a job on this machine, from facts about its data and earlier steps.

mod nodes;

use std::path::Path;

use domain::{Duration, Job, Offer, Plan, Rate};
use plan::local::{JobFacts, NodeGpus};
use server::Home;

use self::nodes::too_few_nodes;
use super::facts::{ClassCheck, facts, facts_of_classes};
use super::formats;
use super::job_file::{JobArgs, JobSource, LoadedJob, read};
use super::machine;
use super::measure::{self, StepMeasurement};
use super::rented;
use super::weights::require_files;
use crate::error::Error;
use crate::figures::{counted, grouped, hang_limits, short};
use crate::printer::Printer;
use crate::settings::GlobalSettings;

/// Reads the job and drafts the plan that is recommended, on this machine.
///
/// # Errors
/// [`Error::Job`] with everything wrong in the file and everything that cannot be rented yet, and with
/// every reason why it cannot run here.
pub fn draft(
    args: &JobArgs,
    settings: &GlobalSettings,
    home: &Home,
    printer: &mut Printer,
) -> Result<(Job, Plan), Error> {
    let loaded = read(&args.file, &args.typed, &GlobalSettings::variable, printer)?;
    draft_loaded(loaded, machine::price(home, args.typed.price)?, settings, home, printer)
}

/// Drafts the plan of a job that was read.
///
/// # Errors
/// As [`draft`].
pub fn draft_loaded(
    loaded: LoadedJob,
    price: Rate,
    settings: &GlobalSettings,
    home: &Home,
    printer: &mut Printer,
) -> Result<(Job, Plan), Error> {
    let LoadedJob { job, source, unrentable } = loaded;
    if let Some(unrentable) = unrentable {
        return Err(Error::Job(unrentable));
    }
    if job.checkpoint_store.is_some() && !store::HAS_CLIENTS {
        return Err(store::Error::LeftOut.into());
    }
    require_files(&job, &source)?;
    let plan = draft_here(&job, price, settings, (home, &|_| Ok(())), printer);
    Ok((job, plan.map_err(|error| where_data_comes_from(error, &source))?))
}

/// Adds the job file's comment on its data to the error about missing data, and file and line to what else is wrong.
pub fn where_data_comes_from(error: Error, source: &JobSource) -> Error {
    let (Error::Data(missing @ data::Error::Missing { .. }), preface) = (&error, source.preface()) else {
        return source.placed(error);
    };
    let mut hint = missing.hint().unwrap_or_default();
    if !preface.is_empty() {
        hint.push_str(&format!("\n  `{}` says:", source.name));
        preface.iter().take(PREFACE).for_each(|line| hint.push_str(&format!("\n    {line}")));
    }
    Error::Code { message: missing.to_string(), hint: Some(hint), code: error.code() }
}

/// Maximum number of such comment lines that are printed.
const PREFACE: usize = 12;

/// Drafts the plan of a job on this machine, after its classes were checked.
///
/// # Errors
/// [`Error::Unfit`] with every reason why it cannot run here.
pub fn draft_here(
    job: &Job,
    price: Rate,
    settings: &GlobalSettings,
    (home, check): (&Home, ClassCheck<'_>),
    printer: &mut Printer,
) -> Result<Plan, Error> {
    if let Some(name) = rented::asked_for(job) {
        let known = JobFacts { measured_step: None, ..facts_of_classes(settings, home, job, check, printer)? };
        return rented::plan((job, name), &known, settings, home, printer);
    }
    let offers = offers(job, price, settings, home)?;
    let known = facts_of_classes(settings, home, job, check, printer)?;
    // Measurements are from this machine.
    let is_here = job.wants.node.is_none() && job.wants.clouds.is_empty();
    let measured_step = known.measured_step.filter(|_| is_here);
    let gpus = machine::trainer_gpus(job, settings, home)?;
    let mut plan = recommended_on(job, &offers, &JobFacts { measured_step, ..known }, gpus.as_ref())?;
    plan.assumptions.extend(machine::transfer(job, &plan.offer.kind, home)?);
    Ok(plan)
}

/// Drafts the plan of a job on this machine from what is known of it.
///
/// # Errors
/// As [`draft_here`].
pub fn draft_known(
    job: &Job,
    price: Rate,
    known: &JobFacts,
    settings: &GlobalSettings,
    home: &Home,
) -> Result<Plan, Error> {
    recommended(job, &offers(job, price, settings, home)?, known)
}

/// Drafts the plan of a job on this machine from steps that are measured for it.
///
/// # Errors
/// As [`draft_here`]; [`Error::Usage`] and [`Error::Code`] if steps cannot be measured.
pub fn draft_measured(
    job: &Job,
    price: Rate,
    settings: &GlobalSettings,
    home: &Home,
    printer: &mut Printer,
) -> Result<(Plan, StepMeasurement), Error> {
    let train = measure::measurable(job)?;
    let elsewhere = job.wants.node.as_deref().or(job.wants.clouds.first().map(String::as_str));
    if let Some(elsewhere) = elsewhere {
        let message = format!("`--calibrate` runs steps on this machine, and the job asks for `{elsewhere}`");
        return Err(Error::Usage { message, hint: "leave `--calibrate` out".to_owned() });
    }
    let offers = offers(job, price, settings, home)?;
    let known = facts(settings, home, job, printer)?;
    let before = recommended(job, &offers, &known)?;
    let Some(share) = before.share else {
        return Err(Error::Infeasible { reasons: vec!["the plan does not say how the batch is divided".to_owned()] });
    };
    let measured = measure::measure(train, &share, &known, settings)?;
    let [_, middle, _] = measured.seconds;
    let step = Duration::from_micros((1e6 * middle).round() as u64);
    let mut plan = recommended(job, &offers, &JobFacts { measured_step: Some(step), ..known })?;
    plan.assumptions.push(measured.summary(train));
    if let (Some(before), Some(after)) = (before.time, plan.time) {
        let change = 100.0 * (after.middle.as_secs_f64() / before.middle.as_secs_f64().max(1e-9) - 1.0);
        plan.assumptions
            .push(format!("without this measurement the estimate was {} ({change:+.0} %)", short(before.middle)));
    }
    if share.ranks > 1 {
        let apart = format!("measured on one rank; communication among {} ranks is not included", share.ranks);
        plan.assumptions.push(apart);
    }
    plan.assumptions.push("data loading, evaluation and checkpoints are not included in the measurement".to_owned());
    plan.assumptions.push("the measurement holds only for this machine".to_owned());
    Ok((plan, measured))
}

/// Steps with a number of micro-batches per step.
pub struct MicroBatches {
    /// Micro-batches per step.
    pub accumulate: u32,
    /// Samples of one.
    pub samples: u32,
    /// The steps, or why none were made.
    pub measured: Result<StepMeasurement, Error>,
}

/// Measures steps with ever fewer and larger micro-batches, each twice as large as the one before, until one does not
/// fit into memory. The batch stays, and with it the result, but for batch normalisation.
///
/// # Errors
/// [`Error::Usage`] for a job with a program of its own, or elsewhere, and what the data is refused for.
pub fn measure_micro_batches(
    job: &Job,
    smallest: u32,
    price: Rate,
    settings: &GlobalSettings,
    home: &Home,
    printer: &mut Printer,
) -> Result<Vec<MicroBatches>, Error> {
    let train = measure::measurable(job)?;
    let (offers, known) = (offers(job, price, settings, home)?, facts(settings, home, job, printer)?);
    let share = train.batch.div_ceil(train.processes.max(1));
    let mut sizes: Vec<u32> = (0..u32::BITS).map(|power| share.div_ceil(1 << power)).collect();
    sizes.dedup();
    sizes.retain(|size| *size >= smallest.min(share));
    let mut all = Vec::new();
    for samples in sizes.into_iter().rev() {
        let accumulate = share.div_ceil(samples);
        let mut part = job.clone();
        let domain::Work::Train(train) = &mut part.work else { break };
        train.accumulate = accumulate;
        let train = train.clone();
        let planned = recommended(&part, &offers, &known).and_then(|plan| {
            plan.share.ok_or_else(|| Error::Infeasible { reasons: vec!["the batch cannot be divided".to_owned()] })
        });
        let measured = planned.and_then(|share| measure::measure(&train, &share, &known, settings));
        let fits = measured.is_ok();
        all.push(MicroBatches { accumulate, samples, measured });
        if !fits {
            break;
        }
    }
    Ok(all)
}

/// What the job may run on: this machine, or the nodes that it asks for.
fn offers(job: &Job, price: Rate, settings: &GlobalSettings, home: &Home) -> Result<Vec<Offer>, Error> {
    if job.wants.node.is_none()
        && let Some(problem) = formats::lacking(job, formats::has_gpu(Path::new("/dev")))
    {
        return Err(Error::Unfit(vec![problem]));
    }
    let mut offers = Vec::new();
    let is_near = |provider: &&std::sync::Arc<dyn cloud::Provider>| {
        [cloud::local::NAME, cloud::ssh::NAME].contains(&provider.name())
    };
    for provider in machine::providers(settings, home, price)?.iter().filter(is_near) {
        offers.extend(cloud::offers(provider.as_ref())?);
    }
    let Some(node) = &job.wants.node else {
        offers.retain(|offer| offer.provider == cloud::local::NAME);
        return Ok(offers);
    };
    let inventory = machine::inventory(home)?;
    let kind = inventory.kind_of(node);
    offers.retain(|offer| offer.provider == cloud::ssh::NAME && offer.kind == kind);
    if offers.is_empty() {
        return Err(machine::no_node(node, &inventory));
    }
    machine::require_gpus(job, &kind, &inventory, settings)?;
    let refusal = too_few_nodes(job.least_nodes(), node, &inventory);
    refusal.or_else(|| machine::different_gpus(job, node, &inventory)).map_or(Ok(offers), Err)
}

fn recommended(job: &Job, offers: &[Offer], facts: &JobFacts) -> Result<Plan, Error> {
    recommended_on(job, offers, facts, None)
}

fn recommended_on(job: &Job, offers: &[Offer], facts: &JobFacts, gpus: Option<&NodeGpus>) -> Result<Plan, Error> {
    let plans = plan::local::plans_on_gpus(job, offers, facts, gpus);
    let plans = plans.map_err(|infeasible| Error::Unfit(infeasible.reasons))?;
    match plans.into_iter().next() {
        Some(plan) => Ok(plan),
        None => Err(Error::Infeasible { reasons: vec!["no machine is offered".to_owned()] }),
    }
}

/// Known properties of a sweep's data, from which each of its trials is planned.
///
/// # Errors
/// As [`draft_here`].
pub fn known(
    settings: &GlobalSettings,
    home: &Home,
    job: &Job,
    printer: &mut Printer,
) -> Result<domain::sweep::Known, Error> {
    let JobFacts { samples, input_shape, classes, bytes: _, measured_step: _, program: _ } =
        facts(settings, home, job, printer)?;
    Ok(domain::sweep::Known { samples, image: input_shape, classes })
}

/// The peak of a rank, and of all ranks together.
fn memory(peak: domain::Bytes, ranks: u32) -> String {
    let gib = peak.0 as f64 / f64::from(1 << 30);
    match ranks {
        1 => format!("memory   {gib:.2} GiB peak"),
        _ => format!("memory   {gib:.2} GiB peak per rank, up to {:.2} GiB on {ranks} ranks", gib * f64::from(ranks)),
    }
}

/// What the machines of a job cost, in a line.
fn price(job: &Job, plan: &Plan) -> String {
    let (offer, machines, on_demand) = (&plan.offer, job.machines(), job.wants.on_demand);
    let mut line = format!("price    {} ({})", offer.rate, offer.price_source);
    if machines > 1 {
        line.push_str(&format!(" each; {} together", plan.rate_of(machines, on_demand)));
    }
    if let Some(anchor) = plan.anchors.first() {
        line.push_str(&format!(", of which {on_demand} on demand at {}", anchor.rate));
    }
    line
}

/// The plan for people.
pub fn lines(job: &Job, plan: &Plan) -> Vec<String> {
    let offer = &plan.offer;
    let mut lines = vec![
        format!("job      {}", job.name),
        format!(
            "machine  {} ({}): {} cores, {:.0} GiB memory",
            offer.kind,
            offer.node.cpu,
            offer.node.cores,
            offer.node.memory.0 as f64 / f64::from(1 << 30),
        ),
        price(job, plan),
    ];
    if job.machines() > 1 {
        lines[1].insert_str("machine  ".len(), &format!("{} × ", job.machines()));
    }
    lines.extend(rented::alternatives(plan));
    if let Some(share) = plan.share {
        let steps = share.steps.map_or(String::new(), |steps| format!("; {} steps", grouped(steps)));
        lines.push(format!(
            "step     {} samples as {} × {}, {}{steps}",
            share.batch,
            share.accumulate,
            share.micro_batch,
            counted(u64::from(share.threads), "thread")
        ));
    }
    lines.extend(plan.memory.map(|peak| memory(peak, plan.share.map_or(1, |share| share.ranks))));
    match plan.time {
        Some(time) => lines.push(format!(
            "time     {} (P10–P90: {} to {})",
            short(time.middle),
            short(time.low),
            short(time.high)
        )),
        None => lines.push("time     unknown".to_owned()),
    }
    match plan.cost {
        Some(cost) => lines.push(format!("cost     {} (P10–P90: {} to {})", cost.middle, cost.low, cost.high)),
        None => lines.push("cost     unknown".to_owned()),
    }
    if let (domain::Work::Command(command), Some(_)) = (&job.work, &job.workload) {
        let program = command.run.lines().next().unwrap_or_default();
        lines.push(format!("note     `gradus run` starts `{program}` on this machine and ignores `workload`"));
        lines.push(
            "         plan it on cloud GPUs with `gradus plan JOB --catalog`; `infra: aws` rents a machine".to_owned(),
        );
    }
    lines.extend(limits(job));
    for assumption in &plan.assumptions {
        lines.push(format!("assumed  {assumption}"));
    }
    lines
}

/// The limits that the job states.
fn limits(job: &Job) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(budget) = job.budget {
        lines.push(format!("budget   at most {}; saves a checkpoint and stops before exceeding it", budget.max));
    }
    if let Some(deadline) = job.deadline {
        lines.push(format!("deadline {deadline} from submission; saves a checkpoint and stops when it is reached"));
    }
    if !job.hang_after.is_default() {
        lines.extend(hang_limits(job, &[]).map(|limits| format!("hang     {limits}")));
    }
    lines
}
