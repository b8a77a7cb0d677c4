//! Starts the scripts of a user's program: on the machine or in its container, and held to what its job asks for.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use domain::rank::Report;
use domain::run::AttemptEnd;
use domain::wire::AgentEvent;
use domain::{Bytes, Cause, Finding};
use node::oom::limits::{LimitedGroup, ResourceLimits};
use node::oom::{KillCounters, MemoryKill};

use super::super::events::reported;
use super::super::process::Process;
use super::super::verdict::Role;
use super::super::{Attempt, Stage, Working};
use super::container::container_name;
use super::{Container, Observer, ProgramLink, Resume, WatchedPlaces, command};

/// Moves itself to the control group whose list of processes is named, and becomes the program.
const ENTER: &str = r#"echo 0 > "$1" || echo "gradus: this script is not held to its limits" >&2; shift; exec "$@""#;

impl Attempt {
    /// Starts one of the user's scripts. The attempt counts as started when `run` does.
    pub(in crate::attempt) fn start_program(&mut self, role: Role, text: &str) -> Vec<AgentEvent> {
        let mut events = self.limit();
        let Working::Command { folder, link, .. } = &self.work else { return events };
        let checkpoints = Path::new(&self.start.folder).join("checkpoints");
        let resume = if role == Role::Program { Resume::look(&checkpoints) } else { Resume::default() };
        // What the program writes is its own from here on.
        let places = WatchedPlaces::before_start(&self.log, folder.join("workdir"), checkpoints);
        let given = (link.as_ref().map(ProgramLink::path), &resume);
        let started = command(&self.start, role, text, folder, &self.nodes, given).and_then(|plain| {
            let mut command = self.contained(plain)?;
            self.tools.tag(&mut command, &self.start.attempt);
            Process::start(command, &self.log, self.start.job.secret_values(), &self.start.attempt, &self.tools.events)
        });
        match started {
            Ok(process) => {
                self.stage = Stage::Running { process, role, kills: self.kill_counters() };
                if role == Role::Program {
                    events.extend(self.program_started(&resume, places));
                }
            }
            Err(finding) => {
                let end = AttemptEnd::Failed { finding: *finding, exit_code: None };
                let (kill_at, next) = (Duration::ZERO, Duration::ZERO);
                self.stage = Stage::Sweeping { end, kill_at, next, is_told: false, seen: None };
            }
        }
        events
    }

    /// The user's program runs: what can be seen of it is reported, unless it reports itself.
    fn program_started(&mut self, resume: &Resume, places: WatchedPlaces) -> Vec<AgentEvent> {
        let id = self.start.attempt.clone();
        if let Working::Command { command, observer, .. } = &mut self.work {
            let before = resume.before(self.start.fence.0);
            *observer = Some(Observer::start(&command.progress, places, before, &id, self.tools.events.clone()));
        }
        let notes = resume.notes().into_iter().map(|text| reported(Report::Note { text }));
        std::iter::once(AgentEvent::Started).chain(notes).collect()
    }

    /// The command that runs in the attempt's container, or as its user and in its control group, what `plain` runs on the
    /// machine.
    fn contained(&self, plain: Command) -> Result<Command, Box<Finding>> {
        if let Some(container) = &self.container {
            return container.enter(&plain, |name| self.start.job.secrets.contains_key(name));
        }
        let plain = match &self.tools.program_user {
            Some(user) => self.as_user(plain, user),
            None => plain,
        };
        Ok(match &self.limited {
            Some(group) => limited(&plain, group.path()),
            None => plain,
        })
    }

    /// Makes the control group of the job's limits before the first script; that there is none is said, once.
    fn limit(&mut self) -> Vec<AgentEvent> {
        let needs = self.start.job.needs;
        let is_first = matches!(self.stage, Stage::Staging) || !self.has_setup() && self.limited.is_none();
        // A container has its limits from its runtime.
        if !needs.enforce || self.container.is_some() || !is_first {
            return Vec::new();
        }
        let limits = ResourceLimits { memory: needs.memory, cores: needs.cores };
        // No other owner's attempt has the same name.
        let name = container_name(self.start.attempt.as_str(), &self.tools.owner);
        match LimitedGroup::make(&name, &limits) {
            Ok(group) => {
                self.limited = Some(group);
                Vec::new()
            }
            Err(why) => {
                let text = format!("`enforce` has no effect: {why}; the program runs without a limit");
                vec![reported(Report::Note { text })]
            }
        }
    }

    /// Whether `setup` is the first script of this attempt.
    fn has_setup(&self) -> bool {
        matches!(&self.work, Working::Command { command, setup, .. } if command.setup.is_some() && !setup.is_left_out)
    }

    /// What the kernel has killed for memory, counted where the attempt's processes are.
    pub(in crate::attempt) fn kill_counters(&self) -> KillCounters {
        let counter = self.container.as_ref().and_then(|container| container.view().kill_counter());
        match (&self.limited, counter) {
            (Some(group), _) => KillCounters::of(group.path()),
            (None, Some(file)) => KillCounters::in_file(file),
            (None, None) => KillCounters::read(),
        }
    }

