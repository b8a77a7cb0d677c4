//! Reports of complete runs: their contents, and that no text becomes markup.

use control::OperationNote;
use domain::event::{RentIntended, RunEnd, Submitted};
use domain::rank::{Checkpointed, Environment, EvaluatedSplit, Exported, Report};
use domain::run::{AttemptEnd, Bill, BillLine, Outcome, Usage};
use domain::series::Point;
use domain::*;

use super::curves::tests::{evaluated, point, ready, step};
use super::{RunOrigin, html};

const START: i64 = 1_700_000_000_000_000;

fn job(name: &str) -> Job {
    let train = serde_json::json!({"model": "mlp", "data": {"path": "digits.csv.gz"}, "epochs": 3, "batch": 64});
    let job = serde_json::json!({
        "name": name, "work": {"train": train}, "envs": {"NOTE": name},
        "needs": {"cores": null, "memory": null, "disk": null}, "budget": null, "deadline": null,
        "recovery": {"restarts": 20, "restarts_on_errors": 0, "exit_codes": []},
    });
    serde_json::from_value(job).unwrap()
}

/// A run of two attempts; every text in it is `word`.
fn history(word: &str) -> (RunId, Vec<Record>, Vec<Point>) {
    let run = RunId::new(format!("{word}-1"));
    let (instance, rate) = (run.instance(1), Rate::from_micros_per_hour(350_000));
    let node = Node { cpu: word.into(), cores: 2, memory: Bytes(8 << 30), disk_free: Bytes(1 << 40), volume: None };
    let offer =
        Offer { provider: word.into(), kind: word.into(), node, rate, price_source: format!("`--price` {word}") };
    let plan = domain::Plan {
        offer: offer.clone(),
        share: None,
        memory: None,
        time: None,
        cost: None,
        reserve: Money::from_micros(1),
        assumptions: vec![word.into()],
        alternatives: Vec::new(),
        anchors: Vec::new(),
    };
    let model = Exported {
        model: format!("/{word}/model.safetensors"),
        model_sha256: word.into(),
        bytes: 102_000,
        step: 12,
        validation_accuracy: 0.98,
        test_accuracy: 0.9722,
        steps: 12,
        peak_memory: 300 << 20,
        rank_memory: vec![300 << 20, 250 << 20],
        processor_us: 0,
        figures: Box::default(),
        validation_loss: None,
        validation_figures: Box::default(),
        confusion: Vec::new(),
    };
    let finding = Finding::new(Cause::Killed, format!("rank 0 was killed by signal 9 {word}")).hint(word);
    let usage = Usage { started: Timestamp(START), elapsed: Elapsed(12_345_678) };
    let amount = rate.cost(usage.elapsed);
    let kind = word.to_owned();
    let bill = Bill {
        lines: vec![BillLine { instance: instance.clone(), kind, usage, rate, amount, race: false }],
        total: amount,
        adjustment: Money::default(),
    };
    let attempts = [run.attempt(Fence(1)), run.attempt(Fence(2))];
    let begin = |number: usize| Event::AttemptIntended {
        run: run.clone(),
        attempt: attempts[number].clone(),
        fence: Fence(number as u64 + 1),
        instance: instance.clone(),
        others: Vec::new(),
    };
    let is_ready = |attempt: usize, step: u64, passed_over: &[String]| {
        let Report::Ready(ready) = ready(step) else { unreachable!() };
        let ready = rank::Ready { classes: vec![word.into()], passed_over: passed_over.to_vec(), ..ready };
        Event::AttemptReady { attempt: attempts[attempt].clone(), ready: Some(ready) }
    };
    let submitted = Submitted {
        run: run.clone(),
        job: job(word),
        plan,
        job_hash: word.into(),
        file: format!("{word}.yaml"),
        trial: None,
        user: None,
    };
    let intended = RentIntended {
        run: run.clone(),
        instance: instance.clone(),
        token: word.into(),
        offer,
        reserved: Money::default(),
        others: Vec::new(),
    };
    let events = [
        Event::Submitted(Box::new(submitted)),
        Event::RentIntended(Box::new(intended)),
        Event::Launched { instance: instance.clone(), handle: None, account: None },
        Event::AgentUp { instance: instance.clone(), started: Timestamp(START), incarnation: 0 },
        begin(0),
        is_ready(0, 0, &[]),
        Event::AttemptEnded { attempt: attempts[0].clone(), end: AttemptEnd::Failed { finding, exit_code: Some(137) } },
        begin(1),
        is_ready(1, 4, &[word.to_owned()]),
        Event::AttemptEnded { attempt: attempts[1].clone(), end: AttemptEnd::Trained { model: model.clone() } },
        Event::Ended { run: run.clone(), end: RunEnd::Done { outcome: Outcome::Trained { model } } },
        Event::ReleaseIntended { instance: instance.clone(), lost_race: false },
        Event::Released { instance, usage },
        Event::Billed { run: run.clone(), bill },
    ];
    let record =
        |(index, event)| Record { seq: index as u64 + 1, at: Timestamp(START + index as i64 * 900_000), event };
    (run.clone(), events.into_iter().enumerate().map(record).collect(), points(word))
}

