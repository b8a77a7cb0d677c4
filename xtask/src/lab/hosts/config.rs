//! The texts that hosts, and `ssh` outside of them, are configured with.

use std::path::Path;

use super::names::{Host, Subnet};

/// Held by a command that changes the lab, and the sign that a folder is a lab's.
pub const LOCK: &str = "lab.lock";
/// The file for `ssh -F`.
pub const SSH_CONFIG: &str = "ssh_config";
/// The key that every host lets in.
pub const KEY: &str = "key";
/// The hosts' own keys.
pub const KNOWN_HOSTS: &str = "known_hosts";
/// Every host's `/etc/hosts`.
pub const ETC_HOSTS: &str = "etc_hosts";
/// A program that is `cargo xtask lab hosts` for this lab, for tests.
pub const COMMAND: &str = "lab";
/// On a host's disk, as a cloud of the lab writes it: the metadata service that its agents ask.
pub const METADATA: &str = "metadata";

/// Mount point of a host's disk.
pub const DISK: &str = "/run/host";

/// The configuration of `ssh`: `lab` is the folder of the lab.
pub fn ssh(lab: &Path, hosts: &[Host], subnet: Subnet) -> String {
    // `%` begins what ssh replaces.
    let path = |name: &str| lab.join(name).display().to_string().replace('%', "%%");
    let mut text: String = hosts
        .iter()
        .map(|host| format!("Host {}\n    HostName {}\n\n", host.name, subnet.address(host.number)))
        .collect();
    text += "Host host-*\n    User root\n";
    text += &format!("    IdentityFile \"{}\"\n    IdentitiesOnly yes\n    IdentityAgent none\n", path(KEY));
    text += &format!("    UserKnownHostsFile \"{}\"\n", path(KNOWN_HOSTS));
    text += "    GlobalKnownHostsFile /dev/null\n    StrictHostKeyChecking yes\n    BatchMode yes\n";
    text
}

/// A line for each host, with its public key.
pub fn known_hosts(keys: &[(&Host, String)], subnet: Subnet) -> String {
    let line = |(host, key): &(&Host, String)| {
        let key: Vec<&str> = key.split_whitespace().take(2).collect();
        format!("{},{} {}\n", host.name, subnet.address(host.number), key.join(" "))
    };
    keys.iter().map(line).collect()
}

/// The names that hosts know: themselves, and this machine as `server`.
pub fn etc_hosts(hosts: &[Host], subnet: Subnet) -> String {
    let line = |host: &Host| format!("{} {}\n", subnet.address(host.number), host.name);
    let names: String = hosts.iter().map(line).collect();
    format!("127.0.0.1 localhost\n::1 localhost\n{names}{} server\n", subnet.server())
}

/// The configuration of a host's sshd. `penalties` is whether that sshd supports penalties for broken connections,
/// which tests cause all the time; `environment` is what the programs that it starts find set.
pub fn sshd(address: &str, penalties: bool, environment: &[String]) -> String {
    let mut text = format!(
        "ListenAddress {address}\nHostKey {DISK}/ssh_host_key\nAuthorizedKeysFile {DISK}/authorized_keys\nPidFile none\n"
    );
    // Folders of a lab may be writable for a group.
    text += "StrictModes no\nUsePAM no\nUseDNS no\nPrintMotd no\nPermitRootLogin prohibit-password\n";
    text += "PasswordAuthentication no\nKbdInteractiveAuthentication no\nPubkeyAuthentication yes\n";
    text += "AllowTcpForwarding yes\nAllowStreamLocalForwarding yes\nStreamLocalBindUnlink yes\n";
    text += "MaxStartups 100\nMaxSessions 100\nSubsystem sftp internal-sftp\n";
    if !environment.is_empty() {
        // Of several lines the first alone counts.
        text += &format!("SetEnv {}\n", environment.join(" "));
    }
    text + if penalties { "PerSourcePenalties no\n" } else { "" }
}

