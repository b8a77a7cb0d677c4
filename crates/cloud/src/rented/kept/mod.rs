//! Machines that are stopped and keep their disk: `CLOUD/kept/HANDLE.json` in the home, from when their stop is asked for until
//! they are gone. Nothing deletes the disk of a machine that is written down here as stopped, but `gradus machines down`.

mod deleted;
mod restart;
pub(crate) mod start;
#[cfg(test)]
pub(crate) mod twin;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use domain::rental::MachineState;
use domain::{InstanceId, Money, Offer, Rate, RunId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::rented::rentals::replace;

/// A machine that was stopped at least once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptMachine {
    /// The cloud's name of it.
    pub handle: String,
    pub region: String,
    /// The account in which it was rented.
    #[serde(default)]
    pub account: Option<String>,
    /// Our name of it in the run that has it, or had it last.
    pub instance: InstanceId,
    /// What was rented, as it was offered first.
    pub offer: Offer,
    /// What its disk costs.
    pub disk: Rate,
    pub state: KeptState,
}

/// Where it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeptState {
    /// It is stopped, or is once its run has ended. What its disk has cost until `since` is counted.
    Stopped { since: Timestamp },
    /// Its start was asked for and is not known to have come about.
    Starting { since: Timestamp },
    /// Its start was accepted `at`, and it was not reached since: where that never comes about, its disk stays.
    Accepted { since: Timestamp, at: Timestamp },
    /// A run has it.
    Started,
}

/// Time for which the disk of a machine was paid for while its start waited for capacity. It is written down until the bill of
/// the run that waited has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskWait {
    /// The cloud's name of the machine.
    pub handle: String,
    /// Our name of it in the run that waited.
    pub instance: InstanceId,
    /// What the disk costs.
    pub disk: Rate,
    pub from: Timestamp,
    pub until: Timestamp,
}

impl DiskWait {
    /// The run that waited.
    pub fn run(&self) -> RunId {
        run_of(&self.instance)
    }

    /// What it has cost.
    pub fn cost(&self) -> Money {
        self.disk.cost(self.until.since(self.from))
    }

    fn file(&self) -> String {
        format!("{}-{}.json", self.handle, self.from.0)
    }
}

/// What the end of a machine is to its cloud.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MachineEnd {
    /// It is deleted, with its disk.
    Delete,
    /// It is stopped, and its disk stays.
    Stop,
    /// It is not this name's any more.
    Leave,
}

fn run_of(instance: &InstanceId) -> RunId {
    let name = instance.as_str();
    RunId::new(name.rsplit_once("-i").map_or(name, |(run, _)| run))
}

impl KeptMachine {
    /// The run that has it, or had it last.
    pub fn run(&self) -> RunId {
        run_of(&self.instance)
    }

    /// Since when its disk alone is paid for; none while a run has it.
    pub fn stopped(&self) -> Option<Timestamp> {
        match self.state {
            KeptState::Stopped { since } | KeptState::Starting { since } | KeptState::Accepted { since, .. } => {
                Some(since)
            }
            KeptState::Started => None,
        }
    }

    /// Until when its disk alone is paid for: now, or when its start was accepted. None while a run has it.
    pub fn unpaid(&self, now: Timestamp) -> Option<(Timestamp, Timestamp)> {
        match self.state {
            KeptState::Stopped { since } | KeptState::Starting { since } => Some((since, now)),
            KeptState::Accepted { since, at } => Some((since, at)),
            KeptState::Started => None,
        }
    }

    /// The same as it is written down, of one that is started, stopped again, or gone.
    fn wait(&self, now: Timestamp) -> Option<DiskWait> {
        let (from, until) = self.unpaid(now)?;
        let (handle, instance, disk) = (self.handle.clone(), self.instance.clone(), self.disk);
        Some(DiskWait { handle, instance, disk, from, until })
    }
}

