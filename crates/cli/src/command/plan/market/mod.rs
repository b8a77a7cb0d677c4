//! The plan of a job over the market: collects facts, searches, and prints the result.

mod args;
mod calibration;
mod explain;
mod figures;
mod layout;
mod missing;
mod present;
mod preset;
mod refusal;
mod remedies;
mod why;

use std::path::Path;

use cloud::Catalog;
use domain::listing::{Listing, Price};
use domain::{Job, Problem};
use plan::estimate::{Calibration, FittedCoefficients, StepTime};
use plan::search::{
    CalibrationData, Candidate, Constraints, Estimates, Forecast, HardwareConfig, MarketIndex, ParallelChoice,
    ParallelConfig, Pick, PurchaseOption, ResolvedWorkload, Search, SearchResult, UnknownTariff, choose, forecast,
    layout_words, program_words, resolve, unknown_tariffs,
};
use plan::spot::SpotAvailability;
use rustix::time::{ClockId, clock_gettime};

pub use args::Args;
use calibration::{lessons, measured, table};
use layout::FasterLayout;
pub use present::page::frame;
use present::{chart, page};
use preset::Preset;
use remedies::PlanContext;

use super::model::file as network;
use super::spot_check;
use crate::error::Error;
use crate::error::exit;
use crate::figures::day_of;
use crate::local::job_file::JobSource;
use crate::local::rented::constraints::{described, market, question};
use crate::local::rented::cores::estimate_ahead;
use crate::printer::Printer;
use crate::settings::GlobalSettings;

/// Everything that is printed about a plan.
pub struct MarketPlan<'a> {
    pub job: &'a Job,
    pub subject: &'a ResolvedWorkload,
    pub catalog: &'a Catalog,
    pub question: &'a Constraints,
    pub answer: SearchResult,
    /// The front, the fastest first.
    pub front: Vec<PlanRow<'a>>,
    /// The fastest and the cheapest candidates that would be on the front if they were confirmed.
    pub unconfirmed: Vec<PlanRow<'a>>,
    /// The recommendations, with their rows, the recommended first.
    pub picks: Vec<(Pick, PlanRow<'a>)>,
    /// Steps that were measured before.
    pub lessons: CalibrationData,
    /// Number of hardware configurations estimated.
    pub estimated: usize,
    /// The horizon in hours and the runs in it, if requested.
    pub horizon: Option<(u64, u32)>,
    /// Machines on demand that can be reserved too: the least of cost times time.
    pub reservable: Option<PlanRow<'a>>,
    /// Days since 1970.
    pub today: i64,
    /// Timings, if requested.
    pub timings: Option<Timings>,
}

impl MarketPlan<'_> {
    /// The evaluated numbers of machines of an offer, as text.
    pub fn numbers(&self) -> String {
        let numbers: Vec<String> = self.question.nodes.iter().map(u32::to_string).collect();
        match &numbers[..] {
            [one] if one == "1" => "one machine each".to_owned(),
            [one] => format!("{one} machines each"),
            [first @ .., last] => format!("{} or {last} machines each", first.join(", ")),
            [] => "no machine".to_owned(),
        }
    }
}

/// Processor time in seconds.
#[derive(Debug, Clone, Copy, serde::Serialize)]
pub struct Timings {
    /// From the job in memory to the answer: the market grouped, estimates made, all offers compared.
    pub search: f64,
    /// The time of a repeated search, with cached estimates.
    pub again: f64,
    /// Of this process, from its start to the answer.
    pub process: f64,
    /// Whether both answers are equal.
    pub same: bool,
}

/// A candidate with its estimates.
#[derive(Clone)]
pub struct PlanRow<'a> {
    pub candidate: Candidate,
    pub config: ParallelConfig,
    /// What of `workload:` keeps this configuration, for a job that has one.
    pub layout: Option<String>,
    /// The layout that this one is simpler than, if it is not the fastest.
    pub faster: Option<FasterLayout>,
    /// How a program of the user's own is assumed to run it.
    pub program: Option<String>,
    pub step: StepTime,
    /// Calibration by measured steps.
    pub calibration: Option<Calibration>,
    pub forecast: Forecast,
    pub listing: &'a Listing,
    pub hardware: &'a HardwareConfig,
    pub price: &'a Price,
    /// Bytes per sample, if known.
    pub sample: Option<f64>,
    pub unknown_tariffs: Vec<UnknownTariff>,
}

