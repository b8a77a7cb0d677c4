use domain::train::{Adafactor, Adamw, Lamb, MemoryFormat, Model, Optimizer as Rule, Recompute, Sgd};
use tch::{Device, Kind};

use super::*;
use crate::model::{ImageShape, InputShape, ModelShape, OutputShape, TextShape};
use crate::optim::GradScaler;
use crate::step::precision::ComputeFormat;
use crate::torch;

const PICTURE: ImageShape = ImageShape { channels: 1, height: 4, width: 4 };
const PLAIN: StepConfig = StepConfig {
    device: Device::Cpu,
    format: ComputeFormat::Fp32,
    accumulate: 1,
    label_smoothing: 0.0,
    clip_norm: None,
    recompute: Recompute::None,
    chunked_loss: false,
};

fn sgd(lr: f64) -> Rule {
    Rule::Sgd(Sgd { lr, momentum: 0.9, nesterov: true, weight_decay: 1e-4 })
}

/// Seven samples, in which each class has a distinct pattern.
fn batch() -> BatchTensors {
    let labels: Vec<i64> = vec![0, 1, 2, 0, 1, 2, 0];
    let images: Vec<f32> = labels
        .iter()
        .flat_map(|label| (0..16).map(move |pixel| if pixel % 3 == *label { 1.0 } else { -0.1 }))
        .collect();
    image_batch(&images, &labels, PICTURE, false, Device::Cpu).unwrap()
}

/// The losses of some steps, and all weights afterwards.
fn train(rule: Rule, recipe: &StepConfig, steps: usize) -> (Vec<f64>, Vec<f64>) {
    let network = {
        let _turn = torch::turn();
        Network::new(Model::Mlp, ModelShape::images([1, 4, 4], 3), 3, Device::Cpu, MemoryFormat::Contiguous).unwrap()
    };
    let mut optimizer = ModelOptimizer::new(rule, network.weights()).unwrap();
    let lr = optimizer.base_rate();
    let losses =
        (0..steps).map(|_| step(&network, &mut optimizer, recipe, &batch(), lr, &Ranks::alone()).unwrap()).collect();
    let weights = network.weights().all().flat_map(|named| {
        let flat = named.tensor.detach().to_kind(Kind::Double).contiguous().view(-1);
        Vec::<f64>::try_from(flat).unwrap()
    });
    (losses, weights.collect())
}

