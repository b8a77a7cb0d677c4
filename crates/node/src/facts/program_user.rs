//! The user that programs of jobs run as where gradus is entered as root: `gradus-job`, on machines that have such a user.

use std::fs;
use std::path::PathBuf;

use rustix::process::geteuid;

/// The name of the user. Whoever owns a machine makes it, or does not.
pub const PROGRAM_USER: &str = "gradus-job";

/// A user of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramUser {
    /// Its number, which is not root's.
    pub uid: u32,
    /// The number of its group.
    pub gid: u32,
    /// Its home folder.
    pub home: PathBuf,
}

impl ProgramUser {
    /// That of this machine; none where this process is not root, who alone may become another user.
    pub fn of_machine() -> Option<ProgramUser> {
        let users = fs::read("/etc/passwd").ok()?;
        ProgramUser::find(&String::from_utf8_lossy(&users)).filter(|_| geteuid().is_root())
    }

    /// Finds it in a list of users such as `/etc/passwd`.
    pub fn find(users: &str) -> Option<ProgramUser> {
        let mut lines = users.lines().map(|line| line.split(':').collect::<Vec<&str>>());
        let fields = lines.find(|fields| fields.first() == Some(&PROGRAM_USER))?;
        let [_, _, uid, gid, _, home, ..] = fields[..] else { return None };
        let (uid, gid): (u32, u32) = (uid.parse().ok()?, gid.parse().ok()?);
        (uid != 0).then(|| ProgramUser { uid, gid, home: home.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_is_found_by_its_name_and_is_never_root() {
        let root = "root:x:0:0:root:/root:/bin/bash\n";
        let line = "gradus-job:x:1001:1002:,,,:/home/gradus-job:/bin/sh\n";
        let found = ProgramUser { uid: 1001, gid: 1002, home: "/home/gradus-job".into() };
        assert_eq!(ProgramUser::find(&format!("{root}{line}")), Some(found));
        for none in
            ["", root, "gradus-jobs:x:1:1::/:/bin/sh", "gradus-job:x:0:0::/root:/bin/sh", "gradus-job:x:a:1::/:"]
        {
            assert_eq!(ProgramUser::find(none), None, "{none}");
        }
    }
}
