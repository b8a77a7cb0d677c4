//! Process groups: processes rendezvous at a store, join groups, and communicate over Gloo, or over NCCL if each of
//! them has a CUDA device and the library for it.
//!
//! Every call is collective: made by all ranks of a group in the same order; each waits for the others, up to the
//! rendezvous' timeout. After a timeout, a rank can find out who is missing: [`ProcessGroup::missing`].

mod bridge;

use std::cell::Cell;
use std::net::{ToSocketAddrs, UdpSocket};
use std::rc::Rc;
use std::time::{Duration, Instant};

use bridge::{adopt, borrow, ffi, lend};
use cxx::UniquePtr;
use domain::rank::Rendezvous;
use tch::Tensor;

use super::{Error, Result};

/// Between two looks for who has arrived.
const LOOK: Duration = Duration::from_millis(10);
/// How long other ranks that noticed the same loss may take to report it.
const NOTICE: Duration = Duration::from_secs(3);
/// Gradients that are sent at a time, as `torch.nn.parallel.DistributedDataParallel`.
const BUCKET_BYTES: u64 = 25 << 20;

/// The store of the rendezvous, hosted by rank 0.
pub struct TcpStore {
    inner: UniquePtr<ffi::Store>,
    /// This machine's address, as others reach it.
    here: String,
    patience: Duration,
    /// Prefix of its keys.
    prefix: String,
    /// The CUDA device of this process; −1 without one.
    device: i32,
}

/// How ranks on CUDA devices exchange values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Transport {
    /// From device to device.
    Nccl,
    /// Through the host, for no rank can do otherwise.
    Host,
    /// Through the host, for these ranks cannot do otherwise, though others could.
    HostFor(Vec<u32>),
}

/// A group of ranks, numbered from 0.
pub struct ProcessGroup {
    inner: UniquePtr<ffi::Group>,
    way: Transport,
    store: Rc<TcpStore>,
    name: String,
    rank: u32,
    size: u32,
    /// Bytes of the outputs of all gathers so far.
    gathered: Cell<u64>,
}

/// An all-gather or reduce-scatter that was begun, and the tensors that belong to it meanwhile.
pub struct PendingCollective {
    inner: UniquePtr<ffi::PendingWork>,
    _held: [Tensor; 2],
}

/// Exchange of gradients during the backward pass: `c10d::Reducer`.
pub struct Reducer {
    inner: UniquePtr<ffi::Exchange>,
}

impl TcpStore {
    /// Opens the store at the rendezvous' address; `keep` if this process hosts it.
    pub fn open(meeting: &Rendezvous, keep: bool) -> Result<TcpStore> {
        let patience = Duration::from_secs(meeting.patience_s.max(1));
        let inner = ffi::store_open(&meeting.host, meeting.port, keep, millis(patience)).map_err(|error| {
            let (host, port) = (&meeting.host, meeting.port);
            let doing = if keep { "open a store at" } else { "reach rank 0 at" };
            Error::new(format!("cannot {doing} `{host}:{port}`: {}", Error::from(error)))
        })?;
        let here = here(&meeting.host, meeting.port);
        let device = if tch::Cuda::is_available() { i32::try_from(meeting.local_rank).unwrap_or(-1) } else { -1 };
        Ok(TcpStore { inner, here, patience, prefix: meeting.prefix.clone(), device })
    }
}

impl ProcessGroup {
    /// Waits until all `size` ranks have come, and connects them. `ranks` are their numbers among all, for messages.
    pub fn join(store: &Rc<TcpStore>, name: &str, rank: u32, ranks: &[u32]) -> Result<ProcessGroup> {
        let size = u32::try_from(ranks.len()).unwrap_or(u32::MAX);
        let name = &format!("{}{name}", store.prefix);
        let key = |rank: u32| format!("{name}/here/{rank}");
        let nccl = |rank: u32| format!("{name}/nccl/{rank}");
        // Before its own key is set, so that a rank that sees that key sees this one too.
        if store.device >= 0 && ffi::has_nccl()? {
            ffi::store_set(&store.inner, &nccl(rank))?;
        }
        ffi::store_set(&store.inner, &key(rank))?;
        let absent = wait_for(store, store.patience, (0..size).map(key).collect())?;
        if !absent.is_empty() {
            let numbers: Vec<u32> = absent.iter().map(|place| ranks[*place]).collect();
            let seconds = store.patience.as_secs();
            return Err(Error::new(format!("{} did not arrive within {seconds} s", listed(&numbers))));
        }
        let can = (0..size).map(|rank| ffi::store_has(&store.inner, &nccl(rank)));
        let way = way(ranks, &can.collect::<std::result::Result<Vec<bool>, _>>()?);
        let device = if way == Transport::Nccl { store.device } else { -1 };
        let inner = ffi::group_join(&store.inner, name, rank, size, &store.here, device, millis(store.patience))?;
        let (store, name, gathered) = (Rc::clone(store), name.to_owned(), Cell::new(0));
        Ok(ProcessGroup { inner, way, store, name, rank, size, gathered })
    }