    /// The end of an attempt, with what its limit has to do with it.
    pub(in crate::attempt) fn at_limit(&self, end: AttemptEnd, memory: MemoryKill) -> AttemptEnd {
        let is_contained = self.container.as_ref().is_some_and(|container| container.view().is_limited());
        let is_limited = self.limited.is_some() || is_contained;
        let limit = self.start.job.needs.memory.filter(|_| is_limited && memory == MemoryKill::Here);
        match limit {
            Some(limit) => reached(end, limit),
            None => end,
        }
    }

    /// The end of a program whose container somebody else has ended, which is no failure of its own.
    pub(in crate::attempt) fn of_container(&self, end: AttemptEnd) -> AttemptEnd {
        let is_by_others = self.container.as_ref().is_some_and(Container::is_ended_by_others);
        if self.ending.is_none() && is_by_others { ended_by_others(end) } else { end }
    }
}

/// Says of a failure that somebody else has caused it, so that another attempt may follow.
fn ended_by_others(end: AttemptEnd) -> AttemptEnd {
    match end {
        AttemptEnd::Failed { finding, .. }
            if matches!(finding.cause, Cause::ExitCode | Cause::Setup | Cause::Killed) =>
        {
            let message = format!("the container was ended by somebody else than gradus: {}", finding.message);
            let hint = "see who stops containers on the machine, such as `podman stop`, or docker when it is restarted";
            AttemptEnd::Failed { finding: Finding::new(Cause::Killed, message).hint(hint), exit_code: None }
        }
        end => end,
    }
}

/// The same program with the same variables, in a control group.
fn limited(plain: &Command, group: &Path) -> Command {
    let mut command = Command::new("bash");
    command.args(["-c", ENTER, "bash"]).arg(group.join("cgroup.procs")).arg(plain.get_program()).args(plain.get_args());
    if let Some(folder) = plain.get_current_dir() {
        command.current_dir(folder);
    }
    for (name, value) in plain.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
}

/// Says of a failure what the program may use and what to do. The message may end with lines of its log.
fn reached(end: AttemptEnd, limit: Bytes) -> AttemptEnd {
    let AttemptEnd::Failed { finding, exit_code } = end else { return end };
    let gigabytes = limit.0 as f64 / 1e9;
    let more = format!(
        "it may use {gigabytes:.1} GB (`resources.memory` with `enforce`): write a larger `memory`, or leave `enforce` out"
    );
    let hint = finding.hint.as_ref().map_or_else(|| more.clone(), |hint| format!("{more}; or {hint}"));
    AttemptEnd::Failed { finding: finding.hint(hint), exit_code }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_in_a_control_group_is_the_same_but_for_that() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("run.sh");
        std::fs::write(&script, "echo $A[$B] $(basename $PWD)\n").unwrap();
        std::fs::create_dir(folder.path().join("workdir")).unwrap();
        let mut plain = Command::new("bash");
        plain.arg(&script).current_dir(folder.path().join("workdir")).env("A", "a b").env_remove("B");
        let found = limited(&plain, folder.path()).env("B", "").output().unwrap();
        assert_eq!(String::from_utf8_lossy(&found.stdout), "a b[] workdir\n");
        assert_eq!(std::fs::read_to_string(folder.path().join("cgroup.procs")).unwrap(), "0\n");
        // Without the group it runs all the same, and says so.
        let found = limited(&plain, Path::new("/nonexistent")).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&found.stdout), "a b[] workdir\n");
        assert!(String::from_utf8_lossy(&found.stderr).contains("not held to its limits"));
    }

    #[test]
    fn a_container_that_others_have_ended_is_no_failure_of_the_program() {
        let failed = |cause| AttemptEnd::Failed { finding: Finding::new(cause, "code 255"), exit_code: Some(255) };
        for cause in [Cause::ExitCode, Cause::Setup, Cause::Killed] {
            let AttemptEnd::Failed { finding, exit_code } = ended_by_others(failed(cause)) else { panic!("{cause:?}") };
            assert_eq!((finding.cause, exit_code), (Cause::Killed, None));
            assert!(finding.message.ends_with("by somebody else than gradus: code 255"), "{}", finding.message);
        }
        for end in [failed(Cause::OutOfMemory), failed(Cause::RankLost), AttemptEnd::Succeeded] {
            assert_eq!(ended_by_others(end.clone()), end);
        }
    }

    #[test]
    fn an_end_at_the_limit_says_so_and_what_to_do() {
        let failed = |cause, hint: &str| AttemptEnd::Failed {
            finding: Finding::new(cause, "the kernel killed `run` because memory ran out").hint(hint),
            exit_code: None,
        };
        let AttemptEnd::Failed { finding, .. } = reached(failed(Cause::OutOfMemory, "do less"), Bytes(8_000_000_000))
        else {
            panic!("it has failed")
        };
        assert!(finding.message.ends_with("because memory ran out"), "{}", finding.message);
        let expected = "it may use 8.0 GB (`resources.memory` with `enforce`): write a larger `memory`, or leave `enforce` out; or do less";
        assert_eq!(finding.hint.as_deref(), Some(expected));
        assert_eq!(reached(AttemptEnd::Succeeded, Bytes(1)), AttemptEnd::Succeeded);
    }
}
