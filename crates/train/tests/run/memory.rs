//! Memory that runs out at any allocation of a step: it is told apart, and costs no more than the steps since the last
//! checkpoint.

use domain::finding::Cause;
use domain::rank::Report;
use serde_json::json;
use train::state::OmittedState;
use train::torch::fail_allocation;

use crate::scene::bench;

#[test]
fn a_step_without_memory_is_told_apart_and_made_again() {
    let changes = json!({"optimizer": {"adamw": {"lr": 0.01}}, "clip_norm": 1.0, "dropout": 0.1});
    let undisturbed = bench(changes.clone()).finish();
    let mut refused = 0;
    for after in [1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377] {
        let mut run = bench(changes.clone());
        let first = run.attempt(OmittedState::default(), |report| {
            if matches!(report, Report::Step(step) if step.step == 7) {
                fail_allocation(after).unwrap();
            }
            None
        });
        fail_allocation(0).unwrap();
        if first.ending.is_err() {
            refused += 1;
            let finding = first.finding(Cause::OutOfMemory);
            assert!(finding.message.contains("memory ran out"), "allocation {after}: {finding:?}");
        }
        let second = run.finish();
        // The report of step 7 may be read some steps later.
        assert!(first.ending.is_ok() || (5..26).contains(&second.resumed_from()), "allocation {after}");
        assert_eq!(second.exported().model_sha256, undisturbed.exported().model_sha256, "allocation {after}");
    }
    assert!(refused >= 10, "{refused} of 13 were refused");
}
