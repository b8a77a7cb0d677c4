//! The command `cargo xtask lab cloud`: a cloud until its input ends, and what may be done to its machines, line by line.

use std::error::Error;
use std::io::{BufRead, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use serde_json::json;

use super::machines::MeteredRent;
use super::{CloudSettings, LabCloud};
use crate::doing::Outcome;
use crate::lab::{moto, wait};

/// How the command is used.
pub const USAGE: &str = "\
usage: cargo xtask lab hosts … cloud K,K… [--seed S] [--silence SECONDS]
                               a cloud whose machines are these hosts, until its input ends; with a seed, requests fail.
                               It prints where it is, and answers lines: `rented`, `meter`, `calm`, `notice K SECONDS`";

/// Seconds after which a machine without an agent ends itself: that of real ones.
const SILENCE: u64 = 1800;

/// A moto, ended when dropped.
pub struct LabMoto {
    process: Child,
    /// On loopback.
    pub port: u16,
}

impl LabMoto {
    /// Starts one, whose log is in this folder.
    ///
    /// # Errors
    /// If it does not start.
    pub fn start(folder: &Path) -> Result<LabMoto, Box<dyn Error>> {
        std::fs::create_dir_all(folder)?;
        let (port, log) = (TcpListener::bind("127.0.0.1:0")?.local_addr()?.port(), folder.join("moto.log"));
        let file = std::fs::File::create(&log)?;
        let mut python = moto(port)?;
        let process = python.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file).spawn()?;
        let started = LabMoto { process, port };
        wait(port, &log)?;
        Ok(started)
    }
}

impl Drop for LabMoto {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What the command is asked.
#[derive(Debug, PartialEq)]
struct Asked {
    hosts: Vec<u8>,
    seed: Option<u64>,
    silence: u64,
}

/// Runs a cloud on hosts of the lab in `lab`, which were started before, until the input ends.
///
/// # Errors
/// How it is used, or why it does not start.
pub fn cloud(lab: &Path, words: &[&str]) -> Outcome {
    let asked = asked(words).ok_or(USAGE)?;
    let folder = lab.join(format!("cloud-{}", std::process::id()));
    let told = run(lab, &folder, asked);
    let _ = std::fs::remove_dir_all(&folder);
    told
}

fn run(lab: &Path, folder: &Path, Asked { hosts, seed, silence }: Asked) -> Outcome {
    let moto = LabMoto::start(folder)?;
    let silence = Duration::from_secs(silence);
    let settings =
        CloudSettings { lab: lab.to_owned(), hosts, moto: moto.port, folder: folder.to_owned(), seed, silence };
    let cloud = LabCloud::start(settings)?;
    let mut out = std::io::stdout();
    writeln!(out, "{}", json!({ "port": cloud.port, "ssh_config": cloud.ssh_config() }))?;
    out.flush()?;
    for line in std::io::stdin().lock().lines() {
        writeln!(out, "{}", reply(&cloud, &line?)?)?;
        out.flush()?;
    }
    Ok("the cloud has ended".to_owned())
}

/// What a line is answered.
fn reply(cloud: &LabCloud, line: &str) -> Result<String, Box<dyn Error>> {
    let words: Vec<&str> = line.split_whitespace().collect();
    Ok(match words.as_slice() {
        ["rented"] => json!(cloud.rented()).to_string(),
        ["meter"] => json!(cloud.meter().iter().map(rent).collect::<Vec<_>>()).to_string(),
        ["calm"] => {
            cloud.calm();
            "\"calm\"".to_owned()
        }
        ["notice", host, seconds] => match (host.parse(), seconds.parse()) {
            (Ok(host), Ok(seconds)) => json!(cloud.notice(host, Duration::from_secs(seconds))?).to_string(),
            _ => json!({ "error": USAGE }).to_string(),
        },
        _ => json!({ "error": USAGE }).to_string(),
    })
}

fn rent(rent: &MeteredRent) -> serde_json::Value {
    json!({ "handle": rent.handle, "tag": rent.tag, "host": rent.host, "began": rent.began, "ended": rent.ended })
}

fn asked(words: &[&str]) -> Option<Asked> {
    let (hosts, options) = words.split_first()?;
    let hosts = hosts.split(',').map(|host| host.parse().ok()).collect::<Option<Vec<u8>>>()?;
    let mut asked = Asked { hosts, seed: None, silence: SILENCE };
    for option in options.chunks(2) {
        match option {
            ["--seed", seed] => asked.seed = Some(seed.parse().ok()?),
            ["--silence", seconds] => asked.silence = seconds.parse().ok()?,
            _ => return None,
        }
    }
    Some(asked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_named_and_options_follow() {
        let check = |line: &str, expected: Option<(&[u8], Option<u64>, u64)>| {
            let found = asked(&line.split_whitespace().collect::<Vec<_>>());
            let expected = expected.map(|(hosts, seed, silence)| Asked { hosts: hosts.to_vec(), seed, silence });
            assert_eq!(found, expected, "{line}");
        };
        check("10,11", Some((&[10, 11], None, 1800)));
        check("3 --seed 7 --silence 40", Some((&[3], Some(7), 40)));
        for wrong in ["", "a", "300", "3 --seed", "3 --fire 1"] {
            check(wrong, None);
        }
    }
}
