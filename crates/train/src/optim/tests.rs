use domain::train::{MemoryFormat, Model};

use super::*;
use crate::model::{ModelShape, Network};

const LAMB: Lamb = Lamb { lr: 0.01, betas: [0.9, 0.999], eps: 1e-6, weight_decay: 0.1 };
const LARS: Lars = Lars { lr: 0.5, momentum: 0.9, trust: 0.01, weight_decay: 0.1 };
const ADAFACTOR: Adafactor = Adafactor { lr: 0.01, beta2_decay: -0.8, eps: 1e-3, clip: 1.0, weight_decay: 0.05 };

fn tensor(values: &[f64], shape: &[i64]) -> Tensor {
    Tensor::from_slice(values).to_kind(Kind::Float).view(shape)
}

fn values(tensor: &Tensor) -> Vec<f64> {
    Vec::try_from(tensor.to_kind(Kind::Double).contiguous().view(-1)).unwrap()
}

fn close(left: &[f64], right: &[f64]) {
    assert_eq!(left.len(), right.len());
    for (a, b) in left.iter().zip(right) {
        assert!((a - b).abs() <= 2e-6 * (1.0 + b.abs()), "{left:?} against {right:?}");
    }
}

fn norm(values: &[f64]) -> f64 {
    values.iter().map(|value| value * value).sum::<f64>().sqrt()
}

/// Four gradients, none like another.
fn gradient(step: i32) -> [f64; 4] {
    [0.3, -0.1 * f64::from(step), 0.7, 1e-3]
}

#[test]
fn lamb_is_the_written_update() {
    for adapts in [true, false] {
        let start = [1.0, -2.0, 0.5, 0.0];
        let (mut parameter, mut first, mut second) =
            (tensor(&start, &[4]), tensor(&[0.0; 4], &[4]), tensor(&[0.0; 4], &[4]));
        let (mut weights, mut mean, mut square) = (start, [0.0; 4], [0.0; 4]);
        for count in 1..=4 {
            let gradient = gradient(count);
            let updates = Tensor::from(count as f32);
            let moments = (&mut first, &mut second);
            lamb::step(&mut parameter, &tensor(&gradient, &[4]), moments, &updates, LAMB, adapts).unwrap();
            let mut update = [0.0; 4];
            for i in 0..4 {
                mean[i] = 0.9 * mean[i] + 0.1 * gradient[i];
                square[i] = 0.999 * square[i] + 0.001 * gradient[i] * gradient[i];
                let deviation = (square[i] / (1.0 - 0.999f64.powi(count))).sqrt() + 1e-6;
                update[i] = mean[i] / (1.0 - 0.9f64.powi(count)) / deviation + 0.1 * weights[i];
            }
            let ratio = if adapts { norm(&weights) / norm(&update) } else { 1.0 };
            for i in 0..4 {
                weights[i] -= 0.01 * ratio * update[i];
            }
        }
        close(&values(&parameter), &weights);
    }
}

#[test]
fn lars_is_the_written_update() {
    for adapts in [true, false] {
        let start = [1.0, -2.0, 0.5, 0.0];
        let (mut parameter, mut momenta) = (tensor(&start, &[4]), tensor(&[0.0; 4], &[4]));
        let (mut weights, mut velocity) = (start, [0.0; 4]);
        for count in 1..=4 {
            let gradient = gradient(count);
            lars::step(&mut parameter, &tensor(&gradient, &[4]), &mut momenta, LARS, adapts).unwrap();
            let length = norm(&weights);
            let ratio = if adapts { 0.01 * length / (norm(&gradient) + 0.1 * length) } else { 1.0 };
            for i in 0..4 {
                velocity[i] = 0.9 * velocity[i] + 0.5 * ratio * (gradient[i] + 0.1 * weights[i]);
                weights[i] -= velocity[i];
            }
        }
        close(&values(&parameter), &weights);
        close(&values(&momenta), &velocity);
    }
}

