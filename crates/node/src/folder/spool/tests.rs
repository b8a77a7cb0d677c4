//! What is written, read back, deleted and left of an agent's reports.

use domain::rank::Report;
use domain::run::AttemptEnd;
use domain::{AttemptId, Cause, Finding};

use super::reading::SpoolPiece;
use super::*;

fn entry(seq: u64, event: AgentEvent) -> Entry {
    Entry { seq, attempt: AttemptId::new("digits-1-a1"), event }
}

fn note(length: usize) -> AgentEvent {
    AgentEvent::Reported { rank: 0, report: Report::Note { text: "a".repeat(length) } }
}

/// A spool in a folder of its own, whose files have a dozen measurements of [`fill`] each.
fn scene(all: u64) -> (tempfile::TempDir, Folder, Spool) {
    let temporary = tempfile::tempdir().unwrap();
    let folder = Folder::new(temporary.path());
    let spool = Spool::with_limits(&folder, SpoolLimits { file: 2_000, all }).unwrap();
    (temporary, folder, spool)
}

/// Writes these measurements.
fn fill(spool: &mut Spool, entries: RangeInclusive<u64>) {
    entries.for_each(|seq| spool.write(&entry(seq, note(50)), false).unwrap());
}

fn all(entries: RangeInclusive<u64>) -> Vec<u64> {
    entries.collect()
}

fn numbers(entries: &[Entry]) -> Vec<u64> {
    entries.iter().map(|entry| entry.seq).collect()
}

/// The numbers of what is read back, and up to which entry.
fn read(spool: &Spool, entries: RangeInclusive<u64>, bytes: usize) -> (Vec<u64>, u64) {
    let part = spool.find(entries, bytes).read().unwrap();
    (numbers(&part.entries), part.through)
}

#[test]
fn what_matters_is_on_disk_with_all_before_it_and_the_files_do_not_grow_for_ever() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = Folder::new(temporary.path());
    let mut spool = Spool::create(&folder).unwrap();
    let entries = [entry(1, note(10)), entry(2, AgentEvent::Started)];
    spool.write(&entries[0], false).unwrap();
    spool.write(&entries[1], true).unwrap();
    assert_eq!(folder.unacknowledged().unwrap(), entries);
    spool.forget(3).unwrap();
    assert_eq!(folder.unacknowledged().unwrap(), entries, "short files stay as a trace");
    for seq in 3..=5 {
        spool.write(&entry(seq, note(1 << 19)), false).unwrap();
    }
    spool.forget(5).unwrap();
    assert_eq!(numbers(&folder.unacknowledged().unwrap()), [1, 2, 3, 4, 5], "one measurement waits still");
    spool.forget(6).unwrap();
    assert_eq!(folder.unacknowledged().unwrap(), entries[1..]);
    let finding = Finding::new(Cause::ExitCode, "a".repeat(1 << 20));
    spool.write(&entry(6, AgentEvent::Ended { end: AttemptEnd::Failed { finding, exit_code: None } }), true).unwrap();
    assert_eq!(numbers(&folder.unacknowledged().unwrap()), [2, 6]);
    spool.forget(7).unwrap();
    assert_eq!(folder.unacknowledged().unwrap(), []);
    spool.write(&entry(7, AgentEvent::Started), true).unwrap();
    spool.write(&entry(8, note(10)), false).unwrap();
    drop(spool);
    assert_eq!(folder.unacknowledged().unwrap(), [entry(7, AgentEvent::Started), entry(8, note(10))]);
    let _spool = Spool::create(&folder).unwrap();
    assert_eq!(folder.unacknowledged().unwrap(), [], "another agent begins with an empty one");
}

/// As agents of earlier versions have written them: all in one file.
#[test]
fn spooled_events_survive_a_torn_line() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = Folder::new(temporary.path());
    assert_eq!(folder.unacknowledged().unwrap(), []);
    let entry = |seq| entry(seq, if seq == 2 { note(3) } else { AgentEvent::Started });
    let line = |seq| serde_json::to_string(&entry(seq)).unwrap() + "\n";
    let whole = line(1) + &line(2);
    for length in 0..line(3).len() - 1 {
        fs::write(folder.spool(), whole.clone() + &line(3)[..length]).unwrap();
        assert_eq!(folder.unacknowledged().unwrap(), [entry(1), entry(2)], "torn after {length} bytes");
    }
    fs::write(folder.spool(), whole + &line(3)).unwrap();
    assert_eq!(folder.unacknowledged().unwrap(), [entry(1), entry(2), entry(3)]);
}

