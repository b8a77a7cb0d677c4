//! On which machine an instance was placed: `instances/INSTANCE/host` in the home.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use domain::InstanceId;

/// Where instances were placed.
#[derive(Debug)]
pub(super) struct Placements {
    instances: PathBuf,
}

impl Placements {
    /// The placements of a home.
    pub fn new(home: &Path) -> Placements {
        Placements { instances: home.join("instances") }
    }

    /// The machine on which an instance was placed, if it was.
    pub fn host_of(&self, instance: &InstanceId) -> Option<String> {
        let name = fs::read_to_string(self.path(instance)).ok()?;
        Some(name.trim().to_owned()).filter(|name| !name.is_empty())
    }

    /// Writes it down; durable when this returns.
    pub fn place(&self, instance: &InstanceId, host: &str) -> io::Result<()> {
        fs::create_dir_all(self.instances.join(instance.as_str()))?;
        node::durable::replace(&self.path(instance), format!("{host}\n").as_bytes())
    }

    /// It was refused there, and may be placed elsewhere.
    pub fn forget(&self, instance: &InstanceId) {
        let _ = fs::remove_file(self.path(instance));
    }

    fn path(&self, instance: &InstanceId) -> PathBuf {
        self.instances.join(instance.as_str()).join("host")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_placement_outlives_the_process_and_can_be_taken_back() {
        let home = tempfile::tempdir().unwrap();
        let instance = InstanceId::new("r-i1");
        assert_eq!(Placements::new(home.path()).host_of(&instance), None);
        Placements::new(home.path()).place(&instance, "b").unwrap();
        let placements = Placements::new(home.path());
        assert_eq!(placements.host_of(&instance), Some("b".to_owned()));
        placements.forget(&instance);
        assert_eq!(placements.host_of(&instance), None);
    }
}
