//! A host beside those with jobs, on which gradus is installed again and again while the SSH connections are cut.
//!
//! It belongs to a home of its own, so that no job is sent there. In the end one installation must succeed, and nothing may
//! be left once the node is removed.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::HostsStorm;

/// The longest until the connections are cut, in milliseconds: an installation takes some seconds.
const LATEST_CUT: u64 = 6000;

/// An installation whose connections are cut ends within this.
const PATIENCE: Duration = Duration::from_secs(120);

/// The host that gradus is installed on.
#[derive(Debug)]
pub(super) struct BareHost {
    /// Its number in the lab.
    pub(super) number: u64,
    /// The home that it is a node of.
    pub(super) home: PathBuf,
}

impl HostsStorm {
    /// Installs gradus there.
    fn install(&self, bare: &BareHost) -> Command {
        let config = self.lab.join("ssh_config");
        let name = format!("host-{}", bare.number);
        self.home.command_for(&bare.home, &["nodes", "add", &name, "--ssh-config", &config.to_string_lossy()])
    }

    /// Begins to install gradus on the bare host, and cuts the connections; says whether there was one to cut.
    pub(super) fn cut_bootstrap(&mut self) -> Result<bool, String> {
        let after = Duration::from_millis(self.draws.below(LATEST_CUT));
        let is_from_nothing = self.draws.below(2) == 0;
        let Some(bare) = &self.bare else { return Ok(false) };
        let host = bare.number.to_string();
        if is_from_nothing {
            self.lab(&["exec", &host, "rm", "-rf", "/root/.gradus"])?;
        }
        let started = self.install(bare).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let mut child = started.map_err(|error| format!("cannot install gradus on host-{host}: {error}"))?;
        std::thread::sleep(after);
        let killed = self.lab(&["exec", &host, "pkill", "-9", "-e", "-f", "sshd: root"])?;
        let begun = Instant::now();
        while child.try_wait().map_err(|error| error.to_string())?.is_none() {
            if begun.elapsed() > PATIENCE {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!(
                    "`gradus nodes add host-{host}` has not ended {} s after a cut",
                    PATIENCE.as_secs()
                ));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(killed.contains("killed"))
    }

    /// What is wrong with the bare host now that nothing is cut any more.
    pub(super) fn judge_bootstrap(&self) -> Result<(), String> {
        let Some(bare) = &self.bare else { return Ok(()) };
        let (host, name) = (bare.number.to_string(), format!("host-{}", bare.number));
        let done = |mut command: Command| {
            let output = command.output().map_err(|error| error.to_string())?;
            let said = || String::from_utf8_lossy(&output.stderr).trim().to_owned();
            if output.status.success() { Ok(()) } else { Err(format!("on {name}, after its last cut: {}", said())) }
        };
        done(self.install(bare))?;
        done(self.home.command_for(&bare.home, &["nodes", "rm", &name]))?;
        let listed = self.lab(&["exec", &host, "ps", "-eo", "args"])?;
        if let Some(left) = listed.lines().find(|line| line.contains(".gradus/")) {
            return Err(format!("left running on {name}: {left}"));
        }
        let left = self.lab(&["exec", &host, "find", "/root/.gradus"])?;
        if left.is_empty() { Ok(()) } else { Err(format!("left on the disk of {name}: {left}")) }
    }
}
