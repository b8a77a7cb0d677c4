//! `gradus serve`: the control loop of this home as a server, with an API.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::channel;
use std::time::Duration;

use cloud::ssh::DirectDoor;
use domain::file::{JobPipeline, PipelineTask};
use domain::joining::{AgentServer, ServerTrust};
use domain::{Bytes, Elapsed, Job, Problem, Rate, RunId, Work};
use plan::RunOrSweep;
use server::api::{self, AgentAccess, Answers, ApiError, Listen, PaidRequest, PlannedJob, SubmitRequest, TlsIdentity};
use server::control::{Control, Left};
use server::{Home, Series, State, routes};
use store::WebClient;

use super::resume;
use super::run::outputs;
use super::run::pipeline::{as_task, require_outputs};
use crate::error::arguments::socket;
use crate::error::{Error, exit};
use crate::follow::attend::on_signals;
use crate::local::job_file::{JobOverrides, load_edited, require_secrets};
use crate::local::spending::{self, SpendingRequest};
use crate::local::{draft, machine, weights};
use crate::printer::Printer;
use crate::settings::GlobalSettings;
use crate::sweep::preview::Preview;

/// Arguments of `gradus serve`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Also serve the API on this address; clients need a token: that in `api.token` of the home
    /// folder, or one made by `gradus token`
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = socket)]
    listen: Option<SocketAddr>,
    /// Certificate of the server (PEM), with those that lead to who signed it; with TLS, the address may be one that other
    /// machines reach
    #[arg(long, value_name = "FILE", requires = "tls_key", requires = "listen")]
    tls_cert: Option<PathBuf>,
    /// Key of the certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Address at which agents of nodes with `--reach tls` find this server, such as `https://192.0.2.7:7070`
    #[arg(long, value_name = "URL", requires = "tls_cert")]
    agents_at: Option<String>,
    /// CA certificates by which those agents recognise the server, or `system` [default: this very certificate]
    #[arg(long, value_name = "FILE", requires = "agents_at")]
    agents_ca: Option<PathBuf>,
    /// Most disk space for what nodes send of all runs and clients upload, such as `200GB`; more is refused, as by a full disk
    #[arg(long, value_name = "SIZE")]
    quota: Option<Bytes>,
    /// Price of this machine for runs on it, such as `0.35/h`
    #[arg(long, value_name = "PRICE", default_value = "0/h", allow_hyphen_values = true)]
    price: Rate,
}

/// How long agents continue without the server: it may be replaced, or its machine restarted, meanwhile.
const LEASE: Elapsed = Elapsed(1_800_000_000);

/// Polling interval while another command hands over the loop.
const HAND_OVER: Duration = Duration::from_millis(20);

/// Runs the control loop for every run of this home, until it is told to end.
///
/// # Errors
/// [`Error::Usage`] for an address that others can reach, [`Error::Code`] if another server is running.
pub fn run(args: Args, settings: &GlobalSettings, printer: &mut Printer) -> Result<u8, Error> {
    let listen = listen(&args)?;
    let home = Home::open(&settings.home)?;
    let listen = with_agents(listen, &args, &home)?;
    let Some(server) = home.try_server()? else {
        let message = format!("another `gradus serve` runs for `{}`", home.root().display());
        let hint = "stop it first, or serve another folder with `--home`".to_owned();
        return Err(Error::Code { message, hint: Some(hint), code: exit::WORLD });
    };
    machine::forget_served(&home);
    // Commands that run the loop hand it over now.
    let lock = loop {
        match home.try_loop()? {
            Some(lock) => break lock,
            None => std::thread::sleep(HAND_OVER),
        }
    };
    let (sender, inbox) = channel();
    on_signals(sender.clone(), Arc::new(AtomicBool::new(false)))?;
    let door = listen.as_ref().and_then(|listen| listen.agents.clone()).map(door_for_agents);
    let providers = machine::providers_with(settings, &home, args.price, door)?;
    machine::note_served(&home, &providers)?;
    let state = State::open_lean(&home)?;
    let door = routes::serve(&home, sender.clone(), args.quota)?;
    let answers = Answers {
        planner: planner(settings.clone(), home.clone(), args.price),
        due_planner: due_planner(settings.clone(), home.clone(), args.price),
        task_planner: task_planner(settings.clone(), home.clone(), args.price),
        admitter: admitter(home.clone()),
        resume_check: resume_check(home.clone()),
        offers: offers(settings),
        user: settings.user.clone(),
    };
    let places = api::serve(&home, listen, sender.clone(), answers, args.quota)?;
    for place in &places {
        match printer.is_json() {
            true => printer.json(&serde_json::json!({ "event": "listening", "address": place })),
            false => printer.say(format!("listening at {place}")),
        }
    }
    crate::command::nodes::cloud::audit::watch(settings, &home);
    crate::command::nodes::machines::timetable::watch(settings, &home);
    let mut control = Control::new(state, Series::open(&home)?, &home, &providers);
    control.keeps_all = true;
    control.policy.lease = LEASE;
    let left = control.run(&sender, &inbox, |_| false)?;
    machine::forget_served(&home);
    drop((door, lock, server));
    let open = control.state.world().open_runs().filter(|(_, run)| !run.state.is_final()).count();
    match left {
        Left::Interrupted if open > 0 => printer.say(format!(
            "stopped; {} without the server for up to 30 minutes: start it again, or attach with `gradus attach RUN`",
            if open == 1 { "1 open run continues".to_owned() } else { format!("{open} open runs continue") }
        )),
        Left::Done | Left::Interrupted => printer.say("stopped; no run was open"),
    }
    Ok(exit::DONE)
}