#[test]
fn adafactor_is_the_written_update() {
    for shape in [vec![4i64], vec![2, 2]] {
        let start = [1.0, -2.0, 0.5, 0.0];
        let mut parameter = tensor(&start, &shape);
        let mut squares = adafactor::SecondMoment::of(&parameter).unwrap();
        let (mut weights, mut whole, mut rows, mut columns) = (start, [0.0; 4], [0.0; 2], [0.0; 2]);
        for count in 1..=4 {
            let gradient = gradient(count);
            let updates = Tensor::from(count as f32);
            adafactor::step(&mut parameter, &tensor(&gradient, &shape), &mut squares, &updates, ADAFACTOR).unwrap();
            let share = f64::from(count).powf(-0.8);
            let rate = (norm(&weights) / 2.0).max(1e-3) * 0.01f64.min(f64::from(count).powf(-0.5));
            let mut update = [0.0; 4];
            for (i, update) in update.iter_mut().enumerate() {
                whole[i] += share * (gradient[i] * gradient[i] - whole[i]);
                *update = whole[i];
            }
            if shape.len() == 2 {
                for i in 0..2 {
                    let mean = |a: f64, b: f64| (a * a + b * b) / 2.0;
                    rows[i] += share * (mean(gradient[2 * i], gradient[2 * i + 1]) - rows[i]);
                    columns[i] += share * (mean(gradient[i], gradient[i + 2]) - columns[i]);
                }
                for (i, update) in update.iter_mut().enumerate() {
                    *update = rows[i / 2] * columns[i % 2] / ((rows[0] + rows[1]) / 2.0);
                }
            }
            for (update, gradient) in update.iter_mut().zip(gradient) {
                *update = gradient / update.sqrt();
            }
            let excess = (norm(&update) / 2.0).max(1.0);
            for i in 0..4 {
                weights[i] = weights[i] * (1.0 - 0.01 * 0.05) - rate / excess * update[i];
            }
        }
        close(&values(&parameter), &weights);
    }
}

fn network(freeze: &[&str]) -> Network {
    let _turn = torch::turn();
    let network = Network::new(Model::Mlp, ModelShape::images([1, 2, 2], 3), 3, Device::Cpu, MemoryFormat::Contiguous);
    let network = network.unwrap();
    for named in network.weights().parameters() {
        if freeze.iter().any(|prefix| named.name.starts_with(prefix)) {
            let _ = named.tensor.set_requires_grad(false);
        }
    }
    network
}

/// How far each parameter moves in one step in which every gradient is zero.
fn moved(rule: Rule, keys: &Parameters, network: &Network) -> Vec<(String, bool)> {
    let parameters = network.weights().parameters();
    let before: Vec<Tensor> = parameters.iter().map(|named| named.tensor.detach().copy()).collect();
    let mut optimizer = ModelOptimizer::with(rule, keys, Offload::None, network.weights()).unwrap();
    let trained = parameters.iter().filter(|named| named.tensor.requires_grad());
    let zero: Tensor = trained.map(|named| (&named.tensor * 0.0).sum(Kind::Float)).sum();
    zero.backward();
    optimizer.step(0.1, None).unwrap();
    let pairs = parameters.iter().zip(before);
    pairs.map(|(named, before)| (named.name.clone(), !named.tensor.detach().equal(&before))).collect()
}

fn rules() -> [Rule; 5] {
    [
        Rule::Sgd(Sgd { lr: 0.1, momentum: 0.9, nesterov: false, weight_decay: 0.1 }),
        Rule::Adamw(Adamw { lr: 0.1, betas: [0.9, 0.999], eps: 1e-8, weight_decay: 0.1 }),
        Rule::Lamb(Lamb { lr: 0.1, ..LAMB }),
        Rule::Lars(Lars { lr: 0.1, ..LARS }),
        Rule::Adafactor(Adafactor { lr: 0.1, ..ADAFACTOR }),
    ]
}

/// Weights and state after a few steps with scaled and clipped gradients, not all equal.
fn after_steps(rule: Rule, offload: Offload) -> Vec<Tensor> {
    let network = network(&[]);
    let parameters = network.weights().parameters();
    let mut optimizer = ModelOptimizer::with(rule, &Parameters::default(), offload, network.weights()).unwrap();
    optimizer = optimizer.scaled(GradScaler::new(Device::Cpu).unwrap());
    for step in 1..=5 {
        let sum: Tensor =
            parameters.iter().map(|named| (&named.tensor * &named.tensor * f64::from(step)).sum(Kind::Float)).sum();
        optimizer.loss(sum).unwrap().backward();
        assert_eq!(optimizer.step(0.1, Some(0.5)).unwrap().read(), Ok(true));
    }
    let state = optimizer.state();
    state.iter().chain(parameters).map(|named| named.tensor.detach().copy()).collect()
}

#[test]
fn an_update_on_the_host_is_the_same_update() {
    for rule in rules() {
        let (here, there) = (after_steps(rule, Offload::None), after_steps(rule, Offload::Optimizer));
        assert_eq!(here.len(), there.len());
        for (here, there) in here.iter().zip(&there) {
            assert!(here.equal(there), "{rule:?}");
        }
    }
}

