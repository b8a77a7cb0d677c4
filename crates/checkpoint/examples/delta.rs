//! Prints the size and speed of delta checkpoints: `cargo run --release -p gradus-checkpoint --example delta
//! [NUMBERS]`.
//!
//! The weights are Gaussian, and a step changes each by a Gaussian fraction; real ones differ.

use std::time::Instant;

use checkpoint::delta::{Width, difference, full, restore};
use domain::random::Draws;

fn main() {
    let count = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(4_000_000);
    let before = weights(1, count);
    println!("{count} weights      size  encode MB/s  decode MB/s");
    for (name, width, bytes) in [("fp32", Width::Four, fp32 as fn(&[f32]) -> Vec<u8>), ("bf16", Width::Two, bf16)] {
        let base = bytes(&before);
        let first = full(&base, width);
        report(&format!("{name} full"), &base, || full(&base, width), |link| restore(link, None).unwrap());
        for step in [1e-4, 1e-3, 1e-2] {
            let noise = weights(2, count);
            let after: Vec<f32> = before.iter().zip(noise).map(|(weight, noise)| weight + step * noise).collect();
            let state = bytes(&after);
            let encode = || difference(&first, &base, &state).unwrap();
            report(&format!("{name} step {step:.0e}"), &state, encode, |link| restore(link, Some(&base)).unwrap());
        }
    }
}

fn report(what: &str, state: &[u8], encode: impl Fn() -> Vec<u8>, decode: impl Fn(&[u8]) -> Vec<u8>) {
    let mut best = [f64::MAX; 2];
    let mut link = Vec::new();
    for _ in 0..3 {
        let began = Instant::now();
        link = encode();
        best[0] = best[0].min(began.elapsed().as_secs_f64());
        let began = Instant::now();
        assert_eq!(decode(&link), state);
        best[1] = best[1].min(began.elapsed().as_secs_f64());
    }
    let [encode, decode] = best.map(|seconds| state.len() as f64 / 1e6 / seconds);
    println!("{what:<18} {:>5.1} %  {encode:>11.0}  {decode:>11.0}", 100.0 * link.len() as f64 / state.len() as f64);
}

/// Gaussian weights of standard deviation 0.02, by Box and Muller.
fn weights(seed: u64, count: usize) -> Vec<f32> {
    let mut draws = Draws::new(seed);
    let mut uniform = || (draws.below(1 << 24) as f32 + 0.5) / (1 << 24) as f32;
    (0..count).map(|_| 0.02 * (-2.0 * uniform().ln()).sqrt() * (std::f32::consts::TAU * uniform()).cos()).collect()
}

fn fp32(weights: &[f32]) -> Vec<u8> {
    weights.iter().flat_map(|weight| weight.to_le_bytes()).collect()
}

/// Rounded to nearest, ties to even.
fn bf16(weights: &[f32]) -> Vec<u8> {
    let round = |bits: u32| ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16) as u16;
    weights.iter().flat_map(|weight| round(weight.to_bits()).to_le_bytes()).collect()
}
