//! `cargo xtask chaos --hosts`: jobs on machines that lose power, network, processes, disk space and the time, behind a
//! server that is killed.
//!
//! The hosts are namespaces with an sshd each (`lab::hosts`). As many jobs as there are hosts run at any time; [`faults`]
//! are drawn from the seed. Every model must be that of a run on this machine that nothing happened to, and nothing may be
//! left on a host. What a fault did to which run follows from time and host alone ([`super::recoveries`]).

mod bootstrap;
pub(super) mod cloud;
mod faults;
mod gangs;
mod jobs;
mod options;
mod schedules;
mod served;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use xtask::build::{self, Programs};
use xtask::doing::Outcome;
use xtask::draws::Draws;
use xtask::lab::hosts as lab;

use super::recoveries::{self, HostFault};
use bootstrap::BareHost;
use faults::Fault;
use gangs::GangFailures;
use jobs::{JobPlace, StormJob};
use options::{HostsOptions, options};
use served::{ListedRun, ServedHome};

/// After the last fault all runs must end within this.
const PATIENCE: Duration = Duration::from_secs(900);

/// Size of each host's disk in MB: programs, libtorch, data and checkpoints.
const DISK_MB: &str = "3000";

/// Between two looks for runs that a full disk has ended, and how long `gradus resume` may take to say so to the server.
const RESUMING: Duration = Duration::from_secs(5);
const SAYING: Duration = Duration::from_secs(2);

/// The storm, and what it works on.
struct HostsStorm {
    root: PathBuf,
    lab: PathBuf,
    home: ServedHome,
    jobs: StormJob,
    draws: Draws,
    /// Hosts that are off, cut off or cannot write, with what ends that and when.
    away: BTreeMap<u64, (&'static str, Instant)>,
    submitted: u64,
    /// Resumes of runs that a full disk has ended, and when the next is due.
    resumed: u64,
    resume_at: Instant,
    done: BTreeMap<Fault, u64>,
    /// Those that were made to a host with jobs.
    faults: Vec<HostFault>,
    /// When each schedule of one or two faults began, in microseconds since 1970.
    schedules: Vec<i64>,
    /// The host that gradus is installed on while connections are cut.
    bare: Option<BareHost>,
}

/// Starts the hosts, makes the faults, and judges.
pub fn storm(root: &Path, arguments: &[String]) -> Outcome {
    let options = options(arguments)?;
    let programs = match options.builds {
        true => build::programs(root, false)?,
        false => {
            let folder = build::target(root).join("release");
            Programs { gradus: folder.join("gradus"), rank: folder.join("gradus-rank") }
        }
    };
    let folder = std::env::temp_dir().join(format!("gradus-chaos-hosts-{}", std::process::id()));
    let lab_folder = build::target(root).join("lab/chaos-hosts");
    lab::down(&lab_folder)?;
    let bare = options.kinds.contains(&Fault::Bootstrap);
    let bare = bare.then(|| BareHost { number: options.hosts + 1, home: folder.join("bare-home") });
    let count = u8::try_from(bare.as_ref().map_or(options.hosts, |bare| bare.number))?;
    let tried = lab::up(root, &lab_folder, count).map_err(|error| error.to_string()).and_then(|_| {
        let mut storm = HostsStorm {
            root: root.to_owned(),
            lab: lab_folder.clone(),
            home: ServedHome::new(folder.join("home"), programs, Vec::new()),
            jobs: options.jobs,
            draws: Draws::new(options.seed),
            away: BTreeMap::new(),
            submitted: 0,
            resumed: 0,
            resume_at: Instant::now(),
            done: BTreeMap::new(),
            faults: Vec::new(),
            schedules: Vec::new(),
            bare,
        };
        let told = storm.run(&options, &folder);
        storm.home.kill();
        told
    });
    lab::down(&lab_folder)?;
    let told =
        tried.map_err(|why| format!("chaos on hosts (seed {}): {why}; kept in {}", options.seed, folder.display()))?;
    let _ = fs::remove_dir_all(&folder);
    Ok(told)
}

impl HostsStorm {
    fn run(&mut self, options: &HostsOptions, folder: &Path) -> Result<String, String> {
        let truth = self.truth(folder, options.nodes)?;
        let config = self.lab.join("ssh_config");
        for host in 1..=options.hosts {
            if options.kinds.iter().any(|kind| kind.needs_refit()) {
                self.lab_done(&["refit", &host.to_string(), DISK_MB])?;
            }
            self.home.gradus(&["nodes", "add", &format!("host-{host}"), "--ssh-config", &config.to_string_lossy()])?;
        }
        if let Some(bare) = &self.bare {
            // Without libtorch there is something to copy for a while.
            self.lab_done(&["exec", &bare.number.to_string(), "umount", "/root/.cache/gradus"])?;
        }
        let job = self.jobs.write(folder, &self.root, JobPlace::Hosts(options.nodes, options.spares))?;
        self.home.start()?;
        let begun = Instant::now();
        let made = match options.schedules {
            0 => self.at_random(&job, options)?,
            number => self.by_schedules(number, &job, options)?,
        };
        let faults = begun.elapsed();
        self.calm(PATIENCE)?;
        let judged = self.judge(&truth, options.hosts)?;
        let kinds: Vec<String> = self.done.iter().map(|(fault, count)| format!("{} {count}", fault.word())).collect();
        eprintln!("faults: {} in {:.0} s", kinds.join(", "), faults.as_secs_f64());
        eprintln!("resumed after a full disk: {}", self.resumed);
        Ok(format!("chaos on {} hosts: {made} faults, {judged} (seed {})", options.hosts, options.seed))
    }

