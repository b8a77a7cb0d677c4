//! The description of the API: OpenAPI 3.1, with the schemas of the types that handlers read and write.

use axum::Json;
use serde_json::{Map, Value, json};

use super::views::{ResumeRequest, RunSummary, SubmitRequest};

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

/// Requests Server-Sent Events instead of JSON; they end with a message `end` when the run has ended and is billed.
const FOLLOW: (&str, &str) = ("follow", "boolean");

const OPERATIONS: &[Operation] = &[
    get("/v1/health", "Whether the process answers", &[]),
    get("/v1/ready", "Whether the control loop answers", &[]),
    get("/v1/metrics", "Figures in the text format of Prometheus", &[]),
    get("/v1/openapi.json", "This document", &[]),
    get(
        "/v1/offers",
        "List what clouds offer, the cheapest first",
        &[("gpu", "string"), ("cloud", "string"), ("region", "string"), ("spot", "boolean"), ("limit", "integer")],
    ),
    get("/v1/nodes", "List the nodes of the home, with what runs there", &[]),
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
        "List runs, the newest first: those in a state, whose names begin with `name`, or before a run",
        &[("state", "string"), ("limit", "integer"), ("before", "string"), ("name", "string"), ("details", "boolean")],
    ),
    Operation {
        method: "post",
        path: "/v1/runs",
        summary: "Submit a job; with the header `Idempotency-Key`, the same request sent again finds the same run",
        query: &[],
        body: Some("SubmitRequest"),
        statuses: &[200, 201, 400, 408, 409, 413, 415, 422, 503],
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
        statuses: &[202, 404, 409, 503],
    },
    Operation {
        method: "post",
        path: "/v1/runs/{run}/resume",
        summary: "Resume a run from its newest checkpoint",
        query: &[],
        body: Some("ResumeRequest"),
        statuses: &[202, 400, 404, 408, 409, 413, 415, 422, 503],
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
        "List the files of a run that lie on the server's machine, or send one of them from an offset on",
        &[("file", "string"), ("offset", "integer")],
    ),
    get(
        "/v1/runs/{run}/logs",
        "The logs of a run, or a part of one; with `follow`, all or one as they grow, in messages `log`",
        &[("file", "string"), ("offset", "integer"), FOLLOW],
    ),
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
                _ => json!({ "type": kind }),
            };
            json!({ "name": name, "in": "query", "required": false, "schema": schema })
        })
        .collect();
    if operation.path.contains("{run}") {
        parameters.push(json!({ "name": "run", "in": "path", "required": true, "schema": { "type": "string" } }));
    }
    let is_followed = operation.query.contains(&FOLLOW);
    if is_followed {
        let description = "With `follow`: the `id` of the last message that arrived; the stream goes on after it.";
        parameters.push(json!({
            "name": "Last-Event-ID", "in": "header", "required": false, "description": description,
            "schema": { "type": "string" },
        }));
    }
    let kind = if operation.path == "/v1/metrics" { "text/plain" } else { "application/json" };
    let response = |status: u16| match status {
        200..300 => {
            let mut content = json!({ kind: { "schema": {} } });
            if is_followed {
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
    };
    let statuses = operation.statuses.iter().chain(&[400, 401, 500]);
    let responses: Map<String, Value> = statuses.map(|status| (status.to_string(), response(*status))).collect();
    let id = operation_id(operation);
    let mut described =
        json!({ "operationId": id, "summary": operation.summary, "parameters": parameters, "responses": responses });
    if operation.path == "/v1/health" {
        // A probe has no token.
        described["security"] = json!([]);
    }
    if let Some(body) = operation.body {
        described["requestBody"] = request_body(body);
    }
    if (operation.method, operation.path) == ("post", "/v1/runs") {
        described["responses"]["201"]["links"] = links();
    }
    described
}

/// A body of this schema, with an example.
fn request_body(schema: &str) -> Value {
    let is_required = schema == "SubmitRequest";
    let example = match is_required {
        true => json!({ "job": "name: hello\nrun: echo hello\n", "folder": "/" }),
        false => json!({ "budget": "$20", "set": ["epochs=60"] }),
    };
    let schema = json!({ "$ref": format!("#/components/schemas/{schema}") });
    json!({ "required": is_required, "content": { "application/json": { "schema": schema, "example": example } } })
}

/// The name of an operation for programs, such as `get_run_logs`.
fn operation_id(operation: &Operation) -> String {
    let is_of_a_run = operation.path.contains("{run}");
    let words = operation.path.trim_start_matches("/v1/").split(['/', '.']).filter(|word| *word != "{run}");
    let words = words.map(|word| if is_of_a_run && word == "runs" { "run" } else { word });
    std::iter::once(operation.method).chain(words).collect::<Vec<_>>().join("_")
}

/// What can be asked about a run that was submitted: its name is that of the answer.
fn links() -> Value {
    let of_a_run = OPERATIONS.iter().filter(|operation| operation.path.contains("{run}"));
    let link = |operation: &Operation| {
        let id = operation_id(operation);
        (id.clone(), json!({ "operationId": id, "parameters": { "run": "$response.body#/run" } }))
    };
    of_a_run.map(link).collect::<Map<String, Value>>().into()
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
        let links = &described["paths"]["/v1/runs"]["post"]["responses"]["201"]["links"];
        assert_eq!(links.as_object().unwrap().len(), 9, "all that a run can be asked: {links}");
        assert_eq!(
            links["get_run_logs"]["operationId"],
            described["paths"]["/v1/runs/{run}/logs"]["get"]["operationId"]
        );
        let ids: std::collections::BTreeSet<String> = OPERATIONS.iter().map(operation_id).collect();
        assert_eq!(ids.len(), OPERATIONS.len(), "{ids:?}");
    }
}