/// `/etc/shadow` with a root that has no password instead of being locked: sshd refuses a locked user without PAM.
pub fn shadow(text: &str) -> String {
    let line = |line: &str| match line.split_once(':') {
        Some(("root", rest)) => {
            let (_, rest) = rest.split_once(':').unwrap_or(("", rest));
            format!("root:*:{rest}\n")
        }
        _ => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}

/// The program that is `cargo xtask lab hosts` for one lab.
pub fn command(root: &Path, xtask: &Path, lab: &Path) -> String {
    let [manifest, xtask, lab] = [&root.join("xtask"), xtask, lab].map(shell_word);
    format!("#!/bin/sh\nCARGO_MANIFEST_DIR={manifest} exec {xtask} lab hosts --folder {lab} \"$@\"\n")
}

/// A path as one word of a shell's command line.
pub fn shell_word(path: &Path) -> String {
    let text = path.display().to_string();
    match text.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c)) {
        true => text,
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::hosts::names::Lab;

    fn hosts() -> Vec<Host> {
        let lab = Lab::new(Path::new("/nowhere/a b")).unwrap();
        [1, 2].map(|number| lab.host(number)).to_vec()
    }

    #[test]
    fn ssh_finds_each_host_and_its_key() {
        let text = ssh(Path::new("/a b/100%"), &hosts(), Subnet(9));
        assert!(
            text.starts_with("Host host-1\n    HostName 10.77.9.1\n\nHost host-2\n    HostName 10.77.9.2\n"),
            "{text}"
        );
        assert!(text.contains("    IdentityFile \"/a b/100%%/key\"\n"), "{text}");
        assert!(text.contains("    UserKnownHostsFile \"/a b/100%%/known_hosts\"\n"), "{text}");
        let hosts = hosts();
        let keys = [(&hosts[1], "ssh-ed25519 AAAA root@somewhere\n".to_owned())];
        assert_eq!(known_hosts(&keys, Subnet(9)), "host-2,10.77.9.2 ssh-ed25519 AAAA\n");
    }

    #[test]
    fn hosts_know_each_other() {
        let expected = "127.0.0.1 localhost\n::1 localhost\n10.77.9.1 host-1\n10.77.9.2 host-2\n10.77.9.254 server\n";
        assert_eq!(etc_hosts(&hosts(), Subnet(9)), expected);
    }

    #[test]
    fn only_keys_are_let_in() {
        let text = sshd("10.77.9.1", false, &[]);
        for line in ["ListenAddress 10.77.9.1", "PasswordAuthentication no", "UsePAM no", "StreamLocalBindUnlink yes"] {
            assert!(text.lines().any(|found| found == line), "{line}");
        }
        assert_eq!(sshd("10.77.9.1", true, &[]), format!("{text}PerSourcePenalties no\n"));
        let environment = ["LD_PRELOAD=/run/host/clock.so", "A=aws=http://10.77.9.254:80"].map(str::to_owned);
        let expected = text + "SetEnv LD_PRELOAD=/run/host/clock.so A=aws=http://10.77.9.254:80\n";
        assert_eq!(sshd("10.77.9.1", false, &environment), expected);
    }

    #[test]
    fn a_locked_root_is_unlocked_without_a_password() {
        let locked = "root:!$6$x:19000:0:99999:7:::\ndaemon:!:19000::::::\n";
        assert_eq!(shadow(locked), "root:*:19000:0:99999:7:::\ndaemon:!:19000::::::\n");
    }

    #[test]
    fn the_command_of_a_lab_survives_odd_paths() {
        let text = command(Path::new("/it's"), Path::new("/b c/xtask"), Path::new("/lab"));
        assert_eq!(
            text,
            "#!/bin/sh\nCARGO_MANIFEST_DIR='/it'\\''s/xtask' exec '/b c/xtask' lab hosts --folder /lab \"$@\"\n"
        );
    }
}
