//! One home with a control loop, the provider `local` and this test program in the roles of `gradus` and `gradus-rank`.
//! Remaining processes of a scene are ended when it is dropped.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use cloud::{LaunchRequest, Local, LocalSettings, Sight};
use domain::rank::Report;
use domain::run::{AttemptEnd, Usage};
use domain::wire::{AgentCommand, AgentEvent, Entry, NodeRank, Start};
use domain::{AttemptId, Fence, Finding, InstanceId, Job, Rate, RunId};

use crate::control::Control;

pub struct Scene {
    pub control: Control,
    pub local: Local,
    pub run: RunId,
    pub instance: InstanceId,
    pub folder: PathBuf,
    pub libtorch: PathBuf,
    _temporary: tempfile::TempDir,
}

impl Scene {
    /// A scene whose agent is up; `patience` is passed to the agent's role.
    pub fn new(name: &str, patience: &str) -> Scene {
        Scene::below(name, "home", patience)
    }

    /// The same, with the home at `inner` below a temporary folder.
    pub fn below(name: &str, inner: &str, patience: &str) -> Scene {
        let scene = Scene::idle(name, inner, patience);
        scene.local.launch(&scene.launch()).unwrap();
        scene
    }

    /// A scene whose agent was not launched yet.
    pub fn idle(name: &str, inner: &str, patience: &str) -> Scene {
        let temporary = tempfile::tempdir().unwrap();
        let home = temporary.path().join(inner);
        fs::create_dir_all(&home).unwrap();
        let libtorch = temporary.path().join("libtorch");
        fs::create_dir_all(libtorch.join("lib")).unwrap();
        for library in domain::torch::LIBRARIES {
            fs::write(libtorch.join("lib").join(library), "").unwrap();
        }
        fs::write(libtorch.join("build-version"), format!("{}+cpu\n", domain::torch::VERSION)).unwrap();
        let control = Control::start(temporary.path());
        let run = RunId::new(format!("{name}-1"));
        let agent = format!("export GRADUS_TEST_FOLDER=\"$3\" GRADUS_TEST_PATIENCE={patience}\n");
        let local = Local::new(LocalSettings {
            home: home.clone(),
            program: role(&temporary.path().join("gradus"), "agent_process", &agent),
            owner: format!("test-{name}-{}", std::process::id()),
            rate: Rate::default(),
            price_source: "test".into(),
            socket: control.socket.clone(),
            rank_program: role(
                &temporary.path().join("gradus-rank"),
                "rank_process",
                "export GRADUS_TEST_SPEC=\"$1\"\n",
            ),
            libtorch: Some(libtorch.clone()),
            is_remote: false,
            address: None,
            join: None,
        });
        let folder = home.join("runs").join(run.as_str());
        Scene { control, local, instance: run.instance(1), run, folder, libtorch, _temporary: temporary }
    }

    pub fn launch(&self) -> LaunchRequest {
        let offer = self.local.offers().unwrap().remove(0);
        let members = vec![self.instance.clone()];
        LaunchRequest {
            members,
            token: "token".into(),
            offer,
            price_cap: None,
            expires: None,
            first_answer: None,
            has_peers: false,
        }
    }

    pub fn attempt(&self, number: u64) -> AttemptId {
        self.run.attempt(Fence(number))
    }

    /// The order to start attempt `number` of the job in `file`.
    pub fn start(&self, number: u64, file: &str) -> AgentCommand {
        let job = Job::parse(file, "job.yaml").unwrap_or_else(|problems| panic!("{problems:?}")).job;
        AgentCommand::Start(Box::new(Start {
            run: self.run.clone(),
            attempt: self.attempt(number),
            fence: Fence(number),
            job,
            job_hash: "hash".into(),
            threads: 1,
            accept_data_change: false,
            member: None,
            folder: self.folder.to_string_lossy().into_owned(),
        }))
    }

    /// An order to prepare an attempt on two machines, of which this one has node rank 1.
    pub fn prepare(&self, number: u64, file: &str) -> AgentCommand {
        let AgentCommand::Start(mut start) = self.start(number, file) else { unreachable!() };
        start.member = Some(NodeRank { rank: 1, nodes: 2 });
        AgentCommand::Prepare(start)
    }

    /// Orders the first attempt of `file` and waits for its end.
    pub fn run(&self, file: &str) -> AttemptEnd {
        self.control.order(vec![self.start(1, file)]);
        self.end(1)
    }

