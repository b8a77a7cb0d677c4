//! Mutants of a server: its files, its API, and what it shares with commands of the same home.

use super::mutant::{CargoTest, SourceMutant};

pub(super) const SERVERS: &[SourceMutant] = &[
    SourceMutant {
        name: "a-draft-of-another-process-is-written-to",
        harm: "two containers with one home take each other's key away, and no value of a job can be opened any more",
        file: "crates/node/src/durable.rs",
        from: "OpenOptions::new().write(true).create_new(true)",
        to: "OpenOptions::new().write(true).create(true).truncate(true)",
        test: CargoTest { package: "gradus-node", target: &["--lib"], filter: "another_process_is_not_written_to" },
    },
    SourceMutant {
        name: "a-home-without-a-name-is-used",
        harm: "after a loss of power, machines that are rented are taken for gone, and run until a person sees the bill",
        file: "crates/server/src/home.rs",
        from: "if name.is_empty() { Err(",
        to: "if name.len() == 1 { Err(",
        test: CargoTest { package: "gradus-server", target: &["--lib"], filter: "is_refused_without_it" },
    },
    SourceMutant {
        name: "an-empty-owner-token-stays",
        harm: "nobody enters a server with the owner's token if it was killed while it made one",
        file: "crates/server/src/api/access/mod.rs",
        from: "Ok(text) if !text.trim().is_empty() => return Ok(()),",
        to: "Ok(_) => return Ok(()),",
        test: CargoTest { package: "gradus-server", target: &["--lib"], filter: "killed_while_it_made_one" },
    },
    SourceMutant {
        name: "an-empty-list-of-requests-is-an-error",
        harm: "after a loss of power, no request with a key resumes the run any more",
        file: "crates/server/src/api/runs/resume.rs",
        from: "Ok(text) => Ok(serde_json::from_slice(&text).unwrap_or_default()),",
        to: "Ok(text) => serde_json::from_slice(&text).map_err(ApiError::inside),",
        test: CargoTest { package: "gradus-server", target: &["--lib"], filter: "has_left_an_empty_file" },
    },
];