/// Where a machine whose start was asked for stands once its cloud lists it in this state; none where that stays as it is. Only
/// one that was reached belongs to its run: any other is stopped again with its disk. `asked` is when its start was asked for
/// last.
pub fn after_start(
    kept: &KeptMachine,
    listed: MachineState,
    (is_reached, asked): (bool, Timestamp),
) -> Option<KeptState> {
    let since = match (kept.state, listed) {
        (KeptState::Accepted { since, .. }, _) => since,
        // It is on: only the answer to its start was lost.
        (KeptState::Starting { since }, MachineState::Pending | MachineState::Running) => {
            return Some(KeptState::Accepted { since, at: asked });
        }
        (KeptState::Starting { .. } | KeptState::Stopped { .. } | KeptState::Started, _) => return None,
    };
    match listed {
        MachineState::Running if is_reached => Some(KeptState::Started),
        MachineState::Running | MachineState::Pending | MachineState::Ending => None,
        // It has never run: its disk alone was paid for all the time.
        MachineState::Gone(None) => Some(KeptState::Stopped { since }),
        MachineState::Gone(Some(usage)) => {
            let ended = usage.started.0.saturating_add_unsigned(usage.elapsed.0);
            Some(KeptState::Stopped { since: Timestamp(ended) })
        }
    }
}

/// What a request to end `instance` means for its machine.
pub fn machine_end(kept: Option<&KeptMachine>, instance: &InstanceId) -> MachineEnd {
    match kept {
        None => MachineEnd::Delete,
        Some(kept) if kept.instance != *instance => MachineEnd::Leave,
        Some(kept) if kept.stopped().is_some() => MachineEnd::Stop,
        Some(_) => MachineEnd::Delete,
    }
}

/// The kind of an offer that starts a stopped machine: `us-east-1/g4dn.xlarge@i-0abc`.
pub fn start_kind(kind: &str, handle: &str) -> String {
    format!("{kind}@{handle}")
}

/// What such a kind names: the kind that was rented, and the machine.
pub fn named_machine(kind: &str) -> Option<(&str, &str)> {
    kind.rsplit_once('@')
}

/// The stopped machines of a home at a cloud.
#[derive(Debug, Clone)]
pub struct KeptMachines {
    folder: PathBuf,
}

impl KeptMachines {
    /// Those of the home at `home`.
    pub fn new(home: &Path, cloud: &str) -> KeptMachines {
        KeptMachines { folder: home.join(cloud).join("kept") }
    }

    /// All of them, by their names at the cloud.
    ///
    /// # Errors
    /// If one cannot be read.
    pub fn all(&self) -> io::Result<Vec<KeptMachine>> {
        let read = |path: &PathBuf| -> io::Result<KeptMachine> { Ok(serde_json::from_slice(&fs::read(path)?)?) };
        json_files(&self.folder)?.iter().map(read).collect()
    }

