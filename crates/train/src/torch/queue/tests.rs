//! A stand-in for a device: streams that run in any order which events allow, memory that is used again as soon as its
//! allocator may, and a note of everything that reads what is not there yet or no more.

use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;

use domain::random::Draws;

use super::*;

/// What lies in a piece of memory: a number that stands for a tensor.
type Content = f64;

const STREAMS: usize = 2;

/// A piece of memory.
struct Slot {
    is_pinned: bool,
    /// The stream that it was allocated on, and may be used again on in its order.
    of: usize,
    content: Option<Content>,
    /// `None` while it is in use; afterwards, per stream, how much of its work must be over before it is used again.
    free: Option<[usize; STREAMS]>,
}

/// What a stream is asked to do.
enum Work {
    /// Reads this content from one slot, and writes the other one.
    Read {
        from: usize,
        expected: Content,
        to: usize,
        result: Content,
    },
    Record(usize),
    Wait(usize),
}

#[derive(Default)]
struct World {
    slots: Vec<Slot>,
    queues: [VecDeque<Work>; STREAMS],
    asked: [usize; STREAMS],
    done: [usize; STREAMS],
    events: BTreeSet<usize>,
    recorded: usize,
    faults: Vec<String>,
}

impl World {
    /// Memory, used again if any is free: of the device as soon as it was given back on its own stream, pinned memory only
    /// after all copies.
    fn allocate(&mut self, is_pinned: bool, of: usize) -> usize {
        let done = self.done;
        let fits = |slot: &Slot| {
            let is_over = |until: [usize; STREAMS]| (0..STREAMS).all(|stream| done[stream] >= until[stream]);
            slot.is_pinned == is_pinned && (is_pinned || slot.of == of) && slot.free.is_some_and(is_over)
        };
        if let Some(place) = self.slots.iter().position(fits) {
            self.slots[place].free = None;
            return place;
        }
        self.slots.push(Slot { is_pinned, of, content: None, free: None });
        self.slots.len() - 1
    }

    fn ask(&mut self, stream: usize, work: Work) {
        self.asked[stream] += 1;
        self.queues[stream].push_back(work);
    }

    /// Runs the next work of a stream, if it need not wait; returns whether it did.
    fn advance(&mut self, stream: usize) -> bool {
        match self.queues[stream].front() {
            None => return false,
            Some(Work::Wait(event)) if !self.events.contains(event) => return false,
            Some(Work::Wait(_) | Work::Record(_) | Work::Read { .. }) => {}
        }
        match self.queues[stream].pop_front() {
            Some(Work::Record(event)) => {
                self.events.insert(event);
            }
            Some(Work::Read { from, expected, to, result }) => {
                if self.slots[from].content != Some(expected) {
                    let found = self.slots[from].content;
                    self.faults.push(format!("stream {stream} reads {found:?} in place of {expected}"));
                }
                self.slots[to].content = Some(result);
            }
            Some(Work::Wait(_)) | None => {}
        }
        self.done[stream] += 1;
        true
    }
}

/// Memory of the stand-in, given back when it is dropped.
struct Block {
    world: Rc<RefCell<World>>,
    slot: usize,
    content: Content,
    /// Streams that must have come to where they are when it is dropped.
    kept_for: RefCell<BTreeSet<usize>>,
}

impl Drop for Block {
    fn drop(&mut self) {
        let mut world = self.world.borrow_mut();
        let asked = world.asked;
        let mut until = [0; STREAMS];
        for stream in self.kept_for.borrow().iter() {
            until[*stream] = asked[*stream];
        }
        world.slots[self.slot].free = Some(until);
    }
}

#[derive(Clone)]
struct MockQueue {
    world: Rc<RefCell<World>>,
    draws: Rc<RefCell<Draws>>,
}

fn place_of(stream: Stream) -> usize {
    usize::from(stream.is_copy())
}

impl MockQueue {
    fn new(seed: u64) -> MockQueue {
        let draws = Rc::new(RefCell::new(Draws::new(seed)));
        MockQueue { world: Rc::default(), draws }
    }

    fn draw(&self, below: u64) -> u64 {
        self.draws.borrow_mut().below(below)
    }

    /// The device goes on for a while, on either stream.
    fn pass_time(&self) {
        for _ in 0..self.draw(3) {
            let stream = self.draw(STREAMS as u64) as usize;
            self.world.borrow_mut().advance(stream);
        }
    }

