//! `cargo xtask lab`: real back-ends of other makers on this machine, to try things by hand. Tests start their own.
//!
//! This one is moto, which implements S3, EC2, IAM and STS: it is a separate process, and `target/lab` holds its
//! process id and its log. [`hosts`] are machines that can be reached over SSH, and [`cloud`] is moto whose machines they are.

pub mod cloud;
pub mod hosts;

use std::error::Error;
use std::fs::{self, File};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::doing::Outcome;
use crate::{build, peers, setup};

const USAGE: &str = "\
usage: cargo xtask lab start [PORT]   start moto, which speaks S3 and EC2, on loopback
       cargo xtask lab stop           end it
       cargo xtask lab hosts …        start and stop machines that can be reached over SSH
       cargo xtask lab cloud [N]      start N of them, 3 if not said, and a cloud that rents them out, until its input ends";

/// Part of moto's command line, so that no other process is ended whose id was reused.
const WORD: &str = "moto.server";

/// Starts or stops the back-ends.
pub fn lab(root: &Path, arguments: &[String]) -> Outcome {
    let folder = build::target(root).join("lab");
    match arguments {
        [verb, rest @ ..] if verb == "hosts" => hosts::hosts(root, rest),
        [verb] if verb == "cloud" => on_hosts(root, &folder.join("cloud"), 3),
        [verb, count] if verb == "cloud" => on_hosts(root, &folder.join("cloud"), count.parse().map_err(|_| USAGE)?),
        [verb] if verb == "start" => start(&folder, TcpListener::bind("127.0.0.1:0")?.local_addr()?.port()),
        [verb, port] if verb == "start" => start(&folder, port.parse().map_err(|_| USAGE)?),
        [verb] if verb == "stop" => Ok(match running(&folder) {
            Some(process) => {
                Command::new("kill").arg(process.to_string()).status()?;
                fs::remove_file(pid_file(&folder))?;
                "moto was ended".to_owned()
            }
            None => "nothing runs".to_owned(),
        }),
        _ => Err(USAGE.into()),
    }
}

/// A cloud of so many hosts of its own, which end with it.
fn on_hosts(root: &Path, folder: &Path, count: u8) -> Outcome {
    hosts::down(folder)?;
    let numbers = (1..=count).map(|number| number.to_string()).collect::<Vec<_>>().join(",");
    let told = hosts::up(root, folder, count).and_then(|_| cloud::cloud(folder, &[&numbers]));
    let removed = hosts::down(folder);
    told.and_then(|line| removed.map(|_| line))
}

fn start(folder: &Path, port: u16) -> Outcome {
    if running(folder).is_some() {
        return Err("moto runs already\n  hint: `cargo xtask lab stop` ends it".into());
    }
    fs::create_dir_all(folder)?;
    let log = folder.join("moto.log");
    let mut python = moto(port)?;
    python.stdin(Stdio::null()).stdout(File::create(&log)?).stderr(File::create(&log)?);
    // Its own process group: Ctrl-C in this terminal does not reach it.
    let process = python.process_group(0).spawn()?;
    fs::write(pid_file(folder), process.id().to_string())?;
    wait(port, &log)?;
    Ok(format!(
        "moto speaks S3 and EC2 at http://127.0.0.1:{port}; to use it:\n  \
         export AWS_ENDPOINT_URL=http://127.0.0.1:{port} AWS_ACCESS_KEY_ID=x AWS_SECRET_ACCESS_KEY=x\n  \
         curl -X PUT -H 'Host: s3.amazonaws.com' http://127.0.0.1:{port}/bucket"
    ))
}

/// The command that is moto.
pub fn moto(port: u16) -> Result<Command, Box<dyn Error>> {
    let mut python = Command::new(setup::python()?);
    python.args(["-c", "from moto.server import main; main()", "-H", "127.0.0.1", "-p", &port.to_string()]);
    python.env("PYTHONPATH", peers::moto()?);
    Ok(python)
}

/// Waits until something listens.
pub fn wait(port: u16, log: &Path) -> Result<(), Box<dyn Error>> {
    let began = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        if began.elapsed() > Duration::from_secs(60) {
            return Err(format!("nothing listens on port {port}\n  hint: read `{}`", log.display()).into());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

fn pid_file(folder: &Path) -> PathBuf {
    folder.join("moto.pid")
}

fn running(folder: &Path) -> Option<u32> {
    let process = fs::read_to_string(pid_file(folder)).ok()?.trim().parse().ok()?;
    let line = fs::read_to_string(format!("/proc/{process}/cmdline")).ok()?;
    line.contains(WORD).then_some(process)
}
