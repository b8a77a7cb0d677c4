//! Files that list their weights, as PyTorch's newer exporter leaves them.

use super::*;

fn remark(key: &str, value: &str) -> Message {
    Message::default().bytes(1, key.as_bytes()).bytes(2, value.as_bytes())
}

impl File {
    /// Lists trained weights and buffers.
    pub(super) fn listing(self, weights: &[&str], buffers: &[&str]) -> File {
        let weights = weights.iter().map(|name| format!("p: PARAMETER target='{name}'\n"));
        let buffers = buffers.iter().map(|name| format!("b: BUFFER target='{name}' persistent=True\n"));
        let text = format!("\n# inputs\n{}x: USER_INPUT\n", weights.chain(buffers).collect::<String>());
        File(self.0.bytes(16, &remark("pkg.torch.export.ExportedProgram.graph_signature", &text).0))
    }

    /// A node that comes from a module.
    pub(super) fn within(
        self,
        module: &str,
        operator: &str,
        inputs: &[&str],
        output: &str,
        numbers: &[(&str, &[i64])],
    ) -> File {
        let scopes = remark("pkg.torch.onnx.name_scopes", &format!("['', '{module}', 'node']"));
        let node = File::node_alone(operator, inputs, &[output], numbers).bytes(9, &scopes.0);
        File(self.0.bytes(1, &node.0))
    }

    /// A value that an exporter computed from others.
    pub(super) fn made_of(self, name: &str, origins: &str) -> File {
        let made = remark("pkg.onnxscript.optimizer.folded_from", origins);
        File(self.0.bytes(13, &Message::default().bytes(1, name.as_bytes()).bytes(4, &made.0).0))
    }
}

#[test]
fn equal_weights_of_several_modules_count_for_each() {
    let norms = File::default()
        .input("x", &[1, 6, 8])
        .weight("one.weight", &[8])
        .weight("one.bias", &[8])
        .listing(&["one.weight", "one.bias", "two.weight", "two.bias"], &[])
        .within("one", "LayerNormalization", &["x", "one.weight", "one.bias"], "a", &[])
        .within("two", "LayerNormalization", &["a", "one.weight", "one.bias"], "b", &[]);
    let again = norms.clone().within("one", "LayerNormalization", &["b", "one.weight", "one.bias"], "c", &[]);
    for (file, output) in [(norms, "b"), (again, "c")] {
        let graph = read(file.output(output));
        assert_eq!((graph.parameters(), graph.unknown.len()), (32, 0), "{output}: {:?}", graph.unknown);
    }
}

#[test]
fn a_weight_under_two_names_counts_once_and_a_copied_layer_twice() {
    let count = |second: &str| {
        let names = ["layers.0.weight", second];
        let module = second.strip_suffix(".weight").unwrap_or_default();
        let file = File::default()
            .input("x", &[1, 8])
            .weight("layers.0.weight", &[8, 8])
            .listing(&names, &[])
            .within("layers.0", "MatMul", &["x", "layers.0.weight"], "a", &[])
            .within(module, "MatMul", &["a", "layers.0.weight"], "b", &[]);
        let graph = read(file.output("b"));
        assert!(graph.unknown.is_empty(), "{:?}", graph.unknown);
        graph.parameters()
    };
    assert_eq!([count("layers.1.weight"), count("scores.weight")], [128, 64]);
}

#[test]
fn what_is_left_out_and_folded_is_put_back() {
    let file = File::default()
        .input("x", &[1, 3, 8, 8])
        .weight("conv.weight", &[16, 3, 3, 3])
        .weight("conv.weight_bias", &[16])
        .weight("last.weight", &[4, 16, 1, 1])
        .listing(
            &["conv.weight", "norm.weight", "norm.bias", "last.weight", "last.bias"],
            &["norm.running_mean", "norm.running_var"],
        )
        .within("norm", "Conv", &["x", "conv.weight", "conv.weight_bias"], "a", &[])
        .within("last", "Conv", &["a", "last.weight"], "b", &[]);
    let graph = read(file.output("b"));
    assert_eq!(graph.parameters(), 16 * 27 + 32 + 64 + 4);
    assert_eq!(graph.buffers(), 32);
    assert_eq!(kinds(&graph)[1], &OpKind::Norm { norm: Norm::Batch, elements: 16 * 36, groups: 16 });
    assert_eq!(graph.assumed, ["batch normalisations that the file lists, put back behind products ×1"]);
    assert!(graph.unknown.is_empty(), "{:?}", graph.unknown);
}

