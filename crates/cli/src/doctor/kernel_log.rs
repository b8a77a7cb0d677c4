//! What lines of the kernel log mean: Xid codes of GPUs, processes killed for memory, and failing disks, memory and links.

use std::collections::BTreeMap;

use node::facts::KernelLine;

use super::{Diagnosis, Severity};
use crate::figures::counted;

/// The table.
const XID: &str = include_str!("xid.tsv");

/// Lines that were written before this many seconds are history.
const OLD: u64 = 7 * 86_400;

/// What is told of lines that hold a word: the word, how bad it is, what it is called, why, and what to do.
const WORDS: [(&str, Severity, &str, &str, &str); 13] = [
    (
        "out of memory: killed process",
        Severity::Warning,
        "the kernel killed a process because memory ran out",
        "programs together took more memory than there is",
        "give jobs a smaller batch or fewer loader processes, or a machine with more memory",
    ),
    (
        "oom-kill:",
        Severity::Warning,
        "the kernel killed a process because memory ran out",
        "programs together took more memory than there is, or than their container may",
        "give jobs a smaller batch or fewer loader processes, or a machine with more memory",
    ),
    (
        "hardware error",
        Severity::Critical,
        "the processor reports a hardware error",
        "memory, a processor or the main board fails",
        "read `dmesg | grep -i 'hardware error'`; have the machine looked at, give a rented one back",
    ),
    (
        "uncorrected error",
        Severity::Critical,
        "memory errors that cannot be corrected",
        "a memory module fails",
        "have the module replaced; give a rented machine back",
    ),
    (
        "remounting filesystem read-only",
        Severity::Critical,
        "a file system became read-only",
        "the kernel stopped writing after an error of the disk",
        "back up what is on it, then `fsck`; have the disk replaced",
    ),
    (
        "ext4-fs error",
        Severity::Critical,
        "errors of a file system",
        "the disk fails, or the machine lost power while writing",
        "back up what is on it, then `fsck`",
    ),
    (
        "i/o error",
        Severity::Critical,
        "errors of a disk",
        "the disk, its cable or its controller fails, or a network volume was lost",
        "look at `smartctl -a` of that device; have it replaced",
    ),
    (
        "controller is down",
        Severity::Critical,
        "an NVMe disk went away",
        "the disk or its firmware fails",
        "look at `nvme list` and `smartctl -a`; have it replaced",
    ),
    (
        "soft lockup",
        Severity::Warning,
        "a processor was stuck in the kernel",
        "a driver does not come back, or the host of this virtual machine has no time for it",
        "look at the lines after it in `dmesg`; update kernel and drivers",
    ),
    (
        "blocked for more than",
        Severity::Warning,
        "a process waited for a disk or driver for minutes",
        "the disk is overloaded or fails, or a network volume was lost",
        "look at `dmesg | grep -A 20 'blocked for more than'` for what it waited on",
    ),
    (
        "link is down",
        Severity::Info,
        "a network link went down",
        "a cable, a switch or the driver",
        "look at `dmesg | grep -i 'link is'` for whether it came back",
    ),
    (
        "temperature above threshold",
        Severity::Warning,
        "a processor was slowed down because it was too hot",
        "fans or air flow do not keep up",
        "look at `sensors`, fans and air flow",
    ),
    (
        "nf_conntrack: table full",
        Severity::Warning,
        "the kernel dropped packets",
        "its table of connections is full",
        "`sudo sysctl net.netfilter.nf_conntrack_max=1048576`",
    ),
];

/// What the lines say, one diagnosis for each kind and device.
pub(super) fn faults(lines: &[KernelLine], error: Option<&str>) -> Vec<Diagnosis> {
    if let Some(error) = error {
        let remedy = "run it as root, or allow it: `sudo sysctl kernel.dmesg_restrict=0`";
        let unknown = Diagnosis::found(
            Severity::Unknown,
            "kernel",
            error,
            "the kernel shows its log to root only, or not in a container",
            remedy,
        );
        return vec![unknown];
    }
    let mut groups: BTreeMap<String, Group> = BTreeMap::new();
    for line in lines.iter().filter(|line| line.age <= OLD) {
        let Some(found) = read(&line.text) else { continue };
        let group = groups.entry(found.symptom.clone()).or_insert_with(|| Group {
            found,
            count: 0,
            newest: u64::MAX,
            text: String::new(),
        });
        group.count += 1;
        if line.age <= group.newest {
            (group.newest, group.text) = (line.age, line.text.clone());
        }
    }
    if groups.is_empty() {
        return vec![Diagnosis::pass("kernel", "no faults of hardware in the kernel log of the last 7 days")];
    }
    let mut all: Vec<Diagnosis> = groups.into_values().map(Group::diagnosis).collect();
    all.sort_by_key(|one| one.severity);
    all
}

