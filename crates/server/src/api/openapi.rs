//! The description of the API: OpenAPI 3.1, with the schemas of the types that handlers read and write.

use axum::Json;
use domain::run::RunState;
use serde_json::{Map, Value, json};

use super::views::{ResumeRequest, RunSummary, SubmitRequest, SweepResumeRequest, SweepSummary};

/// One operation: method, path, description, query, the type of its body, and the statuses of its answers.
struct Operation {
    method: &'static str,
    path: &'static str,
    summary: &'static str,
    query: &'static [(&'static str, &'static str)],
    body: Option<&'static str>,
    statuses: &'static [u16],
}

const fn get(path: &'static str, summary: &'static str, query: &'static [(&'static str, &'static str)]) -> Operation {
    const FOUND: &[u16] = &[200, 404, 503];
    const ASKED: &[u16] = &[200, 400, 404, 503];
    let statuses = if query.is_empty() { FOUND } else { ASKED };
    Operation { method: "get", path, summary, query, body: None, statuses }
}

/// A change of something that exists, without a body.
const fn change(path: &'static str, summary: &'static str) -> Operation {
    Operation { method: "post", path, summary, query: &[], body: None, statuses: &[202, 404, 409, 503, 507] }
}

/// Requests Server-Sent Events instead of JSON; they end with a message `end` when the run has ended and is billed.
const FOLLOW: (&str, &str) = ("follow", "boolean");

/// The type of a parameter that is the word of a run's state.
const RUN_STATE: &str = "run state";

