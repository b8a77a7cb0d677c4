//! Several ranks whose data changes, or differs from rank to rank.

use std::fs;

use domain::finding::Cause;
use domain::rank::Report;
use serde_json::json;

use crate::scene::Scene;

#[test]
fn two_ranks_notice_changed_text_and_keep_its_split_and_vocabulary() {
    let job = json!({"model": "bert_mini", "optimizer": {"adamw": {"lr": 5e-4}}, "checkpoint": {"every": "2 steps", "keep": 100}});
    let mut scene = Scene::of_texts(job).with("epochs", json!(100_000));
    scene.stop_after(2, 3);
    scene.lose_after(2);
    let mut scene = scene.with("epochs", json!(1));
    let whole = fs::read_to_string(&scene.data).unwrap();
    fs::write(&scene.data, format!("{whole}1,zebra zebra zebra quagga quagga\n")).unwrap();
    let refused = scene.finish(2);
    let finding = refused.finding();
    assert_eq!(finding.cause, Cause::Data, "{finding:?}");
    assert!(finding.message.contains("1 sample added (sample 151)"), "{finding:?}");
    for ranks in [1, 2] {
        let mut scene = scene.fork();
        scene.accept_data_change = true;
        let resumed = scene.finish(ranks);
        assert_eq!(resumed.resumed_from(), 2);
        resumed.exported();
        let accepted = |report: &Report| matches!(report, Report::Note { text } if text.contains("which was accepted"));
        assert!(resumed.reports.iter().any(accepted), "{:?}", resumed.reports);
    }
    fs::write(&scene.data, whole).unwrap();
    assert_eq!(scene.finish(2).resumed_from(), 2);
}
