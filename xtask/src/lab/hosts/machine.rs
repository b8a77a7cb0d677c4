//! Booting a host, and powering it off.
//!
//! The first process waits on its stdin until the host has its files and its network, and only then becomes sshd. If the
//! command that boots it is killed meanwhile, it reads the end of the file and ends; the kernel clears its namespaces.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::config::DISK;
use super::names::{Host, Lab, Subnet};
use super::{Done, disk, links, processes, ran, refit};
use crate::setup;

/// Script of the first process: `$0` is the host's mark, then come its name and the program that it executes.
const INIT: &str = r#"echo "$1" >/proc/sys/kernel/hostname && shift && echo ready && read -r _ && exec "$@" >&2"#;

/// The first process and everything after it sees this of our environment.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Timeout for sshd to answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// Boots a host that is off; `wait` then waits for its sshd. If that fails, the host is off again.
pub fn boot(lab: &Lab, host: &Host, subnet: Subnet, sshd: &Path) -> Done {
    let booted = power_off(host).and_then(|()| try_boot(lab, host, subnet, sshd));
    booted.map_err(|error| {
        let _ = power_off(host);
        format!("cannot boot {}: {error}", host.name).into()
    })
}

fn try_boot(lab: &Lab, host: &Host, subnet: Subnet, sshd: &Path) -> Done {
    refit::attach(host)?;
    disk::prepare(lab, host, subnet)?;
    let mut first = spawn(host, sshd)?;
    let mut line = String::new();
    if let Some(stdout) = first.stdout.take() {
        BufReader::new(stdout).read_line(&mut line)?;
    }
    // Waiting would close it.
    let stdin = first.stdin.take();
    // `setsid` has ended, and the process that it left behind belongs to the machine's init.
    first.wait()?;
    let init = processes::init(host).filter(|_| line == "ready\n").ok_or_else(|| no_process(host))?;
    links::add(lab, host, subnet, init)?;

    let cache = setup::cache()?.join("gradus").canonicalize().ok();
    if cache.is_some() {
        disk::make_cache(host)?;
    }
    let init = init.to_string();
    let inside = ["nsenter", "--target", &init, "--mount", "--"];
    for command in disk::mounts(lab, host, cache.as_deref(), |path| Path::new(path).exists()) {
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        ran(&[&inside, words.as_slice()].concat())?;
    }
    let (sshd, config) = (sshd.display().to_string(), format!("{DISK}/sshd_config"));
    let test = [sshd.as_str(), "-t", "-f", &config];
    ran(&[&inside, test.as_slice()].concat())?;
    if ran(&[&inside, test.as_slice(), &["-o", "PerSourcePenalties=no"]].concat()).is_ok() {
        disk::without_penalties(host, subnet)?;
    }
    let go = stdin.and_then(|mut stdin| stdin.write_all(b"go\n").ok());
    go.ok_or_else(|| no_process(host).into())
}

/// Starts the first process in its own namespaces.
fn spawn(host: &Host, sshd: &Path) -> Done<Child> {
    let log = host.folder.join("log");
    let log = File::options().create(true).append(true).open(&log).map_err(|e| format!("`{}`: {e}", log.display()))?;
    let mut setsid = Command::new("setsid");
    setsid.args(["--fork", "unshare", "--net", "--uts", "--pid", "--mount", "--fork", "--kill-child", "--mount-proc"]);
    setsid.args(["--", "sh", "-c", INIT, &host.mark, &host.name]).arg(sshd);
    setsid.args(["-D", "-e", "-f", &format!("{DISK}/sshd_config")]);
    setsid.env_clear().env("PATH", PATH).current_dir("/");
    setsid.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
    setsid.spawn().map_err(|error| format!("cannot start `setsid`: {error}").into())
}

/// The error where a host's first process does not run, with the end of the log.
fn no_process(host: &Host) -> String {
    let log = host.folder.join("log");
    let text = fs::read_to_string(&log).unwrap_or_default();
    let last = text.trim().lines().next_back().unwrap_or("its log is empty");
    format!("its first process ended: {last}\n  hint: read `{}`", log.display())
}

/// Ends everything on a host at once, with its network gone first: otherwise the kernel would close connections in good
/// order, and the other side would notice.
pub fn power_off(host: &Host) -> Done {
    links::remove(host)?;
    refit::thaw(host);
    processes::end(|mark| mark == host.mark).map(drop)
}

/// Waits until a host's sshd answers. A host that was cut off on purpose cannot.
pub fn wait(host: &Host, subnet: Subnet) -> Done {
    let address = format!("{}:22", subnet.address(host.number)).parse()?;
    let began = Instant::now();
    let answers = || -> std::io::Result<bool> {
        let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(1))?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        let mut greeting = [0; 4];
        stream.read_exact(&mut greeting)?;
        Ok(&greeting == b"SSH-")
    };
    while !answers().unwrap_or(false) {
        if processes::init(host).is_none() {
            return Err(format!("{} does not run: {}", host.name, no_process(host)).into());
        }
        if began.elapsed() > PATIENCE {
            let hint = format!(
                "`cargo xtask lab hosts heal {}` if it was cut off, else read `{}`",
                host.number,
                host.folder.join("log").display()
            );
            return Err(format!("{} does not answer at {address}\n  hint: {hint}", host.name).into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
