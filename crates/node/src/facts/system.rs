//! Processor, memory, kernel, limits, and how the machine calls itself.

use std::fs;
use std::net::ToSocketAddrs;
use std::path::Path;
use std::time::Duration;

use domain::Bytes;
use rustix::process::{Resource, geteuid, getrlimit};
use serde::{Deserialize, Serialize};

use super::ask::ask;
use super::program_user::ProgramUser;

/// Processor, memory, kernel and limits.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SystemFacts {
    /// Version of the kernel.
    pub kernel: String,
    /// The distribution, such as `Debian GNU/Linux 12 (bookworm)`.
    pub distribution: String,
    /// Processor architecture, such as `x86_64`.
    pub architecture: String,
    /// Version of glibc, such as `2.36`; none where there is another C library.
    pub glibc: Option<String>,
    /// Name of the processor.
    pub cpu: String,
    /// Cores that may be used.
    pub cores: u64,
    /// Memory in all.
    pub memory: Bytes,
    /// Memory that programs may still take.
    pub memory_available: Bytes,
    /// The most memory that a container or service manager allows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_limit: Option<Bytes>,
    /// Size of `/dev/shm`, through which processes of PyTorch's loader hand over batches.
    pub shared_memory: Option<Bytes>,
    /// Files that a process may have open.
    pub open_files: Option<u64>,
    /// Whether it is entered as root.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_root: bool,
    /// Whether it has the user that programs of jobs run as then; else they run as root.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub has_program_user: bool,
}

/// How a machine calls itself.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct NameFacts {
    /// Its host name.
    pub host: String,
    /// The addresses that it finds for that name.
    pub addresses: Vec<String>,
    /// Whether it finds none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

pub(super) fn system(root: &Path) -> SystemFacts {
    let read = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
    let (meminfo, release) = (read("proc/meminfo"), read("etc/os-release"));
    // Names of people may be in another encoding.
    let users = fs::read(root.join("etc/passwd")).unwrap_or_default();
    let users = String::from_utf8_lossy(&users);
    let shared = rustix::fs::statvfs(root.join("dev/shm")).ok();
    SystemFacts {
        kernel: read("proc/sys/kernel/osrelease").trim().to_owned(),
        distribution: setting(&release, "PRETTY_NAME").unwrap_or_else(|| "unknown".to_owned()),
        architecture: std::env::consts::ARCH.to_owned(),
        glibc: glibc(),
        cpu: processor(&read("proc/cpuinfo")),
        cores: std::thread::available_parallelism().map_or(0, |cores| cores.get() as u64),
        memory: memory(&meminfo, "MemTotal:"),
        memory_available: memory(&meminfo, "MemAvailable:"),
        memory_limit: limit(&read("sys/fs/cgroup/memory.max"))
            .or_else(|| limit(&read("sys/fs/cgroup/memory/memory.limit_in_bytes"))),
        shared_memory: shared.map(|shared| Bytes(shared.f_blocks.saturating_mul(shared.f_frsize))),
        open_files: getrlimit(Resource::Nofile).current,
        is_root: geteuid().is_root(),
        has_program_user: ProgramUser::find(&users).is_some(),
    }
}

/// The name, and what the machine itself makes of it: what other programs on it will find.
pub(super) fn names() -> NameFacts {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned();
    match (host.as_str(), 0).to_socket_addrs() {
        Ok(found) => {
            let mut addresses: Vec<String> = found.map(|address| address.ip().to_string()).collect();
            addresses.sort();
            addresses.dedup();
            NameFacts { host, addresses, error: None }
        }
        Err(error) => NameFacts { host, addresses: Vec::new(), error: Some(error.to_string()) },
    }
}

fn glibc() -> Option<String> {
    let said = ask("getconf", &["GNU_LIBC_VERSION"], Duration::from_secs(5)).ok()?;
    said.trim().strip_prefix("glibc ").map(str::to_owned)
}

fn processor(cpuinfo: &str) -> String {
    let names = cpuinfo.lines().filter_map(|line| line.strip_prefix("model name")?.split_once(':'));
    names.map(|(_, name)| name.trim()).find(|name| !name.is_empty()).unwrap_or(std::env::consts::ARCH).to_owned()
}

fn memory(meminfo: &str, name: &str) -> Bytes {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(name));
    let kibibytes = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    Bytes(kibibytes.unwrap_or(0) * 1024)
}

/// A limit that is one: both versions of cgroups write something huge, or `max`, for none.
fn limit(text: &str) -> Option<Bytes> {
    text.trim().parse().ok().filter(|bytes| *bytes < 1 << 60).map(Bytes)
}

fn setting(text: &str, name: &str) -> Option<String> {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='))?;
    Some(value.trim_matches('"').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_s_files_are_read() {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in [
            ("proc/meminfo", "MemTotal:       16384 kB\nMemAvailable:   1024 kB\n"),
            ("proc/cpuinfo", "processor\t: 0\nmodel name\t: Fast CPU @ 3 GHz\n"),
            ("proc/sys/kernel/osrelease", "6.1.0\n"),
            ("etc/os-release", "NAME=\"Debian\"\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n"),
            ("sys/fs/cgroup/memory.max", "1073741824\n"),
        ] {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let facts = system(root.path());
        assert_eq!((facts.memory, facts.memory_available), (Bytes(16 << 20), Bytes(1 << 20)));
        assert_eq!((facts.memory_limit, facts.shared_memory), (Some(Bytes(1 << 30)), None));
        assert_eq!((facts.cpu.as_str(), facts.kernel.as_str()), ("Fast CPU @ 3 GHz", "6.1.0"));
        assert_eq!(facts.distribution, "Debian GNU/Linux 12 (bookworm)");
        assert_eq!((limit("max\n"), limit("9223372036854771712\n"), limit("")), (None, None, None));
    }
}