    /// One of them; `None` if it was never stopped.
    ///
    /// # Errors
    /// If it cannot be read, which must not be mistaken for none.
    pub fn read(&self, handle: &str) -> io::Result<Option<KeptMachine>> {
        match fs::read(self.folder.join(format!("{handle}.json"))) {
            Ok(text) => Ok(Some(serde_json::from_slice(&text)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Held while one is changed: a command that stops a machine is another process than the loop.
    fn hold(&self) -> io::Result<fs::File> {
        fs::create_dir_all(&self.folder)?;
        let path = self.folder.join("lock");
        let file = fs::OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
        file.lock()?;
        Ok(file)
    }

    /// Stores it durably.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, machine: &KeptMachine) -> io::Result<()> {
        let _held = self.hold()?;
        self.store(machine)
    }

    fn store(&self, machine: &KeptMachine) -> io::Result<()> {
        replace(&self.folder, &format!("{}.json", machine.handle), &serde_json::to_vec(machine)?)
    }

    /// Writes down where a machine stands that was to be started; what its disk has cost until its rent began is kept.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn change(&self, machine: &KeptMachine, state: KeptState) -> io::Result<()> {
        let _held = self.hold()?;
        self.store_next(machine, state)
    }

    /// The same where the machine still is as it was read; whether it was. What was written down since, such as that it is to be
    /// stopped, stays.
    ///
    /// # Errors
    /// If it cannot be read or written.
    pub fn change_from(&self, machine: &KeptMachine, state: KeptState) -> io::Result<bool> {
        let _held = self.hold()?;
        if self.read(&machine.handle)?.as_ref() != Some(machine) {
            return Ok(false);
        }
        self.store_next(machine, state).map(|()| true)
    }

    fn store_next(&self, machine: &KeptMachine, state: KeptState) -> io::Result<()> {
        let is_same = matches!(state, KeptState::Stopped { since } if machine.stopped() == Some(since));
        if let (KeptState::Accepted { .. }, false) = (machine.state, is_same) {
            // Its time ends when its start was accepted, whatever now is.
            self.note(machine.wait(Timestamp(0)))?;
        }
        self.store(&KeptMachine { state, ..machine.clone() })
    }

    /// Forgets one that is gone, or is about to be; what its disk has cost until now and no bill has is kept.
    ///
    /// # Errors
    /// If that cannot be written, or its file not deleted.
    pub fn forget(&self, machine: &KeptMachine, now: Timestamp) -> io::Result<()> {
        self.note(machine.wait(now))?;
        self.remove(&machine.handle)
    }

    fn note(&self, wait: Option<DiskWait>) -> io::Result<()> {
        match wait {
            Some(wait) => replace(&self.waits_folder(), &wait.file(), &serde_json::to_vec(&wait)?),
            None => Ok(()),
        }
    }

    fn waits_folder(&self) -> PathBuf {
        self.folder.join("waits")
    }

    /// Time of disks that no bill has yet.
    ///
    /// # Errors
    /// If one cannot be read.
    pub fn waits(&self) -> io::Result<Vec<DiskWait>> {
        let read = |path: &PathBuf| -> io::Result<DiskWait> { Ok(serde_json::from_slice(&fs::read(path)?)?) };
        json_files(&self.waits_folder())?.iter().map(read).collect()
    }

    /// Deletes one that a bill has.
    ///
    /// # Errors
    /// If its file cannot be deleted.
    pub fn remove_wait(&self, wait: &DiskWait) -> io::Result<()> {
        match fs::remove_file(self.waits_folder().join(wait.file())) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Deletes what is written down of a machine.
    ///
    /// # Errors
    /// If its file cannot be deleted.
    pub fn remove(&self, handle: &str) -> io::Result<()> {
        match fs::remove_file(self.folder.join(format!("{handle}.json"))) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// The files `*.json` of a folder, which may not exist.
fn json_files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let files = match fs::read_dir(folder) {
        Ok(files) => files.collect::<io::Result<Vec<_>>>()?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut paths: Vec<PathBuf> = files.into_iter().map(|file| file.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|end| end == "json"));
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use domain::run::Usage;
    use domain::{Elapsed, Node};

    use super::*;

    fn kept(state: KeptState) -> KeptMachine {
        KeptMachine {
            handle: "i-1".into(),
            region: "us-east-1".into(),
            account: None,
            instance: InstanceId::new("box-1-i2"),
            offer: Offer {
                provider: "aws".into(),
                kind: "us-east-1/g4dn.xlarge".into(),
                node: Node::default(),
                rate: "1/h".parse().unwrap(),
                price_source: String::new(),
            },
            disk: "0.02/h".parse().unwrap(),
            state,
        }
    }

    #[test]
    fn only_a_run_that_has_a_machine_deletes_its_disk() {
        let since = Timestamp(5);
        let check = |state: Option<KeptState>, instance: &str, expected| {
            let kept = state.map(kept);
            assert_eq!(machine_end(kept.as_ref(), &InstanceId::new(instance)), expected, "{state:?} {instance}");
        };
        check(None, "box-1-i2", MachineEnd::Delete);
        check(Some(KeptState::Started), "box-1-i2", MachineEnd::Delete);
        check(Some(KeptState::Stopped { since }), "box-1-i2", MachineEnd::Stop);
        check(Some(KeptState::Starting { since }), "box-1-i2", MachineEnd::Stop);
        let accepted = KeptState::Accepted { since, at: Timestamp(9) };
        check(Some(accepted), "box-1-i2", MachineEnd::Stop);
        for state in [KeptState::Started, KeptState::Stopped { since }, KeptState::Starting { since }, accepted] {
            check(Some(state), "box-0-i1", MachineEnd::Leave);
        }
    }

    #[test]
    fn what_is_stopped_outlives_the_process() {
        let home = tempfile::tempdir().unwrap();
        let machines = KeptMachines::new(home.path(), "aws");
        assert_eq!((machines.all().unwrap(), machines.read("i-1").unwrap()), (Vec::new(), None));
        let stopped = kept(KeptState::Stopped { since: Timestamp(5) });
        machines.write(&stopped).unwrap();
        assert_eq!(KeptMachines::new(home.path(), "aws").all().unwrap(), std::slice::from_ref(&stopped));
        assert_eq!(machines.read("i-1").unwrap(), Some(stopped.clone()));
        assert_eq!((stopped.run(), stopped.stopped()), (RunId::new("box-1"), Some(Timestamp(5))));
        assert_eq!(named_machine(&start_kind(&stopped.offer.kind, "i-1")), Some(("us-east-1/g4dn.xlarge", "i-1")));
        machines.remove("i-1").unwrap();
        machines.remove("i-1").unwrap();
        assert_eq!(machines.all().unwrap(), []);
    }

    #[test]
    fn a_run_has_a_started_machine_once_it_was_reached() {
        let since = Timestamp(5);
        let accepted = KeptState::Accepted { since, at: Timestamp(9) };
        let check = |state, listed, is_reached, expected| {
            let found = after_start(&kept(state), listed, (is_reached, Timestamp(8)));
            assert_eq!(found, expected, "{state:?} {listed:?} {is_reached}");
        };
        check(accepted, MachineState::Running, true, Some(KeptState::Started));
        check(accepted, MachineState::Running, false, None);
        check(accepted, MachineState::Pending, true, None);
        check(accepted, MachineState::Ending, true, None);
        // AWS has accepted its start and had no capacity then.
        check(accepted, MachineState::Gone(None), false, Some(KeptState::Stopped { since }));
        let usage = Usage { started: Timestamp(10), elapsed: Elapsed(7) };
        let again = KeptState::Stopped { since: Timestamp(17) };
        check(accepted, MachineState::Gone(Some(usage)), false, Some(again));
        for state in [KeptState::Started, KeptState::Stopped { since }] {
            check(state, MachineState::Running, true, None);
        }
        // The answer to its start was lost. That it is reached counts once that is written down.
        let starting = KeptState::Starting { since };
        let asked = Some(KeptState::Accepted { since, at: Timestamp(8) });
        check(starting, MachineState::Pending, false, asked);
        check(starting, MachineState::Running, true, asked);
        check(starting, MachineState::Ending, false, None);
    }

    /// A look takes its time, and a command is another process.
    #[test]
    fn what_was_written_down_meanwhile_stays() {
        let home = tempfile::tempdir().unwrap();
        let (loops, commands) = (KeptMachines::new(home.path(), "aws"), KeptMachines::new(home.path(), "aws"));
        let accepted = kept(KeptState::Accepted { since: Timestamp(5), at: Timestamp(9) });
        loops.write(&accepted).unwrap();
        let stopped = kept(KeptState::Stopped { since: Timestamp(12) });
        commands.write(&stopped).unwrap();
        assert!(!loops.change_from(&accepted, KeptState::Started).unwrap());
        assert_eq!((loops.read("i-1").unwrap(), loops.waits().unwrap()), (Some(stopped.clone()), Vec::new()));
        assert!(loops.change_from(&stopped, KeptState::Starting { since: Timestamp(12) }).unwrap());
        loops.remove("i-1").unwrap();
        assert!(!loops.change_from(&accepted, KeptState::Started).unwrap(), "one that is forgotten stays so");
        assert_eq!(loops.read("i-1").unwrap(), None);
    }

    #[test]
    fn what_a_disk_has_cost_while_a_start_waited_is_kept() {
        let hour = 3_600_000_000;
        let check =
            |before: KeptState, change: fn(&KeptMachines, &KeptMachine) -> io::Result<()>, expected: &[&str]| {
                let home = tempfile::tempdir().unwrap();
                let machines = KeptMachines::new(home.path(), "aws");
                change(&machines, &kept(before)).unwrap();
                // Interrupted in between, it is done again.
                change(&machines, &kept(before)).unwrap();
                let waits = machines.waits().unwrap();
                let costs: Vec<String> = waits.iter().map(|wait| wait.cost().to_string()).collect();
                assert_eq!(costs, expected, "{before:?}");
                waits.iter().for_each(|wait| machines.remove_wait(wait).unwrap());
                assert_eq!(machines.waits().unwrap(), []);
            };
        let since = Timestamp(0);
        let accepted = KeptState::Accepted { since, at: Timestamp(3 * hour) };
        check(accepted, |machines, kept| machines.change(kept, KeptState::Started), &["$0.06"]);
        let ended = |machines: &KeptMachines, kept: &KeptMachine| {
            machines.change(kept, KeptState::Stopped { since: Timestamp(4 * 3_600_000_000) })
        };
        check(accepted, ended, &["$0.06"]);
        // It has not run: its time goes on.
        let never = |machines: &KeptMachines, kept: &KeptMachine| {
            machines.change(kept, KeptState::Stopped { since: Timestamp(0) })
        };
        check(accepted, never, &[]);
        let gone = |machines: &KeptMachines, kept: &KeptMachine| machines.forget(kept, Timestamp(2 * 3_600_000_000));
        check(KeptState::Starting { since }, gone, &["$0.04"]);
        check(KeptState::Started, gone, &[]);
    }
}
