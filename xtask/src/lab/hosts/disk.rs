//! A host's files: the folder that is its disk, its bind mounts, and the files that all hosts of a lab share.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::config::{self, DISK};
use super::names::{HOSTS, Host, Lab, Subnet};
use super::{Done, ran, refit, write};

/// The home of a host's only user.
pub const HOME: &str = "/root";

/// Path of libtorch below a home.
const CACHE: &str = "root/.cache/gradus";

/// The highest number of the hosts that the lab's folder holds, or 0.
pub fn highest(lab: &Lab) -> u8 {
    HOSTS.rev().find(|number| lab.host(*number).folder.is_dir()).unwrap_or(0)
}

/// The hosts that the lab's folder holds.
pub fn all(lab: &Lab) -> Vec<Host> {
    HOSTS.map(|number| lab.host(number)).filter(|host| host.folder.is_dir()).collect()
}

/// Writes what all hosts of a lab share, and makes the keys that are missing.
pub fn write_shared(root: &Path, lab: &Lab, hosts: &[Host], subnet: Subnet) -> Done {
    let path = |name: &str| lab.folder.join(name);
    make_key(&path(config::KEY))?;
    let mut keys = Vec::new();
    for host in hosts {
        make_folder(&host.folder, 0o755)?;
        make_folder(&host.folder.join("root"), 0o700)?;
        make_folder(&host.folder.join("tmp"), 0o1777)?;
        make_key(&host.folder.join("ssh_host_key"))?;
        keys.push((host, read(&host.folder.join("ssh_host_key.pub"))?));
    }
    write(&path(config::KNOWN_HOSTS), &config::known_hosts(&keys, subnet))?;
    write(&path(config::ETC_HOSTS), &config::etc_hosts(hosts, subnet))?;
    let command = config::command(root, &std::env::current_exe()?, &lab.folder);
    write(&path(config::COMMAND), &command)?;
    fs::set_permissions(path(config::COMMAND), fs::Permissions::from_mode(0o755))?;
    write(&path(config::SSH_CONFIG), &config::ssh(&lab.folder, hosts, subnet))
}

/// Writes what a host reads while it boots.
pub fn prepare(lab: &Lab, host: &Host, subnet: Subnet) -> Done {
    let path = |name: &str| host.folder.join(name);
    write(&path("authorized_keys"), &read(&lab.folder.join(format!("{}.pub", config::KEY)))?)?;
    write(&path("sshd_config"), &config::sshd(&subnet.address(host.number), false, &environment(host)))?;
    // Programs know a machine by the one, and its restart by the other.
    let fresh = || read(Path::new("/proc/sys/kernel/random/uuid"));
    if !path("machine-id").exists() {
        write(&path("machine-id"), &fresh()?.replace('-', ""))?;
    }
    write(&path("boot_id"), &fresh()?)?;
    // As for the kernel: readable for root only.
    write(&path("shadow"), "")?;
    fs::set_permissions(path("shadow"), fs::Permissions::from_mode(0o600))?;
    write(&path("shadow"), &config::shadow(&fs::read_to_string("/etc/shadow").unwrap_or_default()))
}

/// Lets the host's sshd overlook broken connections, where it is one that counts them.
pub fn without_penalties(host: &Host, subnet: Subnet) -> Done {
    write(&host.folder.join("sshd_config"), &config::sshd(&subnet.address(host.number), true, &environment(host)))
}

/// What programs on a host find set.
fn environment(host: &Host) -> Vec<String> {
    let clock = refit::has_clock(host).then(|| format!("LD_PRELOAD={DISK}/{}", refit::LIBRARY));
    let metadata = fs::read_to_string(host.folder.join(config::METADATA)).ok();
    clock.into_iter().chain(metadata.map(|service| format!("GRADUS_METADATA={}", service.trim()))).collect()
}

