//! The API of `gradus serve`: HTTP with JSON, on a Unix socket that only this user can open, and on an address for
//! clients with a token, with TLS if other machines can reach it.
//!
//! A handler never writes the log. It requests an event from the loop ([`LoopDoor::request`]), which is durable when
//! the answer arrives, and reads from disk itself ([`StateReader`], and [`reading`], [`files`] and [`logs`] for the
//! rest), so that readers do not block the loop. [`follow`] streams. [`openapi`] describes all of it.

mod access;
mod bodies;
mod door;
mod failure;
mod files;
mod follow;
mod logs;
mod market;
mod metrics;
mod openapi;
mod reading;
mod runs;
mod sweeps;
mod views;

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use axum::middleware;
use axum::routing::{get, post};
use axum::{Extension, Router};
use domain::job::Budget;
use domain::schedule::DueRun;
use domain::sweep::Known;
use domain::{Bytes, Job, Money, Plan, RunId};
use plan::{Run, RunOrSweep, SweepRecord, World};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Semaphore;

use crate::control::Wake;
use crate::error::Error;
use crate::files::BlobStore;
use crate::home::Home;
use crate::secrets::SecretKey;
use crate::state::StateReader;

use access::NamedClient;

pub use access::TlsIdentity;
pub use access::agents::{AgentAccess, JoinRefusal};
pub use access::make_token;
pub use access::tokens::{NamedToken, TokenRefusal, create_token, remove_token, tokens};
pub use door::LoopDoor;
pub use failure::ApiError;
pub use logs::{LogPart, log_part};
pub use market::{OfferLister, OfferQuery};
pub use metrics::VERSION;
pub use runs::pipelines::view as pipeline_view;
pub use runs::schedules::view as schedule_view;
pub use views::{SubmitRequest, SubmittedRun, SubmittedSweep};

/// A job with its plan.
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedJob {
    /// The job.
    pub job: Job,
    /// Its plan; of a sweep, that of its first trial.
    pub plan: Plan,
    /// Known properties of the data; `None` for a job without `sweep:`.
    pub known: Option<Known>,
    /// What whoever asks should know: what the job file says without effect, and what the plan rests on.
    pub warnings: Vec<String>,
}

/// Reads and plans a job: the command line's own way, so that both say the same.
pub type Planner = dyn Fn(&SubmitRequest) -> Result<PlannedJob, ApiError> + Send + Sync;

/// What a run or sweep of a schedule starts with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueStart {
    /// Its due time, and the one before.
    pub due: DueRun,
    /// With `warm_start`, the newest run that has succeeded; `None` where there is none.
    pub last: Option<RunId>,
}

/// Plans the run or sweep of a schedule, as [`Planner`] plans a job.
pub type DuePlanner = dyn Fn(&SubmitRequest, &DueStart) -> Result<PlannedJob, ApiError> + Send + Sync;

/// What a task of a pipeline starts with.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskStart {
    /// Its place, from 0.
    pub place: usize,
    /// The runs of the tasks before it, in their order; `None` if it is only planned.
    pub earlier: Option<Vec<RunId>>,
    /// What is left of the budget of all tasks.
    pub budget: Option<Budget>,
    /// With `warm_start` of its schedule, the run of the same task in the newest pipeline that has succeeded.
    pub last: Option<RunId>,
    /// Whether the whole pipeline is due and is planned before it is submitted: then the failure of a network, a store or a disk
    /// is one of the server, which is tried again.
    pub is_due: bool,
}

/// Plans a task of a pipeline, as [`Planner`] plans a job.
pub type TaskPlanner = dyn Fn(&SubmitRequest, &TaskStart) -> Result<PlannedJob, ApiError> + Send + Sync;

