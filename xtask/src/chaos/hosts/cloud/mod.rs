//! `cargo xtask chaos --cloud`: jobs on machines that are rented from the lab's cloud, while everything fails.
//!
//! Requests to the cloud fail by the seed, and server, agents, ranks and connections are killed; machines lose power, or are
//! taken back with a notice. Every model must be that of a run that nothing happened to; nothing may be left rented, nothing
//! rented twice, and what is billed is what the cloud has metered ([`judge`]).

mod judge;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::json;
use xtask::build::{self, Programs};
use xtask::doing::Outcome;
use xtask::draws::Draws;
use xtask::lab::cloud::{CloudSettings, LabCloud, LabMoto};
use xtask::lab::hosts as lab;

use super::jobs::{JobPlace, StormJob};
use super::served::{ListedRun, ServedHome};

/// After the last fault all runs must end within this: a machine that was never reached is waited for 20 min.
const PATIENCE: Duration = Duration::from_secs(2400);

/// So many jobs in a row can be refused because of what the cloud answers.
const REFUSED: u64 = 100;

/// Within this, nothing is rented any more.
const RELEASED: Duration = Duration::from_secs(300);

/// Within this, every run is billed: a machine whose launch is in doubt may show for some minutes yet.
const BILLED: Duration = Duration::from_secs(900);

/// After so long without a sign of its agent a machine ends itself; longer than any time that the loop knows.
const SILENCE: Duration = Duration::from_secs(240);

/// Something that is done to the server or to a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum CloudFault {
    /// `kill -9` of the server, which is started again after a while.
    Server,
    /// `kill -9` of the agent, or of the ranks.
    Agent,
    Rank,
    /// Every SSH connection of the server to a machine is cut.
    Connections,
    /// A machine loses power for good, and goes on costing money.
    Power,
    /// A machine is taken back, with a notice.
    Notice,
}

/// Every kind; those that are soon made up for come more often.
const FAULTS: [CloudFault; 8] = [
    CloudFault::Server,
    CloudFault::Agent,
    CloudFault::Agent,
    CloudFault::Rank,
    CloudFault::Rank,
    CloudFault::Connections,
    CloudFault::Power,
    CloudFault::Notice,
];

impl CloudFault {
    fn word(self) -> &'static str {
        match self {
            CloudFault::Server => "server",
            CloudFault::Agent => "agent",
            CloudFault::Rank => "rank",
            CloudFault::Connections => "connections",
            CloudFault::Power => "power",
            CloudFault::Notice => "notice",
        }
    }

    /// What the command lines of the processes match that it kills, as `pkill -f` reads it.
    fn pattern(self) -> Option<&'static str> {
        match self {
            CloudFault::Agent => Some("gradus agent|/gradus .*agent"),
            CloudFault::Rank => Some("gradus-rank"),
            CloudFault::Connections => Some("sshd: root"),
            CloudFault::Server | CloudFault::Power | CloudFault::Notice => None,
        }
    }
}

/// What is asked.
#[derive(Debug, PartialEq)]
struct CloudOptions {
    faults: u64,
    seed: u64,
    hosts: u8,
    /// Whether to build first, or to take what is in the target folder.
    builds: bool,
}

fn options(arguments: &[String]) -> Result<CloudOptions, String> {
    let mut options = CloudOptions { faults: 200, seed: 1, hosts: 5, builds: true };
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let mut number = || {
            let text = words.next().ok_or_else(|| format!("`{word}` needs a value"))?;
            text.parse::<u64>().map_err(|_| format!("`{text}` is no number"))
        };
        match word.as_str() {
            "--faults" => options.faults = number()?,
            "--seed" => options.seed = number()?,
            "--on" => options.hosts = number()?.clamp(3, 20) as u8,
            "--built" => options.builds = false,
            _ => return Err(format!("`{word}` is not known; there are --faults N, --seed S, --on HOSTS and --built")),
        }
    }
    Ok(options)
}

/// The storm, and what it works on.
struct CloudStorm {
    lab: PathBuf,
    home: ServedHome,
    draws: Draws,
    cloud: LabCloud,
    submitted: u64,
    /// Jobs that could not be submitted, one after the other.
    refused: u64,
    done: BTreeMap<CloudFault, u64>,
}