#[test]
fn nothing_counts_that_is_not_listed_and_what_is_not_held_is_said() {
    let file = File::default()
        .input("x", &[1, 6, 8])
        .weight("table", &[6, 8])
        .weight("turned", &[8, 4])
        .made_of("turned", "['layer.weight']")
        .listing(&["layer.weight", "layer.bias", "pooler.weight"], &["table"])
        .within("", "Mul", &["x", "table"], "a", &[])
        .within("layer", "MatMul", &["a", "turned"], "b", &[]);
    let graph = read(file.output("b"));
    assert_eq!(graph.parameters(), 8 * 4 + 4);
    let said = "weights that the file lists and does not hold, taken as shared or unused (pooler.weight) ×1";
    assert_eq!(graph.unknown, [said]);
}

#[test]
fn parts_of_one_weight_are_one_weight() {
    let parts = File::default()
        .input("x", &[1, 8])
        .weight("query", &[8, 8])
        .weight("key", &[8, 8])
        .made_of("query", "['layer.weight', 'val_1']")
        .made_of("key", "['layer.weight', 'val_2']")
        .listing(&["layer.weight"], &[])
        .within("layer", "MatMul", &["x", "query"], "a", &[])
        .within("layer", "MatMul", &["a", "key"], "b", &[]);
    assert_eq!(read(parts.clone().output("b")).parameters(), 128);
    // Beside the whole they are nothing new.
    let whole = parts.weight("layer.weight", &[8, 16]).within("layer", "MatMul", &["b", "layer.weight"], "c", &[]);
    assert_eq!(read(whole.output("c")).parameters(), 128);
}

/// Lists, origins and modules of thousands of names are looked at in part: work grows with the file and no faster.
#[test]
fn a_list_of_very_many_weights_is_read() {
    let names: Vec<String> = (0..20_000).map(|at| format!("m.{at}")).collect();
    let listed: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut file = File::default()
        .input("x", &[1, 8])
        .weight("w", &[8])
        .made_of("w", &format!("['{}']", names.join("', '")))
        .listing(&listed, &["m.running_mean"]);
    for at in 0..20_000 {
        file = file.within("m", "Mul", &["x", "w"], &format!("y{at}"), &[]);
    }
    // One vector is made of the first 64 and stands for each of the others.
    assert_eq!(read(file.output("y0")).parameters(), 8 * (1 + 20_000 - 64));
}

#[test]
fn a_file_without_its_list_is_read_by_modules_and_without_both_by_its_weights() {
    let copies = |file: File| read(file.output("b")).parameters();
    let base = || File::default().input("x", &[1, 8]).weight("layers.0.weight", &[8, 8]);
    let scoped = base().within("layers.0", "MatMul", &["x", "layers.0.weight"], "a", &[]).within(
        "layers.1",
        "MatMul",
        &["a", "layers.0.weight"],
        "b",
        &[],
    );
    assert_eq!(copies(scoped), 128, "copies of a layer are told by their modules");
    let again = base().within("layers.0", "MatMul", &["x", "layers.0.weight"], "a", &[]).within(
        "layers.0",
        "MatMul",
        &["a", "layers.0.weight"],
        "b",
        &[],
    );
    assert_eq!(copies(again), 64, "one layer that is used twice");
    let bare =
        base().node("MatMul", &["x", "layers.0.weight"], "a", &[]).node("MatMul", &["a", "layers.0.weight"], "b", &[]);
    assert_eq!(copies(bare), 64, "nothing says that they are copies");
}
