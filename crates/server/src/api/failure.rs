//! Errors of the API: a status, a message, and a hint.

use axum::Json;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use domain::problem::{Problems, hints};
use serde_json::json;

use crate::home::Shortage;

/// Why a request was not carried out; the body is `{"error": {"message", "hint"}}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiError {
    /// The HTTP status.
    pub status: u16,
    /// The error message.
    pub message: String,
    /// How to fix it, if known.
    pub hint: Option<String>,
    /// The exit code that a command has here for the same refusal, where it is one of a command.
    pub exit_code: Option<u8>,
}

impl ApiError {
    /// A failure of this status.
    pub fn new(status: u16, message: impl Into<String>) -> ApiError {
        ApiError { status, message: message.into(), hint: None, exit_code: None }
    }

    /// What is wrong with a text that was sent, with the hints apart.
    pub(super) fn of_problems(status: u16, problems: &Problems) -> ApiError {
        let message = problems.without_hints().to_string();
        ApiError { hint: hints(&problems.problems), ..ApiError::new(status, message) }
    }

    /// Adds a hint.
    pub fn hint(self, hint: impl Into<String>) -> ApiError {
        ApiError { hint: Some(hint.into()), ..self }
    }

    /// Adds the exit code of a command.
    pub fn exit_code(self, code: u8) -> ApiError {
        ApiError { exit_code: Some(code), ..self }
    }

    pub(super) fn no_run(run: &str) -> ApiError {
        ApiError::new(404, format!("no run is called `{run}`")).hint("list runs with `GET /v1/runs`")
    }

    pub(super) fn no_sweep(sweep: &str) -> ApiError {
        ApiError::new(404, format!("no sweep is called `{sweep}`")).hint("list sweeps with `GET /v1/sweeps`")
    }

    pub(super) fn no_pipeline(pipeline: &str) -> ApiError {
        let hint = "list pipelines with `GET /v1/pipelines`";
        ApiError::new(404, format!("no pipeline is called `{pipeline}`")).hint(hint)
    }

    pub(super) fn no_schedule(schedule: &str) -> ApiError {
        let hint = "list schedules with `GET /v1/schedules`";
        ApiError::new(404, format!("no schedule is called `{schedule}`")).hint(hint)
    }

    /// The loop is starting, ending, or was overtaken by another process.
    pub(super) fn away() -> ApiError {
        ApiError::new(503, "the control loop does not answer now").hint("send the request again")
    }

    /// There is no disk space for something, by which the server waits.
    pub(super) fn full(status: u16, shortages: &[Shortage]) -> ApiError {
        let lines: Vec<String> = shortages.iter().map(ToString::to_string).collect();
        ApiError::new(status, lines.join("; ")).hint(
            "free disk space on the server's machine (`gradus gc` shows what can be deleted there); nothing needs to be \
             started again",
        )
    }

    pub(super) fn inside(error: impl std::fmt::Display) -> ApiError {
        ApiError::new(500, error.to_string())
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut error = json!({ "message": self.message, "hint": self.hint });
        if let Some(code) = self.exit_code {
            error["exit_code"] = json!(code);
        }
        (status, Json(json!({ "error": error }))).into_response()
    }
}

/// Words of a refusal that a library wrote, at most.
const WORDS_MAX: usize = 64 << 10;

/// Writes a refusal of the library that reads requests, such as a path that is no text, like every other.
pub(super) async fn in_json(response: Response) -> Response {
    let status = response.status();
    let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if status.as_u16() < 400 || !kind.starts_with("text/plain") {
        return response;
    }
    let words = axum::body::to_bytes(response.into_body(), WORDS_MAX).await.unwrap_or_default();
    let message = String::from_utf8_lossy(&words).into_owned();
    ApiError::new(status.as_u16(), message).hint("see `/v1/openapi.json` for what is expected").into_response()
}

/// No route has this path.
pub(super) async fn unknown(uri: axum::http::Uri) -> ApiError {
    ApiError::new(404, format!("there is nothing at `{}`", uri.path())).hint("see `/v1/openapi.json`")
}

/// The path is right and the method is not.
pub(super) async fn not_allowed(method: axum::http::Method, uri: axum::http::Uri) -> ApiError {
    ApiError::new(405, format!("`{method}` is not possible at `{}`", uri.path())).hint("see `/v1/openapi.json`")
}