fn largest_difference(left: &[f64], right: &[f64]) -> f64 {
    assert_eq!(left.len(), right.len());
    left.iter().zip(right).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

/// The same samples, of whose classes the first counts most and the second nothing.
fn weighted() -> BatchTensors {
    BatchTensors { class_weights: Some(Tensor::from_slice(&[3.0_f32, 0.0, 0.5])), ..batch() }
}

#[test]
fn a_weighted_loss_is_the_mean_over_weights() {
    let logits = Tensor::from_slice(&[1.0_f32, 0.0, -1.0, 0.5, 2.0, 0.0, -0.5, 0.25, 1.5]).view([3, 3]);
    let labels = Tensor::from_slice(&[0i64, 1, 2]);
    let samples = |labels: Tensor| BatchTensors {
        labels,
        values: Tensor::zeros([3, 1], (Kind::Float, Device::Cpu)),
        ..weighted()
    };
    let found = loss(&logits, &samples(labels.shallow_clone()), 0.0).unwrap().double_value(&[]);
    let each = -logits.log_softmax(-1, Kind::Double).gather(1, &labels.unsqueeze(-1), false);
    let expected = (3.0 * each.double_value(&[0, 0]) + 0.5 * each.double_value(&[2, 0])) / 3.5;
    assert!((found - expected).abs() < 1e-6, "{found}, expected {expected}");
    // `F.cross_entropy(logits, labels, weight, label_smoothing=0.1)` of PyTorch 2.11.
    let smooth = loss(&logits, &samples(labels), 0.1).unwrap().double_value(&[]);
    assert!((smooth - 0.514_267_92).abs() < 1e-6, "{smooth}");
}

#[test]
fn micro_batches_of_weighted_samples_add_up_to_the_whole() {
    let steps = |accumulate| {
        let recipe = StepConfig { accumulate, ..PLAIN };
        let network = {
            let _turn = torch::turn();
            let shape = ModelShape::images([1, 4, 4], 3);
            Network::new(Model::Mlp, shape, 3, Device::Cpu, MemoryFormat::Contiguous).unwrap()
        };
        let mut optimizer = ModelOptimizer::new(sgd(0.05), network.weights()).unwrap();
        let one = |_| step(&network, &mut optimizer, &recipe, &weighted(), 0.05, &Ranks::alone()).unwrap();
        (0..5).map(one).collect::<Vec<f64>>()
    };
    let whole = steps(1);
    assert!(whole[4] < whole[0]);
    // Seven samples in seven parts: some have no weight at all, and no mean.
    for parts in [2, 3, 7] {
        assert!(largest_difference(&whole, &steps(parts)) < 1e-5, "{parts}: {whole:?}, {:?}", steps(parts));
    }
}

#[test]
fn a_batch_of_classes_without_weight_is_no_loss() {
    for accumulate in [1, 2] {
        let recipe = StepConfig { accumulate, label_smoothing: 0.1, ..PLAIN };
        let network = {
            let _turn = torch::turn();
            let shape = ModelShape::images([1, 4, 4], 3);
            Network::new(Model::Mlp, shape, 3, Device::Cpu, MemoryFormat::Contiguous).unwrap()
        };
        let mut optimizer = ModelOptimizer::new(sgd(0.05), network.weights()).unwrap();
        let batch = BatchTensors { labels: Tensor::from_slice(&[1_i64; 7]), ..weighted() };
        let loss = step(&network, &mut optimizer, &recipe, &batch, 0.05, &Ranks::alone()).unwrap();
        assert!(loss.abs() < 1e-9, "{accumulate}: {loss}");
        assert!(torch::are_finite(network.weights().all().map(|named| &named.tensor)).unwrap());
    }
}

#[test]
fn every_rule_and_format_learns() {
    let adamw = Rule::Adamw(Adamw { lr: 1e-2, betas: [0.9, 0.999], eps: 1e-8, weight_decay: 0.01 });
    let plain_sgd = Rule::Sgd(Sgd { lr: 0.1, momentum: 0.0, nesterov: false, weight_decay: 0.0 });
    let lamb = Rule::Lamb(Lamb { lr: 5e-2, betas: [0.9, 0.999], eps: 1e-6, weight_decay: 0.01 });
    let adafactor = Rule::Adafactor(Adafactor { lr: 0.2, beta2_decay: -0.8, eps: 1e-3, clip: 1.0, weight_decay: 0.0 });
    for rule in [sgd(0.05), plain_sgd, adamw, lamb, adafactor] {
        for format in [ComputeFormat::Fp32, ComputeFormat::Bf16, ComputeFormat::Fp16] {
            let (losses, _) = train(rule, &StepConfig { format, ..PLAIN }, 30);
            assert!((0.9..1.3).contains(&losses[0]), "near ln 3 before anything is learnt: {losses:?}");
            assert!(losses[29] < 0.2 * losses[0], "{rule:?} {format:?}: {losses:?}");
        }
    }
}

#[test]
fn uneven_micro_batches_add_up_to_the_whole_batch() {
    let (whole, weights) = train(sgd(0.05), &PLAIN, 5);
    for accumulate in [2, 3, 7, 50] {
        let (parts, same) = train(sgd(0.05), &StepConfig { accumulate, ..PLAIN }, 5);
        assert!(largest_difference(&whole, &parts) < 1e-5, "{accumulate}: {whole:?} {parts:?}");
        assert!(largest_difference(&weights, &same) < 1e-5, "{accumulate}");
    }
    assert_eq!(micro_batches(7, 3).collect::<Vec<_>>(), [3, 2, 2]);
    assert_eq!(micro_batches(2, 3).collect::<Vec<_>>(), [1, 1]);
}

#[test]
fn clipping_bounds_the_update() {
    let plain = Rule::Sgd(Sgd { lr: 1.0, momentum: 0.0, nesterov: false, weight_decay: 0.0 });
    let (_, before) = train(plain, &PLAIN, 0);
    let moved = |clip_norm| {
        let (_, after) = train(plain, &StepConfig { clip_norm, ..PLAIN }, 1);
        before.iter().zip(&after).map(|(a, b)| (a - b) * (a - b)).sum::<f64>().sqrt()
    };
    let free = moved(None);
    assert!((moved(Some(0.25 * free)) - 0.25 * free).abs() < 1e-4 * free, "longer ones are cut to the norm");
    assert_eq!(moved(Some(4.0 * free)), free, "shorter ones are left alone");
}

#[test]
fn label_smoothing_is_its_closed_form() {
    let scores = Tensor::from_slice(&[2.0f32, 0.0, -1.0]).view([1, 3]);
    let labels = Tensor::from_slice(&[0i64]);
    let total = (2f64.exp() + 1.0 + (-1f64).exp()).ln();
    let loss = |score: f64| total - score;
    let expected = 0.9 * loss(2.0) + 0.1 / 3.0 * (loss(2.0) + loss(0.0) + loss(-1.0));
    let found = cross_entropy(&scores, &labels, 0.1).unwrap().double_value(&[]);
    assert!((found - expected).abs() < 1e-6, "{found}, expected {expected}");
}

#[test]
fn pixels_that_lie_together_are_the_same_pictures() {
    let (labels, shape) = ([0i64, 1], ImageShape { channels: 3, height: 2, width: 2 });
    let by_channel: Vec<f32> = (0..24).map(|value| value as f32).collect();
    let mut by_pixel = vec![0f32; 24];
    for (n, c, p) in (0..2).flat_map(|n| (0..3).flat_map(move |c| (0..4).map(move |p| (n, c, p)))) {
        by_pixel[n * 12 + p * 3 + c] = by_channel[n * 12 + c * 4 + p];
    }
    let plain = image_batch(&by_channel, &labels, shape, false, Device::Cpu).unwrap();
    let last = image_batch(&by_pixel, &labels, shape, true, Device::Cpu).unwrap();
    assert_eq!(last.values.stride(), [12, 1, 6, 3]);
    assert!(plain.values.equal(&last.values));
}

/// Networks with blocks, and their inputs: images with batch normalization, and token ids with dropout.
fn blocks(model: Model) -> (Network, BatchTensors) {
    let words = ModelShape {
        input: InputShape::Text(TextShape { vocabulary: 50, length: 12, separator: None }),
        output: OutputShape::Classes(3),
    };
    let (shape, samples) = match model {
        Model::Resnet20 | Model::MobilenetV3Small => {
            let values: Vec<f32> = (0..6 * 3 * 32 * 32).map(|at| ((at * 37 % 101) as f32 / 50.0) - 1.0).collect();
            let picture = ImageShape { channels: 3, height: 32, width: 32 };
            let samples = image_batch(&values, &[0, 1, 2, 0, 1, 2], picture, false, Device::Cpu).unwrap();
            (ModelShape::images([3, 32, 32], 3), samples)
        }
        _ => {
            let values: Vec<i64> = (0..6 * 12).map(|at| 1 + at * 7 % 49).collect();
            let values = Tensor::from_slice(&values).view([6, 12]);
            let mask = Some(values.ge(0));
            (
                words,
                BatchTensors {
                    values,
                    mask,
                    labels: Tensor::from_slice(&[0i64, 1, 2, 0, 1, 2]),
                    share: BatchShare::all(6),
                    class_weights: None,
                },
            )
        }
    };
    (Network::new(model, shape, 3, Device::Cpu, MemoryFormat::Contiguous).unwrap(), samples)
}

/// The losses of three steps from the same random numbers on, and all weights and statistics afterwards.
fn train_blocks(model: Model, recipe: &StepConfig, freeze: &str) -> (Vec<f64>, Vec<Tensor>) {
    let _turn = torch::turn();
    let (network, samples) = blocks(model);
    for named in
        network.weights().parameters().iter().filter(|named| !freeze.is_empty() && named.name.starts_with(freeze))
    {
        let _ = named.tensor.set_requires_grad(false);
    }
    let rule = Rule::Adamw(Adamw { lr: 1e-3, betas: [0.9, 0.999], eps: 1e-8, weight_decay: 0.01 });
    let mut optimizer = ModelOptimizer::new(rule, network.weights()).unwrap();
    if recipe.format == ComputeFormat::Fp16 {
        optimizer = optimizer.scaled(GradScaler::new(Device::Cpu).unwrap());
    }
    torch::seed(5).unwrap();
    let losses =
        (0..3).map(|_| step(&network, &mut optimizer, recipe, &samples, 1e-3, &Ranks::alone()).unwrap()).collect();
    (losses, network.weights().all().map(|named| named.tensor.detach().copy()).collect())
}

#[test]
fn what_is_computed_again_is_the_same_to_the_last_bit() {
    let cases = [
        (Model::Resnet20, ComputeFormat::Fp32, ""),
        (Model::Resnet20, ComputeFormat::Bf16, "conv1."),
        (Model::MobilenetV3Small, ComputeFormat::Fp32, ""),
        (Model::BertMini, ComputeFormat::Fp32, "bert.embeddings."),
        (Model::BertMini, ComputeFormat::Bf16, ""),
        (Model::BertMini, ComputeFormat::Fp16, ""),
    ];
    for (model, format, freeze) in cases {
        let plain = StepConfig { format, accumulate: 2, ..PLAIN };
        let (losses, weights) = train_blocks(model, &plain, freeze);
        for recompute in [Recompute::Blocks, Recompute::Every(2)] {
            let (again, same) = train_blocks(model, &StepConfig { recompute, ..plain }, freeze);
            assert_eq!(losses, again, "{model:?} {format:?} {recompute:?} without `{freeze}`");
            assert!(weights.iter().zip(&same).all(|(one, other)| one.equal(other)), "{model:?} {format:?}");
        }
    }
}

/// Sixteen bits round to 3 (bfloat16) and 4 digits; three steps stay within that of 32 bits.
#[test]
fn losses_in_16_bits_are_those_in_32() {
    for model in [Model::Resnet20, Model::BertMini] {
        let (plain, _) = train_blocks(model, &PLAIN, "");
        for (format, bound) in [(ComputeFormat::Bf16, 0.05), (ComputeFormat::Fp16, 0.02)] {
            let (found, _) = train_blocks(model, &StepConfig { format, ..PLAIN }, "");
            assert!(largest_difference(&plain, &found) < bound, "{model:?} {format:?}: {found:?} against {plain:?}");
        }
    }
}

/// The loss of mixed classes equals the weighted losses of both classes.
#[test]
fn shares_of_classes_are_a_mean_of_losses() {
    let scores = Tensor::from_slice2(&[[0.3_f32, -1.0, 2.0], [1.5, 0.0, -0.5]]);
    let (own, others) = (Tensor::from_slice(&[2_i64, 0]), [1_i64, 0]);
    for smoothing in [0.0, 0.1] {
        let mixed = cross_entropy(&scores, &mixed_targets(&own, &others, 0.7, 3).unwrap(), smoothing).unwrap();
        let [one, other] = [own.shallow_clone(), Tensor::from_slice(&others)]
            .map(|labels| cross_entropy(&scores, &labels, smoothing).unwrap().double_value(&[]));
        assert!((mixed.double_value(&[]) - (0.7 * one + 0.3 * other)).abs() < 1e-6);
    }
}