#[test]
fn any_range_is_read_back_also_of_what_is_not_written_yet() {
    let (_temporary, folder, mut spool) = scene(u64::MAX);
    fill(&mut spool, 1..=100);
    assert!(fs::read_dir(folder.measurements()).unwrap().count() > 5);
    for (first, last) in [(1, 100), (1, 1), (40, 60), (99, 100), (100, 100)] {
        assert_eq!(read(&spool, first..=last, usize::MAX), (all(first..=last), last));
    }
    assert_eq!(read(&spool, 90..=200, usize::MAX), (all(90..=100), 200));
    // So many bytes at once, and one entry at least.
    assert_eq!(read(&spool, 40..=60, 1), (vec![40], 40));
    let (some, through) = read(&spool, 40..=60, 1_000);
    assert!(some.len() > 3 && some.len() < 15, "{some:?}");
    assert_eq!(some, all(40..=through));
    // What is acknowledged takes no more space than a file.
    spool.forget(50).unwrap();
    let first = folder.unacknowledged().unwrap()[0].seq;
    assert!((35..=50).contains(&first), "{first}");
    assert_eq!(read(&spool, 50..=100, usize::MAX), (all(50..=100), 100));
}

#[test]
fn a_long_file_is_not_read_from_its_beginning() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = Folder::new(temporary.path());
    let mut spool = Spool::create(&folder).unwrap();
    (1..=20).for_each(|seq| spool.write(&entry(seq, note(100 << 10)), false).unwrap());
    assert_eq!(read(&spool, 15..=16, usize::MAX), (vec![15, 16], 16));
    let found = spool.find(15..=16, usize::MAX);
    let SpoolPiece::File { from, .. } = &found.pieces[0] else { panic!("{found:?}") };
    assert!((1_000 << 10..1_450 << 10).contains(from), "{from}");
}

#[test]
fn the_oldest_measurements_are_dropped_when_they_take_too_much_space_and_no_decision_is() {
    let (_temporary, folder, mut spool) = scene(10_000);
    spool.write(&entry(1, AgentEvent::Started), true).unwrap();
    fill(&mut spool, 2..=1_000);
    let files = fs::read_dir(folder.measurements()).unwrap();
    let bytes: u64 = files.map(|file| file.unwrap().metadata().unwrap().len()).sum();
    assert!(bytes <= 12_500, "{bytes}");
    let (left, through) = read(&spool, 2..=1_000, usize::MAX);
    assert!(left.len() > 30 && left.len() < 150, "{}", left.len());
    assert_eq!((left.clone(), through), (all(left[0]..=1_000), 1_000));
    drop(spool);
    let kept = folder.unacknowledged().unwrap();
    assert_eq!(numbers(&kept), [&[1][..], &left[..]].concat());
}

#[test]
fn what_is_deleted_or_unreadable_is_missing() {
    let (_temporary, folder, mut spool) = scene(u64::MAX);
    fill(&mut spool, 1..=40);
    let found = spool.find(1..=40, usize::MAX);
    let second = found.pieces.iter().find_map(|piece| match piece {
        SpoolPiece::File { path, .. } if !path.ends_with("1.jsonl") => Some(path.clone()),
        SpoolPiece::File { .. } | SpoolPiece::Memory(_) => None,
    });
    let first = folder.measurements().join("1.jsonl");
    let second = second.unwrap();
    let begins: u64 = second.file_stem().unwrap().to_str().unwrap().parse().unwrap();
    fs::remove_file(&first).unwrap();
    let part = found.read().unwrap();
    assert_eq!((numbers(&part.entries), part.through), (all(begins..=40), 40));
    // A folder can be opened like a file, and cannot be read like one.
    fs::create_dir(&first).unwrap();
    assert!(found.read().is_err());
    assert_eq!(found.read_readable(), part);
}

