//! What a machine says of itself: hardware, software, disk, names, and what its kernel has logged.
//!
//! Facts only: what they mean is decided by whoever reads them. Everything here works without root; what needs it is left
//! out, with the reason. A command that does not answer is ended, for a broken GPU makes `nvidia-smi` wait for ever.

pub(crate) mod ask;
mod disk;
mod gpu;
mod kernel_log;
pub mod link;
mod program_user;
mod software;
mod system;

use std::path::{Path, PathBuf};

use domain::Timestamp;
use serde::{Deserialize, Serialize};

pub use disk::{DiskFacts, DiskFigures};
pub use gpu::{GpuDevice, GpuFacts};
pub use kernel_log::KernelLine;
pub use program_user::{PROGRAM_USER, ProgramUser};
pub use software::{CUDA_LIBRARY, SoftwareFacts, TorchBuild, has_cuda};
pub use system::{NameFacts, SystemFacts};

/// What a machine says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeFacts {
    /// Its wall clock while the facts were gathered.
    pub taken: Timestamp,
    /// Processor, memory, kernel and limits.
    pub system: SystemFacts,
    /// The disk where gradus keeps its files.
    pub disk: DiskFacts,
    /// How it calls itself.
    pub names: NameFacts,
    /// NVIDIA GPUs and their driver.
    pub gpu: GpuFacts,
    /// libtorch, PyTorch and the CUDA toolkit.
    pub software: SoftwareFacts,
    /// Lines of the kernel log that tell of faults, the oldest first.
    pub kernel_log: Vec<KernelLine>,
    /// Why the kernel log cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_log_error: Option<String>,
}

/// What to look at.
#[derive(Debug, Clone, Default)]
pub struct FactsWanted {
    /// A folder on the disk that is looked at; it is made where it is missing.
    pub folder: PathBuf,
    /// Whether to write and read 64 MiB there.
    pub measures_disk: bool,
    /// Folder of libtorch, where one is known.
    pub libtorch: Option<PathBuf>,
}

/// Looks at this machine. It takes a second, and four more where the disk is measured.
pub fn gather(wanted: &FactsWanted) -> NodeFacts {
    let (kernel_log, kernel_log_error) = match kernel_log::faults() {
        Ok(lines) => (lines, None),
        Err(why) => (Vec::new(), Some(why)),
    };
    NodeFacts {
        taken: now(),
        system: system::system(Path::new("/")),
        disk: disk::disk(&wanted.folder, wanted.measures_disk),
        names: system::names(),
        gpu: gpu::gpus(Path::new("/")),
        software: software::software(Path::new("/"), wanted.libtorch.as_deref()),
        kernel_log,
        kernel_log_error,
    }
}

/// The wall clock now.
pub fn now() -> Timestamp {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    Timestamp(time.tv_sec.saturating_mul(1_000_000).saturating_add(time.tv_nsec / 1_000))
}

impl NodeFacts {
    /// A text that changes when the machine is another one or was changed, and not with what is free or busy on it.
    pub fn fingerprint(&self) -> String {
        let gpus: Vec<&str> = self.gpu.devices.iter().map(|gpu| gpu.uuid.as_str()).collect();
        let system = &self.system;
        let text = format!(
            "{}|{}|{}|{}|{}|{}|{:?}|{}",
            self.names.host,
            system.kernel,
            system.cpu,
            system.cores,
            system.memory.0,
            self.disk.total.0,
            self.gpu.driver,
            gpus.join(",")
        );
        crate::sha256(text.as_bytes()).map_or(text, |hash| hash[..16].to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_described_and_recognised() {
        let folder = tempfile::tempdir().unwrap();
        let wanted = FactsWanted { folder: folder.path().join("new"), measures_disk: true, libtorch: None };
        let facts = gather(&wanted);
        assert!(facts.system.cores > 0 && facts.system.memory.0 > 0 && facts.disk.total.0 > 0, "{facts:?}");
        let figures = facts.disk.figures.expect("the disk was measured");
        assert!(figures.write > 0 && figures.read > 0 && figures.random_reads > 0, "{figures:?}");
        assert_eq!(std::fs::read_dir(&wanted.folder).unwrap().count(), 0, "nothing is left behind");
        assert!(!facts.names.host.is_empty());
        let text = serde_json::to_string(&facts).unwrap();
        assert_eq!(serde_json::from_str::<NodeFacts>(&text).unwrap(), facts);
        let mut other = facts.clone();
        other.disk.free.0 += 1;
        assert_eq!(other.fingerprint(), facts.fingerprint());
        other.gpu.driver = Some("550.54.14".into());
        assert_ne!(other.fingerprint(), facts.fingerprint());
        // What a later version says besides is not in the way, nor what an earlier one does not say.
        assert_eq!(serde_json::from_str::<NodeFacts>(r#"{"more": 1}"#).unwrap(), NodeFacts::default());
    }
}
