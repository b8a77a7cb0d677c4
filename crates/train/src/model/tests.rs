use domain::train::{MemoryFormat, Model};
use tch::{Device, Kind, Tensor};

use super::*;

fn network(model: Model, size: i64, format: MemoryFormat) -> Network {
    of_classes(model, size, 10, format)
}

fn of_classes(model: Model, size: i64, classes: i64, format: MemoryFormat) -> Network {
    let _turn = crate::torch::turn();
    let shape = ModelShape::images([3, size, size], classes);
    Network::new(model, shape, 5, Device::Cpu, format).unwrap()
}

/// One network of each kind of block, and a valid image size.
const KINDS: [(Model, i64); 11] = [
    (Model::Mlp, 16),
    (Model::Cnn, 16),
    (Model::Resnet20, 16),
    (Model::Resnet18, 16),
    (Model::Resnet50, 64),
    (Model::MobilenetV2, 64),
    (Model::MobilenetV3Small, 64),
    (Model::MobilenetV3Large, 64),
    (Model::VitS16, 32),
    (Model::ConvnextTiny, 32),
    (Model::EfficientnetB0, 64),
];

/// Name, shape and kind of every tensor, as text.
fn listing(network: &Network) -> Vec<String> {
    network.weights().all().map(|named| format!("{} {:?}", named.name, named.tensor.size())).collect()
}

fn difference(left: &Tensor, right: &Tensor) -> f64 {
    (left - right).abs().max().double_value(&[])
}

#[test]
fn parameters_are_counted() {
    let check = |model, size, parameters| {
        assert_eq!(network(model, size, MemoryFormat::Contiguous).weights().count(), parameters, "{model:?}");
    };
    check(Model::Mlp, 8, 3 * 64 * 128 + 128 + 128 * 128 + 128 + 128 * 10 + 10);
    check(Model::Cnn, 8, 27 * 32 + 32 + 32 * 9 * 64 + 64 + 64 * 16 * 128 + 128 + 128 * 10 + 10);
    // The paper's 0.27 million.
    check(Model::Resnet20, 32, 269_722);
    check(Model::Resnet56, 32, 853_018);
    let check = |model, size, parameters| {
        let network = of_classes(model, size, 1000, MemoryFormat::Contiguous);
        assert_eq!(network.weights().count(), parameters, "{model:?}");
    };
    // As torchvision states them; `vit_s_16` as the `timm` library does.
    check(Model::Resnet18, 64, 11_689_512);
    check(Model::Resnet34, 64, 21_797_672);
    check(Model::Resnet50, 64, 25_557_032);
    check(Model::Resnet101, 64, 44_549_160);
    check(Model::Resnet152, 64, 60_192_808);
    check(Model::MobilenetV2, 64, 3_504_872);
    check(Model::MobilenetV3Small, 64, 2_542_856);
    check(Model::MobilenetV3Large, 64, 5_483_032);
    check(Model::VitS16, 224, 22_050_664);
    check(Model::VitB16, 224, 86_567_656);
    check(Model::ConvnextTiny, 64, 28_589_128);
    check(Model::EfficientnetB0, 64, 5_288_548);
}

#[test]
fn resnet18_has_the_names_of_torchvision() {
    let names = listing(&network(Model::Resnet18, 64, MemoryFormat::Contiguous));
    assert_eq!(names.len(), 62 + 60);
    for name in [
        "conv1.weight [64, 3, 7, 7]",
        "bn1.running_mean [64]",
        "bn1.num_batches_tracked []",
        "layer1.0.conv1.weight [64, 64, 3, 3]",
        "layer2.0.downsample.0.weight [128, 64, 1, 1]",
        "layer2.0.downsample.1.running_var [128]",
        "layer4.1.bn2.bias [512]",
        "fc.weight [10, 512]",
    ] {
        assert!(names.iter().any(|known| known == name), "{name} is missing from {names:?}");
    }
    let small = listing(&network(Model::Resnet18, 32, MemoryFormat::Contiguous));
    assert!(small.iter().any(|known| known == "conv1.weight [64, 3, 3, 3]"));
}

