//! Runs of a server, parsed from its API.

use std::collections::BTreeMap;

use domain::rank::Report;
use domain::run::Bill;
use domain::series::Point;
use domain::{AttemptId, InstanceId, Money, Rate, Record, RunId, Timestamp};
use plan::{Goodput, World};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use server::home::Shortage;

use super::{Server, failure};
use crate::error::Error;

/// A run, as the API of a server reports it.
#[derive(Debug, Clone)]
pub struct KnownRun {
    /// Its name.
    pub id: RunId,
    /// The run with its attempts and machines.
    pub world: World,
    /// Its cost until now.
    pub cost: Money,
    /// The newest step that is known of.
    pub step: Option<u64>,
    /// Its newest measurements, each with its number.
    pub newest: Vec<(u64, Report)>,
    /// The run that uses the machine which it waits for.
    pub waits_for: Option<RunId>,
    /// How its time was spent.
    pub goodput: Option<Goodput>,
    /// What of it the server refuses for want of disk space, as sentences.
    pub refused: Vec<String>,
    /// The same as values; none of a server of an earlier version.
    pub shortages: Vec<Shortage>,
}

/// The cost of a run.
#[derive(Debug, Clone, Deserialize)]
pub struct RunCost {
    /// The final bill.
    pub bill: Option<Bill>,
    /// Its price while it runs.
    pub rate: Rate,
    /// Until now, in micro-dollars.
    pub cost_micro_usd: i64,
}

impl KnownRun {
    /// The run itself.
    ///
    /// # Errors
    /// [`server::Error::NoRun`] if there is none.
    pub fn run(&self) -> Result<&plan::Run, Error> {
        self.world.runs.get(&self.id).ok_or_else(|| server::Error::NoRun(self.id.to_string()).into())
    }
}

impl Server {
    /// The run that a name on the command line refers to: its name, a unique prefix of it, or `last`.
    ///
    /// # Errors
    /// [`server::Error::NoRun`]; [`Error::Usage`] where more than one is meant; as [`Server::get`].
    pub fn find(&self, name: &str) -> Result<RunId, Error> {
        let missing = || Err(server::Error::NoRun(name.to_owned()).into());
        let listed = match name {
            "last" => self.get("/v1/runs?limit=1")?,
            _ if !is_plain(name) => return missing(),
            _ => self.get(&format!("/v1/runs?limit=20&name={name}"))?,
        };
        let names: Vec<&str> =
            listed["runs"].as_array().into_iter().flatten().filter_map(|run| run["run"].as_str()).collect();
        let exact = names.iter().find(|id| **id == name);
        if exact.is_none()
            && name != "last"
            && let Some(trial) = self.trial_of(name)
        {
            let message = format!("`{name}` is a sweep; this command takes a single run");
            return Err(Error::Usage { message, hint: format!("give one of its trials, such as {trial}") });
        }
        if exact.is_none() && name != "last" {
            self.refuse_pipeline(name)?;
        }
        match (exact, &names[..]) {
            (Some(id), _) | (None, [id]) => Ok(RunId::new(*id)),
            (None, []) => missing(),
            // The exact name may be older than many that begin with it.
            (None, _) if self.get(&format!("/v1/runs/{name}/cost")).is_ok() => Ok(RunId::new(name)),
            (None, _) => Err(Error::ambiguous(name)),
        }
    }

    /// A run with so many of its newest measurements.
    ///
    /// # Errors
    /// As [`Server::get`].
    pub fn run(&self, id: &RunId, newest: u64) -> Result<KnownRun, Error> {
        let mut value = self.get(&format!("/v1/runs/{id}?newest={newest}"))?;
        let mut world = World::at(value["last_seq"].as_u64().unwrap_or(0));
        world.runs.insert(id.clone(), self.typed(value["body"].take())?);
        for attempt in taken(&mut value["attempts"]) {
            let [name, body] = parts(attempt, ["attempt", "body"]);
            world.attempts.insert(AttemptId::new(name.as_str().unwrap_or_default()), self.typed(body)?);
        }
        for instance in taken(&mut value["instances"]) {
            let [name, body] = parts(instance, ["instance", "body"]);
            world.instances.insert(InstanceId::new(name.as_str().unwrap_or_default()), self.typed(body)?);
        }
        world.find_open();
        let point = |point: Value| {
            let [number, report] = parts(point, ["seq", "report"]);
            Some((number.as_u64()?, serde_json::from_value(report).ok()?))
        };
        Ok(KnownRun {
            id: id.clone(),
            world,
            cost: Money::from_micros(value["cost_micro_usd"].as_i64().unwrap_or(0)),
            step: value["step"].as_u64(),
            newest: taken(&mut value["newest"]).into_iter().filter_map(point).collect(),
            waits_for: value["waits_for"].as_str().map(RunId::new),
            goodput: server::goodput_of_json(&value["goodput"]),
            refused: taken(&mut value["refused"]).iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            shortages: shortages(&mut value["shortages"]),
        })
    }

    /// Every event of a run, or of all runs and sweeps.
    ///
    /// # Errors
    /// As [`Server::get`].
    pub fn records(&self, run: Option<&RunId>) -> Result<Vec<Record>, Error> {
        let path = run.map_or("/v1/events".to_owned(), |run| format!("/v1/runs/{run}/events"));
        let mut records: Vec<Record> = Vec::new();
        loop {
            let after = records.last().map_or(0, |record| record.seq);
            let mut page = self.get(&format!("{path}?after={after}"))?;
            let new: Vec<Record> = self.typed(page["events"].take())?;
            let is_last = new.is_empty() || page["has_more"] != true;
            records.extend(new);
            if is_last {
                return Ok(records);
            }
        }
    }

