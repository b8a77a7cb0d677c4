//! Runs a script as the user of the machine that is there for programs, where the agent is root.
//!
//! `user.sh` does it: below folders that the user may not enter, such as root's home, the script finds what is its own and
//! nothing else. The variables of the job are not set before it has become that user, for one such as `LD_PRELOAD` would
//! otherwise act as root.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use node::facts::{PROGRAM_USER, ProgramUser};

use super::super::workdir::MOUNTS;
use super::super::{Attempt, Working};
use super::ProgramLink;

const SCRIPT: &str = include_str!("user.sh");

/// Before the name of each variable of the job, until it is set.
const PREFIX: &str = "GRADUS_JOB_ENV_";

impl Attempt {
    /// The command that runs as `user` what `plain` runs as root.
    pub(super) fn as_user(&self, mut plain: Command, user: &ProgramUser) -> Command {
        let Working::Command { folder, link, .. } = &self.work else { return plain };
        // The job's variables are set last, so that the tag has to be among them.
        self.tools.tag(&mut plain, &self.start.attempt);
        let checkpoints = Path::new(&self.start.folder).join("checkpoints");
        // The script says what it cannot use.
        let _ = fs::create_dir_all(&checkpoints);
        let mut owned = vec![folder.join("workdir"), folder.join(MOUNTS), checkpoints];
        match link.as_ref().map(ProgramLink::path) {
            Some(socket) if !socket.starts_with("/proc") => owned.push(socket.to_owned()),
            // A path through the agent's own open files is closed to others.
            Some(_) => _ = plain.env_remove("GRADUS_SOCKET"),
            None => {}
        }
        owned.retain(|place| place.exists());
        command(&plain, user, folder, &owned)
    }
}

/// The same program with the same variables, as another user who sees `folder` and to whom `owned` is given.
fn command(plain: &Command, user: &ProgramUser, folder: &Path, owned: &[PathBuf]) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "--", "bash", "-c", SCRIPT, "bash", PROGRAM_USER]);
    command.args([user.uid.to_string(), user.gid.to_string()]).arg(folder);
    command.args(owned.iter().map(|place| named("+", place.as_os_str())));
    command.arg("--").arg(plain.get_program()).args(plain.get_args());
    let home = user.home.as_os_str();
    for (name, value) in [("HOME", home), ("USER", OsStr::new(PROGRAM_USER)), ("LOGNAME", OsStr::new(PROGRAM_USER))] {
        command.env(named(PREFIX, OsStr::new(name)), value);
    }
    if let Some(folder) = plain.get_current_dir() {
        command.current_dir(folder);
    }
    for (name, value) in plain.get_envs() {
        match value {
            Some(value) => command.env(named(PREFIX, name), value),
            None => command.env_remove(name),
        };
    }
    command
}

fn named(prefix: &str, rest: &OsStr) -> OsString {
    let mut name = OsString::from(prefix);
    name.push(rest);
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_variable_of_a_job_is_set_while_it_is_root() {
        let user = ProgramUser { uid: 1001, gid: 1002, home: "/home/gradus-job".into() };
        let mut plain = Command::new("bash");
        plain
            .arg("/f/run.sh")
            .current_dir("/f/workdir")
            .env("LD_PRELOAD", "/f/workdir/own.so")
            .env("HOME", "/elsewhere");
        plain.env_remove("GRADUS_SOCKET");
        let found = command(&plain, &user, Path::new("/f"), &["/f/workdir".into(), "/c".into()]);
        let words: Vec<&str> = found.get_args().skip(7).map(|word| word.to_str().unwrap()).collect();
        let expected = ["bash", PROGRAM_USER, "1001", "1002", "/f", "+/f/workdir", "+/c", "--", "bash", "/f/run.sh"];
        assert_eq!(words, expected);
        let set: Vec<(&str, &str)> =
            found.get_envs().filter_map(|(name, value)| Some((name.to_str()?, value?.to_str()?))).collect();
        assert!(set.iter().all(|(name, _)| name.starts_with(PREFIX)), "{set:?}");
        assert!(set.contains(&("GRADUS_JOB_ENV_LD_PRELOAD", "/f/workdir/own.so")), "{set:?}");
        assert!(set.contains(&("GRADUS_JOB_ENV_HOME", "/elsewhere")), "the job's own is the last: {set:?}");
        assert!(found.get_envs().any(|(name, value)| name == "GRADUS_SOCKET" && value.is_none()));
        assert_eq!(found.get_current_dir(), Some(Path::new("/f/workdir")));
    }
}