/// The commands that give a host its own files, to be run in its mount namespace. `cache` is the folder with libtorch;
/// `exists` returns whether this machine has a file.
pub fn mounts(lab: &Lab, host: &Host, cache: Option<&Path>, exists: impl Fn(&str) -> bool) -> Vec<Vec<String>> {
    let in_lab = |path: PathBuf| path.display().to_string();
    let on_disk = |name: &str| format!("{DISK}/{name}");
    let mut commands = Vec::new();
    let mut add = |words: &[&str]| commands.push(words.iter().map(|word| (*word).to_owned()).collect());
    // `-n`, for otherwise the machine would be left with a `/run/mount`. First what is hidden afterwards, for the lab may
    // be in `/root` or `/tmp`.
    add(&["mount", "-n", "--bind", &in_lab(lab.folder.join(config::ETC_HOSTS)), "/etc/hosts"]);
    if exists("/etc/resolv.conf") {
        // Names are looked up on loopback, where nobody answers: at once, and not after a timeout.
        add(&["mount", "-n", "--bind", "/dev/null", "/etc/resolv.conf"]);
    }
    if let Some(cache) = cache {
        let place = in_lab(host.folder.join(CACHE));
        add(&["mount", "-n", "--bind", &in_lab(cache.to_owned()), &place]);
        add(&["mount", "-n", "-o", "remount,bind,ro", &place]);
    }
    add(&["mount", "-n", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run"]);
    add(&["mkdir", DISK, "/run/sshd"]);
    add(&["mount", "-n", "--rbind", &in_lab(host.folder.clone()), DISK]);
    add(&["mount", "-n", "--rbind", &on_disk("root"), HOME]);
    add(&["mount", "-n", "--bind", &on_disk("tmp"), "/tmp"]);
    add(&["mount", "-n", "-t", "tmpfs", "-o", "mode=1777", "tmpfs", "/dev/shm"]);
    add(&["mount", "-n", "--bind", &on_disk("boot_id"), "/proc/sys/kernel/random/boot_id"]);
    for name in ["machine-id", "shadow"] {
        let path = format!("/etc/{name}");
        if exists(&path) {
            add(&["mount", "-n", "--bind", &on_disk(name), &path]);
        }
    }
    commands
}

/// Makes the folder that the cache is mounted on.
pub fn make_cache(host: &Host) -> Done {
    make_folder(&host.folder.join("root/.cache"), 0o700)?;
    make_folder(&host.folder.join(CACHE), 0o755)
}

/// Deletes what a lab wrote; the folder too, unless something else is in it.
pub fn remove(lab: &Lab) -> Done {
    let public = format!("{}.pub", config::KEY);
    for host in all(lab) {
        refit::detach(&host)?;
        let folder = host.folder;
        fs::remove_dir_all(&folder).map_err(|error| format!("cannot delete `{}`: {error}", folder.display()))?;
    }
    // The lock last: as long as it is there, `down` tries again.
    for name in [
        config::KEY,
        &public,
        config::KNOWN_HOSTS,
        config::ETC_HOSTS,
        config::COMMAND,
        config::SSH_CONFIG,
        config::LOCK,
    ] {
        match fs::remove_file(lab.folder.join(name)) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(format!("cannot delete `{}`: {error}", lab.folder.join(name).display()).into());
            }
            _ => {}
        }
    }
    let _ = fs::remove_dir(&lab.folder);
    Ok(())
}

fn make_folder(path: &Path, mode: u32) -> Done {
    if !path.is_dir() {
        fs::create_dir(path).map_err(|error| format!("cannot create `{}`: {error}", path.display()))?;
        fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    }
    Ok(())
}

/// Makes a pair of keys if the public one, which is written last, is missing.
fn make_key(path: &Path) -> Done {
    if path.with_extension("pub").is_file() {
        return Ok(());
    }
    let _ = fs::remove_file(path);
    ran(&["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "gradus lab", "-f", &path.display().to_string()])
        .map(drop)
}

fn read(path: &Path) -> Done<String> {
    fs::read_to_string(path).map_err(|error| format!("cannot read `{}`: {error}", path.display()).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_mounted_before_their_folder_is_hidden() {
        let lab = Lab::new(Path::new("/root/lab")).unwrap();
        let commands = |cache: Option<&str>, exists: &dyn Fn(&str) -> bool| -> Vec<String> {
            let commands = mounts(&lab, &lab.host(1), cache.map(Path::new), exists);
            commands.iter().map(|words| words.join(" ")).collect()
        };
        let full = commands(Some("/root/.cache/gradus"), &|_| true);
        let hidden = full.iter().position(|command| command.ends_with(" /root")).unwrap();
        for (at, command) in full.iter().enumerate() {
            // What is mounted on disk is not looked for under the names that the machine has.
            assert!(at < hidden || !command.contains(" /root/"), "{command}");
        }
        assert!(full.contains(&"mount -n -o remount,bind,ro /root/lab/host-1/root/.cache/gradus".to_owned()));
        let least = commands(None, &|_| false);
        assert!(!least.iter().any(|command| command.contains(".cache") || command.contains("shadow")), "{least:?}");
    }
}
