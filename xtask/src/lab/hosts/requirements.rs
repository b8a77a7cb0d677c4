//! Requirements of a lab: root, namespaces, some programs, and sshd, which is installed if it is missing.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Done, config, ran};
use crate::doing;

/// The programs that are called, and the package of Debian that each is in.
const PROGRAMS: [(&str, &str); 9] = [
    ("bridge", "iproute2"),
    ("ip", "iproute2"),
    ("kill", "procps"),
    ("mount", "mount"),
    ("nsenter", "util-linux"),
    ("setsid", "util-linux"),
    ("ssh", "openssh-client"),
    ("ssh-keygen", "openssh-client"),
    ("unshare", "util-linux"),
];

/// Path of sshd, which is not always in the `PATH` of a user.
const SSHD: [&str; 3] = ["/usr/sbin/sshd", "/usr/local/sbin/sshd", "/usr/bin/sshd"];

/// Commands that must work for a host to be created; each is tried in a namespace that ends with it.
const TRIALS: [&[&str]; 3] = [
    &["unshare", "--net", "--uts", "--pid", "--mount", "--fork", "--mount-proc", "--", "true"],
    &["unshare", "--net", "--", "ip", "link", "add", "name", "trial0", "type", "bridge"],
    &["unshare", "--net", "--", "ip", "link", "add", "name", "trial0", "type", "veth", "peer", "name", "trial1"],
];

/// The reason why hosts cannot be started here, or `None` if they can.
pub fn obstacle() -> Option<String> {
    let tried =
        root().and_then(|()| programs()).and_then(|()| TRIALS.iter().try_for_each(|words| ran(words).map(drop)));
    tried.err().map(|error| error.to_string())
}

/// Whether this process may do everything.
pub fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

/// Refuses to work for anybody but root.
pub fn root() -> Done {
    let hint = "`sudo -E env \"PATH=$PATH\" cargo xtask lab hosts …`, or type it in a privileged container";
    match is_root() {
        true => Ok(()),
        false => Err(format!("only root can make namespaces, bridges and mounts\n  hint: {hint}").into()),
    }
}

/// Looks for every program that is called.
pub fn programs() -> Done {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = |name: &str| std::env::split_paths(&path).any(|folder| folder.join(name).is_file());
    let missing: Vec<(&str, &str)> = PROGRAMS.into_iter().filter(|(name, _)| !is_there(name)).collect();
    match missing.is_empty() {
        true => Ok(()),
        false => Err(absent(&missing).into()),
    }
}

fn absent(missing: &[(&str, &str)]) -> String {
    let names: Vec<String> = missing.iter().map(|(name, _)| format!("`{name}`")).collect();
    let mut packages: Vec<&str> = missing.iter().map(|(_, package)| *package).collect();
    packages.dedup();
    let (names, packages) = (names.join(", "), packages.join(" "));
    format!("these programs are not in `PATH`: {names}\n  hint: `apt-get install {packages}`, and have /sbin in `PATH`")
}

/// Path of sshd; it is installed if it is missing.
pub fn sshd() -> Done<PathBuf> {
    let found = || SSHD.iter().map(Path::new).find(|path| path.is_file()).map(Path::to_owned);
    if let Some(path) = found() {
        return Ok(path);
    }
    let apt = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        doing::read(command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive")).map(drop)
    };
    let install = ["install", "--yes", "--no-install-recommends", "openssh-server"];
    let installed = doing::step("installing openssh-server with apt-get, for the lab's hosts", || {
        // The lists of packages may be missing, or too old.
        apt(&install).or_else(|_| apt(&["update"]).and_then(|()| apt(&install)))
    });
    let hint = "install the OpenSSH server of your system, then try again";
    installed.map_err(|error| format!("there is no sshd, and {error}\n  hint: {hint}"))?;
    found().ok_or_else(|| format!("there is no sshd at {}\n  hint: {hint}", SSHD.join(", ")).into())
}

/// Makes the lab's folder, and refuses one that holds something else, for `down` deletes files in it.
pub fn own(folder: &Path) -> Done {
    let cannot = |error| format!("cannot use `{}` for a lab: {error}", folder.display());
    fs::create_dir_all(folder).map_err(cannot)?;
    let is_empty = fs::read_dir(folder).map_err(cannot)?.next().is_none();
    match is_empty || folder.join(config::LOCK).is_file() {
        true => Ok(()),
        false => {
            let hint = "name an empty folder, or a new one, with `--folder`";
            Err(format!("`{}` holds other files\n  hint: {hint}", folder.display()).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_with_its_package() {
        let text = absent(&[("bridge", "iproute2"), ("ip", "iproute2"), ("ssh", "openssh-client")]);
        assert!(text.contains("`bridge`, `ip`, `ssh`\n  hint: `apt-get install iproute2 openssh-client`"), "{text}");
    }

    #[test]
    fn a_folder_with_other_files_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let new = folder.path().join("new/lab");
        own(&new).unwrap();
        fs::write(new.join("known_hosts"), "mine").unwrap();
        assert!(own(&new).unwrap_err().to_string().contains("holds other files\n  hint: name an empty folder"));
        fs::write(new.join(config::LOCK), "").unwrap();
        own(&new).unwrap();
    }
}