    fn block(&self, is_pinned: bool, of: usize, content: Content) -> Block {
        let slot = self.world.borrow_mut().allocate(is_pinned, of);
        Block { world: Rc::clone(&self.world), slot, content, kept_for: RefCell::default() }
    }

    /// A tensor of the host's, which is there.
    fn on_host(&self, content: Content) -> Block {
        let block = self.block(true, 0, content);
        self.world.borrow_mut().slots[block.slot].content = Some(content);
        block
    }

    /// A kernel, which computes `result` from what `from` should hold.
    fn launch(&self, stream: Stream, from: &Block, is_pinned: bool, result: Content) -> Block {
        self.pass_time();
        let stream = place_of(stream);
        let to = self.block(is_pinned, stream, result);
        // The allocator of pinned memory notes which streams copy; of device memory only its own stream counts.
        for block in [from, &to] {
            if self.world.borrow().slots[block.slot].is_pinned {
                block.kept_for.borrow_mut().insert(stream);
            }
        }
        let work = Work::Read { from: from.slot, expected: from.content, to: to.slot, result };
        self.world.borrow_mut().ask(stream, work);
        self.pass_time();
        to
    }

    /// Runs all that is left; returns what went wrong.
    fn finish(self) -> Vec<String> {
        loop {
            let mut world = self.world.borrow_mut();
            let first = self.draws.borrow_mut().below(STREAMS as u64) as usize;
            if !world.advance(first) && !world.advance(1 - first) {
                let is_stuck = world.queues.iter().any(|queue| !queue.is_empty());
                assert!(!is_stuck, "streams wait for each other");
                return std::mem::take(&mut world.faults);
            }
        }
    }
}

impl Queue for MockQueue {
    type Buffer = Block;
    type Event = usize;

    fn pinned(&self, values: &Block) -> Result<Block> {
        self.pass_time();
        Ok(self.on_host(values.content))
    }

    fn to_device(&self, stream: Stream, pinned: &Block) -> Result<Block> {
        Ok(self.launch(stream, pinned, false, pinned.content))
    }

    fn to_pinned(&self, stream: Stream, values: &Block) -> Result<Block> {
        Ok(self.launch(stream, values, true, values.content))
    }

    fn record(&self, stream: Stream) -> Result<usize> {
        let mut world = self.world.borrow_mut();
        world.recorded += 1;
        let event = world.recorded;
        world.ask(place_of(stream), Work::Record(event));
        Ok(event)
    }

    fn wait(&self, stream: Stream, event: &usize) -> Result<()> {
        self.world.borrow_mut().ask(place_of(stream), Work::Wait(*event));
        self.pass_time();
        Ok(())
    }

    fn keep(&self, buffer: &Block, stream: Stream) -> Result<()> {
        buffer.kept_for.borrow_mut().insert(place_of(stream));
        Ok(())
    }

    fn is_done(&self, event: &usize) -> Result<bool> {
        Ok(self.world.borrow().events.contains(event))
    }

    fn synchronize(&self, event: &usize) -> Result<()> {
        while !self.is_done(event)? {
            let stream = self.draw(STREAMS as u64) as usize;
            self.world.borrow_mut().advance(stream);
        }
        Ok(())
    }

    fn read(&self, host: &Block) -> Result<Vec<f64>> {
        let mut world = self.world.borrow_mut();
        let found = world.slots[host.slot].content;
        if found != Some(host.content) {
            world.faults.push(format!("the host reads {found:?} in place of {}", host.content));
        }
        Ok(vec![found.unwrap_or(f64::NAN)])
    }
}

/// Trains some steps, each with two uploads, whose losses are read `late` steps later; returns what went wrong.
fn train(
    seed: u64,
    late: usize,
    upload: &dyn Fn(&MockQueue, &Block) -> Result<Block>,
    read: &dyn Fn(&ReadBack<MockQueue>) -> Result<Vec<f64>>,
) -> Vec<String> {
    let queue = MockQueue::new(seed);
    let mut pending = VecDeque::new();
    let mut losses = Vec::new();
    for step in 0..8i32 {
        let number = f64::from(step);
        let [images, labels] = [100.0 + number, 200.0 + number].map(|content| {
            let host = queue.on_host(content);
            upload(&queue, &host).unwrap()
        });
        let logits = queue.launch(Stream::Compute, &images, false, 300.0 + number);
        drop(images);
        let target = queue.launch(Stream::Compute, &labels, false, 400.0 + number);
        drop((labels, target));
        let loss = queue.launch(Stream::Compute, &logits, false, number);
        pending.push_back(ReadBack::begin(queue.clone(), &loss).unwrap());
        if pending.len() > late {
            losses.extend(pending.pop_front().map(|back| read(&back).unwrap()).into_iter().flatten());
        }
    }
    losses.extend(pending.drain(..).flat_map(|back| read(&back).unwrap()));
    let mut faults = queue.finish();
    if losses != (0..8i32).map(f64::from).collect::<Vec<_>>() {
        faults.push(format!("losses {losses:?}"));
    }
    faults
}

