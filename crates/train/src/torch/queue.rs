//! Copies between the host and a CUDA device, beside what the device computes.
//!
//! One idea: the order of copies, events and waits is written once, over a [`Queue`]; a device carries it out, and in the
//! tests a stand-in runs its streams in random orders that events allow and reports what was read too early or overwritten.

use cxx::UniquePtr;
use tch::kind::Element;
use tch::{Device, Tensor};

use super::bridge::{adopt, borrow, ffi, lend_values};
use super::{Result, copied, place};

#[cfg(test)]
mod tests;

/// A stream of a device: does one thing after another, beside the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stream {
    /// What the network and the optimizer compute.
    Compute,
    /// Copies to the device.
    Copy,
}

/// The streams of one device. No call waits for what it begins, apart from [`Queue::synchronize`].
trait Queue {
    /// Memory of the host or the device. It is given back when it is dropped: on the device to the stream that it was
    /// allocated on and, where it is pinned, once the copies that were asked of it are over.
    type Buffer;
    /// A place in a stream's order.
    type Event;

    /// The values in pinned memory of the host, copied at once.
    fn pinned(&self, values: &Self::Buffer) -> Result<Self::Buffer>;
    /// A copy of pinned values in memory of the device that belongs to `stream`.
    fn to_device(&self, stream: Stream, pinned: &Self::Buffer) -> Result<Self::Buffer>;
    /// A copy of the device's values in pinned memory.
    fn to_pinned(&self, stream: Stream, values: &Self::Buffer) -> Result<Self::Buffer>;
    /// The end of what was asked of `stream` so far.
    fn record(&self, stream: Stream) -> Result<Self::Event>;
    /// What is asked of `stream` from now on waits for the event.
    fn wait(&self, stream: Stream, event: &Self::Event) -> Result<()>;
    /// The memory is not given back before what `stream` was asked to do until it is dropped is over.
    fn keep(&self, buffer: &Self::Buffer, stream: Stream) -> Result<()>;
    /// Whether the event has come.
    fn is_done(&self, event: &Self::Event) -> Result<bool>;
    /// The host waits for the event.
    fn synchronize(&self, event: &Self::Event) -> Result<()>;
    /// Values of the host's memory, as they are now.
    fn read(&self, host: &Self::Buffer) -> Result<Vec<f64>>;
}

/// Values of the host on the device. The copy waits for nothing that is computed, and only what is computed from now on
/// waits for it.
fn upload_through<Q: Queue>(queue: &Q, values: &Q::Buffer) -> Result<Q::Buffer> {
    let pinned = queue.pinned(values)?;
    let there = queue.to_device(Stream::Copy, &pinned)?;
    let copied = queue.record(Stream::Copy)?;
    queue.wait(Stream::Compute, &copied)?;
    // Its memory belongs to the stream of copies, which must not take it for another one while it is still read.
    queue.keep(&there, Stream::Compute)?;
    Ok(there)
}

/// Values on their way from the device to the host.
struct ReadBack<Q: Queue> {
    queue: Q,
    host: Q::Buffer,
    copied: Q::Event,
}

impl<Q: Queue> ReadBack<Q> {
    /// Begins the copy, behind what computes the values.
    fn begin(queue: Q, values: &Q::Buffer) -> Result<ReadBack<Q>> {
        let host = queue.to_pinned(Stream::Compute, values)?;
        let copied = queue.record(Stream::Compute)?;
        Ok(ReadBack { queue, host, copied })
    }

    fn is_done(&self) -> Result<bool> {
        self.queue.is_done(&self.copied)
    }

    fn read(&self) -> Result<Vec<f64>> {
        self.queue.synchronize(&self.copied)?;
        self.queue.read(&self.host)
    }
}

/// The streams of the CUDA device of this number.
struct CudaQueue(i32);

impl Stream {
    fn is_copy(self) -> bool {
        match self {
            Stream::Compute => false,
            Stream::Copy => true,
        }
    }
}

impl Queue for CudaQueue {
    type Buffer = Tensor;
    type Event = UniquePtr<ffi::StreamEvent>;

    fn pinned(&self, values: &Tensor) -> Result<Tensor> {
        Ok(adopt(ffi::pinned_copy(borrow(values))?))
    }

    fn to_device(&self, stream: Stream, pinned: &Tensor) -> Result<Tensor> {
        Ok(adopt(ffi::copy_to_device(borrow(pinned), self.0, stream.is_copy())?))
    }

    fn to_pinned(&self, stream: Stream, values: &Tensor) -> Result<Tensor> {
        Ok(adopt(ffi::copy_to_pinned(borrow(values), self.0, stream.is_copy())?))
    }

    fn record(&self, stream: Stream) -> Result<Self::Event> {
        Ok(ffi::record_event(self.0, stream.is_copy())?)
    }

    fn wait(&self, stream: Stream, event: &Self::Event) -> Result<()> {
        Ok(ffi::wait_event(event, self.0, stream.is_copy())?)
    }

    fn keep(&self, buffer: &Tensor, stream: Stream) -> Result<()> {
        Ok(ffi::record_stream(borrow(buffer), self.0, stream.is_copy())?)
    }

    fn is_done(&self, event: &Self::Event) -> Result<bool> {
        Ok(ffi::event_is_done(event)?)
    }

    fn synchronize(&self, event: &Self::Event) -> Result<()> {
        Ok(ffi::synchronize_event(event)?)
    }

    fn read(&self, host: &Tensor) -> Result<Vec<f64>> {
        values_of(host)
    }
}

/// A tensor of these values and this size on a device. To a CUDA device they go from pinned memory, on a stream of their
/// own: the copy runs beside what the device computes meanwhile, which is waited for by neither the host nor the copy, and
/// only what is computed from now on waits for the copy.
pub fn upload<T: Element>(values: &[T], size: &[i64], device: Device) -> Result<Tensor> {
    if !device.is_cuda() {
        return Ok(Tensor::f_from_slice(values)?.f_view(size)?.f_to_device(device)?);
    }
    lend_values(values, size, |lent| upload_through(&CudaQueue(place(device)), lent))
}

/// Values on their way from a device to the host.
pub struct HostCopy(HostValues);

enum HostValues {
    /// They were on the host.
    Here(Tensor),
    Coming(ReadBack<CudaQueue>),
}

impl HostCopy {
    /// Begins the copy of a float64 tensor; the host waits for nothing.
    pub fn begin(values: &Tensor) -> Result<HostCopy> {
        let device = values.device();
        if !device.is_cuda() {
            return Ok(HostCopy(HostValues::Here(copied(values)?)));
        }
        Ok(HostCopy(HostValues::Coming(ReadBack::begin(CudaQueue(place(device)), values)?)))
    }

    /// Whether the values have come.
    pub fn is_done(&self) -> Result<bool> {
        match &self.0 {
            HostValues::Here(_) => Ok(true),
            HostValues::Coming(back) => back.is_done(),
        }
    }

    /// The values; waits until they have come.
    pub fn read(&self) -> Result<Vec<f64>> {
        match &self.0 {
            HostValues::Here(values) => values_of(values),
            HostValues::Coming(back) => back.read(),
        }
    }
}

/// The values of a float64 tensor on the host.
fn values_of(host: &Tensor) -> Result<Vec<f64>> {
    let mut values = vec![0.0; host.numel()];
    host.f_copy_data(&mut values, host.numel())?;
    Ok(values)
}
