//! The estimates of a search on all cores of this machine.

use std::sync::atomic::{AtomicUsize, Ordering};

use plan::search::parallel::ahead;
use plan::search::{Constraints, Estimates, ParallelConfigs, Search};

/// Kinds of machines that are worth a thread of their own.
const WORTH_A_THREAD: usize = 32;

/// Makes the estimates that an answer to `constraints` needs. Each thread takes one GPU after the other, and has an estimator of
/// its own from `estimator`; which thread makes an estimate does not change it.
pub fn estimate_ahead<'a>(
    search: &mut Search<'a, Estimates<'a>>,
    constraints: &Constraints,
    estimator: impl Fn() -> Estimates<'a> + Sync,
) {
    let groups = search.unestimated(constraints);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = cores.min(groups.iter().map(Vec::len).sum::<usize>() / WORTH_A_THREAD).min(groups.len());
    if threads < 2 {
        return;
    }
    let (spec, market) = (search.spec, search.market);
    let next = AtomicUsize::new(0);
    let work = || {
        let mut estimator = estimator();
        let mut configs = ParallelConfigs::new();
        while let Some(group) = groups.get(next.fetch_add(1, Ordering::Relaxed)) {
            configs.extend(group.iter().map(|one| (*one, ahead::estimate(spec, market, *one, &mut estimator))));
        }
        configs
    };
    let made = std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let mut made = vec![work()];
        // What a thread that panicked leaves out is estimated when it is asked for.
        made.extend(others.into_iter().filter_map(|thread| thread.join().ok()));
        made
    });
    made.into_iter().for_each(|configs| search.learn(configs));
}