const OPERATIONS: &[Operation] = &[
    get("/v1/health", "Whether the process answers", &[]),
    get("/v1/ready", "Whether the control loop answers, and nothing is refused for want of disk space", &[]),
    get("/v1/metrics", "Figures in the text format of Prometheus", &[]),
    get("/v1/openapi.json", "This document", &[]),
    get(
        "/v1/offers",
        "List what clouds offer, the cheapest first",
        &[("gpu", "string"), ("cloud", "string"), ("region", "string"), ("spot", "boolean"), ("limit", "integer")],
    ),
    get("/v1/nodes", "List the nodes of the home, with what runs there", &[]),
    get("/v1/blobs", "List uploaded files", &[]),
    get("/v1/blobs/{blob}", "What has arrived of an uploaded file, by the SHA-256 of its contents", &[]),
    Operation {
        method: "put",
        path: "/v1/blobs/{blob}",
        summary: "Upload a part of a file of this SHA-256, at the offset that the last answer has as `bytes`; once it is whole, \
                  the answer has the path by which a job names it",
        query: &[("offset", "integer"), ("total", "integer"), ("name", "string")],
        body: None,
        statuses: &[200, 201, 400, 404, 408, 413, 422, 507],
    },
    Operation {
        method: "delete",
        path: "/v1/blobs/{blob}",
        summary: "Delete an uploaded file that no schedule and no unfinished run, sweep or pipeline names",
        query: &[],
        body: None,
        statuses: &[200, 400, 404, 409, 503],
    },
    Operation {
        method: "post",
        path: "/v1/plans",
        summary: "Plan a job without submitting it",
        query: &[],
        body: Some("SubmitRequest"),
        statuses: &[200, 400, 408, 413, 415, 422],
    },
    get("/v1/events", "The events of all runs and sweeps after one of them", &[("after", "integer")]),
    get(
        "/v1/runs",
        "List runs, the newest first: those in a state, whose names begin with `name`, or before a run; with `trials=false` \
         those that are no trial of a sweep",
        &[
            ("state", RUN_STATE),
            ("limit", "integer"),
            ("before", "string"),
            ("name", "string"),
            ("details", "boolean"),
            ("trials", "boolean"),
        ],
    ),
    Operation {
        method: "post",
        path: "/v1/runs",
        summary: "Submit a job; with the header `Idempotency-Key`, the same request sent again finds the same run",
        query: &[],
        body: Some("SubmitRequest"),
        statuses: &[200, 201, 400, 408, 409, 413, 415, 422, 503, 507],
    },
    get(
        "/v1/runs/{run}",
        "Show a run with its attempts and machines, and so many of its newest measurements",
        &[("newest", "integer")],
    ),
    get("/v1/runs/{run}/checkpoints", "List the checkpoints of a run that lie on the server's machine", &[]),
    get("/v1/runs/{run}/cost", "The bill of a run, or what it has cost so far", &[]),
    Operation {
        method: "post",
        path: "/v1/runs/{run}/stop",
        summary: "Save a checkpoint of a run, then stop it",
        query: &[],
        body: None,
        statuses: &[202, 404, 409, 503, 507],
    },
    Operation {
        method: "post",
        path: "/v1/runs/{run}/resume",
        summary: "Resume a run from its newest checkpoint",
        query: &[],
        body: Some("ResumeRequest"),
        statuses: &[202, 400, 404, 408, 409, 413, 415, 422, 503, 507],
    },
    get(
        "/v1/runs/{run}/events",
        "The events of a run after one of them; with `follow`, as they come, each as a message `record`",
        &[("after", "integer"), FOLLOW],
    ),
    get(
        "/v1/runs/{run}/series",
        "The measurements of a run after one of them; with `follow`, as they come, each as a message `point`",
        &[("after", "integer"), FOLLOW],
    ),
    get(
        "/v1/runs/{run}/files",
        "List the files of a run that lie on the server's machine, up to a limit after one of them, or send one of them from an \
         offset on",
        &[("file", "string"), ("offset", "integer"), ("after", "string"), ("limit", "integer")],
    ),
    get(
        "/v1/runs/{run}/logs",
        "The logs of a run, or a part of one; with `follow`, all or one as they grow, in messages `log`",
        &[("file", "string"), ("offset", "integer"), FOLLOW],
    ),
    get("/v1/pipelines", "List the pipelines that the server runs", &[]),
    Operation {
        method: "post",
        path: "/v1/pipelines",
        summary: "Submit a file of several documents, whose tasks run one after the other; with the header `Idempotency-Key`, \
                  the same request sent again finds the same pipeline",
        query: &[],
        body: Some("SubmitRequest"),
        statuses: &[200, 201, 400, 408, 409, 413, 415, 422, 503, 507],
    },
    get("/v1/pipelines/{pipeline}", "Show a pipeline with the runs of its tasks", &[]),
    change("/v1/pipelines/{pipeline}/stop", "Save a checkpoint of the task that runs, then stop the pipeline"),
    Operation {
        method: "post",
        path: "/v1/pipelines/{pipeline}/resume",
        summary: "Resume a pipeline: the run of its newest task from its newest checkpoint, where that has not succeeded, then \
                  the tasks after it",
        query: &[],
        body: Some("ResumeRequest"),
        statuses: &[202, 400, 404, 408, 409, 413, 415, 422, 503, 507],
    },
    get("/v1/schedules", "List schedules, with what each submits and when it is due next", &[]),
    Operation {
        method: "post",
        path: "/v1/schedules",
        summary: "Submit a job with `schedule:` at its due times, as a run, a sweep or a pipeline; with the header \
                  `Idempotency-Key`, the same request sent again finds the same schedule",
        query: &[],
        body: Some("SubmitRequest"),
        statuses: &[200, 201, 400, 408, 409, 413, 415, 422, 503, 507],
    },
    get("/v1/schedules/{schedule}", "Show a schedule with its newest runs, sweeps or pipelines and their states", &[]),
    change("/v1/schedules/{schedule}/pause", "Submit nothing of a schedule until it is resumed"),
    change("/v1/schedules/{schedule}/resume", "Submit what is due of a schedule again, at due times from now on"),
    change("/v1/schedules/{schedule}/remove", "Remove a schedule; what it has submitted stays"),
    get(
        "/v1/sweeps",
        "List sweeps, the newest first: those whose names begin with `name`, or before a sweep",
        &[("limit", "integer"), ("before", "string"), ("name", "string")],
    ),
    Operation {
        method: "post",
        path: "/v1/sweeps",
        summary: "Submit a job with `sweep:`; with the header `Idempotency-Key`, the same request sent again finds the same \
                  sweep",
        query: &[],
        body: Some("SubmitRequest"),
        statuses: &[200, 201, 400, 408, 409, 413, 415, 422, 503, 507],
    },
    get(
        "/v1/sweeps/{sweep}",
        "Show a sweep with `limit` of its trials, by number, after one of them; with the first ones also its \
         cost and best trial",
        &[("after", "integer"), ("limit", "integer")],
    ),
    Operation {
        method: "post",
        path: "/v1/sweeps/{sweep}/stop",
        summary: "Save a checkpoint of each running trial of a sweep, then stop it",
        query: &[],
        body: None,
        statuses: &[202, 404, 409, 503, 507],
    },
    Operation {
        method: "post",
        path: "/v1/sweeps/{sweep}/resume",
        summary: "Resume a sweep with the trials that it would have had",
        query: &[],
        body: Some("SweepResumeRequest"),
        statuses: &[202, 400, 404, 408, 409, 413, 415, 422, 503, 507],
    },
    get(
        "/v1/sweeps/{sweep}/events",
        "The events of a sweep and its trials after one of them; with `follow`, as they come, each as a message `record`",
        &[("after", "integer"), FOLLOW],
    ),
    get("/v1/sweeps/{sweep}/report", "The report of a sweep, as a page of HTML", &[]),
];