/// Starts hosts and cloud, makes the faults, and judges.
pub(in crate::chaos) fn storm(root: &Path, arguments: &[String]) -> Outcome {
    let options = options(arguments)?;
    let programs = match options.builds {
        true => build::programs(root, false)?,
        false => {
            let folder = build::target(root).join("release");
            Programs { gradus: folder.join("gradus"), rank: folder.join("gradus-rank") }
        }
    };
    let folder = std::env::temp_dir().join(format!("gradus-chaos-cloud-{}", std::process::id()));
    let lab_folder = build::target(root).join("lab/chaos-cloud");
    lab::down(&lab_folder)?;
    let tried = lab::up(root, &lab_folder, options.hosts)
        .and_then(|_| LabMoto::start(&folder))
        .and_then(|moto| {
            let settings = CloudSettings {
                lab: lab_folder.clone(),
                hosts: (1..=options.hosts).collect(),
                moto: moto.port,
                folder: folder.join("cloud"),
                seed: Some(options.seed),
                silence: SILENCE,
            };
            let cloud = LabCloud::start(settings)?;
            let variables = vec![
                ("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{}", cloud.port)),
                ("AWS_ACCESS_KEY_ID", "key".to_owned()),
                ("AWS_SECRET_ACCESS_KEY", "secret".to_owned()),
            ];
            let mut storm = CloudStorm {
                lab: lab_folder.clone(),
                home: ServedHome::new(folder.join("home"), programs, variables),
                draws: Draws::new(options.seed),
                cloud,
                submitted: 0,
                refused: 0,
                done: BTreeMap::new(),
            };
            let told = storm.run(root, &options, &folder);
            storm.home.kill();
            drop(moto);
            told.map_err(Into::into)
        })
        .map_err(|error| error.to_string());
    lab::down(&lab_folder)?;
    let told = tried
        .map_err(|why| format!("chaos in a cloud (seed {}): {why}; kept in {}", options.seed, folder.display()))?;
    let _ = fs::remove_dir_all(&folder);
    Ok(told)
}

