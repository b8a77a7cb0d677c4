//! Lines of the kernel log that tell of faults.

use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;

use rustix::fs::OFlags;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// A line of the kernel log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelLine {
    /// How long ago it was written, in seconds.
    pub age: u64,
    /// What it says.
    pub text: String,
}

/// The newest lines that are kept.
const MOST: usize = 400;

/// Letters of one line.
const LENGTH: usize = 400;

/// Words of lines that tell of faults of GPUs, memory, disks, networks and processes.
const WORDS: [&str; 23] = [
    "Xid",
    "NVRM:",
    "out of memory",
    "oom-kill",
    "I/O error",
    "Hardware Error",
    "EDAC",
    "mce:",
    "EXT4-fs error",
    "EXT4-fs warning",
    "XFS (",
    "BTRFS error",
    "BTRFS critical",
    "read-only",
    "nvme",
    "blocked for more than",
    "soft lockup",
    "hard LOCKUP",
    "link is down",
    "temperature above threshold",
    "throttled",
    "AER:",
    "nf_conntrack: table full",
];

/// The lines that tell of faults, the oldest first; else why there are none.
pub fn faults() -> Result<Vec<KernelLine>, String> {
    let opened = std::fs::OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open("/dev/kmsg");
    let mut log = opened.map_err(|error| format!("cannot open `/dev/kmsg`: {error}"))?;
    let since_boot = u64::try_from(clock_gettime(ClockId::Monotonic).tv_sec).unwrap_or(0);
    let (mut lines, mut record) = (Vec::new(), vec![0; 16 << 10]);
    loop {
        match log.read(&mut record) {
            Ok(0) => break,
            Ok(length) => lines.extend(line(&String::from_utf8_lossy(&record[..length]), since_boot)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            // Records were overwritten while this read: it continues with the oldest that is left.
            Err(error) if error.kind() == ErrorKind::BrokenPipe || error.kind() == ErrorKind::Interrupted => {}
            // A record that is longer than the buffer is passed over.
            Err(error) if error.kind() == ErrorKind::InvalidInput => {}
            Err(error) => return Err(format!("cannot read `/dev/kmsg`: {error}")),
        }
    }
    let older = lines.len().saturating_sub(MOST);
    Ok(lines.split_off(older))
}

/// A record as `/dev/kmsg` gives it, `PRIORITY,NUMBER,MICROSECONDS,FLAGS;TEXT`, where it tells of a fault.
fn line(record: &str, since_boot: u64) -> Option<KernelLine> {
    let (head, rest) = record.split_once(';')?;
    let text: String = rest.lines().next()?.chars().take(LENGTH).collect();
    let lower = text.to_lowercase();
    if !WORDS.iter().any(|word| lower.contains(&word.to_lowercase())) {
        return None;
    }
    let written: u64 = head.split(',').nth(2)?.parse().ok()?;
    Some(KernelLine { age: since_boot.saturating_sub(written / 1_000_000), text })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_with_their_age() {
        let xid =
            "4,1234,5000000,-;NVRM: Xid (PCI:0000:cb:00): 79, pid=1, GPU has fallen off the bus.\n SUBSYSTEM=pci\n";
        let read = line(xid, 65).unwrap();
        assert_eq!(
            (read.age, read.text.as_str()),
            (60, "NVRM: Xid (PCI:0000:cb:00): 79, pid=1, GPU has fallen off the bus.")
        );
        assert!(line("6,1,1,-;usb 1-1: new high-speed USB device\n", 65).is_none());
        assert!(line("no record", 65).is_none());
        assert_eq!(line("3,9,99000000,-;Out of memory: Killed process 7 (python)\n", 65).unwrap().age, 0);
    }
}
