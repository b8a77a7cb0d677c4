//! Two ranks as threads, with two blocks that are matrix products: when the gradients of each are summed, and to what.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;

use domain::rank::Rendezvous;
use tch::{Device, Kind, Tensor};

use super::FlatShards;
use crate::model::Named;
use crate::ranks::unit::{Unit, UnitFormat};
use crate::torch;
use crate::torch::group::{ProcessGroup, TcpStore};

const WIDTH: i64 = 8;
const ROWS: i64 = 2;
const MICRO_BATCHES: usize = 2;

/// What a rank saw in the backward pass of a micro-batch: whether the gradients of the second block were being summed
/// while those of the first were computed, and of which units they were after it and after its end.
#[derive(Debug, PartialEq)]
struct Seen {
    second_beside_first: bool,
    after_backward: [bool; 3],
    after_end: [bool; 3],
}

fn is_reducing(shards: &FlatShards) -> [bool; 3] {
    [0, 1, 2].map(|place: usize| shards.units[place].is_reducing())
}

/// The passes of one of two ranks through a product around the blocks and two blocks, each product by a matrix of halves;
/// returns what it saw, and all values of its parts of the gradients.
fn passes(rank: u32, port: u16, format: UnitFormat) -> (Vec<Seen>, Vec<Vec<f64>>) {
    let (host, prefix) = ("127.0.0.1".to_owned(), String::new());
    let meeting = Rendezvous { host, port, local_rank: 0, is_kept: false, patience_s: 60, prefix };
    let store = Rc::new(TcpStore::open(&meeting, rank == 0).unwrap());
    let group = Rc::new(ProcessGroup::join(&store, "all", rank, &[0, 1]).unwrap());
    let float = (Kind::Float, Device::Cpu);
    let [around, first, second] = [(); 3].map(|()| Tensor::full([WIDTH, WIDTH], 0.5, float).set_requires_grad(true));
    let mut shards = FlatShards::none();
    for (name, tensor) in [("first", &first), ("second", &second), ("around", &around)] {
        let named = Named { name: name.to_owned(), tensor: tensor.shallow_clone() };
        shards.add(&[&named], &BTreeSet::new(), &group, format).unwrap();
    }
    shards.finish();
    let mut seen = Vec::new();
    for _ in 0..MICRO_BATCHES {
        shards.begin().unwrap();
        let x = Tensor::full([ROWS, WIDTH], f64::from(rank + 1), float).matmul(&around);
        let second_beside_first = Rc::new(Cell::new(false));
        let (found, unit): (_, Rc<Unit>) = (Rc::clone(&second_beside_first), Rc::clone(&shards.units[2]));
        let work = |x: &Tensor| {
            // Runs before the gradients of the first block are computed.
            torch::backward_hook(&x.f_matmul(&first)?, move || {
                found.set(unit.is_reducing());
                Ok(())
            })
        };
        let x = shards.around(0, &x, work).unwrap();
        let x = shards.around(1, &x, |x| Ok(x.f_matmul(&second)?)).unwrap();
        x.sum(Kind::Float).backward();
        let after_backward = is_reducing(&shards);
        shards.end().unwrap();
        let after_end = is_reducing(&shards);
        seen.push(Seen { second_beside_first: second_beside_first.get(), after_backward, after_end });
    }
    let gradients = shards.take_sharded_gradients().unwrap();
    let values = |named: &Named| Vec::<f64>::try_from(named.tensor.to_kind(Kind::Double).view(-1)).unwrap();
    let values = gradients.iter().map(values).collect();
    // Whoever is done first does not close the connections of the other.
    let _ = group.barrier();
    (seen, values)
}

#[test]
fn gradients_of_a_block_are_summed_while_the_block_before_computes() {
    for (frees, bf16, half) in [(false, false, None), (true, false, None), (true, true, Some(Kind::BFloat16))] {
        let format = UnitFormat { frees, bf16, half };
        let port = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
        let other = std::thread::spawn(move || passes(1, port, format));
        let ranks = [passes(0, port, format), other.join().unwrap()];
        for (seen, gradients) in ranks {
            let expected =
                || Seen { second_beside_first: true, after_backward: [false, true, false], after_end: [false; 3] };
            assert_eq!(seen, [expected(), expected()], "{format:?}");
            // Each is linear in the values that go in, so the mean is that of their mean, 1.5; eight terms of 0.5 are 4.
            let each = MICRO_BATCHES as f64 * ROWS as f64 * 1.5 * 4.0 * 4.0;
            assert_eq!(gradients, vec![vec![each; (WIDTH * WIDTH / 2) as usize]; 3], "{format:?}");
        }
    }
}