#[test]
fn what_a_disk_refuses_for_a_while_is_not_lost() {
    let (_temporary, folder, mut spool) = scene(u64::MAX);
    fs::remove_dir(folder.measurements()).unwrap();
    let failures = (1..=100).filter(|seq| spool.write(&entry(*seq, note(50)), false).is_err()).count();
    assert!(failures > 0);
    assert_eq!(read(&spool, 1..=100, usize::MAX), (all(1..=100), 100));
    fs::create_dir(folder.measurements()).unwrap();
    fill(&mut spool, 101..=110);
    assert_eq!(read(&spool, 1..=110, usize::MAX), (all(1..=110), 110));
    drop(spool);
    assert_eq!(numbers(&folder.unacknowledged().unwrap()), all(1..=110));
}

#[test]
fn what_a_disk_refuses_for_long_takes_no_memory_for_ever() {
    let (_temporary, folder, mut spool) = scene(u64::MAX);
    fs::remove_dir(folder.measurements()).unwrap();
    let long = |seq| entry(seq, note(300 << 10));
    (1..=4).for_each(|seq| assert!(spool.write(&long(seq), false).is_err()));
    assert_eq!(read(&spool, 1..=4, usize::MAX), (vec![], 4));
    fs::create_dir(folder.measurements()).unwrap();
    spool.write(&long(5), false).unwrap();
    assert_eq!(read(&spool, 1..=5, usize::MAX), (vec![5], 5));
}

#[test]
fn of_an_agent_that_is_gone_only_so_much_is_read_and_a_note_says_what_is_missing() {
    let (_temporary, folder, mut spool) = scene(u64::MAX);
    spool.write(&entry(1, AgentEvent::Started), true).unwrap();
    fill(&mut spool, 2..=100);
    drop(spool);
    assert_eq!(numbers(&folder.unacknowledged().unwrap()), all(1..=100));
    let mut some = folder.unacknowledged_within(6_000).unwrap();
    let told = some.pop().unwrap();
    let first = some[1].seq;
    assert!(first > 50 && first < 90, "{first}");
    assert_eq!((some[0].seq, numbers(&some[1..])), (1, all(first..=100)));
    let AgentEvent::Reported { report: Report::Note { text }, .. } = &told.event else { panic!("{told:?}") };
    assert!(told.seq == 101 && text.starts_with(&format!("up to {} measurements are missing", first - 2)), "{text}");
}

#[test]
fn measurements_that_cannot_be_read_cost_no_decision() {
    let (_temporary, folder, mut spool) = scene(u64::MAX);
    spool.write(&entry(1, AgentEvent::Started), true).unwrap();
    fill(&mut spool, 2..=40);
    spool.write(&entry(41, AgentEvent::Ended { end: AttemptEnd::Succeeded }), true).unwrap();
    drop(spool);
    // A folder can be opened like a file, and cannot be read like one.
    let first = folder.measurements().join("2.jsonl");
    fs::remove_file(&first).unwrap();
    fs::create_dir_all(first.join("inner")).unwrap();
    let mut left = folder.unacknowledged().unwrap();
    let told = left.pop().unwrap();
    let begins = left[1].seq;
    assert!(begins > 2);
    assert_eq!(numbers(&left), [&[1][..], &all(begins..=41)[..]].concat());
    let AgentEvent::Reported { report: Report::Note { text }, .. } = &told.event else { panic!("{told:?}") };
    assert!(told.seq == 42 && text.starts_with("measurements are missing: 1 of "), "{text}");
}

#[test]
fn an_agent_that_ends_leaves_no_more_measurements_than_are_read() {
    let check = |most: u64| {
        let (_temporary, folder, mut spool) = scene(u64::MAX);
        spool.write(&entry(1, AgentEvent::Started), true).unwrap();
        fill(&mut spool, 2..=100);
        // So that both readings find the same.
        spool.measurements.flush().unwrap();
        let before = folder.unacknowledged_within(most).unwrap();
        spool.measurements.leave(most);
        drop(spool);
        assert_eq!(folder.unacknowledged_within(most).unwrap(), before, "{most}");
        let files = fs::read_dir(folder.measurements()).unwrap();
        files.map(|file| file.unwrap().metadata().unwrap().len()).sum::<u64>()
    };
    let all = check(u64::MAX);
    assert!(all > 10_000 && check(all) == all, "{all}");
    for most in [1, 6_000, 8_000] {
        assert!(check(most) <= most.max(2_500), "{most}");
    }
}
