//! Memory, limits and disk.

use node::facts::{DiskFacts, DiskFigures, SystemFacts};

use super::{Diagnosis, Severity};
use crate::figures::{grouped, size};

/// Docker gives a container this much of `/dev/shm`, which PyTorch's loader fills at once.
const SMALL_SHARED_MEMORY: u64 = 64 << 20;

/// A loader with several processes opens more files than this.
const FEW_OPEN_FILES: u64 = 1024;

/// libtorch, a data set and three checkpoints do not fit below this.
const LITTLE_DISK: u64 = 10 << 30;

/// Nothing of use fits below this.
const NO_DISK: u64 = 1 << 30;

/// Bytes per second below which checkpoints hold up training: 1 GB in 20 s.
const SLOW_WRITE: u64 = 50_000_000;

/// Reads per second of a hard disk; small files come no faster than that.
const FEW_READS: u64 = 500;

/// Reads per second that a loader of small files wants.
const SOME_READS: u64 = 10_000;

/// Microseconds until a small write is on the disk, above which each event of a run is felt.
const SLOW_SYNC: u64 = 50_000;

/// Processor, memory and limits.
pub(super) fn system(system: &SystemFacts) -> Vec<Diagnosis> {
    let mut all = Vec::new();
    if system.cores > 0 {
        let kind = [system.distribution.as_str(), &format!("kernel {}", system.kernel)].join(", ");
        let libc = system.glibc.as_ref().map_or("no glibc".to_owned(), |version| format!("glibc {version}"));
        let text =
            format!("{} cores ({}), {} of memory; {kind}, {libc}", system.cores, system.cpu, size(system.memory.0));
        all.push(Diagnosis::pass("system", text));
    }
    let limit = system.memory_limit.filter(|limit| limit.0 < system.memory.0);
    if let Some(limit) = limit {
        let text =
            format!("a container or service manager allows {} of {} of memory", size(limit.0), size(system.memory.0));
        all.push(Diagnosis { severity: Severity::Info, ..Diagnosis::pass("memory", text) });
    }
    if system.memory.0 > 0 && system.memory_available.0 < system.memory.0 / 10 {
        let symptom =
            format!("{} of {} of memory is available", size(system.memory_available.0), size(system.memory.0));
        let remedy = "end what is not needed: `ps -eo rss,args --sort -rss | head` shows the largest processes";
        all.push(Diagnosis::found(
            Severity::Warning,
            "memory",
            symptom,
            "other programs hold the rest; the kernel ends the largest process when none is left",
            remedy,
        ));
    }
    if let Some(shared) = system.shared_memory.filter(|shared| shared.0 <= SMALL_SHARED_MEMORY) {
        let symptom = format!("`/dev/shm` has {}", size(shared.0));
        let cause =
            "processes of PyTorch's loader hand over batches through it, and end with a bus error when it is full";
        let remedy = "`sudo mount -o remount,size=8G /dev/shm`; for a container `--shm-size 8g` or `--ipc host`";
        all.push(Diagnosis::found(Severity::Warning, "memory", symptom, cause, remedy));
    }
    if let Some(files) = system.open_files.filter(|files| *files < FEW_OPEN_FILES) {
        let symptom = format!("a process may have {files} files open");
        let remedy = "raise `nofile` in `/etc/security/limits.conf`, or write `ulimit -n 65536` in `setup` and `run`";
        all.push(Diagnosis::found(
            Severity::Warning,
            "limits",
            symptom,
            "loaders with several processes open more",
            remedy,
        ));
    }
    if system.is_root && !system.has_program_user {
        let cause = "they may read and change everything there, also what other jobs have left";
        let remedy = "on a machine that others use, `useradd --create-home gradus-job`: programs run as that user then";
        all.push(Diagnosis::found(Severity::Info, "system", "programs of jobs run as root", cause, remedy));
    }
    all
}

