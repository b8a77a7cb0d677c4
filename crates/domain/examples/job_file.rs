//! Prints what the documents of the job file are made of, as one JSON object: the schema of the types, and the table
//! of SkyPilot's keys. `cargo xtask docs` reads it, so that xtask itself need not build the types.

use std::io::Write;

use domain::file::{SKY_KEYS, Served, schema};
use serde_json::{Value, json};

fn main() -> std::io::Result<()> {
    let keys: Vec<Value> = SKY_KEYS
        .iter()
        .map(|key| match key.served {
            Served::Yes => json!({ "path": key.path }),
            Served::Planned { words, why, hint } => {
                json!({ "path": key.path, "planned": true, "words": words, "why": why, "hint": hint })
            }
            Served::No { why, hint } => json!({ "path": key.path, "why": why, "hint": hint }),
        })
        .collect();
    let all = json!({ "schema": schema(), "sky_keys": keys });
    writeln!(std::io::stdout(), "{all}")
}