/// Serves the description.
pub(super) async fn document() -> Json<Value> {
    Json(description())
}

fn description() -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for operation in OPERATIONS {
        let entry = paths.entry(operation.path).or_insert_with(|| json!({}));
        entry[operation.method] = described(operation);
    }
    let schema = |schema: schemars::Schema| Value::from(schema);
    json!({
        "openapi": "3.1.0",
        "info": { "title": "gradus", "version": env!("CARGO_PKG_VERSION") },
        "paths": paths,
        "components": {
            "schemas": {
                "SubmitRequest": schema(schemars::schema_for!(SubmitRequest)),
                "ResumeRequest": schema(schemars::schema_for!(ResumeRequest)),
                "RunSummary": schema(schemars::schema_for!(RunSummary)),
                "SweepResumeRequest": schema(schemars::schema_for!(SweepResumeRequest)),
                "SweepSummary": schema(schemars::schema_for!(SweepSummary)),
                "ApiError": {
                    "type": "object",
                    "required": ["error"],
                    "properties": { "error": {
                        "type": "object",
                        "required": ["message", "hint"],
                        "properties": {
                            "message": { "type": "string" },
                            "hint": { "type": ["string", "null"] },
                            "exit_code": { "type": "integer" },
                        },
                    } },
                },
            },
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
        },
        "security": [{ "token": [] }],
    })
}

fn described(operation: &Operation) -> Value {
    let mut parameters: Vec<Value> = operation
        .query
        .iter()
        .map(|(name, kind)| {
            let schema = match *kind {
                "integer" => json!({ "type": kind, "minimum": 0, "maximum": u64::MAX }),
                RUN_STATE => json!({ "type": "string", "enum": RunState::WORDS }),
                _ => json!({ "type": kind }),
            };
            json!({ "name": name, "in": "query", "required": false, "schema": schema })
        })
        .collect();
    if let Some(noun) = subject(operation) {
        parameters.push(json!({ "name": noun, "in": "path", "required": true, "schema": { "type": "string" } }));
    }
    if operation.query.contains(&FOLLOW) {
        let description = "With `follow`: the `id` of the last message that arrived; the stream goes on after it.";
        parameters.push(json!({
            "name": "Last-Event-ID", "in": "header", "required": false, "description": description,
            "schema": { "type": "string" },
        }));
    }
    let statuses = operation.statuses.iter().chain(&[400, 401, 500]);
    let responses: Map<String, Value> =
        statuses.map(|status| (status.to_string(), response(operation, *status))).collect();
    let id = operation_id(operation);
    let mut described =
        json!({ "operationId": id, "summary": operation.summary, "parameters": parameters, "responses": responses });
    if operation.path == "/v1/health" {
        // A probe has no token.
        described["security"] = json!([]);
    }
    if let Some(body) = operation.body {
        described["requestBody"] = request_body(operation.path, body);
    }
    match (operation.method, operation.path) {
        ("put", "/v1/blobs/{blob}") => {
            let schema = json!({ "type": "string", "format": "binary" });
            let content = json!({ "application/octet-stream": { "schema": schema } });
            described["requestBody"] = json!({ "required": false, "content": content });
        }
        ("post", "/v1/runs") => described["responses"]["201"]["links"] = links("run"),
        ("post", "/v1/sweeps") => described["responses"]["201"]["links"] = links("sweep"),
        ("post", "/v1/pipelines") => described["responses"]["201"]["links"] = links("pipeline"),
        ("post", "/v1/schedules") => described["responses"]["201"]["links"] = links("schedule"),
        _ => {}
    }
    described
}

/// What an operation answers with a status.
fn response(operation: &Operation, status: u16) -> Value {
    let kind = match operation.path {
        "/v1/metrics" => "text/plain",
        "/v1/sweeps/{sweep}/report" => "text/html",
        _ => "application/json",
    };
    match status {
        200..300 => {
            let mut content = json!({ kind: { "schema": {} } });
            if operation.query.contains(&FOLLOW) {
                content["text/event-stream"] = json!({ "schema": {} });
            }
            if operation.path.ends_with("/files") {
                content["application/octet-stream"] = json!({ "schema": {} });
            }
            json!({ "description": "as asked", "content": content })
        }
        _ => {
            let schema = json!({ "$ref": "#/components/schemas/ApiError" });
            json!({ "description": "not as asked", "content": { "application/json": { "schema": schema } } })
        }
    }
}

