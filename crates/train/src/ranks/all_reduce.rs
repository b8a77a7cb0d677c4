//! An all-reduce by itself, over what training would use between the same machines: `gradus doctor` measures it.

use std::rc::Rc;
use std::time::Instant;

use domain::all_reduce::{AllReduceFigures, AllReduceRequest, CollectiveBackend};
use domain::finding::{Cause, Finding};
use domain::rank::Rendezvous;
use tch::{Device, Kind, Tensor};

use crate::error::Error;
use crate::torch::Result;
use crate::torch::group::{ProcessGroup, TcpStore, Transport};

/// As many as a bucket of gradients.
const BYTES: u64 = 25 << 20;
/// The first sum of a group connects sockets and threads, and is not counted.
const FIRST_BYTES: u64 = 1 << 20;
/// Seconds for which sums are repeated, and how often at most.
const MEASURING: f64 = 2.0;
const MOST_ROUNDS: u32 = 20;
/// Seconds that a rank waits for others. A sum takes 21 s between two machines at 10 Mbit/s.
const PATIENCE_S: u64 = 40;

/// Sums values over all ranks, again and again for about two seconds. Every rank makes the same number of sums.
///
/// # Errors
/// [`Cause::RankLost`] when the others do not come or a sum fails, [`Cause::OutOfMemory`] on a GPU that is full.
pub fn measure(request: AllReduceRequest, device: Device) -> std::result::Result<AllReduceFigures, Error> {
    let AllReduceRequest { rank, size, host, port } = request;
    let prefix = String::new();
    let meeting = Rendezvous { host, port, local_rank: 0, is_kept: false, patience_s: PATIENCE_S, prefix };
    timed(rank, size, &meeting, device).map_err(|error| {
        let cause = if error.is_out_of_memory() { Cause::OutOfMemory } else { Cause::RankLost };
        Finding::new(cause, error.to_string()).into()
    })
}

fn timed(rank: u32, size: u32, meeting: &Rendezvous, device: Device) -> Result<AllReduceFigures> {
    let store = Rc::new(TcpStore::open(meeting, rank == 0)?);
    let group = ProcessGroup::join(&store, "all-reduce", rank, &(0..size).collect::<Vec<u32>>())?;
    let (backend, device) = match group.way() {
        Transport::Nccl => (CollectiveBackend::Nccl, device),
        Transport::Host | Transport::HostFor(_) => (CollectiveBackend::Gloo, Device::Cpu),
    };
    sum(&group, FIRST_BYTES, device)?;
    let once = sum(&group, BYTES, device)?;
    // The slowest rank's time, so that all agree.
    let slowest = Tensor::f_full([1], once, (Kind::Double, Device::Cpu))?;
    group.max(&slowest)?;
    let rounds = rounds(slowest.f_double_value(&[0])?);
    let mut seconds = vec![once];
    for _ in 1..rounds {
        seconds.push(sum(&group, BYTES, device)?);
    }
    // Whoever is done first does not close the connections of others. It may fail for the last one.
    let _ = group.barrier();
    seconds.sort_by(f64::total_cmp);
    let micros = (seconds[seconds.len() / 2] * 1e6) as u64;
    Ok(AllReduceFigures { backend, size, bytes: BYTES, rounds, micros })
}

/// How many sums fit into the time, if one takes so many seconds.
fn rounds(once: f64) -> u32 {
    (MEASURING / once.max(1e-6)).clamp(1.0, f64::from(MOST_ROUNDS)) as u32
}

/// Sums so many bytes once, and checks the result; the seconds that it took.
fn sum(group: &ProcessGroup, bytes: u64, device: Device) -> Result<f64> {
    let own = f64::from(group.rank() + 1);
    let values = Tensor::f_full([(bytes / 4) as i64], own, (Kind::Float, device))?;
    // Reading a value waits for a device.
    values.f_double_value(&[0])?;
    let began = Instant::now();
    group.sum(&values)?;
    values.f_double_value(&[0])?;
    let seconds = began.elapsed().as_secs_f64();
    let size = f64::from(group.size());
    let expected = size * (size + 1.0) / 2.0;
    let found = [values.f_min()?.f_double_value(&[])?, values.f_max()?.f_double_value(&[])?];
    match found == [expected; 2] {
        true => Ok(seconds),
        false => {
            let [least, most] = found;
            let message = format!("the sum of 1 to {size} came out as {least} to {most}, not {expected}");
            Err(crate::torch::Error::new(message))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_repeated_for_about_two_seconds() {
        assert_eq!([rounds(25.0), rounds(0.5), rounds(0.01), rounds(0.0)], [1, 4, 20, 20]);
    }

    #[test]
    fn two_ranks_measure_the_same_number_of_sums() {
        let port = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
        let request = move |rank| AllReduceRequest { rank, size: 2, host: "127.0.0.1".to_owned(), port };
        let other = std::thread::spawn(move || measure(request(1), Device::Cpu).map_err(|error| error.to_string()));
        let first = measure(request(0), Device::Cpu).unwrap();
        let second = other.join().unwrap().unwrap();
        assert_eq!((first.rounds, first.size, first.bytes), (second.rounds, 2, BYTES));
        assert!(first.backend == CollectiveBackend::Gloo && first.bus_rate() > 0, "{first:?}");
    }
}