/// Seed of the courses that spot bands are read from.
const SEED: u64 = 1;

/// Plans, and prints the plan.
///
/// # Errors
/// [`Error::Usage`] for names that are not in the catalog, [`Error::Job`] for an invalid job, [`Error::Infeasible`] if
/// no offer remains.
pub fn run(
    job: Job,
    source: &JobSource,
    args: &Args,
    settings: &GlobalSettings,
    printer: &mut Printer,
) -> Result<u8, Error> {
    let inputs = PlanInputs::gather(job, source, args, settings, printer)?;
    let begun = processor_seconds();
    let market = market(&inputs.catalog);
    let asked = why::asked(&args.why, &args.why_not, &inputs.catalog)?;
    let plan = match inputs.plan(&market, args, begun) {
        Ok(plan) => plan,
        // Questions about offers are answered even if there is no recommendation.
        Err(error) => {
            let reports = why::reports(&inputs.context(&market), &inputs.catalog, None, &asked);
            match printer.is_json() {
                true if !reports.is_empty() => printer.json(&serde_json::json!({ "why": why::json(&reports) })),
                true => {}
                false => why::lines(&reports).into_iter().for_each(|line| printer.data(line)),
            }
            return Err(error);
        }
    };
    let reports = why::reports(&inputs.context(&market), &inputs.catalog, Some(&plan), &asked);
    for (path, text) in [(&args.html, page::html as fn(&MarketPlan) -> String), (&args.svg, chart::svg)] {
        if let Some(path) = path {
            std::fs::write(path, text(&plan)).map_err(Error::file("write", path))?;
        }
    }
    if printer.is_json() {
        let mut value = present::json(&plan);
        value["explain"] = serde_json::json!(explain::lines(&plan));
        if !reports.is_empty() {
            value["why"] = why::json(&reports);
        }
        printer.json(&value);
    } else if args.explain || !reports.is_empty() {
        let explained = if args.explain { explain::lines(&plan) } else { Vec::new() };
        explained.into_iter().chain(why::lines(&reports)).for_each(|line| printer.data(line));
    } else {
        let width = printer.data_width();
        present::lines(&plan, width).into_iter().for_each(|line| printer.data(line));
    }
    Ok(exit::DONE)
}

/// Everything that is read or measured before the search.
struct PlanInputs {
    job: Job,
    subject: ResolvedWorkload,
    catalog: Catalog,
    question: Constraints,
    coefficients: FittedCoefficients,
    lessons: CalibrationData,
}

impl PlanInputs {
    /// Reads the job's model, the catalog and the tables in the arguments, and measures steps if requested.
    fn gather(
        mut job: Job,
        source: &JobSource,
        args: &Args,
        settings: &GlobalSettings,
        printer: &mut Printer,
    ) -> Result<PlanInputs, Error> {
        if args.horizon.is_some_and(|horizon| horizon.micros() == 0) {
            let message = "reservations cannot be compared over no time: `--horizon` is 0".to_owned();
            return Err(Error::Usage { message, hint: "use for example `--horizon '365 days'`".to_owned() });
        }
        if let Some(preset) = args.preset {
            preset.fill(&mut job.wants);
        }
        let steps = args.table().map(table).transpose()?;
        let bytes = match plan::search::workload::model_file(&job) {
            Some(path) => Some(network::bytes(Path::new(path)).map_err(|error| unread(source, path, error))?),
            None => None,
        };
        // The catalog takes longest, so all that does not depend on it is read beside it.
        let (catalog, coefficients, subject) = std::thread::scope(|scope| {
            let coefficients = scope.spawn(|| (FittedCoefficients::embedded(), resolve(&job, bytes.as_deref())));
            let catalog = Catalog::open(&settings.home);
            let (coefficients, subject) = coefficients.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            (catalog, coefficients, subject)
        });
        let mut catalog = catalog?;
        described(&job, &mut catalog).map_err(|error| source.placed(error))?;
        let availability = args.spot_trace.as_deref().map(trace).transpose()?;
        // A GPU or cloud that nobody has is said before what else is missing.
        let mut question = question(&job, &catalog, availability).map_err(|error| source.placed(error))?;
        let subject = subject.map_err(|problem| source.wrong(problem))?;
        if let (ParallelChoice::Requested(request), true) = (&subject.spec.division, job.wants.nodes.is_empty()) {
            question.nodes = request.nodes(&subject.spec.network, &question.nodes);
        }
        let coefficients = coefficients.map_err(|error| Error::Code {
            message: format!("the fitted figures of this program cannot be read: {error}"),
            hint: Some("build it again from a clean tree".to_owned()),
            code: exit::INTERNAL,
        })?;
        let steps = match steps {
            None if args.calibrates() => Some(measured(&job, settings, printer)?),
            stated => stated,
        };
        let lessons = match steps {
            Some(steps) => lessons(&steps, &job, &subject, &catalog, &coefficients, printer)?,
            None => CalibrationData::default(),
        };
        Ok(PlanInputs { job, subject, catalog, question, coefficients, lessons })
    }

