//! Runs on several machines use their time as the model says, while machines end without a word.

use sim::GoodputCase;

/// The mean over some seeds.
fn check(nodes: u32, mtbf: f64, restart: f64, hours: u64, least: f64) {
    let case = GoodputCase::new(nodes, mtbf, restart, hours);
    let shares: Vec<f64> =
        (0..6).map(|seed| case.measured(seed).unwrap_or_else(|failure| panic!("{failure:?}"))).collect();
    let mean = shares.iter().sum::<f64>() / shares.len() as f64;
    println!("{nodes} nodes, one failure in {mtbf} s: {mean:.4}, the model {:.4}", case.expected());
    assert!(mean >= least, "{nodes} nodes, one failure in {mtbf} s: {mean:.4} of {least}: {shares:?}");
}

#[test]
fn goodput_is_as_the_model_says() {
    check(4, 3_600.0, 60.0, 12, 0.955);
    check(4, 21_600.0, 120.0, 48, 0.98);
    check(8, 2_700.0, 120.0, 12, 0.92);
}

/// The same, for as many machines as are simulated; the failures of the whole run are as frequent.
#[test]
fn a_run_on_64_machines_comes_to_its_end() {
    check(64, 3_600.0, 60.0, 2, 0.93);
}
