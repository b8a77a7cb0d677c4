//! Settled work leaves memory and is loaded again on demand, whichever process has settled or resumed it.

use domain::{Event, Record, RunId, SweepId};
use plan::{RunOrSweep, World};
use server::state::{RunFilter, StateReader, SweepFilter};
use server::{Home, State};

const FIRST: &str = include_str!("histories/first.jsonl");
const SWEEP: &str = include_str!("histories/sweep.jsonl");

fn events(text: &str) -> Vec<Event> {
    let record = |line: &str| serde_json::from_str::<Record>(line).unwrap();
    text.lines().map(|line| record(line).event).collect()
}

/// A home with the runs and the sweep of both histories, appended in one transaction, and the resulting world.
fn home() -> (tempfile::TempDir, Home, World) {
    let folder = tempfile::tempdir().unwrap();
    let home = Home::open(folder.path()).unwrap();
    let mut state = State::open_lean(&home).unwrap();
    state.append([events(FIRST), events(SWEEP)].concat()).unwrap();
    let whole = State::open(&home).unwrap().world().clone();
    (folder, home, whole)
}

fn resume(run: &RunId) -> Event {
    let run = run.clone();
    Event::ResumeRequested {
        run,
        budget: None,
        deadline: None,
        epochs: None,
        accept_data_change: false,
        set: Vec::new(),
    }
}

fn failed(whole: &World) -> RunId {
    let mut runs = whole.runs.iter();
    runs.find(|(_, run)| run.state.word() == "failed").map(|(id, _)| id.clone()).unwrap()
}

#[test]
fn what_is_settled_is_not_in_memory_and_comes_back_as_it_was() {
    let (_folder, home, whole) = home();
    assert_eq!((whole.runs.len(), whole.sweeps.len()), (4, 1));
    let mut lean = State::open_lean(&home).unwrap();
    assert!(lean.world().runs.is_empty() && lean.world().instances.is_empty() && lean.world().sweeps.is_empty());
    assert_eq!(lean.world().last_seq, whole.last_seq);
    let sweep = whole.sweeps.keys().next().unwrap().clone();
    assert!(lean.recall(&RunOrSweep::Sweep(sweep)).unwrap());
    assert_eq!(lean.world().runs.len(), 2, "a sweep comes with its trials");
    for run in whole.runs.keys() {
        assert!(lean.recall(&RunOrSweep::Run(run.clone())).unwrap());
    }
    assert_eq!(*lean.world(), whole);
    assert!(!lean.recall(&RunOrSweep::Run(RunId::new("nobody"))).unwrap());
}

#[test]
fn a_settled_run_is_resumed_and_followed_by_processes_that_had_let_go_of_it() {
    let (_folder, home, whole) = home();
    let run = failed(&whole);
    let (mut resumes, mut follows, mut has_all) =
        (State::open_lean(&home).unwrap(), State::open_lean(&home).unwrap(), State::open(&home).unwrap());
    resumes.append(vec![resume(&run)]).unwrap();
    for state in [&mut follows, &mut has_all] {
        state.refresh().unwrap();
        assert_eq!(state.world().runs[&run].state.word(), "queued");
        assert!(state.world().is_open(&run));
        assert_eq!(state.world().last_seq, whole.last_seq + 1);
    }
    assert_eq!(follows.world().runs.len(), 1);
    assert_eq!(has_all.world().runs.len(), whole.runs.len());
    let replayed = World::replay(&resumes.records_after(0).unwrap()).unwrap();
    assert_eq!(replayed, *has_all.world());
    assert_eq!(State::open_lean(&home).unwrap().world().runs.len(), 1);
}

/// An event as a process of an earlier version appends it: to the log alone.
fn append_as_before(home: &Home, record: &Record, run: &RunId) {
    let db = rusqlite::Connection::open(home.state()).unwrap();
    let event = serde_json::to_string(&record.event).unwrap();
    let row = rusqlite::params![record.seq as i64, record.at.0, run.as_str(), event];
    db.execute("INSERT INTO events (seq, at, run, event) VALUES (?1, ?2, ?3, ?4)", row).unwrap();
}

#[test]
fn what_a_process_of_an_earlier_version_appends_is_followed() {
    let (_folder, home, whole) = home();
    let run = failed(&whole);
    let mut follows = State::open_lean(&home).unwrap();
    let record = Record { seq: whole.last_seq + 1, at: domain::Timestamp(1), event: resume(&run) };
    append_as_before(&home, &record, &run);
    follows.refresh().unwrap();
    assert_eq!(follows.world().runs[&run].state.word(), "queued");
    let stop = Event::StopRequested { run: run.clone(), by: domain::run::StopBy::User };
    follows.append(vec![stop]).unwrap();
    let replayed = World::replay(&follows.records_after(0).unwrap()).unwrap();
    assert_eq!(*State::open(&home).unwrap().world(), replayed);
}

#[test]
fn a_run_that_was_submitted_before_is_refused_though_it_has_left_memory() {
    let (_folder, home, whole) = home();
    let mut lean = State::open_lean(&home).unwrap();
    let again = events(FIRST).remove(0);
    let refused = lean.append(vec![again]).unwrap_err();
    assert!(matches!(&refused, server::Error::Illegal(illegal) if illegal.why.contains("before")), "{refused:?}");
    assert_eq!(State::open(&home).unwrap().world().last_seq, whole.last_seq);
}