/// Room and speed.
pub(super) fn disk(disk: &DiskFacts) -> Vec<Diagnosis> {
    if let Some(error) = &disk.error {
        let remedy = "look at `df -h` and `ls -ld` of that folder; free space or make it writable";
        let found = Diagnosis::found(
            Severity::Critical,
            "disk",
            error.clone(),
            "gradus keeps programs, data and checkpoints there",
            remedy,
        );
        return vec![found];
    }
    if disk.total.0 == 0 {
        return Vec::new();
    }
    let mut all = vec![room(disk)];
    if let Some(permille) = disk.files_free_permille.filter(|permille| *permille < 100) {
        let symptom = format!("{} % of the files that `{}` can hold may still be made", permille / 10, disk.folder);
        let remedy = "delete folders of many small files; pack data sets with `gradus data pack`";
        all.push(Diagnosis::found(
            Severity::Warning,
            "disk",
            symptom,
            "its inodes are used up while there may be room",
            remedy,
        ));
    }
    all.extend(disk.figures.map(|figures| speed(disk, figures)).into_iter().flatten());
    all
}

fn room(disk: &DiskFacts) -> Diagnosis {
    let text = format!("{} of {} is free in `{}` ({})", size(disk.free.0), size(disk.total.0), disk.folder, disk.kind);
    let remedy =
        "`gradus gc` deletes cached data here; on a node look at `du -sh ~/.gradus/*` and what else lies there";
    let (cause, severity) = match disk.free.0 {
        free if free < NO_DISK => ("a run fails when its checkpoint does not fit", Severity::Critical),
        free if free < LITTLE_DISK => ("libtorch, a data set and checkpoints may not fit", Severity::Warning),
        free if free < disk.total.0 / 20 => ("a file system that is nearly full becomes slow", Severity::Info),
        _ => return Diagnosis::pass("disk", text),
    };
    Diagnosis::found(severity, "disk", text, cause, remedy)
}

fn speed(disk: &DiskFacts, figures: DiskFigures) -> Vec<Diagnosis> {
    let DiskFigures { write, read, random_reads, sync_us } = figures;
    let text = format!(
        "writes {}/s, reads {}/s, {} random reads/s, {:.1} ms until a write is safe",
        size(write),
        size(read),
        grouped(random_reads),
        sync_us as f64 / 1000.0
    );
    let found = |severity, symptom: String, cause: &str, remedy: &str| {
        Diagnosis::found(severity, "disk", symptom, cause, remedy)
    };
    let is_network =
        disk.kind.starts_with("nfs") || disk.kind.starts_with("fuse") || disk.kind == "cifs" || disk.kind == "9p";
    let other = "put the home folder on a local disk: `--home`, or a link from `~/.gradus` on a node";
    let mut all = Vec::new();
    if write < SLOW_WRITE {
        all.push(found(
            Severity::Warning,
            format!("the disk writes {}/s", size(write)),
            "checkpoints wait for it, and so does training at its end",
            other,
        ));
    }
    if random_reads < FEW_READS {
        all.push(found(
            Severity::Warning,
            format!("the disk does {} random reads/s", grouped(random_reads)),
            "it is a hard disk, a throttled volume or one on a network: data in many small files comes slowly",
            "pack the data with `gradus data pack`, or use a faster disk",
        ));
    } else if random_reads < SOME_READS {
        all.push(found(
            Severity::Info,
            format!("the disk does {} random reads/s", grouped(random_reads)),
            "data in many small files may come slower than a GPU takes it",
            "pack the data with `gradus data pack`",
        ));
    }
    if sync_us > SLOW_SYNC {
        all.push(found(
            Severity::Warning,
            format!("a small write takes {:.0} ms until it is safe", sync_us as f64 / 1000.0),
            "each event of a run waits for that",
            other,
        ));
    }
    if is_network {
        all.push(found(
            Severity::Warning,
            format!("`{}` lies on a network ({})", disk.folder, disk.kind),
            "locks and renames there are slow and not always sure, and gradus rests on them",
            other,
        ));
    }
    if all.iter().all(|one| one.severity == Severity::Info) {
        all.insert(0, Diagnosis::pass("disk", text));
    }
    all
}

