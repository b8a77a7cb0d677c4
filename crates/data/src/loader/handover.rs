//! Memory of a batch that is handed over to another library, whose tensor may write to it.

use std::sync::atomic::{AtomicBool, Ordering};

/// Whether memory was handed over. DLPack before version 1.0 cannot mark memory as read-only, so no two tensors may have
/// the same.
#[derive(Debug, Default)]
pub struct MemoryHandover {
    is_done: AtomicBool,
}

/// What a consumer gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandedMemory {
    /// The memory itself, which nobody else gets.
    Own,
    /// Memory into which the values are copied.
    Copy,
}

impl MemoryHandover {
    /// What the next consumer gets, which may ask for a copy; `None` once another may write to the memory.
    pub fn take(&self, wants_copy: bool) -> Option<HandedMemory> {
        if wants_copy {
            return (!self.is_done.load(Ordering::Acquire)).then_some(HandedMemory::Copy);
        }
        (!self.is_done.swap(true, Ordering::AcqRel)).then_some(HandedMemory::Own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_may_be_written_to_is_handed_over_once() {
        let memory = MemoryHandover::default();
        assert_eq!([memory.take(true), memory.take(true)], [Some(HandedMemory::Copy); 2]);
        let consumers: Vec<_> = std::thread::scope(|scope| {
            let all: Vec<_> = (0..8).map(|_| scope.spawn(|| memory.take(false))).collect();
            all.into_iter().filter_map(|consumer| consumer.join().unwrap()).collect()
        });
        assert_eq!(consumers, [HandedMemory::Own]);
        // A copy could be of values that its consumer has changed.
        assert_eq!([memory.take(true), memory.take(false)], [None; 2]);
    }
}
