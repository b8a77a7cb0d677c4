//! `cargo xtask lab cloud`: a cloud on this machine. moto is its API, and each machine that it rents is a host of the lab.
//!
//! [`api`] stands in front of moto, rents only as many machines as there are hosts, and fails by a seed, from which the prices of
//! spot machines follow as well. A rented host is
//! reached as `ssh` finds it in a file that this writes; [`metadata`] tells it that it is taken back, and [`switch`] ends it
//! once nobody attends it. A host whose rent has ended is powered off, and booted empty for the next.

pub mod api;
pub mod machines;

mod command;
mod http;
mod metadata;
mod prices;
mod switch;

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::net::{IpAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use api::{LabApi, LabFate, MachineChange};
use machines::{LabMachines, MeteredRent};
use metadata::Told;

pub use command::{LabMoto, USAGE, cloud};

/// Where a host sees its own disk.
const DISK: &str = "/run/host";

/// What a cloud is made of.
#[derive(Debug, Clone)]
pub struct CloudSettings {
    /// The folder of a lab whose hosts were started once.
    pub lab: PathBuf,
    /// The hosts that can be rented.
    pub hosts: Vec<u8>,
    /// The port of moto.
    pub moto: u16,
    /// A folder of its own, for the file that `ssh` reads.
    pub folder: PathBuf,
    /// By which requests fail; none do without one.
    pub seed: Option<u64>,
    /// After so long without a sign of its agent a machine ends itself.
    pub silence: Duration,
}

/// A running cloud, until the process ends.
#[derive(Clone)]
pub struct LabCloud {
    /// Of its API, on loopback.
    pub port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    settings: CloudSettings,
    addresses: BTreeMap<String, IpAddr>,
    /// Taken one after the other, in this order.
    api: Mutex<LabApi>,
    machines: Mutex<LabMachines>,
    told: Arc<Mutex<Told>>,
}

impl LabCloud {
    /// Starts a cloud; its hosts are booted empty.
    ///
    /// # Errors
    /// If a host does not boot, or an address cannot be had.
    pub fn start(settings: CloudSettings) -> Result<LabCloud, Box<dyn Error>> {
        let names = fs::read_to_string(settings.lab.join("etc_hosts"))?;
        let addresses = addresses(&names);
        let server = addresses.get("server").ok_or("the lab has no address of this machine")?;
        let (metadata, api) = (TcpListener::bind((*server, 0))?, TcpListener::bind("127.0.0.1:0")?);
        let (service, port) = (metadata.local_addr()?, api.local_addr()?.port());
        let told = Arc::new(Mutex::new(Told::default()));
        metadata::serve(metadata, told.clone());
        let lab_api = Mutex::new(LabApi::new(settings.moto, settings.seed));
        let machines = Mutex::new(LabMachines::new(&settings.hosts));
        fs::create_dir_all(&settings.folder)?;
        let shared = Arc::new(Shared { settings, addresses, api: lab_api, machines, told });
        for host in &shared.settings.hosts {
            let file = shared.disk(*host).join("metadata");
            fs::write(&file, format!("aws=http://{service}"))
                .map_err(|error| format!("cannot write `{}`: {error}", file.display()))?;
            shared.clean(*host)?;
        }
        shared.write_ssh()?;
        let cloud = LabCloud { port, shared };
        let serving = cloud.clone();
        std::thread::spawn(move || {
            for stream in api.incoming().flatten() {
                let cloud = serving.clone();
                std::thread::spawn(move || cloud.serve(stream));
            }
        });
        Ok(cloud)
    }

    /// The file by which `ssh` reaches the machines that are rented.
    pub fn ssh_config(&self) -> PathBuf {
        self.shared.settings.folder.join("ssh_config")
    }

    /// From now on no request fails.
    pub fn calm(&self) {
        held(&self.shared.api).calm();
    }

    /// The number of requests by what became of them.
    pub fn counts(&self) -> BTreeMap<LabFate, u64> {
        held(&self.shared.api).counts().clone()
    }

    /// The hosts that are rented, by AWS's name of the machine.
    pub fn rented(&self) -> BTreeMap<String, u8> {
        held(&self.shared.machines).rented().clone()
    }

    /// Every rent there was.
    pub fn meter(&self) -> Vec<MeteredRent> {
        held(&self.shared.machines).meter().to_vec()
    }

    /// Tells a host that it is taken back, and takes it after that time; whether it is rented.
    ///
    /// # Errors
    /// If the time cannot be written as AWS writes it.
    pub fn notice(&self, host: u8, after: Duration) -> Result<bool, Box<dyn Error>> {
        let Some(handle) = held(&self.shared.machines).handle_of(host).map(str::to_owned) else { return Ok(false) };
        let at = format!("@{}", (seconds() + after.as_secs_f64()) as u64);
        let time = Command::new("date").args(["-u", "-d", &at, "+%Y-%m-%dT%H:%M:%SZ"]).output()?;
        let time = String::from_utf8_lossy(&time.stdout).trim().to_owned();
        held(&self.shared.told).notice(&handle, &time);
        let cloud = self.clone();
        std::thread::spawn(move || {
            std::thread::sleep(after);
            cloud.end(&handle);
        });
        Ok(true)
    }

    /// Ends a machine as the cloud itself does.
    fn end(&self, handle: &str) {
        let changes = {
            let mut api = held(&self.shared.api);
            let mut machines = held(&self.shared.machines);
            // It may be rented no more, and its host another machine.
            if !machines.rented().contains_key(handle) {
                return;
            }
            api.end(&mut machines, handle, seconds())
        };
        self.carry_out(changes);
    }

    fn serve(&self, mut stream: TcpStream) -> Option<()> {
        let (head, body) = http::read(&mut stream)?;
        let (reply, changes) = {
            // One request at a time: the order in which they come decides everything else.
            let mut api = held(&self.shared.api);
            let mut machines = held(&self.shared.machines);
            api.answer(&mut machines, (&head, &body), seconds())
        };
        // Before it is told that it has a machine, it can be reached.
        self.carry_out(changes);
        http::answer(&mut stream, &reply?)
    }

    fn carry_out(&self, changes: Vec<MachineChange>) {
        for change in changes {
            let done = match &change {
                MachineChange::Rented { handle, host, user_data } => self.begin(handle, *host, user_data),
                MachineChange::Ended { host, .. } => self.release(*host),
            };
            if let Err(why) = done {
                eprintln!("lab cloud: {change:?}: {why}");
            }
        }
    }

    fn begin(&self, handle: &str, host: u8, user_data: &str) -> Result<(), Box<dyn Error>> {
        let shared = &self.shared;
        if let Some(address) = shared.address(host) {
            held(&shared.told).place(address, Some(handle));
        }
        shared.write_ssh()?;
        let Some(script) = switch::script(user_data, shared.settings.silence, DISK) else { return Ok(()) };
        let (disk, cloud, handle) = (shared.disk(host), self.clone(), handle.to_owned());
        let _ = fs::remove_file(disk.join(switch::ENDED));
        fs::write(disk.join("switch.sh"), script)?;
        let mut watching = shared.lab(&["exec", &host.to_string(), "sh", &format!("{DISK}/switch.sh")]).spawn()?;
        std::thread::spawn(move || {
            // It ends with its host, or because nobody attends it.
            let _ = watching.wait();
            if disk.join(switch::ENDED).exists() {
                cloud.end(&handle);
            }
        });
        Ok(())
    }

    /// Powers a host off whose rent has ended, and has it ready for the next one.
    fn release(&self, host: u8) -> Result<(), Box<dyn Error>> {
        let shared = self.shared.clone();
        if let Some(address) = shared.address(host) {
            held(&shared.told).place(address, None);
        }
        shared.write_ssh()?;
        std::thread::spawn(move || match shared.clean(host) {
            Ok(()) => held(&shared.machines).freed(host),
            Err(why) => eprintln!("lab cloud: host-{host} is lost: {why}"),
        });
        Ok(())
    }
}

impl Shared {
    fn disk(&self, host: u8) -> PathBuf {
        self.settings.lab.join(format!("host-{host}"))
    }

    fn address(&self, host: u8) -> Option<IpAddr> {
        self.addresses.get(&format!("host-{host}")).copied()
    }

    fn lab(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.settings.lab.join("lab"));
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    /// Boots a host without what the machine before has left on it.
    fn clean(&self, host: u8) -> Result<(), Box<dyn Error>> {
        let number = host.to_string();
        self.done(&["kill", &number])?;
        let disk = self.disk(host);
        for left in [disk.join("root/.gradus"), disk.join(switch::ENDED)] {
            let removed = if left.is_dir() { fs::remove_dir_all(&left) } else { fs::remove_file(&left) };
            match removed {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(format!("cannot delete `{}`: {error}", left.display()).into());
                }
                _ => {}
            }
        }
        self.done(&["start", &number])
    }

    fn done(&self, arguments: &[&str]) -> Result<(), Box<dyn Error>> {
        let output = self.lab(arguments).stderr(Stdio::piped()).output()?;
        match output.status.success() {
            true => Ok(()),
            false => Err(format!("`lab {}`: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr)).into()),
        }
    }

    /// Writes how `ssh` reaches what is rented now: at once, because it may be read at any time.
    fn write_ssh(&self) -> Result<(), Box<dyn Error>> {
        let machines = held(&self.machines);
        let text = ssh_config(&self.settings.lab, machines.rented(), &|host| self.address(host));
        let path = self.settings.folder.join("ssh_config");
        let partial = self.settings.folder.join("ssh_config.partial");
        fs::write(&partial, text)?;
        Ok(fs::rename(&partial, &path)?)
    }
}

/// What `ssh` reads: each machine by AWS's name, with the keys of the lab. Any other is at no address.
fn ssh_config(lab: &Path, rented: &BTreeMap<String, u8>, address: &dyn Fn(u8) -> Option<IpAddr>) -> String {
    let path = |name: &str| lab.join(name).display().to_string().replace('%', "%%");
    let machine = |(handle, host): (&String, &u8)| {
        let address = address(*host)?;
        Some(format!(
            "Host {handle}\n  HostName {address}\n  HostKeyAlias host-{host}\n  User root\n  IdentityFile \"{}\"\n  \
             IdentityAgent none\n  UserKnownHostsFile \"{}\"\n  ProxyCommand none\n\n",
            path("key"),
            path("known_hosts")
        ))
    };
    let machines: String = rented.iter().filter_map(machine).collect();
    machines + "Host i-*\n  ProxyCommand false\n"
}

/// The addresses of a lab by name, from the file that its hosts have as `/etc/hosts`.
fn addresses(names: &str) -> BTreeMap<String, IpAddr> {
    let line = |line: &str| {
        let (address, name) = line.split_once(' ')?;
        Some((name.to_owned(), address.parse::<IpAddr>().ok()?))
    };
    names.lines().filter_map(line).collect()
}

fn held<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Seconds since 1970.
fn seconds() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ssh_finds_what_is_rented_and_nothing_else() {
        let names = "127.0.0.1 localhost\n::1 localhost\n10.77.9.2 host-2\n10.77.9.254 server\n";
        let found = addresses(names);
        assert_eq!(found["server"].to_string(), "10.77.9.254");
        let rented = BTreeMap::from([("i-1".to_owned(), 2), ("i-2".to_owned(), 3)]);
        let text = ssh_config(Path::new("/a b"), &rented, &|host| found.get(&format!("host-{host}")).copied());
        assert!(text.starts_with("Host i-1\n  HostName 10.77.9.2\n  HostKeyAlias host-2\n"), "{text}");
        assert!(text.contains("IdentityFile \"/a b/key\"") && text.contains("ProxyCommand none\n"), "{text}");
        // The host has no address, and what is rented no more is at none.
        assert!(!text.contains("Host i-2") && text.ends_with("Host i-*\n  ProxyCommand false\n"), "{text}");
    }
}