#[test]
fn a_wrapper_can_run_each_block() {
    for (model, blocks) in [(Model::Cnn, 0), (Model::Resnet50, 16), (Model::MobilenetV2, 17), (Model::VitS16, 12)] {
        let network = network(model, 64, MemoryFormat::Contiguous);
        let images = Tensor::rand([2, 3, 64, 64], (Kind::Float, Device::Cpu));
        let (pass, mut called) = (Pass::whole(false), 0);
        let scores = network.forward_through(&images, &pass, |block, x, pass| {
            called += 1;
            block.forward(x, pass)
        });
        assert_eq!(called, blocks, "{model:?}");
        assert_eq!(difference(&scores.unwrap(), &network.forward(&images, &Pass::whole(false)).unwrap()), 0.0);
    }
}

#[test]
fn names_are_those_of_torchvision() {
    let check = |model, size, count, expected: &[&str]| {
        let names = listing(&network(model, size, MemoryFormat::Contiguous));
        assert_eq!(names.len(), count, "{model:?}");
        for name in expected {
            assert!(names.iter().any(|known| known == name), "{name} is missing from {names:?}");
        }
    };
    check(
        Model::Resnet50,
        64,
        320,
        &[
            "layer1.0.downsample.0.weight [256, 64, 1, 1]",
            "layer2.0.conv2.weight [128, 128, 3, 3]",
            "layer4.2.bn3.running_mean [2048]",
            "fc.weight [10, 2048]",
        ],
    );
    check(
        Model::MobilenetV2,
        64,
        314,
        &[
            "features.0.0.weight [32, 3, 3, 3]",
            "features.1.conv.1.weight [16, 32, 1, 1]",
            "features.17.conv.3.bias [320]",
            "classifier.1.weight [10, 1280]",
        ],
    );
    check(
        Model::MobilenetV3Small,
        64,
        244,
        &[
            "features.1.block.1.fc1.weight [8, 16, 1, 1]",
            "features.4.block.1.0.weight [96, 1, 5, 5]",
            "features.12.0.weight [576, 96, 1, 1]",
            "classifier.3.weight [10, 1024]",
        ],
    );
    check(
        Model::ConvnextTiny,
        32,
        182,
        &[
            "features.0.0.weight [96, 3, 4, 4]",
            "features.1.0.layer_scale [96, 1, 1]",
            "features.2.1.weight [192, 96, 2, 2]",
            "features.5.8.block.3.weight [1536, 384]",
            "classifier.0.bias [768]",
            "classifier.2.weight [10, 768]",
        ],
    );
    check(
        Model::EfficientnetB0,
        64,
        360,
        &[
            "features.1.0.block.0.0.weight [32, 1, 3, 3]",
            "features.2.0.block.2.fc1.weight [4, 96, 1, 1]",
            "features.8.1.running_var [1280]",
            "classifier.1.weight [10, 1280]",
        ],
    );
    check(
        Model::VitS16,
        224,
        152,
        &[
            "encoder.pos_embedding [1, 197, 384]",
            "encoder.layers.encoder_layer_11.self_attention.in_proj_weight [1152, 384]",
            "encoder.layers.encoder_layer_0.mlp.3.weight [384, 1536]",
            "heads.head.weight [10, 384]",
        ],
    );
}

#[test]
fn every_model_scores_every_class_and_has_a_gradient_for_every_weight() {
    for (model, size) in KINDS {
        let network = network(model, size, MemoryFormat::Contiguous);
        let images = Tensor::rand([4, 3, size, size], (Kind::Float, Device::Cpu));
        let scores = network.forward(&images, &Pass::whole(true)).unwrap();
        assert_eq!(scores.size(), [4, 10]);
        scores.square().sum(Kind::Float).backward();
        for named in network.weights().parameters() {
            assert!(named.tensor.grad().defined(), "{model:?} does not use {}", named.name);
        }
    }
}