    /// How values on CUDA devices go, as all ranks have agreed.
    pub fn way(&self) -> &Transport {
        &self.way
    }

    /// Rank of this process, from 0.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Number of ranks.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Replaces the values by their sum over ranks.
    pub fn sum(&self, tensor: &Tensor) -> Result<()> {
        Ok(ffi::group_sum(&self.inner, borrow(tensor))?)
    }

    /// Replaces the values by the largest over ranks.
    pub fn max(&self, tensor: &Tensor) -> Result<()> {
        Ok(ffi::group_max(&self.inner, borrow(tensor))?)
    }

    /// Replaces the values by those of the rank `root`.
    pub fn broadcast(&self, tensor: &Tensor, root: u32) -> Result<()> {
        Ok(ffi::group_broadcast(&self.inner, borrow(tensor), root)?)
    }

    /// Fills `output`, of one dimension like `input`, with every rank's `input`, one after another.
    pub fn all_gather(&self, output: &Tensor, input: &Tensor) -> Result<()> {
        self.count(output);
        Ok(ffi::group_all_gather(&self.inner, borrow(output), borrow(input))?)
    }

    /// The same without waiting. Nothing else may use the memory of `output`, or write to `input`, before
    /// [`PendingCollective::wait`] has returned; other calls of the group may be made meanwhile.
    pub fn begin_all_gather(&self, output: &Tensor, input: &Tensor) -> Result<PendingCollective> {
        self.count(output);
        let inner = ffi::group_all_gather_begin(&self.inner, borrow(output), borrow(input))?;
        Ok(PendingCollective { inner, _held: [output.shallow_clone(), input.shallow_clone()] })
    }

    /// Bytes that all-gathers have left on this rank so far, its own values included.
    pub fn gathered_bytes(&self) -> u64 {
        self.gathered.get()
    }

    fn count(&self, output: &Tensor) {
        let bytes = output.numel() * output.kind().elt_size_in_bytes();
        self.gathered.set(self.gathered.get() + bytes as u64);
    }

    /// Sums `input` over ranks; each gets its own part, of the size of `output`.
    pub fn reduce_scatter(&self, output: &Tensor, input: &Tensor) -> Result<()> {
        self.begin_reduce_scatter(output, input)?.wait()
    }

    /// The same without waiting. Nothing else may use the memory of `output`, or write to `input`, before
    /// [`PendingCollective::wait`] has returned; other calls of the group may be made meanwhile.
    pub fn begin_reduce_scatter(&self, output: &Tensor, input: &Tensor) -> Result<PendingCollective> {
        let inner = ffi::group_reduce_scatter_begin(&self.inner, borrow(output), borrow(input))?;
        Ok(PendingCollective { inner, _held: [output.shallow_clone(), input.shallow_clone()] })
    }

    /// Waits until all have come here.
    pub fn barrier(&self) -> Result<()> {
        Ok(ffi::group_barrier(&self.inner)?)
    }

    /// Within autograd: the sum over ranks, of values and of gradients.
    pub fn sum_both_ways(&self, tensor: &Tensor) -> Result<Tensor> {
        Ok(adopt(ffi::group_sum_both(&self.inner, borrow(tensor))?))
    }

    /// Within autograd: the identity, whose gradients are summed over ranks.
    pub fn sum_backward(&self, tensor: &Tensor) -> Result<Tensor> {
        Ok(adopt(ffi::group_sum_backward(&self.inner, borrow(tensor))?))
    }

