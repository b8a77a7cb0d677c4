//! Batch normalisation over the samples of two ranks, which are threads here.

use domain::rank::Rendezvous;

use super::*;
use crate::torch::group::TcpStore;

const CHANNELS: i64 = 3;
/// Samples of each rank.
const SHARES: [i64; 2] = [3, 1];

fn batch_norm(sync: Option<Rc<ProcessGroup>>) -> BatchNorm {
    let float = (Kind::Float, Device::Cpu);
    BatchNorm {
        weight: Tensor::full([CHANNELS], 1.5, float).set_requires_grad(true),
        bias: Tensor::full([CHANNELS], 0.25, float).set_requires_grad(true),
        running_mean: Tensor::zeros([CHANNELS], float),
        running_var: Tensor::ones([CHANNELS], float),
        num_batches_tracked: Tensor::zeros([0i64; 0], (Kind::Int64, Device::Cpu)),
        momentum: 0.1,
        eps: 1e-5,
        sync,
    }
}

/// Outputs and gradients of so many of the batch's samples; and the running statistics.
fn passes(norm: &BatchNorm, first: i64, count: i64) -> [Vec<f64>; 4] {
    let samples: i64 = SHARES.iter().sum();
    let all = Tensor::arange(samples * CHANNELS * 4, (Kind::Float, Device::Cpu)).sin().view([samples, CHANNELS, 2, 2]);
    let x = all.narrow(0, first, count).copy().set_requires_grad(true);
    let out = norm.forward(&x, &Pass::whole(true)).unwrap();
    // Of a sum, the gradient would be zero.
    (&out * &out * &out).sum(Kind::Float).backward();
    let numbers = |tensor: Tensor| Vec::<f64>::try_from(tensor.detach().to_kind(Kind::Double).reshape([-1])).unwrap();
    [out, x.grad(), norm.running_mean.copy(), norm.running_var.copy()].map(numbers)
}

fn of_rank(rank: u32, port: u16) -> [Vec<f64>; 4] {
    let (host, prefix) = ("127.0.0.1".to_owned(), String::new());
    let meeting = Rendezvous { host, port, local_rank: 0, is_kept: false, patience_s: 60, prefix };
    let store = Rc::new(TcpStore::open(&meeting, rank == 0).unwrap());
    let group = Rc::new(ProcessGroup::join(&store, "moments", rank, &[0, 1]).unwrap());
    let first: i64 = SHARES[..rank as usize].iter().sum();
    let found = passes(&batch_norm(Some(Rc::clone(&group))), first, SHARES[rank as usize]);
    // Whoever is done first does not close the connections of the other.
    let _ = group.barrier();
    found
}

#[test]
fn synced_batch_norm_is_that_of_the_whole_batch_however_uneven_the_shares() {
    let port = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    let other = std::thread::spawn(move || of_rank(1, port));
    let [first, second] = [of_rank(0, port), other.join().unwrap()];
    let expected = passes(&batch_norm(None), 0, SHARES.iter().sum());
    let [out, gradient] = [0, 1].map(|place: usize| [&first[place][..], &second[place][..]].concat());
    for found in [[&out, &gradient, &first[2], &first[3]], [&out, &gradient, &second[2], &second[3]]] {
        for (found, expected) in found.into_iter().zip(&expected) {
            assert_eq!(found.len(), expected.len());
            for (found, expected) in found.iter().zip(expected) {
                assert!((found - expected).abs() <= 1e-5 * expected.abs().max(1.0), "{found} for {expected}");
            }
        }
    }
}