/// The address to serve. One that other machines can reach requires TLS, or tokens could be intercepted.
fn listen(args: &Args) -> Result<Option<Listen>, Error> {
    let Some(address) = args.listen else { return Ok(None) };
    if let (Some(certificate), Some(key)) = (&args.tls_cert, &args.tls_key) {
        // Where TLS is left out, this is as well.
        WebClient::new()?;
        return Ok(Some(Listen {
            address,
            tls: Some(TlsIdentity::read(certificate, key).map_err(unusable)?),
            agents: None,
        }));
    }
    if address.ip().is_loopback() {
        return Ok(Some(Listen { address, tls: None, agents: None }));
    }
    Err(Error::Usage {
        message: format!("`{address}` can be reached from other machines, and there is no TLS without a certificate"),
        hint: "add `--tls-cert FILE --tls-key FILE`, or listen at 127.0.0.1 and reach it through `ssh -L`".to_owned(),
    })
}

/// The same address, also for agents if they have been told of it.
fn with_agents(listen: Option<Listen>, args: &Args, home: &Home) -> Result<Option<Listen>, Error> {
    let (Some(url), Some(listen)) = (&args.agents_at, listen.clone()) else { return Ok(listen) };
    let Some(tls) = &listen.tls else { return Ok(Some(listen)) };
    let url = url.trim_end_matches('/').to_owned();
    let host = url.strip_prefix("https://").unwrap_or_default();
    if host.is_empty() || host.contains(['/', '@', '?', '#', ' ']) {
        return Err(Error::Usage {
            message: format!(
                "`{url}` is no address for agents: they reach the server over TLS, by its host and port only"
            ),
            hint: "write `--agents-at https://HOST:PORT`, as nodes reach the address of `--listen`".to_owned(),
        });
    }
    let trust = match &args.agents_ca {
        None => ServerTrust::Fingerprint(tls.fingerprint().to_owned()),
        Some(file) if file.as_os_str() == "system" => ServerTrust::System,
        Some(file) => {
            let text = std::fs::read_to_string(file).map_err(Error::file("read", file))?;
            // As an agent would: one that cannot use it ends, where nobody sees why.
            WebClient::of_server(Some(&text), true)?;
            ServerTrust::Authorities(text)
        }
    };
    let agents = AgentAccess::open(home, AgentServer { url, trust })?;
    Ok(Some(Listen { agents: Some(agents), ..listen }))
}

/// Makes join tokens for nodes whose agents reach the server directly.
fn door_for_agents(access: Arc<AgentAccess>) -> DirectDoor {
    DirectDoor::new(move |instance, within| {
        access.offer(instance, within, server::clock::now()).map_err(|error| error.to_string())
    })
}

/// The error for an unusable certificate or key, with a hint.
fn unusable(error: server::Error) -> Error {
    match error {
        server::Error::File { doing, path, source } if source.kind() == std::io::ErrorKind::InvalidData => {
            Error::Usage {
                message: format!("cannot {doing} `{}`: {source}", path.display()),
                hint: "give a certificate and its own key, each in the format PEM".to_owned(),
            }
        }
        server::Error::File { doing, path, source } => Error::File { doing, path, source },
        other => other.into(),
    }
}

/// Plans jobs as `gradus run` does.
fn planner(settings: GlobalSettings, home: Home, price: Rate) -> Arc<api::Planner> {
    Arc::new(move |request| {
        let planned = plan(request, &settings, &home, price)?;
        machine::require_served(&home, &planned.plan.offer.provider).map_err(|error| refusal(409, error))?;
        Ok(planned)
    })
}