fn points(word: &str) -> Vec<Point> {
    let environment = Environment {
        device: "cpu".into(),
        device_name: word.into(),
        torch: word.into(),
        threads: 2,
        precision: "fp32".into(),
        gradus: "0.1.0".into(),
    };
    let mut points = vec![
        point(1, 4, Report::Hello { rank: 0, pid: 7, environment }),
        point(1, 4, Report::Note { text: word.into() }),
        point(1, 5, ready(0)),
    ];
    let train = |points: &mut Vec<Point>, attempt, steps: std::ops::RangeInclusive<u64>| {
        for number in steps {
            let at = 5 + i64::try_from(number).unwrap();
            points.push(point(attempt, at, step(number, 2.5 / number as f64)));
            if number % 4 == 0 {
                let accuracy = 1.0 - 1.0 / number as f64;
                points.push(point(attempt, at, evaluated(number, EvaluatedSplit::Validation, accuracy)));
                let saved = Checkpointed { step: number, bytes: 300_000, stall_us: 400, commit_us: 9_000 };
                points.push(point(attempt, at, Report::Checkpointed(saved)));
            }
        }
    };
    train(&mut points, 1, 1..=7);
    points.push(point(2, 10, ready(4)));
    train(&mut points, 2, 5..=12);
    points.push(point(2, 20, evaluated(12, EvaluatedSplit::Test, 0.9722)));
    points
}

#[test]
fn a_run_is_shown() {
    let (run, records, points) = history("digits");
    let page = html(&run, &records, &points, &[], &RunOrigin::default()).unwrap();
    for expected in [
        "97.22 %",
        "<b>$0.001201</b>",
        "12.345678",
        "resumes from the checkpoint of step 4",
        "digits-1-a1 failed with exit code 137",
        "rank 0 was killed by signal 9",
        "Checkpoints (3)",
        "model: mlp",
        "split: [0.7, 0.2, 0.1]",
        "1,257 training, 360 validation, 180 test",
    ] {
        assert!(page.contains(expected), "`{expected}` is missing");
    }
    assert_eq!(page.matches("class=\"resumed\"").count(), 4, "each chart marks the resumed step");
    assert!(!page.contains("http"), "the page needs no network");
    let bill = &page[page.find("<h2>Bill</h2>").unwrap()..];
    assert!(bill.find(">amount<") < bill.find(">kind<"), "a narrow screen shows the amount beside the machine");
}

/// Entries of the operations log about the run, its machine, and its provider during the run; no others.
#[test]
fn the_operations_log_is_shown() {
    let (run, records, points) = history("digits");
    let note = |seconds: i64, subject: &str, text: &str, is_mistake| {
        let note = OperationNote { subject: subject.into(), text: text.into(), is_mistake };
        (Timestamp(START + seconds * 1_000_000), note)
    };
    let operations = [
        note(-5, "provider digits", "cannot be asked: too early", false),
        note(1, "provider digits", "cannot be asked: in time", false),
        note(1, "provider other", "cannot be asked: another", false),
        note(2, "digits-1", "decided on what cannot be", true),
        note(90, "digits-1-i1", "its provider refuses to end it", false),
        note(2, "digits-10-i1", "a stranger", false),
    ];
    let page = html(&run, &records, &points, &operations, &RunOrigin::default()).unwrap();
    for expected in [
        "provider digits: cannot be asked: in time",
        "fault of gradus: digits-1: decided on what cannot be",
        "digits-1-i1: its provider refuses to end it",
    ] {
        assert!(page.contains(expected), "`{expected}` is missing");
    }
    for other in ["too early", "another", "a stranger"] {
        assert!(!page.contains(other), "`{other}` is of no concern");
    }
}

#[test]
fn a_screen_reader_and_a_narrow_screen_can_read_it() {
    let (run, records, points) = history("digits");
    let page = html(&run, &records, &points, &[], &RunOrigin::default()).unwrap();
    let headers = page.matches("<th ").count() + page.matches("<th>").count();
    assert_eq!(page.matches("<th scope=").count(), headers, "each header says what it heads");
    assert!(!page.contains("<th scope=\"col\"></th>"), "a header has a name");
    let wide = page.matches("<table class=\"wide\">").count();
    let scrolling = page.matches("<div class=\"scroll\" role=\"region\" tabindex=\"0\"").count();
    assert_eq!((wide, scrolling), (4, 4), "a table of many columns scrolls by itself, by keyboard too");
    assert_eq!(page.matches("<svg role=\"img\"").count(), page.matches("over optimiser steps</title>").count());
}

#[test]
fn no_text_becomes_a_tag() {
    let word = "<script>alert(\"1\")</script>'&\u{1b}[31m";
    let (run, records, points) = history(word);
    let note = OperationNote { subject: run.to_string(), text: word.into(), is_mistake: true };
    let page = html(&run, &records, &points, &[(Timestamp(START), note)], &RunOrigin::default()).unwrap();
    assert!(page.contains("&lt;script&gt;"));
    assert!(!page.contains("<script") && !page.contains("alert(\"") && !page.contains('\u{1b}'));
}

#[test]
fn a_run_that_has_only_begun_is_shown() {
    let (run, records, _) = history("digits");
    for length in 1..records.len() {
        let page = html(&run, &records[..length], &[], &[], &RunOrigin::default()).unwrap();
        assert!(page.contains("not billed yet"));
    }
    assert_eq!(html(&RunId::new("another"), &records, &[], &[], &RunOrigin::default()), None);
}