    pub fn end(&self, number: u64) -> AttemptEnd {
        let attempt = self.attempt(number);
        let entries = self.control.wait("end of the attempt", |entries| ended(entries, &attempt).is_some());
        ended(&entries, &attempt).unwrap()
    }

    /// Waits until rank 0 has reported step `step`.
    pub fn step(&self, step: u64) {
        let is_step = |report: &Report| matches!(report, Report::Step(found) if found.step >= step);
        self.control.wait("step", |entries| reports(entries).iter().any(is_step));
    }

    pub fn started(&self) {
        self.control.wait("start", |entries| entries.iter().any(|entry| entry.event == AgentEvent::Started));
    }

    pub fn log(&self, number: u64) -> String {
        let name = format!("{}-rank-0.log", self.attempt(number));
        fs::read_to_string(self.folder.join("logs").join(name)).unwrap()
    }

    /// The agent's log, including its exit code.
    pub fn agent_log(&self) -> String {
        fs::read_to_string(self.local.folder(&self.instance).join("agent.log")).unwrap()
    }

    /// The agent's process, once it has signed.
    pub fn agent(&self) -> i32 {
        let lock = self.local.folder(&self.instance).join("agent.lock");
        until("signed lock", || fs::read_to_string(&lock).ok()?.trim().parse().ok())
    }

    /// Waits until the provider reports the instance as gone.
    pub fn gone(&self) -> Usage {
        until("proof that it is gone", || match self.local.sight(&self.instance).unwrap() {
            Sight::Gone(usage) => Some(usage.expect("it was metered")),
            Sight::Alive => None,
            Sight::Unknown => panic!("it was launched"),
        })
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        // Twice the grace period of a release, so that a failed test leaves no processes either.
        for _ in 0..500 {
            match self.local.sight(&self.instance) {
                Ok(Sight::Alive) => self.local.release(&self.instance).unwrap_or(()),
                Ok(Sight::Gone(_) | Sight::Unknown) | Err(_) => return,
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Waits for something that happens outside.
pub fn until<T>(what: &str, look: impl Fn() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "no {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub fn ended(entries: &[Entry], attempt: &AttemptId) -> Option<AttemptEnd> {
    entries.iter().filter(|entry| entry.attempt == *attempt).find_map(|entry| match &entry.event {
        AgentEvent::Ended { end } => Some(end.clone()),
        AgentEvent::Prepared { .. } | AgentEvent::Started | AgentEvent::Reported { .. } => None,
        AgentEvent::Idle | AgentEvent::Unknown => None,
    })
}

pub fn reports(entries: &[Entry]) -> Vec<Report> {
    let reports = entries.iter().filter_map(|entry| match &entry.event {
        AgentEvent::Reported { report, .. } => Some(report.clone()),
        AgentEvent::Prepared { .. } | AgentEvent::Started | AgentEvent::Ended { .. } => None,
        AgentEvent::Idle | AgentEvent::Unknown => None,
    });
    reports.collect()
}

pub fn finding(end: AttemptEnd) -> (Finding, Option<i32>) {
    match end {
        AttemptEnd::Failed { finding, exit_code } => (finding, exit_code),
        AttemptEnd::Trained { .. } | AttemptEnd::Succeeded | AttemptEnd::Stopped { .. } => {
            panic!("no failure: {end:?}")
        }
    }
}

/// Whether a process runs; a zombie does not.
pub fn is_alive(pid: i32) -> bool {
    stat(pid).is_some_and(|fields| fields[0] != "Z")
}

/// The session of a process.
pub fn session(pid: i32) -> i32 {
    stat(pid).expect("it runs")[3].parse().unwrap()
}

/// The fields of `/proc/<pid>/stat` from the state on.
fn stat(pid: i32) -> Option<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(text.rsplit_once(") ")?.1.split(' ').map(str::to_owned).collect())
}

pub fn kill(pid: i32, signal: rustix::process::Signal) {
    rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), signal).unwrap();
}

/// A script that becomes this test program in another role.
fn role(path: &Path, test: &str, variables: &str) -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let arguments = format!("--exact {test} --ignored --test-threads=1 --nocapture --quiet");
    let script = format!("#!/bin/sh\n{variables}exec '{}' {arguments}\n", program.display());
    write_program(path, &script);
    path.to_owned()
}

/// Writes a script that can be executed, by another process: while a child that another test starts has the file open,
/// nobody can execute it.
pub fn write_program(path: &Path, script: &str) {
    let draft = path.with_extension("draft");
    fs::write(&draft, script).unwrap();
    let install = Command::new("install").args(["-m", "755"]).arg(&draft).arg(path).status().unwrap();
    assert!(install.success());
}
