//! When a state is to be saved.

use std::io::Write;
use std::os::unix::net::UnixListener;

use super::{begin, save, settings, timed};
use crate::{ProgramRun, ProgramSettings};

#[test]
fn a_state_is_saved_when_it_is_due() {
    let folder = tempfile::tempdir().unwrap();
    let run = begin(folder.path());
    let due: Vec<u64> = (1..=30).filter(|step| run.should_save(*step).unwrap().0).collect();
    assert_eq!(due, [10, 20, 30]);
}

#[test]
fn only_the_rank_that_writes_knows_when_time_is_up() {
    let folder = tempfile::tempdir().unwrap();
    let [first, second] = timed(folder.path());
    for step in 1..=3 {
        // Ranks save if any of them says so.
        assert!(first.should_save(step).unwrap().0 && !second.should_save(step).unwrap().0);
    }
    // Steps are counted alike, also where ranks cannot ask each other.
    let third = ProgramSettings { rank: 1, world: 2, ..settings(folder.path()) };
    assert!(ProgramRun::begin(third).unwrap().should_save(10).unwrap().0);
}

#[test]
fn an_order_to_save_is_carried_out_once_by_each_rank() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let listener = UnixListener::bind(&socket).unwrap();
    let place = folder.path().join("checkpoints");
    let run =
        ProgramRun::begin(ProgramSettings { rank: 1, world: 2, socket: Some(socket), ..settings(&place) }).unwrap();
    let mut agent = listener.accept().unwrap().0;
    agent.write_all(b"{\"order\":\"checkpoint\"}\n").unwrap();
    while !run.should_save(1).unwrap().0 {
        std::thread::yield_now();
    }
    save(&run, 1).unwrap();
    assert!(!run.should_save(1).unwrap().0 && !run.should_save(2).unwrap().0);
}
