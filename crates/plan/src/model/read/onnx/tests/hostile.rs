//! Files that are broken, or made to do harm.

use super::*;

fn refused(bytes: &[u8]) -> String {
    match model(bytes, &SampleShape::default()) {
        Ok(graph) => panic!("read {} operators", graph.operators.len()),
        Err(problem) => problem.message,
    }
}

#[test]
fn broken_files_are_refused() {
    assert!(refused(b"\x08").contains("ends too early"));
    assert!(refused(b"\x0f").contains("not in the format"));
    assert!(refused(&Message::default().number(1, 8).0).contains("no network"));
    let file = small_network(1).done();
    assert!(refused(&file[..file.len() / 2]).contains("ends too early"));
    // Half a million empty nodes in a megabyte.
    let many = Message((0..500_000).flat_map(|_| [0x0a, 0x00]).collect());
    assert!(refused(&Message::default().bytes(7, &many.0).0).contains("more parts"));
}

/// Files that once made reading fail or grow without bound.
fn hostile() -> Vec<Vec<u8>> {
    let start = || File::default().input("x", &[1, 2]);
    let mut files = vec![
        start().node_of("Add", &["x", "x"], &[], &[]),
        start().node_of("Relu", &["x"], &[], &[]),
        start().node_of("Split", &["x"], &["a", "b"], &[("axis", &[2])]),
        File::default().input("x", &[]).node_of("Split", &["x"], &["a", "b"], &[]),
        start()
            .list("four", &[1, 2, 3, 4])
            .list("shape", &[0, 7])
            .node("Reshape", &["four", "shape"], "a", &[("allowzero", &[1])])
            .node("Transpose", &["a"], "b", &[]),
        start()
            .list("four", &[1, 2, 3, 4])
            .list("shape", &[3, 1 << 62])
            .node("Reshape", &["four", "shape"], "a", &[])
            .node("Transpose", &["a"], "b", &[]),
        File::default().input("x", &[1 << 39, 1 << 39, 1 << 39]).weight("w", &[4]).node(
            "InstanceNormalization",
            &["x", "w", "w"],
            "y",
            &[],
        ),
        start().weight("w", &[1 << 40, 1 << 40]).node("BatchNormalization", &["x", "w", "w", "w", "w"], "y", &[]),
        start().node("Unsqueeze", &["x"], "y", &[("axes", &[0; 100])]),
    ];
    // Each lookup has twice the dimensions of the last.
    let mut doubling = start();
    let mut at = "x".to_owned();
    for step in 0..60 {
        let next = format!("d{step}");
        doubling = doubling.node("Gather", &[&at, &at], &next, &[]);
        at = next;
    }
    files.push(doubling);
    // Each weight is made of all before.
    let mut chain = start().weight("w", &[2]);
    let mut at = "w".to_owned();
    for step in 0..300 {
        let (weight, next) = (format!("w{step}"), format!("s{step}"));
        chain = chain.weight(&weight, &[2]).node("Concat", &[&at, &weight], &next, &[("axis", &[0])]);
        at = next;
    }
    files.push(chain.node("Mul", &["x", &at], "y", &[]));
    files.into_iter().map(File::done).collect()
}

#[test]
fn hostile_files_are_read_or_refused() {
    for (index, file) in hostile().iter().enumerate() {
        let Ok(graph) = model(file, &SampleShape::default()) else { continue };
        graph.multiply_adds();
        assert!(graph.operators.len() < 200, "file {index}: {} operators", graph.operators.len());
    }
}

#[test]
fn a_weight_made_of_very_many_is_said() {
    let graph = model(hostile().last().expect("there are files"), &SampleShape::default()).expect("it is a network");
    assert!(graph.unknown.iter().any(|what| what.starts_with("weights beyond the first 64")), "{:?}", graph.unknown);
}

proptest::proptest! {
    /// Whatever stands in a file, there is an answer.
    #[test]
    fn no_bytes_make_it_fail(bytes in proptest::collection::vec(0..=255u8, 0..200)) {
        let _ = model(&bytes, &SampleShape::default());
        let inside = Message::default().bytes(7, &bytes).0;
        let _ = model(&inside, &SampleShape::default());
    }

    /// A file with a few bytes changed gives a graph that can be counted, or a problem.
    #[test]
    fn no_change_makes_it_fail(
        which in 0..20usize,
        changes in proptest::collection::vec((0..2000usize, 0..=255u8), 0..8),
        cut in 0..3000usize,
    ) {
        let mut file = hostile().into_iter().nth(which).unwrap_or_else(|| small_network(1).done());
        for (at, byte) in changes {
            let length = file.len();
            file[at % length] = byte;
        }
        file.truncate(cut.max(20));
        if let Ok(graph) = model(&file, &SampleShape::default()) {
            graph.parameters();
            graph.multiply_adds();
            graph.activations();
        }
    }
}