#[test]
fn rows_that_are_missing_behind_or_unreadable_are_made_again() {
    let (_folder, home, whole) = home();
    let damages = [
        "DROP TABLE run_rows",
        "DROP TABLE row_head",
        "UPDATE run_rows SET body = '{'",
        "UPDATE row_head SET layout = 4",
        // As left by a process of an earlier version, which appends without updating these rows.
        "DELETE FROM run_rows; DELETE FROM instance_rows; DELETE FROM attempt_rows; DELETE FROM sweep_rows;
         UPDATE row_head SET seq = 0",
    ];
    let settled = whole.runs.keys().next().unwrap();
    for damage in damages {
        rusqlite::Connection::open(home.state()).unwrap().execute_batch(damage).unwrap();
        let mut lean = State::open_lean(&home).unwrap();
        assert!(lean.recall(&RunOrSweep::Run(settled.clone())).unwrap(), "{damage}");
        assert_eq!(lean.world().runs[settled], whole.runs[settled], "{damage}");
        rusqlite::Connection::open(home.state()).unwrap().execute_batch(damage).unwrap();
        assert_eq!(*State::open(&home).unwrap().world(), whole, "{damage}");
        assert!(State::open_lean(&home).unwrap().world().runs.is_empty(), "{damage}");
    }
}

#[test]
fn runs_are_listed_and_named_from_their_rows() {
    let (_folder, home, whole) = home();
    let reader = StateReader::open(&home).unwrap();
    let (all, has_more) = reader.list(&RunFilter { limit: 10, ..RunFilter::default() }).unwrap();
    assert!(!has_more);
    let mut newest: Vec<_> = whole.runs.iter().collect();
    newest.sort_by_key(|(_, run)| std::cmp::Reverse(run.order));
    let told: Vec<_> = all.iter().map(|one| (&one.run, one.state.as_str(), one.attempts as usize)).collect();
    let meant: Vec<_> = newest.iter().map(|(id, run)| (*id, run.state.word(), run.attempts.len())).collect();
    assert_eq!(told, meant);
    for (one, (_, run)) in all.iter().zip(&newest) {
        assert_eq!(one.billed_micro_usd, run.bill.as_ref().map(|bill| bill.total.micros()));
    }
    let before = RunFilter { limit: 2, before: Some(all[0].run.clone()), ..RunFilter::default() };
    let (page, has_more) = reader.list(&before).unwrap();
    assert_eq!((&page[..], has_more), (&all[1..3], true));
    let state = RunFilter { limit: 9, state: Some("failed".into()), ..RunFilter::default() };
    assert_eq!(reader.list(&state).unwrap().0.len(), 1);
    let alone = RunFilter { limit: 9, no_trials: true, ..RunFilter::default() };
    let alone = reader.list(&alone).unwrap().0;
    assert!(alone.len() == 2 && alone.iter().all(|one| one.sweep.is_none()), "{alone:?}");
    assert_eq!(all.iter().filter(|one| one.sweep.is_some()).count(), 2);
    let unknown = RunFilter { limit: 9, before: Some(RunId::new("nobody")), ..RunFilter::default() };
    assert!(reader.list(&unknown).unwrap_err().to_string().contains("nobody"));
    let mut named = State::open_lean(&home).unwrap();
    let run = all[3].run.as_str();
    named.recall_named(&run[..run.len() - 2]).unwrap();
    assert!(named.world().runs.contains_key(&all[3].run));
    let mut newest = State::open_lean(&home).unwrap();
    newest.recall_newest(1).unwrap();
    assert_eq!([1, 3, 4, 100].map(|most| newest.count_runs(most).unwrap()), [1, 3, 4, 4]);
    assert!(newest.world().runs.contains_key(&all[0].run));
}

#[test]
fn a_sweep_is_read_with_a_page_of_its_trials_and_its_own_events() {
    let (_folder, home, whole) = home();
    let reader = StateReader::open(&home).unwrap();
    let (id, sweep) = whole.sweeps.iter().next().unwrap();
    let listed = |name: Option<&str>, before: Option<&SweepId>| {
        let filter = SweepFilter { name: name.map(str::to_owned), before: before.cloned(), limit: 1 };
        reader.sweeps(&filter).map(|(listed, has_more)| (listed.len(), has_more))
    };
    assert_eq!(reader.sweeps(&SweepFilter { limit: 1, ..SweepFilter::default() }).unwrap().0[0].1, *sweep);
    assert_eq!(listed(Some("search"), None).unwrap(), (1, false));
    assert_eq!(listed(Some("nobody"), None).unwrap(), (0, false));
    assert_eq!(listed(None, Some(id)).unwrap(), (0, false), "none is older");
    assert!(listed(None, Some(&SweepId::new("nobody"))).unwrap_err().to_string().contains("nobody"));

    let page = reader.trials(id, 1, 5).unwrap().unwrap();
    let second = &sweep.trials[1];
    assert_eq!((page.runs.len(), page.instances.len(), page.last_seq), (1, 2, whole.last_seq));
    assert_eq!((&page.runs[second], &page.sweeps[id]), (&whole.runs[second], sweep));
    assert_eq!(reader.sweep(id).unwrap().unwrap().runs.len(), 2);
    assert_eq!(reader.ended_sweep(id).unwrap().as_deref(), Some("done"));
    let nobody = SweepId::new("nobody");
    assert!(reader.trials(&nobody, 0, 9).unwrap().is_none() && reader.ended_sweep(&nobody).unwrap().is_none());

    let (mut read, mut after) = (Vec::new(), 0);
    loop {
        let part = reader.sweep_records(id, after, 5).unwrap();
        read.extend(part.records);
        after = part.next;
        if !part.has_more {
            break;
        }
    }
    let others = FIRST.lines().count() as u64;
    assert_eq!(read, State::open(&home).unwrap().records_after(others).unwrap());
    assert_eq!(after, whole.last_seq);
}