#[test]
fn memory_format_changes_no_result_to_speak_of() {
    for (model, size) in KINDS {
        let images = Tensor::rand([2, 3, size, size], (Kind::Float, Device::Cpu));
        let contiguous = network(model, size, MemoryFormat::Contiguous);
        let channels_last = network(model, size, MemoryFormat::ChannelsLast);
        // Other tests draw from the same generator, so equal seeds do not give equal weights.
        tch::no_grad(|| {
            for (to, from) in channels_last.weights().parameters().iter().zip(contiguous.weights().parameters()) {
                to.tensor.shallow_clone().copy_(&from.tensor);
            }
        });
        let plain = contiguous.forward(&images, &Pass::whole(false)).unwrap();
        let other = channels_last.forward(&crate::torch::channels_last(&images).unwrap(), &Pass::whole(false)).unwrap();
        let (scale, difference) = (plain.abs().max().double_value(&[]), difference(&plain, &other));
        // Other sums of 32-bit floats, through fifty layers that are not normalised to anything yet.
        assert!(difference <= 1e-3 * scale, "{model:?}: {difference} of {scale}");
    }
}

#[test]
fn normalisation_keeps_running_statistics_while_training_only() {
    let network = network(Model::Resnet20, 8, MemoryFormat::Contiguous);
    let buffer = |name: &str| {
        let named = network.weights().buffers().iter().find(|named| named.name == name).unwrap();
        named.tensor.copy()
    };
    let images = Tensor::rand([4, 3, 8, 8], (Kind::Float, Device::Cpu));
    let before = buffer("bn1.running_mean");
    let _ = network.forward(&images, &Pass::whole(false)).unwrap();
    assert_eq!(difference(&before, &buffer("bn1.running_mean")), 0.0);
    let _ = network.forward(&images, &Pass::whole(true)).unwrap();
    assert!(difference(&before, &buffer("bn1.running_mean")) > 0.0);
    assert_eq!(buffer("bn1.num_batches_tracked").int64_value(&[]), 1);
}

#[test]
fn weights_come_from_the_seed_alone() {
    let first = network(Model::Cnn, 8, MemoryFormat::Contiguous);
    let _ = Tensor::rand([3], (Kind::Float, Device::Cpu));
    let second = network(Model::Cnn, 8, MemoryFormat::Contiguous);
    for (left, right) in first.weights().all().zip(second.weights().all()) {
        assert_eq!(difference(&left.tensor, &right.tensor), 0.0);
    }
    // Even in ±1/√fan-in: 1/√27 for the first convolution.
    let weight = &first.weights().parameters()[1];
    assert_eq!(weight.name, "conv1.weight");
    let largest = weight.tensor.abs().max().double_value(&[]);
    assert!((0.18..0.1925).contains(&largest), "{largest}");
}

/// Documents that share a row but do not attend to each other get the same logits as alone.
#[test]
fn documents_of_a_row_do_not_see_each_other() {
    let network = {
        let _turn = crate::torch::turn();
        let shape = ModelShape {
            input: InputShape::Text(TextShape { vocabulary: 60, length: 24, separator: None }),
            output: OutputShape::Tokens,
        };
        Network::new(Model::GptTiny, shape, 5, Device::Cpu, MemoryFormat::Contiguous).unwrap()
    };
    let _off = tch::no_grad_guard();
    let words =
        |from: i64, count: i64| Tensor::arange_start(from, from + count, (Kind::Int64, Device::Cpu)).unsqueeze(0);
    let places = |count: i64| words(0, count);
    let documents = [(3, 7), (20, 5), (30, 12)];
    let row = Tensor::cat(&documents.map(|(from, count)| words(from, count)), 1);
    let pass = |mask: Option<Tensor>| Pass { mask, ..Pass::whole(false) };
    let of_row = Tensor::cat(&documents.map(|(_, count)| places(count)), 1);
    let apart = network.forward(&row, &pass(Some(of_row))).unwrap();
    let together = network.forward(&row, &pass(None)).unwrap();
    let mut at = 0;
    for (from, count) in documents {
        let alone = network.forward(&words(from, count), &pass(None)).unwrap();
        let found = apart.narrow(1, at, count);
        assert!(difference(&found, &alone) < 1e-5, "{}", difference(&found, &alone));
        assert_eq!(at > 0, difference(&together.narrow(1, at, count), &alone) > 1e-3);
        at += count;
    }
}

