//! Sweeps of a server, parsed from its API, and the run or sweep that a name refers to.

use std::collections::BTreeMap;

use domain::{Elapsed, InstanceId, RunId, SweepId, Timestamp};
use plan::{RunOrSweep, SweepRecord, World};
use serde_json::Value;

use super::Server;
use super::runs::{is_plain, parts, taken};
use crate::error::{Error, exit};

/// Trials in one answer.
const PAGE: usize = 200;

/// A sweep, as the API of a server reports it.
#[derive(Debug, Clone)]
pub struct KnownSweep {
    /// Its name.
    pub id: SweepId,
    /// The sweep with all of its trials and their machines.
    pub world: World,
    /// The server's time.
    pub now: Timestamp,
}

impl KnownSweep {
    /// The sweep itself.
    ///
    /// # Errors
    /// [`server::Error::NoRun`] if there is none.
    pub fn record(&self) -> Result<&SweepRecord, Error> {
        self.world.sweeps.get(&self.id).ok_or_else(|| server::Error::NoRun(self.id.to_string()).into())
    }

    /// Rented time of every machine that is not released, by the server's clock.
    pub fn meters(&self) -> BTreeMap<InstanceId, Elapsed> {
        let live = self.world.live_instances();
        live.filter_map(|(id, instance)| Some((id.clone(), self.now.since(instance.started?)))).collect()
    }
}

impl Server {
    /// A sweep with all of its trials.
    ///
    /// # Errors
    /// As [`Server::get`].
    pub fn sweep(&self, id: &SweepId) -> Result<KnownSweep, Error> {
        let (mut world, mut now, mut after) = (World::default(), Timestamp(0), 0);
        loop {
            let mut page = self.get(&format!("/v1/sweeps/{id}?limit={PAGE}&after={after}"))?;
            if after == 0 {
                // What happens while the pages are read is news.
                world.last_seq = page["last_seq"].as_u64().unwrap_or(0);
            }
            now = page["now"].as_i64().map_or(now, Timestamp);
            world.sweeps.insert(id.clone(), self.typed(page["body"].take())?);
            let trials = taken(&mut page["trials"]);
            let is_last = trials.is_empty() || page["has_more"] != true;
            for mut trial in trials {
                after = trial["trial"].as_u64().unwrap_or(after);
                let run = RunId::new(trial["run"].as_str().unwrap_or_default());
                world.runs.insert(run, self.typed(trial["body"].take())?);
                for instance in taken(&mut trial["instances"]) {
                    let [name, body] = parts(instance, ["instance", "body"]);
                    world.instances.insert(InstanceId::new(name.as_str().unwrap_or_default()), self.typed(body)?);
                }
            }
            if is_last {
                world.find_open();
                return Ok(KnownSweep { id: id.clone(), world, now });
            }
        }
    }

    /// At most `limit` sweeps, newest first, as list entries: those whose names begin with `name`, if one is given. `None` from
    /// a server of an earlier version, which has no sweeps in its API.
    ///
    /// # Errors
    /// As [`Server::get`].
    pub fn sweeps(&self, limit: usize, name: Option<&str>) -> Result<Option<Vec<Value>>, Error> {
        let name = name.map_or(String::new(), |name| format!("&name={name}"));
        match self.get(&format!("/v1/sweeps?limit={limit}{name}")) {
            Ok(mut page) => Ok(Some(taken(&mut page["sweeps"]))),
            Err(error) if error.code() == exit::USAGE => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The run or sweep that a name on the command line refers to: its name, a unique prefix of it, or `last`. A prefix that a
    /// sweep and its trials share is the sweep.
    ///
    /// # Errors
    /// As [`Server::find`].
    pub fn find_any(&self, name: &str) -> Result<RunOrSweep, Error> {
        if !is_plain(name) {
            return self.find(name).map(RunOrSweep::Run);
        }
        let is_last = name == "last";
        let (limit, of_name) = if is_last { (1, None) } else { (20, Some(name)) };
        let Some(sweeps) = self.sweeps(limit, of_name)? else { return self.find(name).map(RunOrSweep::Run) };
        let of_name = of_name.map_or(String::new(), |name| format!("&name={name}"));
        let runs = taken(&mut self.get(&format!("/v1/runs?trials=false&limit={limit}{of_name}"))?["runs"]);
        let text = |value: &Value, key: &str| value[key].as_str().unwrap_or_default().to_owned();
        let sweeps = sweeps.iter().map(|sweep| (sweep, RunOrSweep::Sweep(SweepId::new(text(sweep, "sweep")))));
        let runs = runs.iter().map(|run| (run, RunOrSweep::Run(RunId::new(text(run, "run")))));
        let mut all: Vec<(&Value, RunOrSweep)> = sweeps.chain(runs).collect();
        if is_last {
            let newest = all.into_iter().max_by_key(|(one, _)| one["submitted"].as_i64());
            return newest.map(|(_, one)| one).ok_or_else(|| server::Error::NoRun(name.to_owned()).into());
        }
        if let Some(at) = all.iter().position(|(_, one)| word(one) == name) {
            return Ok(all.swap_remove(at).1);
        }
        self.refuse_pipeline(name)?;
        if all.len() == 1 {
            return Ok(all.swap_remove(0).1);
        }
        // The name may be that of a trial.
        if all.is_empty() {
            return self.find(name).map(RunOrSweep::Run);
        }
        // The exact name may be older than many that begin with it.
        if self.trial_of(name).is_some() {
            return Ok(RunOrSweep::Sweep(SweepId::new(name)));
        }
        let run = self.get(&format!("/v1/runs/{name}/cost"));
        run.map(|_| RunOrSweep::Run(RunId::new(name))).map_err(|_| Error::ambiguous(name))
    }

    /// A trial of the sweep of exactly this name, or words for one it does not have yet; `None` if there is no such sweep.
    pub(super) fn trial_of(&self, name: &str) -> Option<String> {
        let page = self.get(&format!("/v1/sweeps/{name}?limit=1")).ok()?;
        let first = page["trials"][0]["run"].as_str().map(|run| format!("`{run}`"));
        Some(first.unwrap_or_else(|| "a trial".to_owned()))
    }
}

fn word(one: &RunOrSweep) -> &str {
    match one {
        RunOrSweep::Run(run) => run.as_str(),
        RunOrSweep::Sweep(sweep) => sweep.as_str(),
    }
}