/// Plans runs of schedules, with the times that their job file names and what the run before has written.
fn due_planner(settings: GlobalSettings, home: Home, price: Rate) -> Arc<api::DuePlanner> {
    Arc::new(move |request, start| {
        let due = SubmitRequest { job: start.due.placed(&request.job), ..request.clone() };
        let edit = |job: &mut Job| warm_start(job, start.last.as_ref(), &home);
        let planned = plan_edited(&due, &edit, &settings, &home, price).map_err(outside)?;
        machine::require_served(&home, &planned.plan.offer.provider).map_err(|error| refusal(409, error))?;
        Ok(planned)
    })
}

/// The failure of a network, a store or a disk as one of the server, which is tried again.
fn outside(failure: ApiError) -> ApiError {
    let is_outside = failure.exit_code == Some(exit::WORLD) && failure.status < 500;
    if is_outside { ApiError { status: 502, ..failure } } else { failure }
}

/// Plans tasks of pipelines, each with the outputs of those before it.
fn task_planner(settings: GlobalSettings, home: Home, price: Rate) -> Arc<api::TaskPlanner> {
    Arc::new(move |request, start| {
        let failure = |error: Error| refusal(422, error);
        let pipeline = JobPipeline::read(&request.job, &request.file).map_err(Error::Job).map_err(failure)?;
        let task = pipeline.as_ref().and_then(|pipeline| Some((pipeline, pipeline.tasks.get(start.place)?)));
        let Some((pipeline, task)) = task else {
            return Err(ApiError::new(422, format!("`{}` has no task {}", request.file, start.place + 1)));
        };
        let folder = |(task, run): (&PipelineTask, &RunId)| (task.name.clone(), kept_outputs(&home, run));
        let folders: Option<BTreeMap<String, String>> =
            start.earlier.as_ref().map(|runs| pipeline.tasks.iter().zip(runs).map(folder).collect());
        let edit = |job: &mut Job| as_task(job, &task.name, folders.as_ref(), start.budget);
        let asked = SubmitRequest { job: pipeline.text(start.place), ..request.clone() };
        let planned = plan_edited(&asked, &edit, &settings, &home, price)?;
        if planned.known.is_some() {
            let message = format!("task `{}` of the pipeline has `sweep:`, and a task is a single run", task.name);
            return Err(ApiError::new(422, message).hint("put the sweep in a job file of its own"));
        }
        require_outputs(pipeline, start.place, &planned.job).map_err(failure)?;
        machine::require_served(&home, &planned.plan.offer.provider).map_err(|error| refusal(409, error))?;
        Ok(planned)
    })
}

/// The folder of what a run has kept: the outputs of a program, or else the model of our trainer.
fn kept_outputs(home: &Home, run: &RunId) -> String {
    let folder = home.run(run);
    let outputs = folder.join("checkpoints/outputs");
    let kept = if outputs.is_dir() { outputs } else { folder.join("export") };
    kept.to_string_lossy().into_owned()
}

/// Where a program finds the outputs of the run before, below its working folder.
const LAST_OUTPUTS: &str = "last-outputs";

/// Has a job start with what an earlier run has written.
fn warm_start(job: &mut Job, last: Option<&RunId>, home: &Home) -> Result<(), Problem> {
    let Some(last) = last else { return Ok(()) };
    let folder = outputs(home, last, job);
    if !Path::new(&folder).exists() {
        let message = format!("the files of run `{last}`, which this one starts with, are not here any more");
        return Err(Problem::at("schedule.warm_start", message).hint("add the schedule again to start over"));
    }
    let only_new = job.schedule.as_ref().is_some_and(|schedule| schedule.new_data);
    match &mut job.work {
        Work::Train(train) => {
            train.weights = Some(format!("{folder}/model.safetensors"));
            if only_new {
                train.data.trained_on = Some(samples_of(home, last)?);
            }
        }
        Work::Command(command) => {
            command.file_mounts.insert(LAST_OUTPUTS.to_owned(), folder);
        }
    }
    Ok(())
}

/// The newest list of the samples that a run was trained on.
fn samples_of(home: &Home, run: &RunId) -> Result<String, Problem> {
    let folder = home.run(run).join("checkpoints");
    let files = std::fs::read_dir(&folder).into_iter().flatten().filter_map(Result::ok);
    let is_list = |name: &str| name.starts_with("data-") && name.ends_with(".json");
    let lists = files.filter(|file| file.file_name().to_str().is_some_and(is_list));
    let newest = lists.max_by_key(|file| file.metadata().and_then(|about| about.modified()).ok());
    newest.map(|file| file.path().to_string_lossy().into_owned()).ok_or_else(|| {
        let message = format!("run `{run}` has no list of the samples that it was trained on");
        Problem::at("schedule.new_data", message).hint("leave the key out, or add the schedule again to start over")
    })
}