/// Work that may cost money.
#[derive(Debug, Clone, Copy)]
pub enum PaidRequest<'a> {
    /// A job is submitted with a plan, by a user where that is known.
    Submit(&'a Job, &'a Plan, Option<&'a str>),
    /// A run is resumed, perhaps with another budget.
    Resume(&'a RunId, &'a Run, Option<Money>),
    /// A sweep is resumed, perhaps with another budget.
    ResumeSweep(&'a SweepRecord, Option<Money>),
}

/// Refuses what does not fit into the budgets of the home. What this returns is held until the work is on disk, so that two
/// requests do not spend the same money.
pub type Admitter = dyn Fn(PaidRequest<'_>) -> Result<Box<dyn Send>, ApiError> + Send + Sync;

/// Refuses to resume a run or sweep whose files, checkpoints or mounts are not there any more, or that nothing can be rented
/// for.
pub type ResumeCheck = dyn Fn(&World, &RunOrSweep) -> Result<(), ApiError> + Send + Sync;

/// What the command line knows and does, so that API and commands agree.
#[derive(Clone)]
pub struct Answers {
    /// Plans a job.
    pub planner: Arc<Planner>,
    /// Plans a run of a schedule.
    pub due_planner: Arc<DuePlanner>,
    /// Plans a task of a pipeline.
    pub task_planner: Arc<TaskPlanner>,
    /// Admits work that may cost money.
    pub admitter: Arc<Admitter>,
    /// Checks what a run or sweep would resume from.
    pub resume_check: Arc<ResumeCheck>,
    /// Lists offers.
    pub offers: Arc<OfferLister>,
    /// Who runs the server: whoever asks at its socket or with the owner's token, neither of which has a name.
    pub user: Option<String>,
}

/// What handlers work with.
#[derive(Clone)]
pub(crate) struct Api {
    door: LoopDoor,
    home: Arc<Home>,
    key: Arc<SecretKey>,
    answers: Answers,
    reader: Arc<StateReader>,
    streams: Arc<Semaphore>,
    blobs: Arc<BlobStore>,
}

impl Api {
    /// Who asks: the name of the token, or else whoever runs the server.
    fn user(&self, client: Option<Extension<NamedClient>>) -> Option<String> {
        client.map(|Extension(NamedClient(name))| name).or_else(|| self.answers.user.clone())
    }
}

/// An address at which the API is served besides the socket.
#[derive(Debug, Clone)]
pub struct Listen {
    /// An address of this machine, for clients with a token.
    pub address: SocketAddr,
    /// The server's TLS identity; `None` for an address that no other machine can reach.
    pub tls: Option<TlsIdentity>,
    /// The agents that reach the loop there, with TLS only.
    pub agents: Option<Arc<AgentAccess>>,
}

/// Serves the API on a separate thread; returns the addresses at which it listens. Only the process that runs the loop
/// may call this, because it takes over the socket. What clients upload takes with all files of runs no more disk space than
/// `quota`.
///
/// # Errors
/// [`Error::File`] if a socket cannot be created.
pub fn serve(
    home: &Home,
    listen: Option<Listen>,
    inbox: Sender<Wake>,
    answers: Answers,
    quota: Option<Bytes>,
) -> Result<Vec<String>, Error> {
    let socket = home.api_socket();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(Error::file("start the API at", &socket))?;
    let guard = runtime.enter();
    let _ = std::fs::remove_file(&socket);
    let unix = UnixListener::bind(&socket).map_err(Error::file("listen at", &socket))?;
    let private = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(&socket, private).map_err(Error::file("protect", &socket))?;
    let key = Arc::new(SecretKey::open(home.root())?);
    let reader = Arc::new(StateReader::open(home)?);
    let door = LoopDoor::new(inbox.clone(), home.space().clone());
    let blobs = Arc::new(BlobStore::new(&home.runs(), quota, (home.space().clone(), home.transfers().clone())));
    let api = Api { door, home: Arc::new(home.clone()), key, answers, reader, streams: follow::room(), blobs };
    let mut places = vec![format!("unix:{}", socket.display())];
    if let Some(listen) = listen {
        make_token(home)?;
        let state = api.home.clone();
        let guarded = router(api.clone()).layer(middleware::from_fn_with_state(state, access::require));
        let agents = listen.agents.clone().filter(|_| listen.tls.is_some());
        let guarded = match agents {
            None => guarded,
            Some(access) => {
                let ways = (api.door.clone(), inbox);
                guarded.merge(access::agents::gate::router(access, api.home.clone(), ways, quota))
            }
        };
        places.push(serve_tcp(&listen, guarded)?);
    }
    runtime.spawn(runs::schedules::keeper::keep(api.clone()));
    runtime.spawn(runs::pipelines::keeper::keep(api.clone()));
    runtime.spawn(async move { axum::serve(unix, router(api)).await });
    drop(guard);
    // It ends with the process.
    let thread = std::thread::Builder::new().name("api".into());
    let kept = thread.spawn(move || runtime.block_on(std::future::pending::<()>()));
    kept.map_err(Error::file("start the API at", &socket))?;
    Ok(places)
}

/// Serves an address in the current runtime; returns its URL.
fn serve_tcp(listen: &Listen, router: Router) -> Result<String, Error> {
    let failed = || Error::file("listen at", listen.address.to_string());
    let tcp = std::net::TcpListener::bind(listen.address).map_err(failed())?;
    tcp.set_nonblocking(true).map_err(failed())?;
    let tcp = TcpListener::from_std(tcp).map_err(failed())?;
    let address = tcp.local_addr().map_err(failed())?;
    match &listen.tls {
        None => {
            tokio::spawn(async move { axum::serve(tcp, router).await });
            Ok(format!("http://{address}"))
        }
        Some(identity) => {
            let tls = access::TlsListener::new(tcp, identity).map_err(failed())?;
            let service = router.into_make_service_with_connect_info::<access::Visitor>();
            tokio::spawn(async move { axum::serve(tls, service).await });
            Ok(format!("https://{address}"))
        }
    }
}

fn router(api: Api) -> Router {
    use runs::{pipelines, schedules};
    Router::new()
        .route("/v1/health", get(metrics::health))
        .route("/v1/ready", get(metrics::ready))
        .route("/v1/metrics", get(metrics::metrics))
        .route("/v1/openapi.json", get(openapi::document))
        .route("/v1/events", get(reading::all_events))
        .route("/v1/offers", get(market::offers))
        .route("/v1/nodes", get(market::nodes))
        .route("/v1/blobs", get(files::blobs::list))
        .route("/v1/blobs/{blob}", get(files::blobs::show).put(files::blobs::put).delete(files::blobs::delete))
        .route("/v1/plans", post(runs::plan))
        .route("/v1/runs", get(runs::list).post(runs::submit))
        .route("/v1/runs/{run}", get(runs::show))
        .route("/v1/runs/{run}/checkpoints", get(files::checkpoints))
        .route("/v1/runs/{run}/cost", get(runs::cost))
        .route("/v1/runs/{run}/stop", post(runs::stop))
        .route("/v1/runs/{run}/resume", post(runs::resume::resume))
        .route("/v1/runs/{run}/events", get(reading::events))
        .route("/v1/runs/{run}/series", get(reading::series))
        .route("/v1/runs/{run}/files", get(files::files))
        .route("/v1/runs/{run}/logs", get(logs::logs))
        .route("/v1/schedules", get(schedules::list).post(schedules::add))
        .route("/v1/schedules/{schedule}", get(schedules::show))
        .route("/v1/schedules/{schedule}/pause", post(schedules::pause))
        .route("/v1/schedules/{schedule}/resume", post(schedules::resume))
        .route("/v1/schedules/{schedule}/remove", post(schedules::remove))
        .route("/v1/pipelines", get(pipelines::list).post(pipelines::submit))
        .route("/v1/pipelines/{pipeline}", get(pipelines::show))
        .route("/v1/pipelines/{pipeline}/stop", post(pipelines::stop))
        .route("/v1/pipelines/{pipeline}/resume", post(pipelines::resume))
        .route("/v1/sweeps", get(sweeps::list).post(sweeps::submit::submit))
        .route("/v1/sweeps/{sweep}", get(sweeps::show))
        .route("/v1/sweeps/{sweep}/stop", post(sweeps::stop))
        .route("/v1/sweeps/{sweep}/resume", post(sweeps::resume::resume))
        .route("/v1/sweeps/{sweep}/events", get(sweeps::events))
        .route("/v1/sweeps/{sweep}/report", get(sweeps::report))
        .fallback(failure::unknown)
        .method_not_allowed_fallback(failure::not_allowed)
        .layer(middleware::from_fn(bodies::read))
        .layer(middleware::map_response(failure::in_json))
        .with_state(api)
}