    /// Every measurement of a run.
    ///
    /// # Errors
    /// As [`Server::get`].
    pub fn points(&self, run: &RunId) -> Result<Vec<Point>, Error> {
        let (mut points, mut after) = (Vec::new(), 0);
        loop {
            let mut page = self.get(&format!("/v1/runs/{run}/series?after={after}"))?;
            let new = taken(&mut page["points"]);
            let newest = new.last().and_then(|point| point["seq"].as_u64());
            points.extend(new.into_iter().filter_map(point));
            match newest {
                Some(newest) if page["has_more"] == true => after = newest,
                _ => return Ok(points),
            }
        }
    }

    /// The bill of a run, or its cost up to now.
    ///
    /// # Errors
    /// As [`Server::get`].
    pub fn cost(&self, run: &RunId) -> Result<RunCost, Error> {
        self.typed(self.get(&format!("/v1/runs/{run}/cost"))?)
    }

    /// A part of a log, where the next one begins, and whether there is more.
    ///
    /// # Errors
    /// As [`Server::get`].
    pub fn log_part(&self, run: &RunId, file: &str, offset: u64) -> Result<(String, u64, bool), Error> {
        let part = self.get(&format!("/v1/runs/{run}/logs?file={file}&offset={offset}"))?;
        let text = part["text"].as_str().unwrap_or_default().to_owned();
        Ok((text, part["next"].as_u64().unwrap_or(offset), part["has_more"] == true))
    }

    /// The logs of a run, each with its size.
    ///
    /// # Errors
    /// As [`Server::get`].
    pub fn logs(&self, run: &RunId) -> Result<Vec<(String, u64)>, Error> {
        let files = taken(&mut self.get(&format!("/v1/runs/{run}/logs"))?["files"]);
        Ok(files.iter().filter_map(|file| Some((file["file"].as_str()?.to_owned(), file["bytes"].as_u64()?))).collect())
    }

    /// The current ends of a run's logs, as the id from which a stream of them continues.
    ///
    /// # Errors
    /// As [`Server::get`].
    pub fn log_ends(&self, run: &RunId) -> Result<String, Error> {
        Ok(serde_json::json!(BTreeMap::from_iter(self.logs(run)?)).to_string())
    }

    /// At most `most` runs, newest first, as list entries; and the total number.
    ///
    /// # Errors
    /// As [`Server::get`].
    pub fn list(&self, most: usize) -> Result<(Vec<Value>, u64), Error> {
        const PAGE: usize = 1_000;
        let mut runs: Vec<Value> = Vec::new();
        loop {
            let limit = PAGE.min(most - runs.len());
            let before = runs.last().and_then(|run| run["run"].as_str());
            let before = before.map_or(String::new(), |run| format!("&before={run}"));
            let mut page = self.get(&format!("/v1/runs?details=true&limit={limit}{before}"))?;
            let new = taken(&mut page["runs"]);
            let is_last = new.is_empty() || page["has_more"] != true || runs.len() + new.len() >= most;
            runs.extend(new);
            if is_last {
                return Ok((runs, page["total"].as_u64().unwrap_or(0)));
            }
        }
    }

    /// A value of the API as one of ours.
    ///
    /// # Errors
    /// [`Error::Code`] for one that does not fit: it is of another version.
    pub fn typed<T: DeserializeOwned>(&self, value: Value) -> Result<T, Error> {
        serde_json::from_value(value).map_err(|_| failure::stranger(self.url(), 200))
    }
}

/// Parses what a server refuses; what one of a later version refuses besides is left out.
fn shortages(value: &mut Value) -> Vec<Shortage> {
    taken(value).into_iter().filter_map(|one| serde_json::from_value(one).ok()).collect()
}

/// Parses a measurement of the API; `None` for one of a later version.
pub fn point(mut value: Value) -> Option<Point> {
    let report = serde_json::from_value(value["report"].take()).ok()?;
    let attempt = AttemptId::new(value["attempt"].as_str()?);
    Some(Point { at: Timestamp(value["at"].as_i64()?), attempt, report })
}

/// Whether a name can be one of a run or sweep.
pub(super) fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

pub(super) fn taken(value: &mut Value) -> Vec<Value> {
    match value.take() {
        Value::Array(items) => items,
        _ => Vec::new(),
    }
}

pub(super) fn parts(mut value: Value, names: [&str; 2]) -> [Value; 2] {
    names.map(|name| value.get_mut(name).map(Value::take).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use server::home::StoredKind;

    use super::*;

    #[test]
    fn what_a_server_refuses_is_read_as_it_writes_it() {
        let (place, why) = ("checkpoints/a".to_owned(), "0.0 GB are free".to_owned());
        let stored = StoredKind::Files(RunId::new("r"));
        let shortage = Shortage { stored, place, why, since: Timestamp(1), last: Timestamp(2) };
        let later = json!({ "stored": "something", "place": "", "why": "full", "since": 1, "last": 2 });
        assert_eq!(shortages(&mut json!([shortage, later])), [shortage]);
        assert_eq!(shortages(&mut Value::Null), [], "a server of an earlier version");
    }
}