    fn context<'a>(&'a self, market: &'a MarketIndex<'a>) -> PlanContext<'a> {
        let PlanInputs { subject, question, coefficients, lessons, .. } = self;
        PlanContext { subject, market, question, coefficients, lessons }
    }

    /// Searches the market. `begun` is the processor time at which the search is counted from.
    ///
    /// # Errors
    /// [`Error::Infeasible`] if no offer remains, with a hint.
    fn plan<'a>(&'a self, market: &'a MarketIndex<'a>, args: &Args, begun: f64) -> Result<MarketPlan<'a>, Error> {
        let PlanInputs { job, subject, catalog, question, coefficients, lessons } = self;
        let estimator = || Estimates::calibrated(&subject.network, coefficients, lessons.clone());
        let mut search = Search::new(&subject.spec, market, estimator());
        estimate_ahead(&mut search, question, estimator);
        let answer = search.answer(question);
        let process = processor_seconds();
        let timings = args.timings.then(|| {
            let asked = processor_seconds();
            let again = search.answer(question);
            Timings {
                search: process - begun,
                again: processor_seconds() - asked,
                process,
                same: again.front == answer.front,
            }
        });
        if answer.front.is_empty() {
            let mut reasons = refusal::reasons(&self.context(market), &answer);
            reasons.extend(args.preset.map(Preset::note));
            return Err(Error::Infeasible { reasons });
        }
        let mut show = |candidate: &Candidate| show(&mut search, question, subject, coefficients, lessons, candidate);
        let picks =
            choose(&answer, question, |candidate| show(candidate).is_none_or(|row| question.is_risky(&row.forecast)));
        let front = answer.front.iter().filter_map(|index| show(&answer.candidates[*index])).collect();
        let ends = [answer.unconfirmed.first(), answer.unconfirmed.last().filter(|_| answer.unconfirmed.len() > 1)];
        let unconfirmed = ends.into_iter().flatten().filter_map(|index| show(&answer.candidates[*index])).collect();
        let reservable = reservable(&answer, market).and_then(show);
        let picks = layout::rows(&mut search, &self.context(market), &answer, picks);
        let horizon = args.horizon.map(|horizon| ((horizon.as_secs_f64() / 3600.0).ceil() as u64, args.runs));
        let lessons = lessons.clone();
        let estimated = search.estimated();
        Ok(MarketPlan {
            job,
            subject,
            catalog,
            question,
            answer,
            front,
            unconfirmed,
            picks,
            lessons,
            estimated,
            horizon,
            reservable,
            today: day_of(jiff::Timestamp::now()),
            timings,
        })
    }
}

