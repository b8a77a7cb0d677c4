use super::language::bert::Head;
use super::*;
use crate::model::Graph;

/// Parameters exactly, and giga-multiply-adds to the digits that tables state.
fn check(name: &str, graph: Graph, parameters: u64, giga: f64) {
    assert_eq!(graph.parameters(), parameters, "parameters of {name}");
    let counted = graph.multiply_adds() as f64 / 1e9;
    assert!((counted - giga).abs() <= 0.005 * giga + 0.005, "{name}: {counted} billion multiply-adds, not {giga}");
    let mut written = vec![false; graph.tensors.len()];
    for operator in &graph.operators {
        assert!(!written[operator.output.0 as usize], "{name}: `{}` writes what was written", operator.name);
        written[operator.output.0 as usize] = true;
        for input in &operator.inputs {
            assert!(input.0 < operator.output.0, "{name}: `{}` reads what comes later", operator.name);
        }
    }
    assert!(graph.unknown.is_empty());
}

fn resnet(depth: u64) -> Graph {
    Resnet::imagenet(depth).expect("a known depth").graph()
}

fn thin(depth: u64) -> Graph {
    Resnet::thin(depth).expect("6n + 2").graph()
}

#[test]
fn totals_are_those_that_are_published() {
    // torchvision 0.26's table of models and timm's results list these.
    check("ResNet-18", resnet(18), 11_689_512, 1.814);
    check("ResNet-34", resnet(34), 21_797_672, 3.664);
    check("ResNet-50", resnet(50), 25_557_032, 4.089);
    check("ResNet-101", resnet(101), 44_549_160, 7.801);
    check("ResNet-152", resnet(152), 60_192_808, 11.514);
    let next = Resnet { groups: 32, group_width: 4, ..Resnet::imagenet(50).expect("50 layers") };
    check("ResNeXt-50 32x4d", next.graph(), 25_028_904, 4.23);
    // He et al. 2015, table 6, states 0.27 and 0.85 million with padded shortcuts.
    check("ResNet-20", thin(20), 269_722, 0.041);
    check("ResNet-56", thin(56), 853_018, 0.125);
    check("BERT base", Bert::base(128, Head::Pooled).graph(), 109_482_240, 11.17);
    check("BERT large", Bert::large(512, Head::Pooled).graph(), 335_141_888, 167.5);
    let gpt = Gpt { feed_forward: 3072, positions: 1024, ..Gpt::megatron(768, 12, 12, 50257, 1024) };
    check("GPT-2", gpt.graph(), 124_439_808, 145.8);
    check("Llama 3.1 8B", Llama::three_8b(1).graph(), 8_030_261_248, 7.51);
    check("Llama 3.1 70B", Llama::three_70b(1).graph(), 70_553_706_496, 69.5);
    check("Llama 3.1 405B", Llama::three_405b(1).graph(), 405_853_388_800, 403.8);
    let mpt = Mpt { positions: 0, vocabulary: 50432, ..Mpt::sized("7b", 1).expect("a size") };
    check("MPT-7B", mpt.graph(), 6_649_286_656, 6.65);
}

#[test]
fn activations_are_counted_as_in_timms_tables() {
    // timm's `results/model_metadata-in1k.csv`: millions of values that convolutions and linear layers write.
    let cases = [(18, 2.48), (34, 3.74), (50, 11.11), (101, 16.23), (152, 22.56)];
    for (depth, millions) in cases {
        let counted = resnet(depth).activations() as f64 / 1e6;
        assert!((counted - millions).abs() < 0.01, "ResNet-{depth}: {counted}");
    }
}

#[test]
fn blocks_are_numbered() {
    assert_eq!(resnet(50).blocks(), 16);
    assert_eq!(Bert::base(128, Head::PreTraining).graph().blocks(), 12);
}