/// Lines that mean the same.
struct Group {
    found: Diagnosis,
    count: u64,
    newest: u64,
    text: String,
}

impl Group {
    fn diagnosis(self) -> Diagnosis {
        let Group { found, count, newest, text } = self;
        let age = match newest {
            age if age < 120 => format!("{age} s"),
            age if age < 7200 => format!("{} min", age / 60),
            age if age < 172_800 => format!("{} h", age / 3600),
            age => format!("{} days", age / 86_400),
        };
        let symptom = format!("{}: {}, the last one {age} ago: `{text}`", found.symptom, counted(count, "line"));
        Diagnosis { symptom, ..found }
    }
}

/// What one line means; none where it tells of no fault.
fn read(text: &str) -> Option<Diagnosis> {
    if let Some((device, code)) = xid(text) {
        return Some(of_xid(&device, code));
    }
    if text.contains("SXid") {
        let severity =
            if text.contains("Non-fatal") || text.contains("non-fatal") { Severity::Info } else { Severity::Critical };
        let remedy = "`nvidia-smi topo -m` shows the links; have the switch looked at, give a rented machine back";
        return Some(Diagnosis::found(
            severity,
            "kernel",
            "an NVSwitch reports an error (SXid)",
            "links between the GPUs of this machine fail",
            remedy,
        ));
    }
    if text.contains("NVRM:") && (text.contains("API mismatch") || text.contains("RmInitAdapter failed")) {
        let is_mismatch = text.contains("API mismatch");
        let symptom = if is_mismatch {
            "the driver in the kernel and its libraries differ"
        } else {
            "the driver could not start a GPU"
        };
        let cause = if is_mismatch {
            "the driver was updated while the machine ran"
        } else {
            "the GPU fails, or its power or slot does"
        };
        return Some(Diagnosis::found(
            Severity::Critical,
            "kernel",
            symptom,
            cause,
            "reboot the machine; have the GPU looked at if it comes back",
        ));
    }
    let lower = text.to_lowercase();
    let (_, severity, symptom, cause, remedy) = WORDS.iter().find(|(word, ..)| lower.contains(word))?;
    Some(Diagnosis::found(*severity, "kernel", *symptom, *cause, *remedy))
}

/// The device and code of `NVRM: Xid (PCI:0000:cb:00): 79, pid=…`.
fn xid(text: &str) -> Option<(String, u32)> {
    let rest = text.split_once("NVRM: Xid")?.1;
    let (device, rest) = rest.split_once('(')?.1.split_once(')')?;
    let digits: String = rest.trim_start_matches([':', ' ']).chars().take_while(char::is_ascii_digit).collect();
    Some((device.to_owned(), digits.parse().ok()?))
}

