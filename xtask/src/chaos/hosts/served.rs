//! The home of a storm: its server, which is killed and started again, and the commands that it is given.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use xtask::build::Programs;

use super::jobs::StormJob;

/// A run as it is listed.
#[derive(Debug)]
pub(super) struct ListedRun {
    pub run: String,
    pub word: String,
    /// Why it has failed.
    pub cause: Option<String>,
}

impl ListedRun {
    fn read(value: &Value) -> Option<ListedRun> {
        let cause = value["state"]["outcome"]["finding"]["cause"].as_str().map(str::to_owned);
        Some(ListedRun { run: value["run"].as_str()?.to_owned(), word: value["word"].as_str()?.to_owned(), cause })
    }

    /// Whether a full disk has ended it, after which a person frees space and resumes it.
    pub fn is_full(&self) -> bool {
        self.word == "failed" && self.cause.as_deref() == Some("disk_full")
    }

    /// Whether it has ended for good.
    pub fn is_over(&self) -> bool {
        matches!(self.word.as_str(), "trained" | "succeeded" | "failed" | "stopped") && !self.is_full()
    }
}

/// A home, and its server if that runs.
pub(super) struct ServedHome {
    pub folder: PathBuf,
    programs: Programs,
    /// What every command finds in its environment.
    variables: Vec<(&'static str, String)>,
    server: Option<Child>,
    /// When the server is started again.
    start_at: Option<Instant>,
}

impl ServedHome {
    /// One whose server does not run yet.
    pub fn new(folder: PathBuf, programs: Programs, variables: Vec<(&'static str, String)>) -> ServedHome {
        ServedHome { folder, programs, variables, server: None, start_at: None }
    }

    /// A command for this home.
    pub fn command(&self, arguments: &[&str]) -> Command {
        self.command_for(&self.folder, arguments)
    }

    /// The same for another home.
    pub fn command_for(&self, home: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.programs.gradus);
        command.args(arguments).arg("--home").arg(home).env("GRADUS_RANK", &self.programs.rank);
        command.envs(self.variables.iter().map(|(name, value)| (name, value))).stdin(Stdio::null());
        command
    }

    /// What a command prints, which must succeed.
    pub fn gradus(&self, arguments: &[&str]) -> Result<String, String> {
        let output = self.command(arguments).output().map_err(|error| error.to_string())?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => {
                Err(format!("`gradus {}`: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim()))
            }
        }
    }

    /// Starts the server.
    pub fn start(&mut self) -> Result<(), String> {
        let log = fs::File::options().create(true).append(true).open(self.folder.join("server.log"));
        let log = log.map_err(|error| error.to_string())?;
        let mut command = self.command(&["serve"]);
        command.stdout(Stdio::null()).stderr(log);
        self.server = Some(command.spawn().map_err(|error| error.to_string())?);
        self.start_at = None;
        Ok(())
    }

    /// Kills the server, if it runs.
    pub fn kill(&mut self) {
        if let Some(mut server) = self.server.take() {
            let _ = server.kill();
            let _ = server.wait();
        }
    }

    /// Kills the server, which [`ServedHome::mend`] starts again after so long.
    pub fn kill_for(&mut self, away: Duration) {
        self.kill();
        self.start_at = Some(Instant::now() + away);
    }

    /// Whether the server runs.
    pub fn is_served(&self) -> bool {
        self.server.is_some()
    }

    /// A server that was killed is started again at the next chance.
    pub fn end_fault(&mut self) {
        self.start_at = self.start_at.map(|_| Instant::now());
    }

    /// Starts the server again once that is due.
    pub fn mend(&mut self) -> Result<(), String> {
        match self.start_at.is_some_and(|at| Instant::now() >= at) {
            true => self.start(),
            false => Ok(()),
        }
    }

    /// Every run with where it stands.
    pub fn runs(&self) -> Result<Vec<ListedRun>, String> {
        let text = self.gradus(&["status", "--all", "--json"])?;
        let values = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        Ok(values.filter_map(|value| ListedRun::read(&value)).collect())
    }

    /// The models of all runs, which are of this job.
    pub fn models(&self, job: StormJob) -> Result<BTreeMap<String, Vec<u8>>, String> {
        let runs = fs::read_dir(self.folder.join("runs")).map_err(|error| error.to_string())?;
        let model = |entry: fs::DirEntry| {
            let model = job.model(&entry.path())?;
            Some((entry.file_name().to_string_lossy().into_owned(), model))
        };
        Ok(runs.flatten().filter_map(model).collect())
    }

    /// The event log.
    pub fn log(&self) -> Result<Vec<Value>, String> {
        let text = self.gradus(&["events", "--json"])?;
        Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
    }
}
