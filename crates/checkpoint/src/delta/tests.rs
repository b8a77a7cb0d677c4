//! States come back bit for bit, and broken chains fall back.

use domain::random::Draws;
use proptest::prelude::*;

use super::*;

/// The newest state that a chain restores, and how many of its links are valid; `None` if not even the full one is.
fn newest(chain: &[&[u8]]) -> Option<(Vec<u8>, usize)> {
    let mut newest: Option<(Vec<u8>, usize)> = None;
    for link in chain.iter().take(usize::from(LONGEST_CHAIN)) {
        match restore(link, newest.as_ref().map(|(state, _)| state.as_slice())) {
            Ok(state) => newest = Some((state, newest.map_or(1, |(_, count)| count + 1))),
            Err(_) => break,
        }
    }
    newest
}

/// `count` Gaussian weights of standard deviation 0.02, as fp32.
fn weights(seed: u64, count: usize) -> Vec<f32> {
    let mut draws = Draws::new(seed);
    let mut uniform = || (draws.below(1 << 24) as f32 + 0.5) / (1 << 24) as f32;
    (0..count).map(|_| 0.02 * (-2.0 * uniform().ln()).sqrt() * (std::f32::consts::TAU * uniform()).cos()).collect()
}

/// The same after a step of relative size `step`.
fn stepped(weights: &[f32], seed: u64, step: f32) -> Vec<f32> {
    let noise = self::weights(seed, weights.len());
    weights.iter().zip(noise).map(|(weight, noise)| weight + step * noise).collect()
}

fn fp32(weights: &[f32]) -> Vec<u8> {
    weights.iter().flat_map(|weight| weight.to_le_bytes()).collect()
}

/// Rounded to nearest, ties to even.
fn bf16(weights: &[f32]) -> Vec<u8> {
    let round = |bits: u32| ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16) as u16;
    weights.iter().flat_map(|weight| round(weight.to_bits()).to_le_bytes()).collect()
}

fn share(state: &[u8], before: &[u8], width: Width) -> f64 {
    let first = full(before, width);
    let link = difference(&first, before, state).unwrap();
    assert_eq!(restore(&link, Some(before)).unwrap(), state);
    assert_eq!(restore(&first, None).unwrap(), before);
    link.len() as f64 / state.len() as f64
}

#[test]
fn differences_are_small() {
    let before = weights(1, 300_000);
    for (step, fp32_most, bf16_most) in [(1e-4, 0.47, 0.08), (1e-3, 0.60, 0.19), (1e-2, 0.70, 0.35)] {
        let after = stepped(&before, 2, step);
        let (wide, narrow) =
            (share(&fp32(&after), &fp32(&before), Width::Four), share(&bf16(&after), &bf16(&before), Width::Two));
        assert!(wide < fp32_most && narrow < bf16_most, "step {step}: fp32 {wide:.3}, bf16 {narrow:.3}");
    }
    assert!(full(&fp32(&before), Width::Four).len() < fp32(&before).len() * 9 / 10);
}

proptest! {
    #[test]
    fn any_bits_come_back(before in prop::collection::vec(any::<u8>(), 0..5000), seed: u64, width in 0..4_usize) {
        let width = [Width::One, Width::Two, Width::Four, Width::Eight][width];
        let mut draws = Draws::new(seed);
        let state: Vec<u8> = before.iter().map(|byte| if draws.below(3) == 0 { draws.below(256) as u8 } else { *byte }).collect();
        share(&state, &before, width);
    }

    #[test]
    fn damaged_links_give_the_state_or_nothing(at in any::<prop::sample::Index>(), bit in 0..8_u32, length in any::<prop::sample::Index>()) {
        let state = fp32(&weights(5, 500));
        let link = full(&state, Width::Four);
        let mut flipped = link.clone();
        flipped[at.index(link.len())] ^= 1 << bit;
        // Some bits are unused, such as the base of a full link and some of zstd's.
        prop_assert!(restore(&flipped, None).is_ok_and(|given| given == state) || restore(&flipped, None).is_err());
        prop_assert!(restore(&link[..length.index(link.len())], None).is_err());
    }
}

#[test]
fn lengths_around_a_block_come_back() {
    for length in [0, 1, 3, 4, 5, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, (2 << 20) + 3] {
        let state: Vec<u8> = (0..length).map(|at: usize| (at / 7) as u8).collect();
        for width in [Width::One, Width::Two, Width::Four, Width::Eight] {
            share(&state, &vec![1; length], width);
        }
    }
}

#[test]
fn chains_end_and_fall_back() {
    let mut states = vec![weights(7, 1000)];
    let mut links = vec![full(&fp32(&states[0]), Width::Four)];
    for step in 1..8 {
        states.push(stepped(&states[step - 1], step as u64, 1e-3));
        links.push(difference(&links[step - 1], &fp32(&states[step - 1]), &fp32(&states[step])).unwrap());
    }
    let next = difference(&links[7], &fp32(&states[7]), &fp32(&states[0]));
    assert_eq!(next, Err(DeltaError::Long), "a ninth link");
    let other = difference(&links[3], &fp32(&states[5]), &fp32(&states[6]));
    assert_eq!(other, Err(DeltaError::OtherBase));
    let complete: Vec<&[u8]> = links.iter().map(Vec::as_slice).collect();
    assert_eq!(newest(&complete), Some((fp32(&states[7]), 8)));
    let mut damaged = links.clone();
    damaged[4][200] ^= 1;
    let damaged: Vec<&[u8]> = damaged.iter().map(Vec::as_slice).collect();
    assert_eq!(newest(&damaged), Some((fp32(&states[3]), 4)), "the links before the damaged one hold");
    assert_eq!(newest(&complete[1..]), None, "a chain without its full state");
    assert_eq!(restore(&links[2], Some(&fp32(&states[0]))), Err(DeltaError::OtherBase));
}

#[test]
fn a_length_that_is_not_there_takes_no_memory() {
    let mut link = full(&[1, 2, 3], Width::One);
    link[10..18].copy_from_slice(&(1_u64 << 40).to_le_bytes());
    assert!(matches!(restore(&link, None), Err(DeltaError::Damaged(_))));
}
