//! The hardware of this machine.

use std::fs;
use std::io;
use std::path::Path;

use domain::{Bytes, Node};

/// Detects the hardware; the free disk space is that of the file system of `folder`.
///
/// # Errors
/// If the kernel does not report it.
pub fn node(folder: &Path) -> io::Result<Node> {
    let disk = rustix::fs::statvfs(folder)?;
    let cores = std::thread::available_parallelism()?.get();
    Ok(Node {
        cpu: processor(&fs::read_to_string("/proc/cpuinfo")?),
        cores: u32::try_from(cores).unwrap_or(u32::MAX),
        memory: memory(&fs::read_to_string("/proc/meminfo")?)?,
        disk_free: Bytes(disk.f_bavail.saturating_mul(disk.f_frsize)),
        volume: None,
    })
}

/// The first processor's name, or the architecture where the kernel names none, as on some ARM boards.
fn processor(cpuinfo: &str) -> String {
    let names = cpuinfo.lines().filter_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let name = names.map(|(_, name)| name.trim()).find(|name| !name.is_empty());
    name.unwrap_or(std::env::consts::ARCH).to_owned()
}

fn memory(meminfo: &str) -> io::Result<Bytes> {
    let total = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kibibytes = total.and_then(|total| total.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    let missing = || io::Error::other("`/proc/meminfo` does not tell the memory in all");
    kibibytes.map(|kibibytes| Bytes(kibibytes * 1024)).ok_or_else(missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_s_files_are_read() {
        assert_eq!(processor("processor\t: 0\nmodel name\t: Fast CPU @ 3 GHz\n"), "Fast CPU @ 3 GHz");
        assert_eq!(processor("processor\t: 0\n"), std::env::consts::ARCH);
        assert_eq!(memory("MemTotal:       16384 kB\nMemFree: 1 kB\n").unwrap(), Bytes(16 << 20));
        assert!(memory("MemFree: 1 kB\n").is_err());
        let node = node(Path::new("/")).unwrap();
        assert!(node.cores > 0 && node.memory.0 > 0 && node.disk_free.0 > 0, "{node:?}");
    }
}
