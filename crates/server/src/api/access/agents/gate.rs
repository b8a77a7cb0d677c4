//! The routes of agents over TLS: joining, and what an agent may do at the loop's own socket, for its own instance alone.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use axum::body::to_bytes;
use axum::extract::{DefaultBodyLimit, RawPathParams, Request, State};
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Extension, Json, Router};
use domain::InstanceId;
use domain::joining::{JOIN_SCHEMA, JoinRequest};
use domain::wire::{Heartbeat, HeartbeatReply};
use tokio::sync::Mutex;

use ::control::OperationNote;

use super::{AgentAccess, JoinRefusal, rules};
use crate::api::access::{bearer, visitor};
use crate::api::door::LoopDoor;
use crate::clock;
use crate::home::Home;
use crate::routes::{self, Inbox};
use crate::series::Series;

/// A request to join is short, and arrives within this time.
const JOIN_MAX: usize = 4 << 10;
const JOIN_WITHIN: Duration = Duration::from_secs(10);

/// Characters of a secret, at least: agents draw 64 hexadecimal digits.
const SECRET_MIN: usize = 32;

/// What the routes work with.
#[derive(Clone)]
struct Gate {
    access: Arc<AgentAccess>,
    door: LoopDoor,
    home: Arc<Home>,
    /// Refusals that were noted already: nobody fills the log of operations by asking again. One is looked up at a time:
    /// whoever has no token cannot keep the loop busy with questions.
    told: Arc<Mutex<BTreeSet<(InstanceId, String)>>>,
}

/// Who calls, once its secret was found to be right.
#[derive(Clone)]
struct Caller(InstanceId);

type Refused = (StatusCode, String);

/// The routes, below `/v1/agent`.
pub(in crate::api) fn router(
    access: Arc<AgentAccess>,
    home: Arc<Home>,
    (door, inbox): (LoopDoor, Inbox),
    quota: Option<domain::Bytes>,
) -> Router {
    let files = crate::files::router(&home, quota);
    let gate = Gate { access, door, home, told: Arc::default() };
    let calls = Router::new().route("/tick", post(tick)).with_state(inbox);
    let guarded = calls
        .merge(files)
        .layer(DefaultBodyLimit::max(routes::BODY_MAX))
        .layer(middleware::from_fn_with_state(gate.clone(), admit));
    let all = Router::new().route("/join", post(join)).with_state(gate).merge(guarded);
    Router::new().nest("/v1/agent", all)
}

/// Lets a request pass whose secret is that of an agent, for the run that has its machine.
async fn admit(State(gate): State<Gate>, params: RawPathParams, mut request: Request, next: Next) -> Response {
    let caller = bearer(request.headers()).and_then(|text| gate.access.instance_of(text));
    let Some(instance) = caller else {
        return (StatusCode::UNAUTHORIZED, "unknown_secret: no agent that has joined has this secret").into_response();
    };
    visitor::trust(&request);
    let run = params.iter().find(|(name, _)| *name == "run").map(|(_, value)| value.to_owned());
    if let Some(run) = run {
        let (agent, of) = (instance.clone(), run.clone());
        match gate.door.look(move |world| rules::may_use(world, &agent, &of)).await {
            Ok(true) => {}
            Ok(false) => {
                let why = format!("other_run: `{instance}` does not work for `{run}`");
                return (StatusCode::FORBIDDEN, why).into_response();
            }
            Err(failure) => return failure.into_response(),
        }
    }
    request.extensions_mut().insert(Caller(instance));
    next.run(request).await
}

/// A heartbeat, which an agent makes for its own instance only.
async fn tick(
    State(inbox): State<Inbox>,
    Extension(Caller(instance)): Extension<Caller>,
    Json(heartbeat): Json<Heartbeat>,
) -> Result<Json<HeartbeatReply>, Refused> {
    if heartbeat.instance != instance {
        let why = format!("other_instance: `{instance}` cannot call as `{}`", heartbeat.instance);
        return Err((StatusCode::FORBIDDEN, why));
    }
    let answer = routes::heartbeat(State(inbox), Json(heartbeat)).await;
    answer.map_err(|status| (status, "the control loop does not answer now".to_owned()))
}

async fn join(State(gate): State<Gate>, request: Request) -> Result<(), Refused> {
    let body = tokio::time::timeout(JOIN_WITHIN, to_bytes(request.into_body(), JOIN_MAX)).await;
    let body = body.map_err(|_| (StatusCode::REQUEST_TIMEOUT, "the request does not arrive".to_owned()))?;
    let body = body.map_err(|_| (StatusCode::PAYLOAD_TOO_LARGE, "this is no request to join".to_owned()))?;
    // What is wrong with it is not repeated: it holds secrets.
    let request: JoinRequest = serde_json::from_slice(&body)
        .map_err(|_| (StatusCode::UNPROCESSABLE_ENTITY, "this is no request to join".to_owned()))?;
    if request.schema > JOIN_SCHEMA {
        let why = format!("the request is of version {}, and this server reads up to {JOIN_SCHEMA}", request.schema);
        return Err((StatusCode::UNPROCESSABLE_ENTITY, why));
    }
    if request.secret.0.len() < SECRET_MIN {
        let why = format!("the secret is shorter than {SECRET_MIN} characters");
        return Err((StatusCode::UNPROCESSABLE_ENTITY, why));
    }
    let (access, instance) = (gate.access.clone(), request.instance.clone());
    let joined = tokio::task::spawn_blocking(move || access.join(&request, clock::now())).await;
    let failed = |why: String| (StatusCode::INTERNAL_SERVER_ERROR, why);
    match joined.map_err(|error| failed(error.to_string()))?.map_err(|error| failed(error.to_string()))? {
        Ok(()) => {
            gate.forget_ended().await;
            Ok(())
        }
        Err(refusal) => {
            gate.note(&instance, &refusal).await;
            Err((StatusCode::FORBIDDEN, refusal.to_string()))
        }
    }
}

impl Gate {
    /// Writes into the log of operations that an agent was refused, with the run of its instance; not for who names none.
    async fn note(&self, instance: &InstanceId, refusal: &JoinRefusal) {
        // An agent asks again: what is left out now is noted then.
        let Ok(mut told) = self.told.try_lock() else { return };
        let key = (instance.clone(), refusal.to_string());
        if told.contains(&key) {
            return;
        }
        let agent = instance.clone();
        let look = self.door.look(move |world| world.instances.get(&agent).map(|one| one.run.to_string()));
        let Ok(Some(run)) = look.await else { return };
        told.insert(key);
        let (home, text) = (self.home.clone(), format!("an agent was not let in as `{instance}`: {refusal}"));
        let note = OperationNote { subject: run, text, is_mistake: false };
        // A failure of the operations log is no reason to stop operating.
        let _ = tokio::task::spawn_blocking(move || Series::open(&home)?.note(clock::now(), &note)).await;
    }

    /// Forgets agents that joined long ago and have no work any more, so that their number stays that of machines at work.
    async fn forget_ended(&self) {
        let old = self.access.joined_long_ago(clock::now());
        if old.is_empty() {
            return;
        }
        let look = self.door.look(move |world| {
            let gone = old.into_iter().filter(|agent| !rules::is_at_work(world, agent));
            gone.collect::<Vec<InstanceId>>()
        });
        let Ok(gone) = look.await else { return };
        let access = self.access.clone();
        // Tried again with the next agent that joins.
        let _ = tokio::task::spawn_blocking(move || access.forget(&gone)).await;
    }
}