fn of_xid(device: &str, code: u32) -> Diagnosis {
    let rows = XID.lines().filter(|line| !line.starts_with('#')).map(|line| line.split('\t').collect::<Vec<_>>());
    let row = rows.into_iter().find(|fields| fields.first().and_then(|text| text.parse().ok()) == Some(code));
    let (action, meaning) = match row.as_deref() {
        Some([_, action, meaning]) => (*action, *meaning),
        _ => ("support", "a code that this gradus does not know"),
    };
    let (severity, remedy) = match action {
        "restart-app" => (
            Severity::Warning,
            "start the program again; if different programs meet it on this GPU, suspect the GPU, else the program (`compute-sanitizer` finds its fault)",
        ),
        "reset-gpu" => (
            Severity::Critical,
            "end what runs on that GPU and reset it (`sudo nvidia-smi --gpu-reset -i N`) or reboot; give a rented machine back",
        ),
        "reboot" => (
            Severity::Critical,
            "reboot the machine; if it comes back have the GPU, its power and its slot looked at; give a rented machine back",
        ),
        "check-power" => (Severity::Critical, "connect the auxiliary power of the GPU"),
        "update" => (Severity::Critical, "update driver and firmware"),
        "workflow" => (
            Severity::Critical,
            "look at the Xid lines around it (`dmesg | grep Xid`); drain the node (`gradus nodes drain NODE`), reset the GPU, have it replaced if it comes back",
        ),
        "ignore" => (Severity::Info, "nothing, unless it comes often"),
        _ => (
            Severity::Warning,
            "look it up at docs.nvidia.com/deploy/xid-errors, and ask NVIDIA or who rents you the machine",
        ),
    };
    Diagnosis::found(severity, "kernel", format!("Xid {code} of GPU {device}"), meaning, remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(age: u64, text: &str) -> KernelLine {
        KernelLine { age, text: text.to_owned() }
    }

    #[test]
    fn a_line_of_the_kernel_is_explained() {
        let check = |text: &str, severity, symptom: &str, cause: &str| {
            let found = read(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(found.severity, severity, "{found:?}");
            assert!(found.symptom.contains(symptom) && found.cause.as_ref().unwrap().contains(cause), "{found:?}");
        };
        check(
            "NVRM: Xid (PCI:0000:cb:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
            Severity::Critical,
            "Xid 79 of GPU PCI:0000:cb:00",
            "fallen off the bus",
        );
        check(
            "NVRM: Xid (PCI:0000:01:00): 13, pid=2345, Graphics Exception",
            Severity::Warning,
            "Xid 13",
            "index out of range",
        );
        check(
            "[123.4] NVRM: Xid (PCI:0000:01:00): 63, Row Remapper: New row marked for remapping",
            Severity::Info,
            "Xid 63",
            "remapped",
        );
        check("NVRM: Xid (PCI:0000:01:00): 9999, x", Severity::Warning, "Xid 9999", "does not know");
        check(
            "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
            Severity::Critical,
            "NVSwitch",
            "links",
        );
        check("NVRM: API mismatch: the client has the version 570.26", Severity::Critical, "differ", "updated");
        check(
            "Out of memory: Killed process 2034 (python) total-vm:1kB",
            Severity::Warning,
            "memory ran out",
            "more memory",
        );
        check("blk_update_request: I/O error, dev sda, sector 1", Severity::Critical, "errors of a disk", "fails");
        check("EXT4-fs error (device vda): ext4_find_entry", Severity::Critical, "file system", "disk");
        check("mce: [Hardware Error]: Machine check events logged", Severity::Critical, "hardware error", "fails");
        check("INFO: task python:77 blocked for more than 120 seconds.", Severity::Warning, "minutes", "overloaded");
        for harmless in [
            "nvme nvme0: 8/0/0 default/read/poll queues",
            "NVRM: loading NVIDIA UNIX Open Kernel Module",
            "EDAC MC: Ver: 3.0.0",
            "XFS (vda1): Mounting V5 Filesystem",
        ] {
            assert_eq!(read(harmless), None, "{harmless}");
        }
    }

    #[test]
    fn lines_that_mean_the_same_are_told_once() {
        let xid = |code| format!("NVRM: Xid (PCI:0000:cb:00): {code}, pid=1");
        let lines = [
            line(900, &xid(31)),
            line(90, &xid(31)),
            line(60, &xid(79)),
            line(OLD + 1, "Out of memory: Killed process 1 (a)"),
        ];
        let all = faults(&lines, None);
        let said: Vec<(&str, Severity)> =
            all.iter().map(|one| (&one.symptom[.."Xid 79".len()], one.severity)).collect();
        assert_eq!(said, [("Xid 31", Severity::Warning), ("Xid 79", Severity::Critical)]);
        assert!(all[0].symptom.contains("2 lines, the last one 90 s ago"), "{all:?}");
        assert_eq!(faults(&[], None)[0].severity, Severity::Pass);
        assert_eq!(faults(&[], Some("cannot open `/dev/kmsg`"))[0].severity, Severity::Unknown);
    }

    #[test]
    fn every_row_of_the_table_has_an_action_that_is_known() {
        let rows: Vec<Vec<&str>> =
            XID.lines().filter(|line| !line.starts_with('#')).map(|line| line.split('\t').collect()).collect();
        let actions = ["restart-app", "reset-gpu", "reboot", "check-power", "update", "workflow", "ignore", "support"];
        let mut last = 0;
        for row in &rows {
            let [code, action, meaning] = row[..] else { panic!("{row:?}") };
            let code: u32 = code.parse().unwrap();
            assert!(code > last && actions.contains(&action) && !meaning.is_empty(), "{row:?}");
            last = code;
        }
        assert_eq!(rows.len(), 102);
    }
}