#[cfg(test)]
mod tests {
    use domain::Bytes;

    use super::*;

    #[test]
    fn room_and_speed_are_judged() {
        let figures = DiskFigures { write: 900_000_000, read: 2_000_000_000, random_reads: 50_000, sync_us: 300 };
        let good = DiskFacts {
            folder: "/h".into(),
            kind: "ext4".into(),
            total: Bytes(1 << 40),
            free: Bytes(1 << 39),
            files_free_permille: Some(900),
            figures: Some(figures),
            error: None,
        };
        let check = |change: &dyn Fn(&mut DiskFacts), severity, part: &str| {
            let mut facts = good.clone();
            change(&mut facts);
            let all = disk(&facts);
            assert_eq!(super::super::worst(&all), severity, "{all:?}");
            assert!(all.iter().any(|one| one.symptom.contains(part)), "{all:?}");
        };
        let with = |figures: DiskFigures| move |facts: &mut DiskFacts| facts.figures = Some(figures);
        check(&|_| {}, Severity::Pass, "50,000 random reads/s, 0.3 ms until a write is safe");
        check(&|facts| facts.free = Bytes(5 << 30), Severity::Warning, "5.37 GB of 1.10 TB is free");
        check(&|facts| facts.free = Bytes(5 << 20), Severity::Critical, "5.24 MB");
        check(&|facts| facts.free = Bytes(40 << 30), Severity::Info, "42.9 GB");
        check(&|facts| facts.files_free_permille = Some(31), Severity::Warning, "3 % of the files");
        check(&|facts| facts.kind = "nfs4".into(), Severity::Warning, "lies on a network (nfs4)");
        check(&|facts| facts.error = Some("cannot use `/h`".into()), Severity::Critical, "cannot use");
        check(&with(DiskFigures { write: 1_000_000, ..figures }), Severity::Warning, "writes 1.00 MB/s");
        check(&with(DiskFigures { random_reads: 120, ..figures }), Severity::Warning, "120 random reads/s");
        check(&with(DiskFigures { random_reads: 3000, ..figures }), Severity::Info, "3,000 random reads/s");
        check(&with(DiskFigures { sync_us: 80_000, ..figures }), Severity::Warning, "80 ms");
    }

    #[test]
    fn memory_and_limits_are_judged() {
        let good = SystemFacts {
            cores: 8,
            memory: Bytes(64 << 30),
            memory_available: Bytes(60 << 30),
            shared_memory: Some(Bytes(32 << 30)),
            open_files: Some(1024),
            ..SystemFacts::default()
        };
        let check = |change: &dyn Fn(&mut SystemFacts), severity, part: &str| {
            let mut facts = good.clone();
            change(&mut facts);
            let all = system(&facts);
            assert_eq!(super::super::worst(&all), severity, "{all:?}");
            assert!(all.iter().any(|one| one.symptom.contains(part)), "{all:?}");
        };
        check(&|_| {}, Severity::Pass, "8 cores");
        check(&|facts| facts.memory_available = Bytes(1 << 30), Severity::Warning, "1.07 GB of 68.7 GB of memory");
        check(&|facts| facts.memory_limit = Some(Bytes(1 << 30)), Severity::Info, "allows 1.07 GB");
        check(&|facts| facts.memory_limit = Some(Bytes(1 << 40)), Severity::Pass, "8 cores");
        check(&|facts| facts.shared_memory = Some(Bytes(64 << 20)), Severity::Warning, "`/dev/shm` has 67.1 MB");
        check(&|facts| facts.open_files = Some(256), Severity::Warning, "256 files");
        check(&|facts| facts.is_root = true, Severity::Info, "run as root");
        check(&|facts| (facts.is_root, facts.has_program_user) = (true, true), Severity::Pass, "8 cores");
    }
}
