//! The SSH key of this home for its machines, and the SSH configuration.
//!
//! A machine's host key is accepted when it is first seen, and pinned afterwards: it is stored by the name of the
//! machine, because addresses are reused.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

use super::rentals::replace;

/// Held while a key is looked for: of two first launches at once, one makes it, and machines let in no other.
static MAKING: Mutex<()> = Mutex::new(());

/// The public key of a home; made with `ssh-keygen` the first time.
///
/// # Errors
/// When it cannot be made or read.
pub fn public_key(folder: &Path) -> io::Result<String> {
    let _one_at_a_time = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
    let private = folder.join("id_ed25519");
    let public = folder.join("id_ed25519.pub");
    // A file that a loss of power has left empty is none.
    let is_there = |path: &Path| fs::metadata(path).is_ok_and(|about| about.len() > 0);
    if !is_there(&private) || !is_there(&public) {
        fs::create_dir_all(folder)?;
        let partial = folder.join(format!("id.{}", std::process::id()));
        let _ = fs::remove_file(&partial);
        let mut keygen = Command::new("ssh-keygen");
        keygen.args(["-q", "-t", "ed25519", "-N", "", "-C", "gradus", "-f"]).arg(&partial);
        let output = keygen.stdin(Stdio::null()).output()?;
        if !output.status.success() {
            let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(io::Error::other(format!("`ssh-keygen` failed: {why}")));
        }
        // A machine that knows a key which was lost is never reached.
        let partial_public = partial.with_extension(format!("{}.pub", std::process::id()));
        for (made, path) in [(&partial_public, &public), (&partial, &private)] {
            File::open(made)?.sync_all()?;
            fs::rename(made, path)?;
        }
        File::open(folder)?.sync_all()?;
    }
    fs::read_to_string(public)
}

/// Writes the configuration with which `ssh HANDLE` reaches a machine; its path.
///
/// # Errors
/// When it cannot be written.
pub fn configure(
    folder: &Path,
    shared: &Path,
    (handle, address): (&str, &str),
    users: Option<&Path>,
) -> io::Result<PathBuf> {
    let quoted = |path: PathBuf| format!("\"{}\"", path.display());
    let include = users.map(|users| format!("Include {}\n", quoted(users.to_owned()))).unwrap_or_default();
    // The first value that is found counts, so the user's own stand first.
    let text = format!(
        "{include}Host {handle}\n  HostName {address}\n  HostKeyAlias {handle}\n  User gradus\n  IdentityFile {}\n  \
         IdentitiesOnly yes\n  StrictHostKeyChecking accept-new\n  UserKnownHostsFile {}\n",
        quoted(shared.join("id_ed25519")),
        quoted(shared.join("known_hosts")),
    );
    replace(folder, "ssh_config", text.as_bytes())?;
    Ok(folder.join("ssh_config"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_launches_at_once_make_one_key() {
        let home = tempfile::tempdir().unwrap();
        let shared = home.path().join("aws");
        let keys: Vec<String> = std::thread::scope(|scope| {
            let made: Vec<_> = (0..4).map(|_| scope.spawn(|| public_key(&shared).unwrap())).collect();
            made.into_iter().map(|key| key.join().unwrap()).collect()
        });
        assert!(keys.iter().all(|key| *key == keys[0] && key.starts_with("ssh-ed25519 ")), "{keys:?}");
    }

    #[test]
    fn a_key_that_a_loss_of_power_has_left_empty_is_made_again() {
        let home = tempfile::tempdir().unwrap();
        for name in ["id_ed25519", "id_ed25519.pub"] {
            fs::write(home.path().join(name), "").unwrap();
        }
        let key = public_key(home.path()).unwrap();
        assert!(key.starts_with("ssh-ed25519 "), "{key}");
        assert!(!fs::read(home.path().join("id_ed25519")).unwrap().is_empty());
    }

    #[test]
    fn a_home_has_one_key_and_a_machine_one_entry() {
        let home = tempfile::tempdir().unwrap();
        let shared = home.path().join("aws");
        let key = public_key(&shared).unwrap();
        assert!(key.starts_with("ssh-ed25519 "), "{key}");
        assert_eq!(public_key(&shared).unwrap(), key);
        let path = configure(home.path(), &shared, ("i-1", "192.0.2.7"), Some(Path::new("/etc/mine"))).unwrap();
        let output = Command::new("ssh").arg("-G").arg("-F").arg(&path).arg("i-1").output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        for line in ["hostname 192.0.2.7", "user gradus", "hostkeyalias i-1", "stricthostkeychecking accept-new"] {
            assert!(said.lines().any(|found| found == line), "{line} in {said}");
        }
    }
}
