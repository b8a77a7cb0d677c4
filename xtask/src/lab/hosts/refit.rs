//! What a host may have of its own besides: a disk that can be filled and frozen, and a clock that can jump.
//!
//! The disk is a file with ext4 on it, mounted over the folder that the host sees as `/root`; a host finds it there when it
//! boots. The clock is a library, `clock.c`, that its sshd puts before the programs it starts.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::PathBuf;

use super::names::Host;
use super::{Done, ran, write};

/// The library of the clock, on a host's disk.
pub const LIBRARY: &str = "clock.so";
/// Holds the seconds that a host's clock is ahead.
const CLOCK: &str = "clock";
const IMAGE: &str = "disk.img";

/// Takes what is free on the disk in the folder `$1`: most of it at once, and then to the last block.
const FILL: &str = r#"set -e; cd "$1"; free=$(df --output=avail -B1 . | tail -n 1)
[ "$free" -le 2097152 ] || fallocate -l $((free - 1048576)) .full
dd if=/dev/zero of=.full bs=4k oflag=append conv=notrunc 2>/dev/null || true"#;

/// Gives a host that is off a disk of so many MB and a clock, unless it has them.
pub fn fit(host: &Host, megabytes: u64) -> Done {
    let path = |name: &str| host.folder.join(name).display().to_string();
    if !host.folder.join(IMAGE).exists() {
        let (partial, bytes) = (path("disk.img.partial"), megabytes.saturating_mul(1 << 20));
        File::create(&partial).and_then(|file| file.set_len(bytes)).map_err(|e| format!("`{partial}`: {e}"))?;
        // Nothing is reserved for root, who is the only user.
        ran(&["mkfs.ext4", "-q", "-F", "-m", "0", &partial])?;
        fs::rename(&partial, host.folder.join(IMAGE))?;
    }
    if !has_clock(host) {
        write(&host.folder.join("clock.c"), include_str!("clock.c"))?;
        fs::write(host.folder.join(CLOCK), 0_i64.to_ne_bytes())?;
        ran(&["cc", "-shared", "-fPIC", "-O2", "-o", &path("clock.so.partial"), &path("clock.c")])?;
        fs::rename(host.folder.join("clock.so.partial"), host.folder.join(LIBRARY))?;
    }
    attach(host)
}

/// Mounts the disk of a host that has one, where that was not done since this machine has booted.
pub fn attach(host: &Host) -> Done {
    let disk = disk(host);
    if host.folder.join(IMAGE).exists() && !is_mounted(host) {
        let (image, place) = (host.folder.join(IMAGE).display().to_string(), disk.display().to_string());
        ran(&["mount", "-n", "-o", "loop", &image, &place])?;
        fs::set_permissions(&disk, fs::Permissions::from_mode(0o700))?;
    }
    Ok(())
}

/// Takes the disk of a host away that is removed.
pub fn detach(host: &Host) -> Done {
    thaw(host);
    match is_mounted(host) {
        true => ran(&["umount", "-n", &disk(host).display().to_string()]).map(drop),
        false => Ok(()),
    }
}

/// Whether the host's sshd is to use the library.
pub fn has_clock(host: &Host) -> bool {
    host.folder.join(LIBRARY).exists()
}

/// Lets the host's clock be ahead by so many seconds, or behind.
pub fn set_clock(host: &Host, seconds: i64) -> Done {
    has_its_own(host)?;
    // It is mapped by running programs, so it is never shorter.
    let file = File::options().write(true).open(host.folder.join(CLOCK))?;
    Ok(file.write_all_at(&seconds.to_ne_bytes(), 0)?)
}

/// Fills the disk to the last block.
pub fn fill(host: &Host) -> Done {
    has_its_own(host)?;
    ran(&["sh", "-c", FILL, "fill", &disk(host).display().to_string()]).map(drop)
}

/// Frees what `fill` took.
pub fn empty(host: &Host) -> Done {
    has_its_own(host)?;
    match fs::remove_file(disk(host).join(".full")) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

/// Lets every write wait until the disk is thawed.
pub fn freeze(host: &Host) -> Done {
    has_its_own(host)?;
    ran(&["fsfreeze", "--freeze", &disk(host).display().to_string()]).map(drop)
}

/// Ends what `freeze` began. Until then no process that writes can be killed.
pub fn thaw(host: &Host) {
    if is_mounted(host) {
        // It fails where nothing is frozen.
        let _ = ran(&["fsfreeze", "--unfreeze", &disk(host).display().to_string()]);
    }
}

fn disk(host: &Host) -> PathBuf {
    host.folder.join("root")
}

/// Whether the disk is another file system than the folder it is in.
fn is_mounted(host: &Host) -> bool {
    let device = |path: PathBuf| fs::metadata(path).ok().map(|folder| folder.dev());
    device(disk(host)).is_some_and(|own| Some(own) != device(host.folder.clone()))
}

fn has_its_own(host: &Host) -> Done {
    match is_mounted(host) && has_clock(host) {
        true => Ok(()),
        false => {
            let hint = format!("`cargo xtask lab hosts refit {} 2000` gives it both, and boots it again", host.number);
            Err(format!("{} has no disk and no clock of its own\n  hint: {hint}", host.name).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::names::Lab;
    use super::*;

    #[test]
    fn the_disk_of_this_machine_is_never_filled_or_frozen() {
        let folder = tempfile::tempdir().unwrap();
        let host = Lab::new(folder.path()).unwrap().host(1);
        fs::create_dir_all(host.folder.join("root")).unwrap();
        fs::write(host.folder.join(LIBRARY), "").unwrap();
        for refused in [fill(&host), freeze(&host), empty(&host), set_clock(&host, 600)] {
            assert!(
                refused.unwrap_err().to_string().starts_with("host-1 has no disk and no clock of its own\n  hint: ")
            );
        }
        assert!(!host.folder.join("root/.full").exists());
        detach(&host).unwrap();
    }
}