    /// Makes so many faults, whatever the last ones are doing. Returns how many.
    fn at_random(&mut self, job: &str, options: &HostsOptions) -> Result<u64, String> {
        let (mut made, mut next) = (0, Instant::now() + Duration::from_secs(3));
        while made < options.faults {
            self.mend()?;
            self.resume_full()?;
            self.keep_busy(job, options.jobs_at_once())?;
            if Instant::now() >= next {
                made += u64::from(self.fault(&options.kinds, options.hosts)?);
                next = Instant::now() + Duration::from_millis(500 + self.draws.below(4000));
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        Ok(made)
    }

    /// The model of a run that nothing happens to, with as many processes.
    fn truth(&self, folder: &Path, processes: u64) -> Result<Vec<u8>, String> {
        fs::create_dir_all(folder).map_err(|error| error.to_string())?;
        let job = self.jobs.write(folder, &self.root, JobPlace::Here(processes))?;
        self.home.gradus(&["run", &job, "--yes", "--json"])?;
        let models = self.home.models(self.jobs)?;
        models.into_values().next().ok_or_else(|| "the undisturbed run left no model".to_owned())
    }

    fn lab(&self, arguments: &[&str]) -> Result<String, String> {
        let folder = self.lab.to_string_lossy().into_owned();
        let program = self.lab.join("lab");
        let mut command = Command::new(&program);
        let output = command.args(arguments).output().map_err(|error| format!("`{folder}/lab`: {error}"))?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// The same, where it must succeed.
    fn lab_done(&self, arguments: &[&str]) -> Result<(), String> {
        let output = Command::new(self.lab.join("lab")).args(arguments).output();
        let output = output.map_err(|error| format!("`{}/lab`: {error}", self.lab.display()))?;
        match output.status.success() {
            true => Ok(()),
            false => Err(format!("`lab {}`: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim())),
        }
    }

    /// What comes back by itself: the server, power, networks, disks.
    fn mend(&mut self) -> Result<(), String> {
        self.home.mend()?;
        let due: Vec<(u64, &str)> = self
            .away
            .iter()
            .filter(|(_, (_, at))| Instant::now() >= *at)
            .map(|(host, (verb, _))| (*host, *verb))
            .collect();
        for (host, verb) in due {
            self.end(verb, host)?;
            self.away.remove(&host);
        }
        Ok(())
    }

    /// Submits jobs until so many run or wait.
    fn keep_busy(&mut self, job: &str, jobs: u64) -> Result<(), String> {
        if !self.home.is_served() {
            return Ok(());
        }
        let live = self.home.runs()?.iter().filter(|run| !run.is_over()).count() as u64;
        for _ in live..jobs {
            // Without a server a run of its own would be started.
            self.home.gradus(&["run", job, "--detach", "--yes", "--new", "--json"])?;
            self.submitted += 1;
        }
        Ok(())
    }

    /// Resumes runs that a full disk has ended, once no disk is full. What is refused is tried again.
    fn resume_full(&mut self) -> Result<(), String> {
        let is_full = self.away.values().any(|(back, _)| *back == "empty");
        if !self.home.is_served() || is_full || Instant::now() < self.resume_at {
            return Ok(());
        }
        self.resume_at = Instant::now() + RESUMING;
        for run in self.home.runs()?.iter().filter(|run| run.is_full()) {
            let mut command = self.home.command(&["resume", &run.run, "--json"]);
            let started = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
            let mut child = started.map_err(|error| format!("cannot resume `{}`: {error}", run.run))?;
            // It would follow the run to its end.
            std::thread::sleep(SAYING);
            let _ = child.kill();
            let _ = child.wait();
            self.resumed += 1;
        }
        Ok(())
    }

    /// Ends every fault, and waits until every run has ended.
    fn calm(&mut self, within: Duration) -> Result<(), String> {
        let begun = Instant::now();
        for (_, at) in self.away.values_mut() {
            *at = Instant::now();
        }
        self.home.end_fault();
        loop {
            self.mend()?;
            self.resume_full()?;
            let left: Vec<ListedRun> = self.home.runs()?.into_iter().filter(|run| !run.is_over()).collect();
            if left.is_empty() {
                return Ok(());
            }
            if begun.elapsed() > within {
                return Err(format!("{} s after the last fault these runs have not ended: {left:?}", within.as_secs()));
            }
            std::thread::sleep(Duration::from_secs(1));
        }
    }

    /// What is wrong now that everything is over; else what there is to tell.
    fn judge(&mut self, truth: &[u8], hosts: u64) -> Result<String, String> {
        let (runs, models) = (self.home.runs()?, self.home.models(self.jobs)?);
        let failed: Vec<&ListedRun> = runs.iter().filter(|run| run.word != self.jobs.success()).collect();
        if !failed.is_empty() {
            return Err(format!("without their result: {failed:?}"));
        }
        let others: Vec<&str> = runs
            .iter()
            .map(|run| run.run.as_str())
            .filter(|run| models.get(*run).is_none_or(|model| model != truth))
            .collect();
        if !others.is_empty() {
            return Err(format!("another model than that of an undisturbed run: {others:?}"));
        }
        if runs.len() as u64 != self.submitted + 1 {
            return Err(format!("{} runs were submitted, and there are {}", self.submitted, runs.len() - 1));
        }
        self.recoveries()?;
        self.judge_bootstrap()?;
        for host in 1..=hosts {
            let listed = self.lab(&["exec", &host.to_string(), "ps", "-eo", "args"])?;
            let left: Vec<&str> = listed.lines().filter(|line| line.contains(".gradus/")).collect();
            if !left.is_empty() {
                return Err(format!("left running on host-{host}: {left:?}"));
            }
            self.home.gradus(&["nodes", "rm", &format!("host-{host}")])?;
            let left = self.lab(&["exec", &host.to_string(), "find", "/root/.gradus"])?;
            if !left.is_empty() {
                return Err(format!("left on the disk of host-{host}: {left}"));
            }
        }
        Ok(format!("{} runs, all with the model of an undisturbed one", self.submitted))
    }

    /// The host of an instance.
    fn host_of(&self, instance: &str) -> Option<String> {
        let host = fs::read_to_string(self.home.folder.join("instances").join(instance).join("host")).ok()?;
        Some(host.trim().to_owned())
    }

    /// Prints how long it took to notice the faults, and until steps were made again. An error where faults were made by
    /// schedules, and attempts on several hosts did not end as they should.
    fn recoveries(&self) -> Result<(), String> {
        let (log, host_of) = (self.home.log()?, |instance: &str| self.host_of(instance));
        recoveries::table(&log, &self.faults, &host_of).iter().for_each(|line| eprintln!("  {line}"));
        let gangs = GangFailures::read(&log, (&self.faults, &self.schedules), &host_of);
        gangs.lines().iter().for_each(|line| eprintln!("  {line}"));
        let problem = gangs.problem().filter(|_| !self.schedules.is_empty());
        problem.map_or(Ok(()), Err)
    }
}