impl CloudStorm {
    fn run(&mut self, root: &Path, options: &CloudOptions, folder: &Path) -> Result<String, String> {
        let truth = self.truth(root, folder)?;
        let settings = json!({
            "image": "ami-12c6146b", "ssh_from": "192.0.2.1", "ssh_config": self.cloud.ssh_config(),
        });
        fs::write(self.home.folder.join("aws.json"), settings.to_string()).map_err(|error| error.to_string())?;
        let job = StormJob::Trainer.write(folder, root, JobPlace::Rented)?;
        self.home.start()?;
        let begun = Instant::now();
        let (mut made, mut next) = (0, Instant::now() + Duration::from_secs(20));
        while made < options.faults {
            self.home.mend()?;
            // Two hosts are left for machines that take the place of others.
            self.keep_busy(&job, u64::from(options.hosts) - 2)?;
            if Instant::now() >= next {
                made += u64::from(self.fault()?);
                next = Instant::now() + Duration::from_millis(500 + self.draws.below(8000));
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        let lasted = begun.elapsed();
        self.cloud.calm();
        self.calm()?;
        let judged = self.judge(&truth)?;
        let kinds: Vec<String> = self.done.iter().map(|(fault, count)| format!("{} {count}", fault.word())).collect();
        eprintln!("faults: {} in {:.0} s", kinds.join(", "), lasted.as_secs_f64());
        eprintln!("requests to the cloud: {:?}", self.cloud.counts());
        Ok(format!("chaos in a cloud: {made} faults, {judged} (seed {})", options.seed))
    }

    /// The model of a run here that nothing happens to.
    fn truth(&self, root: &Path, folder: &Path) -> Result<Vec<u8>, String> {
        let job = StormJob::Trainer.write(folder, root, JobPlace::Here(1))?;
        self.home.gradus(&["run", &job, "--yes", "--json"])?;
        let model = self.home.models(StormJob::Trainer)?.into_values().next();
        model.ok_or_else(|| "the undisturbed run left no model".to_owned())
    }

    /// Submits jobs until so many run or wait.
    fn keep_busy(&mut self, job: &str, jobs: u64) -> Result<(), String> {
        if !self.home.is_served() {
            return Ok(());
        }
        let live = self.home.runs()?.iter().filter(|run| !run.is_over()).count() as u64;
        for _ in live..jobs {
            // What the plan asks of the cloud may fail; without a server a run of its own would be started.
            match self.home.gradus(&["run", job, "--detach", "--yes", "--new", "--json"]) {
                Ok(_) => (self.submitted, self.refused) = (self.submitted + 1, 0),
                Err(why) if self.refused == REFUSED => return Err(format!("no job can be submitted: {why}")),
                Err(_) => self.refused += 1,
            }
        }
        Ok(())
    }

    fn lab(&self, arguments: &[&str]) -> Result<String, String> {
        let program = self.lab.join("lab");
        let output = Command::new(&program).args(arguments).output();
        let output = output.map_err(|error| format!("`{}`: {error}", program.display()))?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Makes one fault; says whether there was something to make it to.
    fn fault(&mut self) -> Result<bool, String> {
        let fault = FAULTS[self.draws.below(FAULTS.len() as u64) as usize];
        let rented: Vec<u8> = self.cloud.rented().into_values().collect();
        let place = self.draws.below(rented.len().max(1) as u64) as usize;
        let away = Duration::from_millis(500 + self.draws.below(15_000));
        let notice = Duration::from_secs(20 + self.draws.below(100));
        let host = rented.get(place).copied();
        let is_made = match (fault, host) {
            (CloudFault::Server, _) if self.home.is_served() => {
                self.home.kill_for(away);
                true
            }
            (CloudFault::Server, _) | (_, None) => false,
            (CloudFault::Agent | CloudFault::Rank | CloudFault::Connections, Some(host)) => {
                let pattern = fault.pattern().unwrap_or_default();
                let killed = self.lab(&["exec", &host.to_string(), "pkill", "-9", "-e", "-f", pattern])?;
                killed.contains("killed")
            }
            // One that is not reached yet would be waited for 20 min.
            (CloudFault::Power, Some(host)) if self.trains(host)? => {
                self.lab(&["kill", &host.to_string()])?;
                true
            }
            (CloudFault::Power, Some(_)) => false,
            (CloudFault::Notice, Some(host)) => self.cloud.notice(host, notice).map_err(|error| error.to_string())?,
        };
        *self.done.entry(fault).or_default() += u64::from(is_made);
        Ok(is_made)
    }

    fn trains(&self, host: u8) -> Result<bool, String> {
        Ok(self.lab(&["exec", &host.to_string(), "ps", "-eo", "args"])?.contains("gradus-rank"))
    }

    /// Waits until every run has ended, and nothing is rented.
    fn calm(&mut self) -> Result<(), String> {
        let begun = Instant::now();
        self.home.end_fault();
        loop {
            self.home.mend()?;
            let left: Vec<ListedRun> = self.home.runs()?.into_iter().filter(|run| !run.is_over()).collect();
            if left.is_empty() {
                break;
            }
            if begun.elapsed() > PATIENCE {
                return Err(format!("{} s after the last fault these have not ended: {left:?}", PATIENCE.as_secs()));
            }
            std::thread::sleep(Duration::from_secs(1));
        }
        let begun = Instant::now();
        while !self.cloud.rented().is_empty() {
            if begun.elapsed() > RELEASED {
                return Err(format!("every run has ended, and these are rented: {:?}", self.cloud.rented()));
            }
            std::thread::sleep(Duration::from_secs(1));
        }
        let begun = Instant::now();
        loop {
            let log = self.home.log()?;
            let is_billed = |run: &ListedRun| log.iter().any(|one| one["event"] == "billed" && one["run"] == *run.run);
            let left: Vec<ListedRun> = self.home.runs()?.into_iter().filter(|run| !is_billed(run)).collect();
            if left.is_empty() {
                return Ok(());
            }
            if begun.elapsed() > BILLED {
                return Err(format!("{} s after their end these are not billed: {left:?}", BILLED.as_secs()));
            }
            std::thread::sleep(Duration::from_secs(2));
        }
    }

    /// What is wrong now that everything is over; else what there is to tell.
    fn judge(&self, truth: &[u8]) -> Result<String, String> {
        let (runs, models) = (self.home.runs()?, self.home.models(StormJob::Trainer)?);
        let failed: Vec<&ListedRun> = runs.iter().filter(|run| run.word != StormJob::Trainer.success()).collect();
        if !failed.is_empty() {
            return Err(format!("without their result: {failed:?}"));
        }
        let is_other = |run: &&ListedRun| models.get(&run.run).is_none_or(|model| model != truth);
        let others: Vec<&ListedRun> = runs.iter().filter(is_other).collect();
        if !others.is_empty() {
            return Err(format!("another model than that of an undisturbed run: {others:?}"));
        }
        if (runs.len() as u64) < self.submitted + 1 {
            return Err(format!("{} runs were submitted, and there are {}", self.submitted, runs.len() - 1));
        }
        let left = self.home.gradus(&["cloud", "audit", "aws", "--json"])?;
        if !left.is_empty() {
            return Err(format!("the audit finds what is left: {left}"));
        }
        let found = judge::judged(&self.home.log()?, &self.cloud.meter())?;
        Ok(format!("{} runs, all with the model of an undisturbed one; {found}", runs.len() - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_is_read() {
        let read = |line: &str| options(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(read(""), Ok(CloudOptions { faults: 200, seed: 1, hosts: 5, builds: true }));
        let some = CloudOptions { faults: 20, seed: 7, hosts: 3, builds: false };
        assert_eq!(read("--faults 20 --seed 7 --on 1 --built"), Ok(some));
        assert!(read("--fire").unwrap_err().starts_with("`--fire` is not known; there are --faults N, "));
        assert!(read("--seed").unwrap_err().contains("needs a value"));
    }

    #[test]
    fn what_is_killed_is_a_process_and_what_is_not_is_none() {
        for fault in FAULTS {
            let is_killed = matches!(fault, CloudFault::Agent | CloudFault::Rank | CloudFault::Connections);
            assert_eq!(fault.pattern().is_some(), is_killed, "{}", fault.word());
        }
    }
}
