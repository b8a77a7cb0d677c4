//! Collectives on device tensors, for the suite that needs a GPU: `collectives RANK RANKS PORT`.
//!
//! Prints one line of JSON: how the ranks exchange, which collectives had the right values, and how fast a sum over 64 MiB
//! was. All ranks use the first CUDA device, or the CPU where there is none.

use std::error::Error;
use std::rc::Rc;
use std::time::Instant;

use domain::rank::Rendezvous;
use serde_json::{Map, Value, json};
use tch::{Device, Kind, Tensor};
use train::torch;
use train::torch::group::{ProcessGroup, TcpStore, Transport};

/// Values of the small exchanges, and of the timed one.
const SMALL: i64 = 1 << 12;
const LARGE: i64 = 1 << 24;

fn main() -> Result<(), Box<dyn Error>> {
    torch::open_cuda();
    let numbers: Vec<u32> = std::env::args().skip(1).map(|word| word.parse()).collect::<Result<_, _>>()?;
    let [rank, ranks, port] = numbers[..] else { return Err("usage: collectives RANK RANKS PORT".into()) };
    let device = if tch::Cuda::is_available() { Device::Cuda(0) } else { Device::Cpu };
    let (host, prefix) = ("127.0.0.1".to_owned(), String::new());
    let meeting =
        Rendezvous { host, port: u16::try_from(port)?, local_rank: 0, is_kept: false, patience_s: 30, prefix };
    let store = Rc::new(TcpStore::open(&meeting, rank == 0)?);
    let group = ProcessGroup::join(&store, "all", rank, &(0..ranks).collect::<Vec<_>>())?;
    let mut right = Map::new();
    for kind in [Kind::Float, Kind::BFloat16] {
        for (name, is_right) in collectives(&group, kind, device)? {
            right.insert(format!("{name} of {kind:?}"), json!(is_right));
        }
    }
    let transport = match group.way() {
        Transport::Nccl => "NCCL",
        Transport::Host | Transport::HostFor(_) => "host",
    };
    let speed: Value = json!({"sum_gb_per_s": speed(&group, device)?});
    group.barrier()?;
    println!("{}", json!({"transport": transport, "right": right, "gb_per_s": speed}));
    Ok(())
}

/// Each collective, and whether its values are what they must be.
fn collectives(group: &ProcessGroup, kind: Kind, device: Device) -> Result<Vec<(&'static str, bool)>, Box<dyn Error>> {
    let (rank, ranks) = (i64::from(group.rank()), i64::from(group.size()));
    let filled = |count: i64, value: i64| Tensor::f_full([count], value as f64, (kind, device));
    let all_are = |tensor: &Tensor, value: i64| -> Result<bool, Box<dyn Error>> {
        Ok(tensor.f_eq(value as f64)?.f_all()?.f_int64_value(&[])? == 1)
    };
    let total = ranks * (ranks + 1) / 2;
    let sum = filled(SMALL, rank + 1)?;
    group.sum(&sum)?;
    let largest = filled(SMALL, rank + 1)?;
    group.max(&largest)?;
    let sent = filled(SMALL, rank + 5)?;
    group.broadcast(&sent, 0)?;
    let gathered = filled(SMALL * ranks, 0)?;
    group.all_gather(&gathered, &filled(SMALL, rank + 1)?)?;
    let last = gathered.f_narrow(0, SMALL * (ranks - 1), SMALL)?;
    let scattered = filled(SMALL, 0)?;
    group.reduce_scatter(&scattered, &filled(SMALL * ranks, rank + 1)?)?;
    Ok(vec![
        ("sum", all_are(&sum, total)?),
        ("max", all_are(&largest, ranks)?),
        ("broadcast", all_are(&sent, 5)?),
        ("all-gather", all_are(&gathered.f_narrow(0, 0, SMALL)?, 1)? && all_are(&last, ranks)?),
        ("reduce-scatter", all_are(&scattered, total)?),
    ])
}

/// GB a second of the fastest of some sums; reading a value waits for the device.
fn speed(group: &ProcessGroup, device: Device) -> Result<f64, Box<dyn Error>> {
    let values = Tensor::f_zeros([LARGE], (Kind::Float, device))?;
    let mut fastest = f64::INFINITY;
    for _ in 0..4 {
        let began = Instant::now();
        group.sum(&values)?;
        values.f_double_value(&[0])?;
        fastest = fastest.min(began.elapsed().as_secs_f64());
    }
    Ok(4.0 * LARGE as f64 / fastest / 1e9)
}