/// The candidate on demand that can also be reserved, with the least product of cost and time.
fn reservable<'a>(answer: &'a SearchResult, market: &MarketIndex) -> Option<&'a Candidate> {
    let ranked = answer.candidates.iter().filter(|candidate| answer.is_ranked_first(candidate));
    let candidates = ranked.filter(|candidate| {
        let listing = market.listings[candidate.listing].listing;
        candidate.terms == PurchaseOption::OnDemand && (listing.reserved_1y.is_some() || listing.reserved_3y.is_some())
    });
    let product = |candidate: &Candidate| candidate.point().0 as f64 * candidate.point().1 as f64;
    candidates.min_by(|one, other| product(one).total_cmp(&product(other)))
}

/// Why a model file cannot be read, with a hint if a built-in network was named.
fn unread(source: &JobSource, path: &str, error: Error) -> Error {
    let Error::File { source: why, .. } = &error else { return error };
    let named = Path::new(path).file_name().and_then(|name| name.to_str()).unwrap_or(path);
    let is_ours = serde_json::from_value::<domain::train::Model>(serde_json::Value::from(named)).is_ok();
    let hint = match is_ours {
        true => format!(
            "`{named}` is a network that `train: {{model: {named}, …}}` trains here; a `workload` names a file (`config.json`, ONNX, safetensors), or describes the network: `model: {{config: {{…}}}}` or `model: {{totals: {{…}}}}`, see `docs/job-file.md`"
        ),
        false => "name a `config.json`, an ONNX or a safetensors file, relative to the job file, or describe the network: `model: {config: {…}}`".to_owned(),
    };
    source.wrong(Problem::at("workload.model", format!("cannot read the model `{path}`: {why}")).hint(hint))
}

/// CPU time of this process.
fn processor_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// The spot availability in a trace.
fn trace(path: &std::path::Path) -> Result<SpotAvailability, Error> {
    let trace = spot_check::read(path)?;
    let uptime_intervals = trace.uptime_intervals(trace.usual().max(1), 0.0, trace.end);
    SpotAvailability::of(&uptime_intervals).ok_or_else(|| Error::Usage {
        message: format!("`{}` never has a spot machine", path.display()),
        hint: "name a trace of machines that could be had, or leave `--spot-trace` out".to_owned(),
    })
}

/// All details of a candidate; `None` for one that the search did not create.
pub(super) fn show<'a>(
    search: &mut Search<'a, Estimates>,
    question: &Constraints,
    subject: &ResolvedWorkload,
    coefficients: &FittedCoefficients,
    lessons: &CalibrationData,
    candidate: &Candidate,
) -> Option<PlanRow<'a>> {
    let priced = &search.market.listings[candidate.listing];
    let hardware = &search.market.hardware[priced.hardware];
    let config = search.config_of(candidate)?.clone();
    let device = plan::estimate::Device { nodes: candidate.nodes, ..hardware.device.clone() };
    let mut step = subject.network.step(&config.setup(&subject.spec, &device), coefficients);
    let calibration = lessons.on(&device.gpu.name);
    if let Some(calibration) = &calibration {
        let before = step.seconds.middle;
        step.seconds = calibration.correct(step.seconds);
        // Communication is a share of the step, corrected by the same factor.
        step.communication *= step.seconds.middle / before.max(f64::MIN_POSITIVE);
    }
    let middle = step.seconds.middle.max(f64::MIN_POSITIVE);
    let band = (step.seconds.low / middle, step.seconds.high / middle);
    let forecast = forecast(search, question, candidate, band, SEED);
    let price = candidate.terms.price(priced.listing)?;
    let sample = subject.samples.map(|samples| subject.spec.data.bytes.0 as f64 / samples.max(1) as f64);
    let rented = candidate.disk_services();
    let unknown_tariffs = unknown_tariffs(&subject.spec, priced, &question.leaving(priced), &rented);
    let (candidate, listing) = (*candidate, priced.listing);
    let layout = subject.is_described.then(|| layout_words(&config, &subject.spec.network));
    let faster = FasterLayout::of(search, &candidate, &config);
    let program = subject.is_described.then(|| program_words(&subject.spec, &subject.network.savings, &config));
    Some(PlanRow {
        candidate,
        config,
        layout,
        faster,
        program,
        step,
        calibration,
        forecast,
        listing,
        hardware,
        price,
        sample,
        unknown_tariffs,
    })
}
