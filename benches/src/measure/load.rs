//! Artificial load on the machine, as on users' machines.

use std::error::Error;
use std::fmt;
use std::process::{Child, Command, Stdio};

/// Processes that compute until this is dropped.
#[derive(Debug, Default)]
pub struct Load {
    processes: Vec<Child>,
}

impl Load {
    /// Starts a process for every two of `cores`, at least one, each of which keeps a core busy.
    pub fn start(cores: usize) -> Result<Load, Box<dyn Error>> {
        let mut load = Load::default();
        for _ in 0..(cores / 2).max(1) {
            let mut command = Command::new("sh");
            command.args(["-c", "while :; do :; done"]).stdin(Stdio::null());
            load.processes.push(command.spawn().map_err(|error| format!("cannot start `sh` as a load: {error}"))?);
        }
        Ok(load)
    }

    /// Their process ids.
    pub fn ids(&self) -> Vec<u32> {
        self.processes.iter().map(Child::id).collect()
    }
}

/// Empty without any, else ` beside N busy processes`.
impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.processes.len() {
            0 => Ok(()),
            count => write!(f, " beside {count} busy process(es)"),
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        for process in &mut self.processes {
            // One that somebody else has ended is only to be reaped.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::Load;

    #[test]
    fn a_load_computes_until_it_is_dropped() {
        let load = Load::start(4).unwrap();
        let ids = load.ids();
        assert_eq!(ids.len(), 2);
        let state = |id: &u32| fs::read_to_string(format!("/proc/{id}/stat")).ok();
        assert!(ids.iter().all(|id| state(id).is_some()));
        drop(load);
        assert!(ids.iter().all(|id| state(id).is_none()));
    }
}
