//! Stores that are written, interrupted, shared and damaged.

use std::os::unix::fs::FileExt;

use super::*;

/// Writes records `from..to`, of three tokens each, into two columns.
fn write(writer: &mut TokenWriter, to: u64) {
    for record in writer.records()..to {
        let first = record as u32 * 3;
        writer.add(0, &[first % 5000, (first + 1) % 5000, (first + 2) % 5000]).unwrap();
        writer.end(0, 1).unwrap();
        writer.complete(1).unwrap();
    }
}

fn writer(folder: &Path) -> TokenWriter {
    match TokenStore::access(folder, &Preparation::default()).unwrap() {
        StoreAccess::Write(lock) => TokenWriter::on_disk(folder, lock, 2, 5000).unwrap().noted_every(1000),
        StoreAccess::Complete(_) => panic!("it is complete"),
    }
}

fn complete(folder: &Path) -> TokenStore {
    match TokenStore::access(folder, &Preparation::default()).unwrap() {
        StoreAccess::Complete(store) => store,
        StoreAccess::Write(_) => panic!("it is not complete"),
    }
}

fn check(store: &TokenStore, records: u64) {
    assert_eq!((store.tokens(0), store.ends(1)), (records * 3, records));
    let mut tokens = Vec::new();
    store.read(0, 0..records * 3, &mut tokens).unwrap();
    assert!(tokens.iter().zip(0..).all(|(token, index)| *token == index % 5000));
    let mut some = Vec::new();
    store.read(0, 2040..2055, &mut some).unwrap();
    assert_eq!(some, tokens[2040..2055]);
    assert_eq!(store.read_ends(1, 99..101).unwrap(), [300, 303]);
}

#[test]
fn a_writer_that_was_killed_goes_on_where_its_journal_ends() {
    let folder = tempfile::tempdir().unwrap();
    for (stopped, journal) in [(10, 0), (700, 668), (2500, 2338)] {
        let mut writer = writer(folder.path());
        assert!(writer.records() <= stopped);
        write(&mut writer, stopped);
        // Dropping flushes, so the file is longer than the journal records.
        drop(writer);
        let again = self::writer(folder.path());
        assert_eq!(again.records(), journal, "stopped after {stopped}");
    }
    let mut last = writer(folder.path());
    write(&mut last, 4000);
    check(&last.finish().unwrap(), 4000);
    check(&complete(folder.path()), 4000);
    assert!(!folder.path().join(JOURNAL).exists());
}

#[test]
fn what_the_journal_speaks_of_is_verified() {
    let folder = tempfile::tempdir().unwrap();
    let mut first = writer(folder.path());
    write(&mut first, 2000);
    drop(first);
    assert!(writer(folder.path()).records() > 1000);
    let file = File::options().write(true).open(folder.path().join("column-0")).unwrap();
    file.write_all_at(&[255], 100).unwrap();
    let mut again = writer(folder.path());
    assert_eq!(again.records(), 0);
    write(&mut again, 1500);
    check(&again.finish().unwrap(), 1500);
}

#[test]
fn damaged_blocks_are_named_and_written_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut first = writer(folder.path());
    write(&mut first, 3000);
    first.finish().unwrap();
    let file = File::options().write(true).open(folder.path().join("column-0")).unwrap();
    file.write_all_at(&[255], 5000).unwrap();
    let store = complete(folder.path());
    let mut tokens = Vec::new();
    store.read(0, 0..2000, &mut tokens).unwrap();
    let error = store.read(0, 2400..2600, &mut tokens).unwrap_err();
    assert!(error.to_string().contains("does not match its checksum") && error.hint().is_some(), "{error}");
    let mut again = writer(folder.path());
    write(&mut again, 3000);
    check(&again.finish().unwrap(), 3000);
    // A list of checksums that is damaged is none.
    let sums = File::options().write(true).open(folder.path().join(SUMS)).unwrap();
    sums.write_all_at(&[1, 2, 3, 4], 0).unwrap();
    writer(folder.path());
}

#[test]
fn one_writes_and_the_others_wait() {
    let folder = tempfile::tempdir().unwrap();
    std::thread::scope(|scope| {
        let mut writer = writer(folder.path());
        let others = [0, 1].map(|_| scope.spawn(|| complete(folder.path())));
        write(&mut writer, 2500);
        drop(writer.finish().unwrap());
        for other in others {
            check(&other.join().unwrap(), 2500);
        }
    });
}

#[test]
fn tokens_above_the_vocabulary_are_refused() {
    let mut writer = TokenWriter::in_memory(1, 300);
    writer.add(0, &[299]).unwrap();
    assert!(writer.add(0, &[300]).is_err());
}
