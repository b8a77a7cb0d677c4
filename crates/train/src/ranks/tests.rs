//! Two ranks as threads that shard the parameters: what is gathered, and what comes of it.

use std::sync::Mutex;

use domain::rank::Rendezvous;
use domain::train::Train;
use serde_json::{Value, json};
use tch::{Device, Kind, Tensor};

use super::Ranks;
use crate::model::{InputShape, ModelShape, OutputShape, TextShape};
use crate::state::{InitialState, Trainer};
use crate::step::{BatchShare, BatchTensors, StepConfig, step};

const STEPS: u64 = 4;
const MICRO_BATCHES: u64 = 2;
const ROWS: i64 = 4;
const LENGTH: i64 = 12;
const VOCABULARY: i64 = 50;

/// What a rank has after some steps.
struct Trained {
    losses: Vec<f64>,
    /// Its parts of the parameters.
    parts: Vec<(String, Vec<f64>)>,
    /// Bytes that the steps have gathered.
    gathered: u64,
    /// Values in the blocks and around them, of the whole network.
    values: [u64; 2],
}

fn job(shard: &str, precision: &str, model: &str) -> Train {
    let job: Value = json!({
        "model": model, "data": {"path": "", "text": {"length": LENGTH, "vocabulary": VOCABULARY}}, "epochs": 1,
        "batch": 2 * ROWS, "accumulate": MICRO_BATCHES, "seed": 1, "dropout": 0.0, "clip_norm": 0.5, "processes": 2,
        "precision": precision, "parallel": {"shard": shard}, "optimizer": {"adamw": {"lr": 1e-3}},
    });
    serde_json::from_value(job).unwrap()
}

/// Trains on one of two ranks. Networks are drawn from the generator of the process, so they are made in turn.
fn train(rank: u32, port: u16, train: &Train, making: &Mutex<()>) -> Trained {
    let (host, prefix) = ("127.0.0.1".to_owned(), String::new());
    let meeting = Rendezvous { host, port, local_rank: 0, is_kept: false, patience_s: 60, prefix };
    let mut ranks = Ranks::join(rank, 2, Some(&meeting), train.parallel).unwrap();
    let text = TextShape { vocabulary: VOCABULARY, length: LENGTH, separator: None };
    let shape = ModelShape { input: InputShape::Text(text), output: OutputShape::Tokens };
    let initial = {
        let _turn = making.lock().unwrap();
        InitialState::fresh(train, shape, Device::Cpu, 1, &mut ranks).unwrap()
    };
    let mut trainer: Trainer = initial.among(train, &mut ranks).unwrap();
    let config = StepConfig::of(train, Device::Cpu);
    let before = ranks.data.as_ref().unwrap().gathered_bytes();
    let mut losses = Vec::new();
    for number in 0..STEPS as i64 {
        let first = (number * 2 + i64::from(rank)) * ROWS * LENGTH;
        let values = Tensor::arange_start(first, first + ROWS * LENGTH, (Kind::Int64, Device::Cpu));
        let values = (values * 7).remainder(VOCABULARY - 1).view([ROWS, LENGTH]) + 1;
        let labels = values.shallow_clone();
        let share = BatchShare { counted: ROWS as usize, whole: 2 * ROWS as usize };
        let batch = BatchTensors { values, mask: None, labels, share, class_weights: None };
        losses.push(step(&trainer.network, &mut trainer.optimizer, &config, &batch, 1e-3, &ranks).unwrap());
    }
    let gathered = ranks.data.as_ref().unwrap().gathered_bytes() - before;
    let weights = trainer.network.weights();
    let held = ranks.held(weights);
    let numbers = |tensor: &Tensor| Vec::<f64>::try_from(tensor.detach().to_kind(Kind::Double).view(-1)).unwrap();
    let parts = held.parameters().iter().map(|named| (named.name.clone(), numbers(&named.tensor))).collect();
    let all: u64 = weights.parameters().iter().map(|named| named.tensor.numel() as u64).sum();
    let in_block = |name: &String| weights.by_block().any(|block| block.contains(name));
    let blocks = weights.parameters().iter().filter(|named| in_block(&named.name));
    let blocks: u64 = blocks.map(|named| named.tensor.numel() as u64).sum();
    Trained { losses, parts, gathered, values: [blocks, all - blocks] }
}

/// Both ranks of a job.
fn both(job: &Train) -> [Trained; 2] {
    let port = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    let making = Mutex::new(());
    std::thread::scope(|scope| {
        let other = scope.spawn(|| train(1, port, job, &making));
        let first = train(0, port, job, &making);
        [first, other.join().unwrap()]
    })
}

/// With `shard: gradients` each rank has all parameters in 32 bits, and autocast casts them: the shards are the same.
#[test]
fn weights_cast_before_they_are_gathered_give_the_same_bits() {
    let _turn = crate::torch::turn();
    for (precision, model) in [("bf16", "gpt_tiny"), ("fp16", "gpt_tiny"), ("bf16", "bert_mini"), ("fp32", "gpt_tiny")]
    {
        let [kept, gathered] = ["gradients", "parameters"].map(|shard| both(&job(shard, precision, model)));
        for (kept, gathered) in kept.iter().zip(&gathered) {
            assert_eq!(kept.losses, gathered.losses, "{precision} {model}");
            assert!(kept.losses.iter().all(|loss| loss.is_finite()), "{:?}", kept.losses);
            assert!(kept.parts == gathered.parts, "{precision} {model}: the weights differ");
        }
    }
}

/// Each micro-batch gathers a block before either pass, and what is around the blocks, most of it embeddings, once and in
/// 32 bits. Plans count the same: see `OpProfile::gathered_by_trainer`.
#[test]
fn half_as_many_bytes_are_gathered_where_products_have_16_bits() {
    let _turn = crate::torch::turn();
    let bytes = |precision: &str, model: &str, width: u64| {
        let [first, other] = both(&job("parameters", precision, model));
        assert_eq!(first.gathered, other.gathered);
        let [blocks, around] = first.values;
        let planned = (STEPS * MICRO_BATCHES * (2 * width * blocks + 4 * around)) as f64;
        // Shards are rounded up, and normalisations and biases are gathered once more after each update.
        let ratio = first.gathered as f64 / planned;
        assert!((1.0..1.03).contains(&ratio), "{precision} {model}: {} bytes for {planned}", first.gathered);
        first.gathered as f64
    };
    for model in ["gpt_tiny", "bert_mini"] {
        let wide = bytes("fp32", model, 4);
        for precision in ["bf16", "fp16"] {
            let share = bytes(precision, model, 2) / wide;
            assert!((0.5..0.56).contains(&share), "{precision} {model}: {share} of the bytes");
        }
    }
}