fn in_order(back: &ReadBack<MockQueue>) -> Result<Vec<f64>> {
    back.read()
}

const SEEDS: u64 = 400;

#[test]
fn no_order_of_the_streams_reads_too_early_or_uses_memory_too_soon() {
    for seed in 0..SEEDS {
        for late in [0, 1, 2, 4] {
            let faults = train(seed, late, &upload_through::<MockQueue>, &in_order);
            assert!(faults.is_empty(), "seed {seed}, {late} steps late: {faults:?}");
        }
    }
}

#[test]
fn a_copy_that_is_said_to_be_over_is() {
    for seed in 0..SEEDS {
        let queue = MockQueue::new(seed);
        let host = queue.on_host(1.0);
        let there = upload_through(&queue, &host).unwrap();
        let back = ReadBack::begin(queue.clone(), &there).unwrap();
        while !back.is_done().unwrap() {
            queue.pass_time();
        }
        // Nothing is waited for any more.
        assert_eq!(queue.read(&back.host).unwrap(), [1.0], "seed {seed}");
        drop((back, there, host));
        assert!(queue.finish().is_empty(), "seed {seed}");
    }
}

/// How many of the orders show a fault where the steps of an upload are others.
fn found(
    upload: &dyn Fn(&MockQueue, &Block) -> Result<Block>,
    read: &dyn Fn(&ReadBack<MockQueue>) -> Result<Vec<f64>>,
) -> usize {
    (0..SEEDS).filter(|seed| !train(*seed, 2, upload, read).is_empty()).count()
}

#[test]
fn the_stand_in_finds_each_step_that_is_missing() {
    let without_wait = |queue: &MockQueue, values: &Block| -> Result<Block> {
        let pinned = queue.pinned(values)?;
        let there = queue.to_device(Stream::Copy, &pinned)?;
        queue.keep(&there, Stream::Compute)?;
        Ok(there)
    };
    let event_before_copy = |queue: &MockQueue, values: &Block| -> Result<Block> {
        let pinned = queue.pinned(values)?;
        let early = queue.record(Stream::Copy)?;
        let there = queue.to_device(Stream::Copy, &pinned)?;
        queue.wait(Stream::Compute, &early)?;
        queue.keep(&there, Stream::Compute)?;
        Ok(there)
    };
    let without_keep = |queue: &MockQueue, values: &Block| -> Result<Block> {
        let pinned = queue.pinned(values)?;
        let there = queue.to_device(Stream::Copy, &pinned)?;
        let copied = queue.record(Stream::Copy)?;
        queue.wait(Stream::Compute, &copied)?;
        Ok(there)
    };
    let pinned_too_soon = |queue: &MockQueue, values: &Block| -> Result<Block> {
        let pinned = queue.pinned(values)?;
        let there = queue.to_device(Stream::Copy, &pinned)?;
        // As if the allocator did not know of the copy.
        pinned.kept_for.borrow_mut().clear();
        let copied = queue.record(Stream::Copy)?;
        queue.wait(Stream::Compute, &copied)?;
        queue.keep(&there, Stream::Compute)?;
        Ok(there)
    };
    let unread = |back: &ReadBack<MockQueue>| back.queue.read(&back.host);
    assert!(found(&without_wait, &in_order) > 0, "computes before the copy");
    assert!(found(&event_before_copy, &in_order) > 0, "the event comes before the copy");
    assert!(found(&without_keep, &in_order) > 0, "memory is used for the next copy while it is read");
    assert!(found(&pinned_too_soon, &in_order) > 0, "pinned memory is written while it is copied");
    assert!(found(&upload_through::<MockQueue>, &unread) > 0, "the host reads before the copy");
}