    /// Within autograd: the sum over ranks, whose gradient is passed on unchanged.
    pub fn sum_forward(&self, tensor: &Tensor) -> Result<Tensor> {
        Ok(adopt(ffi::group_sum_forward(&self.inner, borrow(tensor))?))
    }

    /// After an error: the ranks that do not report one too, within a few seconds.
    pub fn missing(&self) -> Vec<u32> {
        let key = |rank: u32| format!("{}/lost/{rank}", self.name);
        let absent = ffi::store_set(&self.store.inner, &key(self.rank))
            .map_err(Error::from)
            .and_then(|()| wait_for(&self.store, NOTICE, (0..self.size).map(key).collect()));
        match absent {
            Ok(absent) => absent.into_iter().map(|place| place as u32).collect(),
            // The store is gone with its host.
            Err(_) => vec![0],
        }
    }
}

impl PendingCollective {
    /// Waits until the output is there; over NCCL, makes what the device computes from now on wait.
    pub fn wait(self) -> Result<()> {
        Ok(ffi::pending_wait(&self.inner)?)
    }
}

impl std::fmt::Debug for ProcessGroup {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "rank {} of {} in `{}`", self.rank, self.size, self.name)
    }
}

impl Reducer {
    /// Registers hooks on the parameters, which must be the same in the same order on every rank. `bf16` halves the
    /// bytes sent.
    pub fn new(group: &ProcessGroup, parameters: &[Tensor], bf16: bool) -> Result<Reducer> {
        Ok(Reducer { inner: ffi::exchange_new(&group.inner, &lend(parameters), BUCKET_BYTES, bf16)? })
    }

    /// Called before the forward pass whose gradients are exchanged.
    pub fn before_forward(&self) -> Result<()> {
        Ok(ffi::exchange_forward(&self.inner)?)
    }

    /// Called before the backward pass whose gradients are exchanged, including accumulated ones. Afterwards they are
    /// the mean over ranks.
    pub fn before_backward(&self) -> Result<()> {
        Ok(ffi::exchange_backward(&self.inner)?)
    }
}

/// What ranks with these numbers agree on, each of which can exchange over NCCL or not: a group exchanges in one way, so
/// one that cannot decides for all.
fn way(ranks: &[u32], can: &[bool]) -> Transport {
    let cannot: Vec<u32> = ranks.iter().zip(can).filter(|(_, can)| !**can).map(|(rank, _)| *rank).collect();
    match cannot.len() {
        0 => Transport::Nccl,
        some if some == ranks.len() => Transport::Host,
        _ => Transport::HostFor(cannot),
    }
}

/// The indices of keys that were not set in time.
fn wait_for(store: &TcpStore, patience: Duration, keys: Vec<String>) -> Result<Vec<usize>> {
    let began = Instant::now();
    let mut absent: Vec<usize> = (0..keys.len()).collect();
    loop {
        let mut still = Vec::new();
        for place in absent {
            if !ffi::store_has(&store.inner, &keys[place])? {
                still.push(place);
            }
        }
        if still.is_empty() || began.elapsed() >= patience {
            return Ok(still);
        }
        absent = still;
        std::thread::sleep(LOOK);
    }
}

/// The address by which this machine reaches the store, and so by which others reach this machine.
fn here(host: &str, port: u16) -> String {
    let route = || -> Option<String> {
        let to = (host, port).to_socket_addrs().ok()?.next()?;
        let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        // Nothing is sent: connecting a datagram socket only selects the route.
        let socket = UdpSocket::bind(any).ok()?;
        socket.connect(to).ok()?;
        Some(socket.local_addr().ok()?.ip().to_string())
    };
    route().unwrap_or_else(|| "127.0.0.1".to_owned())
}

/// Such as `rank 1` or `ranks 1, 3`.
pub fn listed(ranks: &[u32]) -> String {
    let numbers: Vec<String> = ranks.iter().map(u32::to_string).collect();
    format!("rank{} {}", if ranks.len() == 1 { "" } else { "s" }, numbers.join(", "))
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_rank_without_nccl_decides_for_all() {
        assert_eq!(way(&[0, 2], &[true, true]), Transport::Nccl);
        assert_eq!(way(&[0, 2], &[false, false]), Transport::Host);
        assert_eq!(way(&[0, 2, 4], &[true, false, true]), Transport::HostFor(vec![2]));
    }
}