#[test]
fn only_what_decays_and_is_not_frozen_moves_without_gradients() {
    use domain::train::Decays;

    let keys = Parameters { decay: Decays::Matrices, ..Parameters::default() };
    for rule in rules() {
        for (name, is_moved) in moved(rule, &keys, &network(&["fc1."])) {
            assert_eq!(is_moved, name.ends_with(".weight") && !name.starts_with("fc1."), "{rule:?} {name}");
        }
        for (name, is_moved) in moved(rule, &Parameters::default(), &network(&[])) {
            assert!(is_moved, "{rule:?} {name}");
        }
    }
}

#[test]
fn a_gradient_that_is_not_finite_changes_nothing_but_the_scale() {
    let network = network(&[]);
    let parameters = network.weights().parameters();
    let before: Vec<Tensor> = parameters.iter().map(|named| named.tensor.detach().copy()).collect();
    let rule = Rule::Adamw(Adamw { lr: 0.1, betas: [0.9, 0.999], eps: 1e-8, weight_decay: 0.1 });
    let mut optimizer =
        ModelOptimizer::new(rule, network.weights()).unwrap().scaled(GradScaler::new(Device::Cpu).unwrap());
    let scale = |optimizer: &ModelOptimizer| {
        let state = optimizer.state();
        let named = state.iter().find(|named| named.name == "scaler.scale").unwrap();
        named.tensor.double_value(&[])
    };
    let go_back = |optimizer: &ModelOptimizer, factor: f64| {
        let sum: Tensor = parameters.iter().map(|named| named.tensor.sum(Kind::Float)).sum();
        optimizer.loss(sum * factor).unwrap().backward();
    };
    go_back(&optimizer, f64::INFINITY);
    assert_eq!(optimizer.step(0.1, Some(1.0)).unwrap().read(), Ok(false));
    assert_eq!(scale(&optimizer), 32_768.0);
    for (named, before) in parameters.iter().zip(&before) {
        assert!(named.tensor.detach().equal(before), "{}", named.name);
        assert!(!named.tensor.grad().defined());
    }
    go_back(&optimizer, 1.0);
    assert_eq!(optimizer.step(0.1, Some(1.0)).unwrap().read(), Ok(true));
    assert!(!parameters[0].tensor.detach().equal(&before[0]));
    // It never stops if the scale is not the cause.
    let mut last = Ok(false);
    for _ in 0..40 {
        go_back(&optimizer, f64::INFINITY);
        last = optimizer.step(0.1, None).and_then(|flag| flag.read());
        if last.is_err() {
            break;
        }
    }
    assert!(last.unwrap_err().to_string().contains("however little the loss is scaled"));
}

/// Weights and state after gradients of which those of step 3 are not finite, and which steps were updates.
fn after_one_that_is_not_finite(rule: Rule, is_deferred: bool) -> (Vec<Tensor>, Vec<bool>) {
    let network = network(&[]);
    let parameters = network.weights().parameters();
    let mut optimizer = ModelOptimizer::new(rule, network.weights()).unwrap();
    optimizer.defer(is_deferred);
    let mut flags = Vec::new();
    for step in 1..=5 {
        let factor = if step == 3 { f64::NAN } else { f64::from(step) };
        let sum: Tensor =
            parameters.iter().map(|named| (&named.tensor * &named.tensor * factor).sum(Kind::Float)).sum();
        sum.backward();
        let flag = optimizer.step(0.1, Some(0.5)).unwrap();
        assert_eq!(matches!(flag, UpdateFlag::OnDevice { .. }), is_deferred, "{rule:?}");
        flags.push(flag.read().unwrap());
    }
    let state = optimizer.state();
    (state.iter().chain(parameters).map(|named| named.tensor.detach().copy()).collect(), flags)
}

#[test]
fn every_rule_leaves_out_an_update_without_asking_the_host() {
    for rule in rules() {
        let (at_once, deferred) = (after_one_that_is_not_finite(rule, false), after_one_that_is_not_finite(rule, true));
        assert_eq!(at_once.1, [true, true, false, true, true], "{rule:?}");
        assert_eq!(deferred.1, at_once.1, "{rule:?}");
        for (at_once, deferred) in at_once.0.iter().zip(&deferred.0) {
            assert!(at_once.equal(deferred), "{rule:?}");
        }
    }
}
