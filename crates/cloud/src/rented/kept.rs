//! Machines that are stopped and keep their disk: `CLOUD/kept/HANDLE.json` in the home, from when their stop is asked for until
//! they are gone. Nothing deletes the disk of a machine that is written down here as stopped, but `gradus machines down`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use domain::{InstanceId, Offer, Rate, RunId, Timestamp};
use serde::{Deserialize, Serialize};

use super::rentals::replace;

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
    /// A run has it.
    Started,
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

impl KeptMachine {
    /// The run that has it, or had it last.
    pub fn run(&self) -> RunId {
        let name = self.instance.as_str();
        RunId::new(name.rsplit_once("-i").map_or(name, |(run, _)| run))
    }

    /// Since when its disk alone is paid for; none while a run has it.
    pub fn stopped(&self) -> Option<Timestamp> {
        match self.state {
            KeptState::Stopped { since } | KeptState::Starting { since } => Some(since),
            KeptState::Started => None,
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
        let files = match fs::read_dir(&self.folder) {
            Ok(files) => files.collect::<io::Result<Vec<_>>>()?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut paths: Vec<PathBuf> = files.into_iter().map(|file| file.path()).collect();
        paths.retain(|path| path.extension().is_some_and(|end| end == "json"));
        paths.sort();
        let read = |path: &PathBuf| -> io::Result<KeptMachine> { Ok(serde_json::from_slice(&fs::read(path)?)?) };
        paths.iter().map(read).collect()
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

    /// Stores it durably.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, machine: &KeptMachine) -> io::Result<()> {
        replace(&self.folder, &format!("{}.json", machine.handle), &serde_json::to_vec(machine)?)
    }

    /// Forgets one that is gone.
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

#[cfg(test)]
mod tests {
    use domain::Node;

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
        for state in [KeptState::Started, KeptState::Stopped { since }, KeptState::Starting { since }] {
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
}