/// Admits what `gradus run` and `gradus resume` would.
fn admitter(home: Home) -> Arc<api::Admitter> {
    Arc::new(move |request| {
        let asked = match request {
            PaidRequest::Submit(job, plan, user) => SpendingRequest::submitted(job, plan, user),
            PaidRequest::Resume(id, run, budget) => SpendingRequest::resumed(id, run, budget).hinting("send `budget`"),
            PaidRequest::ResumeSweep(sweep, budget) => {
                SpendingRequest::resumed_sweep(sweep, budget).hinting("send `budget`")
            }
        };
        // A list that cannot be read is no fault of who asks.
        spending::allowances(&home).map_err(|error| refusal(500, error))?;
        match spending::admit(&asked, &home) {
            Ok(admitted) => Ok(Box::new(admitted)),
            Err(error @ Error::Usage { .. }) => Err(refusal(422, error)),
            Err(error @ Error::Code { .. }) => Err(refusal(409, error)),
            Err(error) => Err(refusal(500, error)),
        }
    })
}

/// Checks what a run or sweep would resume from as `gradus resume` does.
fn resume_check(home: Home) -> Arc<api::ResumeCheck> {
    Arc::new(move |world, work| {
        let checked = match work {
            RunOrSweep::Run(id) => resume::require_resumable(&home, world, id),
            RunOrSweep::Sweep(id) => resume::require_resumable_sweep(&home, world, id),
        };
        checked.map_err(|error| match error {
            Error::Usage { .. } | Error::Code { .. } | Error::Job(_) => refusal(409, error),
            other => refusal(500, other),
        })
    })
}

/// Lists offers as `gradus offers` does.
fn offers(settings: &GlobalSettings) -> Arc<api::OfferLister> {
    let settings = settings.clone();
    Arc::new(move |query| crate::command::offers::list(query, &settings).map_err(|error| refusal(400, error)))
}

/// A failure of the command line as one of the API.
fn refusal(status: u16, error: Error) -> ApiError {
    let failure = ApiError::new(status, error.to_string()).exit_code(error.code());
    match error.hint() {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

fn plan(request: &SubmitRequest, settings: &GlobalSettings, home: &Home, price: Rate) -> Result<PlannedJob, ApiError> {
    plan_edited(request, &|_| Ok(()), settings, home, price)
}

/// Plans a job after `edit` has changed it.
fn plan_edited(
    request: &SubmitRequest,
    edit: &dyn Fn(&mut Job) -> Result<(), Problem>,
    settings: &GlobalSettings,
    home: &Home,
    price: Rate,
) -> Result<PlannedJob, ApiError> {
    let failure = |error: Error| refusal(422, error);
    if !Path::new(&request.folder).is_absolute() {
        let hint = "name a folder of the server's machine, from which relative paths in the job are taken";
        return Err(ApiError::new(422, format!("`folder`: `{}` is not absolute", request.folder)).hint(hint));
    }
    if JobPipeline::read(&request.job, &request.file).map_err(Error::Job).map_err(failure)?.is_some() {
        return Err(no_pipeline(&request.file));
    }
    let pair = |(name, value): (&String, &String)| format!("{name}={value}");
    let typed = JobOverrides {
        price,
        envs: request.envs.iter().map(pair).collect(),
        secrets: request.secrets.iter().map(pair).collect(),
        ..JobOverrides::default()
    };
    let mut printer = Printer::silent();
    let names = (request.file.as_str(), Path::new(&request.folder));
    // The server's own variables are private.
    let read = load_edited(request.job.clone(), names, &typed, &|_| None, edit, &mut printer).map_err(failure)?;
    if let Some(unrentable) = read.unrentable {
        return Err(failure(Error::Job(unrentable)));
    }
    weights::require_files(&read.job, &read.source).map_err(failure)?;
    require_secrets(&read.job).map_err(failure)?;
    let plan = draft::draft_here(&read.job, price, settings, home, &mut printer).map_err(failure)?;
    let known = match &read.job.sweep {
        None => None,
        Some(sweep) => {
            let known = draft::known(settings, home, &read.job, &mut printer).map_err(failure)?;
            Some(Preview::of(&read.job, sweep, &plan, known, &request.file).map_err(failure)?.known)
        }
    };
    Ok(PlannedJob { job: read.job, plan, known, warnings: printer.unsaid() })
}

/// The refusal of a file of several documents where a single job belongs.
fn no_pipeline(file: &str) -> ApiError {
    let message = format!("`{file}` has several documents, and is no single job");
    ApiError::new(422, message).hint("send it to `/v1/pipelines`").exit_code(exit::USAGE)
}