/// What a path is about one of: `run`, `sweep`, `schedule`, `pipeline`, `blob`, or nothing.
fn subject(operation: &Operation) -> Option<&'static str> {
    let nouns = ["run", "sweep", "schedule", "pipeline", "blob"];
    nouns.into_iter().find(|noun| operation.path.contains(&format!("{{{noun}}}")))
}

/// A body of this schema, with an example.
fn request_body(path: &str, schema: &str) -> Value {
    let (is_required, example) = match schema {
        "SubmitRequest" if path == "/v1/sweeps" => {
            let job = "name: seeds\nenvs: {SEED: 1}\nrun: echo $SEED\nsweep:\n  method: grid\n  parameters:\n    envs.SEED: [1, 2]\n";
            (true, json!({ "job": job, "folder": "/" }))
        }
        "SubmitRequest" if path == "/v1/pipelines" => {
            let job = "name: prep\noutputs: [out]\nrun: echo hello > out/a\n---\nname: fit\nfile_mounts: {in: \"${prep.outputs}/out\"}\nrun: cat in/a\n";
            (true, json!({ "job": job, "folder": "/" }))
        }
        "SubmitRequest" if path == "/v1/schedules" => {
            let job = "name: nightly\nrun: echo hello\nschedule: {cron: 0 3 * * *, timezone: Europe/Berlin}\n";
            (true, json!({ "job": job, "folder": "/" }))
        }
        "SubmitRequest" => (true, json!({ "job": "name: hello\nrun: echo hello\n", "folder": "/" })),
        "SweepResumeRequest" => (false, json!({ "budget": "$20" })),
        _ => (false, json!({ "budget": "$20", "set": ["epochs=60"] })),
    };
    let schema = json!({ "$ref": format!("#/components/schemas/{schema}") });
    json!({ "required": is_required, "content": { "application/json": { "schema": schema, "example": example } } })
}

/// The name of an operation for programs, such as `get_run_logs`.
fn operation_id(operation: &Operation) -> String {
    let noun = subject(operation);
    let words = operation.path.trim_start_matches("/v1/").split(['/', '.']).filter(|word| !word.starts_with('{'));
    // `/v1/runs/{run}/logs` is about one run.
    let words = words.map(|word| noun.filter(|noun| word.strip_suffix('s') == Some(*noun)).unwrap_or(word));
    std::iter::once(operation.method).chain(words).collect::<Vec<_>>().join("_")
}

/// What can be asked about a run or sweep that was submitted: its name is that of the answer.
fn links(noun: &'static str) -> Value {
    let of_one = OPERATIONS.iter().filter(|operation| subject(operation) == Some(noun));
    let link = |operation: &Operation| {
        let id = operation_id(operation);
        let parameters = json!({ (noun): format!("$response.body#/{noun}") });
        (id.clone(), json!({ "operationId": id, "parameters": parameters }))
    };
    of_one.map(link).collect::<Map<String, Value>>().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_is_described_with_its_schemas() {
        let described = description();
        for operation in OPERATIONS {
            let entry = &described["paths"][operation.path][operation.method];
            assert_eq!(entry["summary"], operation.summary);
            if let Some(body) = operation.body {
                assert!(described["components"]["schemas"][body]["properties"].is_object(), "{body}");
            }
        }
        let state = &described["paths"]["/v1/runs"]["get"]["parameters"][0];
        assert_eq!((&state["name"], &state["schema"]["enum"]), (&json!("state"), &json!(RunState::WORDS)));
        let links = &described["paths"]["/v1/runs"]["post"]["responses"]["201"]["links"];
        assert_eq!(links.as_object().unwrap().len(), 9, "all that a run can be asked: {links}");
        let of_sweeps = &described["paths"]["/v1/sweeps"]["post"]["responses"]["201"]["links"];
        assert_eq!(of_sweeps["get_sweep_report"]["parameters"]["sweep"], "$response.body#/sweep");
        assert_eq!(of_sweeps.as_object().unwrap().len(), 5, "all that a sweep can be asked: {of_sweeps}");
        assert_eq!(
            links["get_run_logs"]["operationId"],
            described["paths"]["/v1/runs/{run}/logs"]["get"]["operationId"]
        );
        let ids: std::collections::BTreeSet<String> = OPERATIONS.iter().map(operation_id).collect();
        assert_eq!(ids.len(), OPERATIONS.len(), "{ids:?}");
    }
}
