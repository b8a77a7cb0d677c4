//! What PyTorch's newer exporter makes of attention, of joined weights and of tables.

use super::super::beside;
use super::*;

/// Scores with a mask, a softmax, and what is no number replaced.
#[test]
fn attention_with_a_mask_is_put_together() {
    let mut file = File::default()
        .input("x", &[1, 16, 64])
        .weight("mask", &[16, 16])
        .scalar("nothing", 0.0)
        .list("heads", &[1, 16, 4, 16]);
    for part in ["q", "k", "v"] {
        let (weight, product, divided) = (format!("w{part}"), format!("{part}1"), format!("{part}2"));
        file = file
            .weight(&weight, &[64, 64])
            .node("MatMul", &["x", &weight], &product, &[])
            .node("Reshape", &[&product, "heads"], &divided, &[])
            .node("Transpose", &[&divided], part, &[("perm", &[0, 2, 1, 3])]);
    }
    let graph = read(
        file.node("Transpose", &["k"], "turned", &[("perm", &[0, 1, 3, 2])])
            .node("MatMul", &["q", "turned"], "scores", &[])
            .node("Add", &["scores", "mask"], "masked", &[])
            .node("Softmax", &["masked"], "shares", &[("axis", &[-1])])
            .node("IsNaN", &["shares"], "none", &[])
            .node("Where", &["none", "nothing", "shares"], "whole", &[])
            .node("MatMul", &["whole", "v"], "y", &[])
            .output("y"),
    );
    let attention = attention(16, false);
    assert!(kinds(&graph).contains(&&attention), "{graph:?}");
    assert!(
        !kinds(&graph).iter().any(|kind| matches!(kind, OpKind::Product { .. } | OpKind::Copy { .. })),
        "{graph:?}"
    );
}

#[test]
fn a_weight_that_is_split_is_multiplied_with_in_parts() {
    let file = File::default()
        .input("x", &[1, 10, 8])
        .weight("joined", &[8, 24])
        .list("sizes", &[8, 16])
        .node_of("Split", &["joined", "sizes"], &["one", "other"], &[("axis", &[1])])
        .node("MatMul", &["x", "one"], "a", &[])
        .node("MatMul", &["a", "other"], "b", &[]);
    let graph = read(file.output("b"));
    assert_eq!((graph.parameters(), graph.multiply_adds()), (192, 10 * 192));
}

#[test]
fn a_product_of_two_weights_is_one_of_each_step() {
    let file = File::default()
        .input("x", &[1, 4, 8])
        .weight("table", &[20, 8])
        .weight("weight", &[8, 8])
        .node("MatMul", &["table", "weight"], "keys", &[])
        .node("Transpose", &["keys"], "turned", &[("perm", &[1, 0])])
        .node("MatMul", &["x", "turned"], "y", &[]);
    let graph = read(file.output("y"));
    assert_eq!((graph.parameters(), graph.multiply_adds()), (160 + 64, 20 * 64 + 4 * 8 * 20));
}

#[test]
fn a_table_that_was_looked_up_beforehand_is_as_large_as_its_values_say() {
    let (heads, side) = (2, 6u64);
    let stored = [1, heads, side, side].iter().fold(Message::default(), |stored, at| stored.number(1, *at));
    let place = |key: &str, value: &str| Message::default().bytes(1, key.as_bytes()).bytes(2, value.as_bytes()).0;
    let length = heads * side * side * 4;
    let stored = stored.number(2, 1).bytes(8, b"bias").bytes(13, &place("location", "n.data"));
    let stored = stored.bytes(13, &place("offset", "64")).bytes(13, &place("length", &length.to_string()));
    let file = File(File::default().input("x", &[1, 2, 6, 6]).0.bytes(5, &stored.0))
        .weight("large", &[6, 6])
        .made_of("bias", "['layer.table', 'layer.index', 'val_3']")
        .made_of("large", "['layer.weight']")
        .listing(&["layer.table", "layer.weight"], &["layer.index"])
        .within("layer", "MatMul", &["x", "large"], "a", &[])
        .within("layer", "Add", &["a", "bias"], "b", &[]);
    let mut bytes = file.output("b").done();
    let wanted = beside::wanted(&bytes);
    let expected = beside::Beside { weight: "bias".to_owned(), file: "n.data".to_owned(), offset: 64, length };
    assert_eq!(wanted, [expected]);
    let without = model(&bytes, &SampleShape::default()).unwrap();
    assert_eq!(without.parameters(), 36 + heads * side * side);
    assert!(without.unknown[0].contains("counted as what was computed (layer.table"), "{:?}", without.unknown);
    let distance = |at: u64| (at / (side * side) * 100 + 7 + at / side % side - at % side) as f32;
    let values: Vec<u8> = (0..heads * side * side).flat_map(|at| distance(at).to_le_bytes()).collect();
    beside::bring(&mut bytes, "bias", &values);
    let graph = model(&bytes, &SampleShape::default()).unwrap();
    assert_eq!((graph.parameters(), graph.unknown.len()), (36 + heads * (2 * side - 1), 0), "{:?}", graph.unknown);
}

#[test]
fn only_files_in_the_same_folder_are_asked_for() {
    let ask = |location: &str| {
        let place = Message::default().bytes(1, b"location").bytes(2, location.as_bytes()).0;
        let stored = Message::default().number(1, 4).number(2, 1).bytes(8, b"bias").bytes(13, &place);
        let file = File(File::default().0.bytes(5, &stored.0)).made_of("bias", "['w', 'v']").listing(&["w"], &[]);
        beside::wanted(&file.done()).len()
    };
    assert_eq!(["n.data", "../n.data", "/etc/passwd", "..", ""].map(ask), [1, 0, 0, 0, 0]);
}

#[test]
fn joined_biases_count_without_the_buffer_among_them() {
    let file = File::default()
        .input("x", &[1, 4, 12])
        .weight("joined", &[12])
        .made_of("joined", "['layer.q_bias', 'layer.k_bias', 'layer.v_bias']")
        .listing(&["layer.q_bias", "layer.v_bias", "next.q_bias", "next.v_bias"], &["layer.k_bias", "next.k_bias"])
        .within("layer", "Add", &["x", "joined"], "a", &[])
        .within("next", "Add", &["a", "joined"], "b", &[]);
    let graph = read(file.output("b"));
    assert_eq!((graph.parameters(), graph.unknown.len()), (16, 0), "{:?}", graph.unknown);
}

#[test]
fn single_numbers_stand_for_no_weight() {
    let file = File::default()
        .input("x", &[1, 3, 8])
        .weight("one", &[1])
        .weight("other", &[1])
        .weight("norm.weight", &[8])
        .listing(&["norm.weight", "norm.bias"], &[])
        .within("norm", "InstanceNormalization", &["x", "one", "other"], "a", &[])
        .within("norm", "Mul", &["a", "norm.weight"], "b", &[]);
    assert_eq!(read(file.output("b")).parameters(), 8);
}
