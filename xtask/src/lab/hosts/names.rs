//! Names of a lab and its hosts. All are derived from the lab's folder, so several labs can run at a time, and a
//! command finds what an earlier one created.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use super::Done;

/// The numbers that hosts may have.
pub const HOSTS: RangeInclusive<u8> = 1..=100;

/// The last part of this machine's address on each bridge.
const SERVER: u8 = 254;

/// The hosts of one folder, and the bridge between them.
#[derive(Debug, Clone)]
pub struct Lab {
    /// An absolute path.
    pub folder: PathBuf,
    /// The bridge's name; names of links to hosts begin with it.
    pub bridge: String,
    hash: u64,
}

/// One machine of a lab.
#[derive(Debug, Clone, PartialEq)]
pub struct Host {
    /// From 1.
    pub number: u8,
    /// Its hostname, and its name for `ssh`.
    pub name: String,
    /// Its disk.
    pub folder: PathBuf,
    /// The end of its link that is on the bridge.
    pub link: String,
    /// The MAC address of its own end.
    pub hardware: String,
    /// An argument of its first process, by which that is found.
    pub mark: String,
}

/// The addresses of one lab: `10.77.N.0/24`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Subnet(pub u8);

impl Lab {
    /// The lab in `folder`, which need not exist.
    pub fn new(folder: &Path) -> Done<Lab> {
        let folder = folder.canonicalize().or_else(|_| std::path::absolute(folder))?;
        let text = folder.to_str().filter(|text| !text.contains(|c: char| "\"$\\".contains(c) || c.is_control()));
        let hash = hash(text.ok_or_else(|| {
            let hint = "name another with `--folder`, without quotes, `$`, `\\` and line breaks";
            format!("ssh cannot read the path `{}` in its configuration\n  hint: {hint}", folder.display())
        })?);
        // The kernel allows 15 bytes, and `v100` is added.
        Ok(Lab { bridge: format!("gr{:08x}", hash as u32), folder, hash })
    }

    /// The host of that number.
    pub fn host(&self, number: u8) -> Host {
        let name = format!("host-{number}");
        let mark = format!("{}{number}", self.mark());
        let [folder, link] = [self.folder.join(&name), format!("{}v{number}", self.bridge).into()];
        let link = link.to_string_lossy().into_owned();
        Host { number, name, folder, link, hardware: self.hardware(number), mark }
    }

    /// Prefix of the marks of all hosts of this lab.
    pub fn mark(&self) -> String {
        format!("gradus-lab:{}/host-", self.folder.display())
    }

    /// Whether a network link is of this lab.
    pub fn owns(&self, link: &str) -> bool {
        let rest = link.strip_prefix(&self.bridge);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('v'))
    }

    /// The bridge's own hardware address. Without one, it changes as hosts come and go, and they lose this machine.
    pub fn server_hardware(&self) -> String {
        self.hardware(SERVER)
    }

    /// An address that is locally administered.
    fn hardware(&self, number: u8) -> String {
        let [a, b, c, d, ..] = self.hash.to_be_bytes();
        format!("02:{a:02x}:{b:02x}:{c:02x}:{d:02x}:{number:02x}")
    }

    /// The subnet of this lab's hash, or the next that is not taken.
    pub fn subnet(&self, taken: &BTreeSet<Subnet>) -> Option<Subnet> {
        let first = (self.hash >> 32) as u8;
        (0..=u8::MAX).map(|step| Subnet(first.wrapping_add(step))).find(|subnet| !taken.contains(subnet))
    }
}

impl Subnet {
    /// A host's address.
    pub fn address(self, number: u8) -> String {
        format!("10.77.{}.{number}", self.0)
    }

    /// This machine's address, as hosts see it.
    pub fn server(self) -> String {
        self.address(SERVER)
    }
}

/// FNV-1a: the same in every version of this program.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_from_the_folder() {
        assert_eq!(hash("a"), 0xaf63_dc4c_8601_ec8c);
        let [lab, other] = ["/nowhere/a", "/nowhere/b"].map(|folder| Lab::new(Path::new(folder)).unwrap());
        assert_ne!(lab.bridge, other.bridge);
        let host = lab.host(100);
        assert_eq!(host.name, "host-100");
        assert_eq!(host.folder, Path::new("/nowhere/a/host-100"));
        assert_eq!(host.mark, "gradus-lab:/nowhere/a/host-100");
        assert!(host.link.len() <= 15, "{}", host.link);
        assert_ne!(host.hardware, lab.server_hardware());
        assert!(lab.owns(&lab.bridge) && lab.owns(&host.link));
        assert!(!lab.owns(&other.bridge) && !lab.owns("eth0") && !lab.owns(&format!("{}0", lab.bridge)));
    }

    #[test]
    fn a_subnet_that_is_taken_is_left_to_others() {
        let lab = Lab::new(Path::new("/nowhere/a")).unwrap();
        let first = lab.subnet(&BTreeSet::new()).unwrap();
        let second = lab.subnet(&BTreeSet::from([first])).unwrap();
        assert_eq!(second.0, first.0.wrapping_add(1));
        assert_eq!(lab.subnet(&(0..=u8::MAX).map(Subnet).collect()), None);
        assert_eq!([Subnet(3).address(2), Subnet(3).server()], ["10.77.3.2", "10.77.3.254"]);
    }

    #[test]
    fn a_path_that_ssh_cannot_read_is_refused() {
        let error = Lab::new(Path::new("/nowhere/a\"b")).unwrap_err().to_string();
        assert!(error.starts_with("ssh cannot read the path `/nowhere/a\"b`"), "{error}");
    }
}