/// BERT sees the second text of a pair by its segment, and the rest of the row as it was.
#[test]
fn the_second_text_of_a_pair_has_the_second_segment() {
    const SEPARATOR: i64 = 3;
    let bert = |separator| {
        let _turn = crate::torch::turn();
        let input = InputShape::Text(TextShape { vocabulary: 60, length: 24, separator });
        let shape = ModelShape { input, output: OutputShape::Classes(2) };
        Network::new(Model::BertMini, shape, 5, Device::Cpu, MemoryFormat::Contiguous).unwrap()
    };
    let (single, pairs) = (bert(None), bert(Some(SEPARATOR)));
    let _off = tch::no_grad_guard();
    let forward = |network: &Network, row: &[i64]| {
        network.forward(&Tensor::from_slice(row).unsqueeze(0), &Pass::whole(false)).unwrap()
    };
    let (one, two) = ([2, 10, 11, SEPARATOR], [2, 10, 11, SEPARATOR, 20, SEPARATOR]);
    assert_eq!(difference(&forward(&single, &one), &forward(&pairs, &one)), 0.0);
    assert!(difference(&forward(&single, &two), &forward(&pairs, &two)) > 1e-4);
    // With one embedding for both segments nothing tells them apart.
    let name = "bert.embeddings.token_type_embeddings.weight";
    let mut segments = pairs.weights().all().find(|named| named.name == name).unwrap().tensor.shallow_clone();
    segments.copy_(&segments.narrow(0, 0, 1).expand([2, -1], false).copy());
    assert_eq!(difference(&forward(&single, &two), &forward(&pairs, &two)), 0.0);
}

/// A parameter that is said to be cast at every use gives the same bits if it was rounded before.
#[test]
fn what_autocast_casts_may_be_cast_before() {
    let text = InputShape::Text(TextShape { vocabulary: 50, length: 12, separator: None });
    let boxes = ModelShape { output: OutputShape::Boxes(3), ..ModelShape::images([3, 64, 64], 3) };
    let images = KINDS.map(|(model, size)| (model, ModelShape::images([3, size, size], 10)));
    let texts =
        [Model::BertMini, Model::GptTiny].map(|model| (model, ModelShape { input: text, output: OutputShape::Tokens }));
    let _turn = crate::torch::turn();
    for (model, shape) in images.into_iter().chain(texts).chain([(Model::YoloN, boxes)]) {
        let mut network = Network::new(model, shape, 5, Device::Cpu, MemoryFormat::Contiguous).unwrap();
        network.set_dropout(Some(0.0));
        let values = match shape.input {
            InputShape::Image(ImageShape { channels, height, width }) => {
                Tensor::rand([2, channels, height, width], (Kind::Float, Device::Cpu))
            }
            InputShape::Text(TextShape { vocabulary, length, .. }) => {
                Tensor::randint_low(1, vocabulary, [2, length], (Kind::Int64, Device::Cpu))
            }
        };
        let (weights, mut cast, mut all) = (network.weights(), 0, 0);
        let format = crate::step::precision::ComputeFormat::Bf16;
        let logits = || {
            // Branches are left out at random.
            crate::torch::seed(7).unwrap();
            let forward = || network.forward(&values, &Pass::whole(true));
            tch::no_grad(|| format.forward(Device::Cpu, forward)).unwrap()
        };
        // No layer starts from zeros or from scales that hide it.
        for named in weights.parameters() {
            let _ = tch::no_grad(|| named.tensor.shallow_clone().uniform_(-0.2, 0.3));
        }
        let before = logits();
        for named in weights.parameters().iter().filter(|named| weights.cast_names().contains(&named.name)) {
            let rounded = named.tensor.detach().to_kind(Kind::BFloat16).to_kind(Kind::Float);
            assert!(rounded != named.tensor.detach(), "{model:?}: {}", named.name);
            tch::no_grad(|| named.tensor.shallow_clone().copy_(&rounded));
        }
        assert!(before.isfinite().all().int64_value(&[]) == 1 && logits() == before, "{model:?}");
        for names in weights.by_block() {
            for named in weights.parameters().iter().filter(|named| names.contains(&named.name)) {
                all += named.tensor.numel();
                cast += if weights.cast_names().contains(&named.name) { named.tensor.numel() } else { 0 };
            }
        }
        assert!(10 * cast >= 9 * all, "{model:?}: {cast} of {all}");
        let is_known = |name: &String| weights.parameters().iter().any(|named| named.name == *name);
        assert!(weights.cast_names().iter().all(is_known), "{model:?}");
    }
}
