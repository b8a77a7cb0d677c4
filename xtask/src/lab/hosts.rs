//! `cargo xtask lab hosts`: hosts on this machine that are reached over SSH, to test runs on machines of others.
//!
//! A host is a set of namespaces (network, process ids, mounts, hostname) with its own home, `/tmp` and sshd.
//! Its disk is a folder, so that it can be powered off and booted again; nothing else holds state: what runs is found
//! in `/proc`, and names and addresses follow from the lab's folder ([`names`]). So `down` works after any crash.
//! [`machine`] boots and powers off, [`disk`] holds what a host sees in its files, [`links`] connects it to the bridge;
//! [`refit`] gives it a disk and a clock that can fail.

pub mod requirements;

mod arguments;
mod config;
mod disk;
mod links;
mod machine;
mod names;
mod processes;
mod refit;

use std::error::Error;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use super::cloud;
use crate::build;
use crate::doing::Outcome;
use arguments::{USAGE, folder, number};
use names::{Host, Lab};

/// The result of the functions of this module.
type Done<T = ()> = Result<T, Box<dyn Error>>;

/// Does what the arguments say, to the lab in the folder that they name.
pub fn hosts(root: &Path, arguments: &[String]) -> Outcome {
    let (named, rest) = folder(arguments)?;
    let folder = named.unwrap_or_else(|| build::target(root).join("lab/hosts"));
    let words: Vec<&str> = rest.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["up", count] => up(root, &folder, number(count)?),
        ["down"] => down(&folder),
        ["kill", number] => with(&folder, number, kill),
        ["start", number] => with(&folder, number, start),
        ["partition", number] => with(&folder, number, |_, host| connect(host, false)),
        ["heal", number] => with(&folder, number, |_, host| connect(host, true)),
        ["refit", number, size] => {
            let size = size.parse::<u64>().map_err(|_| format!("`{size}` is no number of MB"))?;
            with(&folder, number, |lab, host| fit(lab, host, size))
        }
        ["fill", number] => with(&folder, number, |_, host| changed(host, refit::fill(host), "has a full disk")),
        ["empty", number] => with(&folder, number, |_, host| changed(host, refit::empty(host), "has disk space")),
        ["freeze", number] => with(&folder, number, |_, host| changed(host, refit::freeze(host), "cannot write")),
        ["thaw", number] => with(&folder, number, |_, host| {
            refit::thaw(host);
            changed(host, Ok(()), "can write")
        }),
        ["clock", number, seconds] => {
            let seconds = seconds.parse::<i64>().map_err(|_| format!("`{seconds}` is no number of seconds"))?;
            with(&folder, number, |_, host| changed(host, refit::set_clock(host, seconds), "has another time"))
        }
        ["cloud", words @ ..] => {
            requirements::root()?;
            cloud::cloud(&Lab::new(&folder)?.folder, words)
        }
        ["exec", number, program, arguments @ ..] => {
            let lab = Lab::new(&folder)?;
            exec(&existing(&lab, number)?, program, arguments)
        }
        _ => Err(USAGE.into()),
    }
}

/// Starts what does not run of hosts 1 to `count` in `folder`. `root` is the checkout that the lab's own command works on.
pub fn up(root: &Path, folder: &Path, count: u8) -> Outcome {
    requirements::root()?;
    requirements::programs()?;
    let sshd = requirements::sshd()?;
    requirements::own(folder)?;
    let lab = Lab::new(folder)?;
    let _lock = locked(&lab)?;
    let subnet = links::bridge(&lab)?;
    let all: Vec<Host> = (1..=count.max(disk::highest(&lab))).map(|number| lab.host(number)).collect();
    disk::write_shared(root, &lab, &all, subnet)?;
    let asked = &all[..usize::from(count)];
    for host in asked.iter().filter(|host| processes::init(host).is_none()) {
        machine::boot(&lab, host, subnet, &sshd)?;
    }
    asked.iter().try_for_each(|host| machine::wait(host, subnet))?;
    let path = lab.folder.join(config::SSH_CONFIG);
    let word = config::shell_word(&path);
    Ok(format!(
        "{}
`ssh -F {word} host-1 hostname` runs `hostname` on host-1 of {count}",
        path.display()
    ))
}

