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
    SourceMutant {
        name: "a-replaced-attempt-names-its-file",
        harm: "a checkpoint of an attempt that was replaced takes the place of the one that the next has written",
        file: "crates/server/src/files/receive.rs",
        from: "        let _held = self.locks.fence();\n        newest(self.run, self.fence)?;\n",
        to: "        let _held = self.locks.fence();\n",
        test: CargoTest { package: "gradus-server", target: &["--lib"], filter: "while_its_file_is_hashed" },
    },
    SourceMutant {
        name: "all-runs-send-one-after-the-other",
        harm: "runs wait with their checkpoints, and are billed, while a large one of another run is hashed",
        file: "crates/server/src/home/transfers.rs",
        from: "locks.entry(name.to_owned()).or_default()",
        to: "locks.entry(name.to_owned().split_off(name.len())).or_default()",
        test: CargoTest { package: "gradus-server", target: &["--lib"], filter: "for_the_files_of_another" },
    },
    SourceMutant {
        name: "each-door-has-a-quota",
        harm: "a server takes twice the disk space of its quota, and its event log has none left",
        file: "crates/server/src/files/mod.rs",
        from: "let limit = StorageLimit::new(&folder, quota, transfers.clone());",
        to: "let limit = StorageLimit::new(&folder, quota, Arc::default());",
        test: CargoTest { package: "gradus-server", target: &["--lib"], filter: "a_quota_is_that_of_all_transfers" },
    },
    SourceMutant {
        name: "an-attempt-begins-without-its-grant",
        harm: "an attempt that began on a full disk saves nothing until its end, and its work is lost",
        file: "crates/server/src/control/orders.rs",
        from: "!granted.as_ref().is_err_and(is_full)",
        to: "granted.is_ok() || granted.is_err()",
        test: CargoTest { package: "gradus-server", target: &["--lib"], filter: "once_there_is_space_for_its_grant" },
    },
    SourceMutant {
        name: "a-page-of-points-has-all-of-them",
        harm: "a request for the measurements of a long run takes all memory of the server and ends it",
        file: "crates/server/src/series.rs",
        from: "ORDER BY number LIMIT ?3\";",
        to: "ORDER BY number LIMIT 1000 * ?3\";",
        test: CargoTest { package: "gradus-server", target: &["--lib"], filter: "points_are_read_page_by_page" },
    },
];
