//! Errors of GPUs as NVIDIA's driver writes them to the kernel's messages: "NVRM: Xid (PCI:0000:3b:00): 79, …".

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// One error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Xid {
    /// The PCI address of the GPU, such as `0000:3b:00`.
    pub device: String,
    /// Its number.
    pub code: u32,
    /// What the driver says beside it.
    pub detail: String,
}

/// What a number means, and what helps; after NVIDIA's catalogue of Xid errors.
const MEANINGS: [(u32, &str, &str); 12] = [
    (13, "a kernel failed on the device", "run the program with CUDA_LAUNCH_BLOCKING=1 to find the operation"),
    (31, "a kernel read or wrote memory that it does not have", "run the program with CUDA_LAUNCH_BLOCKING=1"),
    (43, "a program's work on the device was ended after an error of its own", "see the rank's log"),
    (45, "a program's work was ended, often because the process was killed", "see what was reported before it"),
    (48, "memory of the device has an error that cannot be corrected", "restart the machine, or use another one"),
    (63, "a page of memory is remapped after an error", "restart the machine once the run is over"),
    (64, "a page of memory cannot be remapped", "use another machine: the device is to be replaced"),
    (74, "NVLink failed", "use another machine if it happens again: the link or a switch is faulty"),
    (79, "the device has fallen off the bus", "use another machine: only a power cycle brings it back"),
    (94, "an error in memory was contained, and ended one program", "restart the machine once the run is over"),
    (95, "an error in memory was not contained", "restart the machine, or use another one"),
    (119, "the device's firmware does not answer", "restart the machine, or use another one"),
];

impl Xid {
    /// Reads a line of the kernel's messages; none for one about something else.
    pub fn parse(line: &str) -> Option<Xid> {
        let (_, rest) = line.split_once("NVRM: Xid (")?;
        let (device, rest) = rest.split_once("): ")?;
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (code, detail) = rest.split_at(digits);
        let detail = detail.trim_start_matches([',', ' ']).trim().to_owned();
        Some(Xid { device: device.trim_start_matches("PCI:").to_owned(), code: code.parse().ok()?, detail })
    }
}

impl fmt::Display for Xid {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Xid { device, code, detail } = self;
        match MEANINGS.iter().find(|(known, _, _)| known == code) {
            Some((_, meaning, help)) => write!(formatter, "GPU {device}: Xid {code}, {meaning} ({detail}); {help}"),
            None => write!(formatter, "GPU {device}: Xid {code} ({detail}); see NVIDIA's catalogue of Xid errors"),
        }
    }
}

/// The kernel's messages from now on.
pub struct KernelLog {
    file: File,
}

/// Longest message that the kernel hands out at a time.
const LONGEST: usize = 8192;

impl KernelLog {
    /// Opens it behind the newest message.
    ///
    /// # Errors
    /// Where this user may not read it.
    pub fn open(path: &Path) -> io::Result<KernelLog> {
        let mut file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
        file.seek(SeekFrom::End(0))?;
        Ok(KernelLog { file })
    }

    /// The errors that were written since.
    pub fn new_errors(&mut self) -> Vec<Xid> {
        let (mut text, mut buffer) = (Vec::new(), [0; LONGEST]);
        loop {
            match self.file.read(&mut buffer) {
                Ok(0) => break,
                // A device hands out a message at a time, with its line's end.
                Ok(length) => text.extend_from_slice(&buffer[..length]),
                // Messages were overwritten before they were read: those behind them follow.
                Err(error) if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::Interrupted) => {}
                Err(_) => break,
            }
        }
        String::from_utf8_lossy(&text).lines().filter_map(Xid::parse).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;

    use super::*;

    #[test]
    fn errors_are_told_with_what_helps() {
        let check = |line: &str, expected: Option<&str>| {
            assert_eq!(Xid::parse(line).map(|error| error.to_string()).as_deref(), expected, "{line}");
        };
        check(
            "[ 1234.5] NVRM: Xid (PCI:0000:3b:00): 79, pid=2021, name=gradus-rank, GPU has fallen off the bus.",
            Some(
                "GPU 0000:3b:00: Xid 79, the device has fallen off the bus (pid=2021, name=gradus-rank, GPU has fallen off \
                 the bus.); use another machine: only a power cycle brings it back",
            ),
        );
        check(
            "3,812,99,-;NVRM: Xid (PCI:0000:00:1e): 154, GPU recovery action changed",
            Some("GPU 0000:00:1e: Xid 154 (GPU recovery action changed); see NVIDIA's catalogue of Xid errors"),
        );
        check("NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.159.04", None);
        check("NVRM: Xid (PCI:0000:00:1e): many", None);
        check("", None);
    }

    #[test]
    fn only_what_is_new_is_told_and_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kmsg");
        fs::write(&path, "3,1,1,-;NVRM: Xid (PCI:0000:01:00): 13, before\n").unwrap();
        let mut log = KernelLog::open(&path).unwrap();
        assert_eq!(log.new_errors(), []);
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        writeln!(file, "6,2,2,-;usb 1-1: new device\n3,3,3,-;NVRM: Xid (PCI:0000:01:00): 48, DBE").unwrap();
        let codes = |log: &mut KernelLog| log.new_errors().iter().map(|error| error.code).collect::<Vec<_>>();
        assert_eq!(codes(&mut log), [48]);
        assert!(codes(&mut log).is_empty());
        assert!(KernelLog::open(Path::new("/nowhere/kmsg")).is_err());
    }
}