/// Removes all hosts of `folder`, whatever became of the command that started them.
pub fn down(folder: &Path) -> Outcome {
    requirements::root()?;
    let lab = Lab::new(folder)?;
    let lock = lab.folder.join(config::LOCK);
    let held = if lock.exists() { Some(locked(&lab)?) } else { None };
    disk::all(&lab).iter().for_each(refit::thaw);
    let ended = processes::end(|mark| mark.starts_with(&lab.mark()))?;
    links::remove_all(&lab)?;
    // Nothing is deleted from a folder that is no lab's.
    if held.is_some() {
        disk::remove(&lab)?;
    }
    Ok(match ended + usize::from(held.is_some()) {
        0 => format!("there was no lab in `{}`", lab.folder.display()),
        _ => format!("the lab in `{}` was removed", lab.folder.display()),
    })
}

fn kill(_: &Lab, host: &Host) -> Outcome {
    machine::power_off(host)?;
    Ok(format!("{} is off", host.name))
}

/// Gives a host a disk and a clock of its own, and boots it with them.
fn fit(lab: &Lab, host: &Host, megabytes: u64) -> Outcome {
    machine::power_off(host)?;
    refit::fit(host, megabytes)?;
    start(lab, host)
}

fn changed(host: &Host, done: Done, state: &str) -> Outcome {
    done.map(|()| format!("{} {state}", host.name))
}

fn start(lab: &Lab, host: &Host) -> Outcome {
    let subnet = links::bridge(lab)?;
    if processes::init(host).is_none() {
        machine::boot(lab, host, subnet, &requirements::sshd()?)?;
    }
    machine::wait(host, subnet)?;
    Ok(format!("{} runs", host.name))
}

fn connect(host: &Host, connected: bool) -> Outcome {
    running(host)?;
    links::connect(host, connected)?;
    Ok(format!("{} is {}", host.name, if connected { "connected" } else { "cut off" }))
}

/// Becomes the program, on the host.
fn exec(host: &Host, program: &str, arguments: &[&str]) -> Outcome {
    requirements::root()?;
    let init = running(host)?.to_string();
    let mut command = Command::new("nsenter");
    command.args(["--target", &init, "--net", "--uts", "--pid", "--mount", "--", program]).args(arguments);
    Err(format!("cannot start `nsenter`: {}", command.env("HOME", disk::HOME).exec()).into())
}

/// Does something to one host, while nobody else does.
fn with(folder: &Path, number: &str, what: impl Fn(&Lab, &Host) -> Outcome) -> Outcome {
    requirements::root()?;
    let lab = Lab::new(folder)?;
    let host = existing(&lab, number)?;
    let _lock = locked(&lab)?;
    what(&lab, &host)
}

fn existing(lab: &Lab, text: &str) -> Done<Host> {
    let host = lab.host(number(text)?);
    if !host.folder.is_dir() {
        let (folder, word) = (lab.folder.display(), config::shell_word(&lab.folder));
        let hint = format!("`cargo xtask lab hosts --folder {word} up {text}` starts as many");
        return Err(format!("there is no {} in `{folder}`\n  hint: {hint}", host.name).into());
    }
    Ok(host)
}

/// The process that a host needs in order to run.
fn running(host: &Host) -> Done<u32> {
    processes::init(host).ok_or_else(|| {
        let hint = format!("`cargo xtask lab hosts start {}` boots it", host.number);
        format!("{} is off\n  hint: {hint}", host.name).into()
    })
}

/// Waits until no other command changes this lab.
fn locked(lab: &Lab) -> Done<File> {
    let path = lab.folder.join(config::LOCK);
    let cannot = |error| format!("cannot lock `{}`: {error}", path.display());
    let file = File::options().create(true).append(true).open(&path).map_err(cannot)?;
    file.lock().map_err(cannot)?;
    Ok(file)
}

/// Runs a program to its end; an error contains the command line and its output.
fn ran(words: &[&str]) -> Done<String> {
    let output = Command::new(words[0]).args(&words[1..]).output();
    let output = output.map_err(|error| format!("cannot start `{}`: {error}", words[0]))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => {
            let why = String::from_utf8_lossy(&output.stderr);
            Err(format!("`{}` failed: {}", words.join(" "), why.trim()).into())
        }
    }
}

/// Writes a file; the error names it.
fn write(path: &Path, text: &str) -> Done {
    fs::write(path, text).map_err(|error| format!("cannot write `{}`: {error}", path.display()).into())
}
