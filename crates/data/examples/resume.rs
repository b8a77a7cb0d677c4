//! Prints the cost of finding the next batch anywhere in a very large data set.
//!
//! `cargo run --release -p gradus-data --example resume -- [SAMPLES] [BATCH]`

use std::error::Error;
use std::hint::black_box;
use std::time::{Duration, Instant};

use data::{Cursor, SampleOrder};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize, default: u64| arguments.get(index).map_or(Ok(default), |text| text.parse());
    let (samples, batch) = (number(0, 100_000_000)?, number(1, 1024)?);
    let (mut longest, mut sum, times) = (Duration::ZERO, Duration::ZERO, 1000);
    for time in 0..times {
        let cursor = Cursor { epoch: time % 90, pos: samples / times * time };
        let began = Instant::now();
        let order = SampleOrder::new(samples, 42);
        for pos in cursor.pos..(cursor.pos + batch).min(samples) {
            black_box(order.at(cursor.epoch, pos));
        }
        let took = began.elapsed();
        (longest, sum) = (longest.max(took), sum + took);
    }
    println!(
        "{samples} samples: a batch of {batch} is found in {:.1} µs on average, {:.1} µs at most, from {times} cursors",
        sum.as_secs_f64() * 1e6 / times as f64,
        longest.as_secs_f64() * 1e6
    );
    Ok(())
}
