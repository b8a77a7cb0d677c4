use domain::train::{MemoryFormat, Model};
use tch::{Device, Kind, Tensor};

use super::*;

fn network(model: Model, size: i64, format: MemoryFormat) -> Network {
    let _turn = crate::torch::turn();
    let shape = Shape { channels: 3, height: size, width: size, classes: 10 };
    Network::new(model, shape, 5, Device::Cpu, format).unwrap()
}

/// Name, shape and kind of every tensor, as one text.
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
    // torchvision's resnet18 has 11,689,512 with 1,000 classes.
    check(Model::Resnet18, 64, 11_689_512 - 990 * 513);
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
fn every_model_scores_every_class_and_learns_through_every_weight() {
    for model in [Model::Mlp, Model::Cnn, Model::Resnet20, Model::Resnet18] {
        let network = network(model, 16, MemoryFormat::Contiguous);
        let images = Tensor::rand([4, 3, 16, 16], (Kind::Float, Device::Cpu));
        let scores = network.forward(&images, true).unwrap();
        assert_eq!(scores.size(), [4, 10]);
        scores.square().sum(Kind::Float).backward();
        for named in network.weights().parameters() {
            assert!(named.tensor.grad().defined(), "{model:?} does not use {}", named.name);
        }
    }
}

#[test]
fn memory_format_changes_no_result_to_speak_of() {
    for model in [Model::Cnn, Model::Resnet20, Model::Resnet18] {
        let images = Tensor::rand([2, 3, 16, 16], (Kind::Float, Device::Cpu));
        let plain = network(model, 16, MemoryFormat::Contiguous).forward(&images, false).unwrap();
        let last = crate::torch::channels_last(&images).unwrap();
        let other = network(model, 16, MemoryFormat::ChannelsLast).forward(&last, false).unwrap();
        let scale = plain.abs().max().double_value(&[]);
        assert!(difference(&plain, &other) < 1e-4 * scale, "{model:?}");
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
    let _ = network.forward(&images, false).unwrap();
    assert_eq!(difference(&before, &buffer("bn1.running_mean")), 0.0);
    let _ = network.forward(&images, true).unwrap();
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
