//! Augmentation: maps each pixel of a training image to its source.
//!
//! Every geometric operation is a map of coordinates, so a list of them composes into one [`View`] and the image is
//! read once; operations on bytes come between two views. Random draws depend only on (seed, epoch, sample, index in
//! the list).

use domain::train::{Augment, MemoryFormat, RandomErasing};

use super::cut::{AHEAD, Scale, normalised};
use super::rand_augment::Operation;
use super::slots::Values;
use super::{auto_augment, jitter, rand_augment};
use crate::decode::kernels::{Halves, Kernels, Shown, Work, run};
use crate::sampling::random::Draws;

/// The operations on each image, in the order of the job file.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Changes {
    /// Pixels move, from the first change on.
    before: Vec<Augment>,
    /// From the first operation on bytes on, each with its index in the list.
    pub rest: Vec<(u64, Augment)>,
    /// The erasing of a rectangle of the finished sample, and its index in the list.
    pub erasing: Option<(u64, RandomErasing)>,
}

impl Changes {
    /// Selects the operations on single images from a list.
    pub fn of(augment: &[Augment]) -> Changes {
        let mut changes = Changes::default();
        for (change, index) in augment.iter().zip(0..) {
            match change {
                Augment::Mixup(_) | Augment::Cutmix(_) => {}
                Augment::RandomErasing(erasing) => changes.erasing = Some((index, *erasing)),
                Augment::RandAugment(_) | Augment::AutoAugment(_) => changes.rest.push((index, *change)),
                Augment::ColorJitter(_) | Augment::TrivialAugment => changes.rest.push((index, *change)),
                Augment::RandomResizedCrop | Augment::ResizeCrop(_) | Augment::Flip => changes.moves(index, *change),
                Augment::PadCrop(_) | Augment::Mosaic => changes.moves(index, *change),
            }
        }
        changes
    }

    fn moves(&mut self, index: u64, change: Augment) {
        match self.rest.is_empty() {
            true => self.before.push(change),
            false => self.rest.push((index, change)),
        }
    }

    /// The geometric operations before the first operation on bytes.
    pub fn before(&self) -> &[Augment] {
        &self.before
    }

    /// The view of a sample before the first operation on bytes; `draws` are the random numbers of each index in the list.
    pub fn view(&self, draws: impl Fn(u64) -> Draws, height: usize, width: usize) -> View {
        let mut view = View::whole(height, width);
        for (change, index) in self.before.iter().zip(0..) {
            view.change(*change, draws(index));
        }
        view
    }
}

/// The operations on bytes that one change consists of, for one sample in one epoch; none for a geometric one.
pub(crate) fn operations(change: Augment, draws: &mut Draws, height: usize, width: usize) -> Vec<Operation> {
    match change {
        Augment::RandAugment(spec) => rand_augment::drawn(spec, *draws, height, width).collect(),
        Augment::AutoAugment(policy) => auto_augment::drawn(policy, draws, height, width),
        Augment::TrivialAugment => vec![auto_augment::drawn_trivial(draws)],
        Augment::ColorJitter(jitter) => jitter::drawn(jitter, draws),
        Augment::RandomResizedCrop | Augment::ResizeCrop(_) | Augment::Flip | Augment::PadCrop(_) => Vec::new(),
        Augment::Mosaic | Augment::RandomErasing(_) | Augment::Mixup(_) | Augment::Cutmix(_) => Vec::new(),
    }
}

/// Maps the pixels of the output to those of the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct View {
    x: Axis,
    y: Axis,
}

/// Output position p shows input `origin + step × p` for p in `from..to`, and a zero pixel elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Axis {
    length: i64,
    origin: i64,
    step: i64,
    from: i64,
    to: i64,
}

impl Axis {
    fn whole(length: usize) -> Axis {
        let length = length as i64;
        Axis { length, origin: 0, step: 1, from: 0, to: length }
    }

    fn flipped(self) -> Axis {
        let last = self.length - 1;
        let origin = self.origin + self.step * last;
        Axis { origin, step: -self.step, from: self.length - self.to, to: self.length - self.from, ..self }
    }

    /// Position p shows what p + `by` showed.
    fn shifted(self, by: i64) -> Axis {
        let from = (self.from - by).clamp(0, self.length);
        let to = (self.to - by).clamp(from, self.length);
        Axis { origin: self.origin + self.step * by, from, to, ..self }
    }

    /// The outputs that show an input, and the inputs they show, in ascending order.
    fn shown(&self) -> (std::ops::Range<usize>, std::ops::Range<usize>) {
        let outputs = self.from as usize..self.to as usize;
        if outputs.is_empty() {
            return (0..0, 0..0);
        }
        let (first, last) = (self.origin + self.step * self.from, self.origin + self.step * (self.to - 1));
        (outputs, first.min(last) as usize..first.max(last) as usize + 1)
    }

    fn input(&self, output: usize) -> Option<usize> {
        let output = output as i64;
        (self.from..self.to).contains(&output).then(|| (self.origin + self.step * output) as usize)
    }
}

impl View {
    /// The image as it is.
    pub fn whole(height: usize, width: usize) -> View {
        View { x: Axis::whole(width), y: Axis::whole(height) }
    }

    /// Composes the view with one more geometric operation.
    pub fn change(&mut self, change: Augment, mut draws: Draws) {
        match change {
            Augment::Flip if draws.below(2) == 1 => self.x = self.x.flipped(),
            // The crop of the image file was applied when it was decoded.
            Augment::Flip | Augment::RandomResizedCrop | Augment::ResizeCrop(_) | Augment::Mosaic => {}
            Augment::RandAugment(_) | Augment::Mixup(_) | Augment::Cutmix(_) => {}
            Augment::ColorJitter(_) | Augment::AutoAugment(_) => {}
            Augment::TrivialAugment | Augment::RandomErasing(_) => {}
            Augment::PadCrop(pad) => {
                let mut shift = || draws.below(2 * u64::from(pad) + 1) as i64 - i64::from(pad);
                self.y = self.y.shifted(shift());
                self.x = self.x.shifted(shift());
            }
        }
    }

    /// Writes the view of `planes`, of which there are one or three: each byte times its channel's factor plus its offset, or as it is.
    pub fn write(&self, planes: &[u8], scaling: &[(f32, f32)], layout: MemoryFormat, values: Values<'_>) {
        run(Write { view: self, planes, scaling, layout, values });
    }

    /// Writes channel by channel. Bytes outside the image are zero, so that complete rows are converted at once.
    #[inline(always)]
    fn apart(&self, kernels: impl Kernels, planes: &[u8], scaling: &[(f32, f32)], values: Values<'_>) {
        let size = (self.y.length * self.x.length) as usize;
        let planes = planes.chunks_exact(size).zip(scaling);
        let shown = self.shown();
        match values {
            Values::U8(values) => {
                for ((plane, _), output) in planes.zip(values.chunks_exact_mut(size)) {
                    kernels.moved(&shown, plane, output);
                }
            }
            Values::F32(values) => {
                let mut near = vec![0; size];
                for ((plane, (factor, offset)), output) in planes.zip(values.chunks_exact_mut(size)) {
                    kernels.moved(&shown, plane, &mut near);
                    for (byte, value) in near.iter().zip(output) {
                        *value = f32::from(*byte) * factor + offset;
                    }
                }
            }
            Values::Bf16(values) => {
                for ((plane, scale), output) in planes.zip(values.chunks_exact_mut(size)) {
                    kernels.moved_halves(&shown, plane, &Halves::of(*scale), output);
                }
            }
        }
    }

    fn shown(&self) -> Shown {
        debug_assert!(self.y.step > 0, "no operation flips an image vertically");
        let ((columns, from_columns), (rows, from_rows)) = (self.x.shown(), self.y.shown());
        let (width, mirrored) = (self.x.length as usize, self.x.step < 0);
        Shown { width, columns, from_column: from_columns.start, mirrored, rows, from_row: from_rows.start }
    }

    /// Pixel by pixel, of three channels.
    #[inline(always)]
    fn together(&self, kernels: impl Kernels, planes: &[u8], scaling: &[(f32, f32)], mut values: Values<'_>) {
        let (height, width) = (self.y.length as usize, self.x.length as usize);
        let (shown, inputs) = self.x.shown();
        let scale = Scale::new(scaling, &values);
        let mut line = vec![[0; 3]; width];
        let ahead = (AHEAD / (3 * width)).max(1);
        let size = height * width;
        let (red, rest) = planes.split_at(size);
        let (green, blue) = rest.split_at(size);
        for y in 0..height {
            if let Some(row) = self.y.input(y + ahead) {
                let columns = row * width + inputs.start..row * width + inputs.end;
                kernels.soon(&red[columns.clone()]);
                kernels.soon(&green[columns.clone()]);
                kernels.soon(&blue[columns]);
            }
            let is_done = matches!(values, Values::U8(_));
            let into = match &mut values {
                Values::U8(values) => values[y * 3 * width..][..3 * width].as_chunks_mut().0,
                Values::F32(_) | Values::Bf16(_) => line.as_mut_slice(),
            };
            if let Some(row) = self.y.input(y) {
                into[..shown.start].as_flattened_mut().fill(0);
                into[shown.end..].as_flattened_mut().fill(0);
                let columns = row * width + inputs.start..row * width + inputs.end;
                let rows = [&red[columns.clone()], &green[columns.clone()], &blue[columns]];
                kernels.together(rows, self.x.step < 0, &mut into[shown.clone()]);
            } else {
                into.as_flattened_mut().fill(0);
            }
            if !is_done {
                normalised(kernels, line.as_flattened(), &scale, y, &mut values);
            }
        }
    }
}

/// Writes a view; compiled for the available instruction set.
struct Write<'a> {
    view: &'a View,
    planes: &'a [u8],
    scaling: &'a [(f32, f32)],
    layout: MemoryFormat,
    values: Values<'a>,
}

impl Work for Write<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self, kernels: impl Kernels) {
        let Write { view, planes, scaling, layout, values } = self;
        match (layout, scaling.len()) {
            (MemoryFormat::ChannelsLast, 3) => view.together(kernels, planes, scaling, values),
            // One channel has one layout.
            (MemoryFormat::ChannelsLast | MemoryFormat::Contiguous, _) => view.apart(kernels, planes, scaling, values),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::decode::kernels::to_bf16;
    use crate::sampling::random::{Purpose, key};

    /// The view of one sample in one epoch.
    fn drawn(augment: &[Augment], seed: u64, epoch: u64, sample: u32, height: usize, width: usize) -> View {
        let draws = |place| Draws::new(key(Purpose::Augment, seed, &[epoch, u64::from(sample), place]));
        Changes::of(augment).view(draws, height, width)
    }

    const HEIGHT: usize = 3;
    const WIDTH: usize = 4;

    /// Applies the operations one after another to a complete image, as the job file describes them.
    fn step_by_step(augment: &[Augment], seed: u64, epoch: u64, sample: u32, planes: &[u8]) -> Vec<u8> {
        let mut image = planes.to_vec();
        for (change, index) in augment.iter().zip(0..) {
            let mut draws = Draws::new(key(Purpose::Augment, seed, &[epoch, u64::from(sample), index]));
            let before = image.clone();
            let get = |channel: usize, y: i64, x: i64| match (0..HEIGHT as i64).contains(&y)
                && (0..WIDTH as i64).contains(&x)
            {
                true => before[(channel * HEIGHT + y as usize) * WIDTH + x as usize],
                false => 0,
            };
            let (flip, down, right) = match change {
                Augment::Flip => (draws.below(2) == 1, 0, 0),
                Augment::RandomResizedCrop | Augment::ResizeCrop(_) | Augment::Mosaic => (false, 0, 0),
                Augment::RandAugment(_) | Augment::Mixup(_) | Augment::Cutmix(_) => (false, 0, 0),
                Augment::ColorJitter(_) | Augment::AutoAugment(_) => (false, 0, 0),
                Augment::TrivialAugment | Augment::RandomErasing(_) => (false, 0, 0),
                Augment::PadCrop(pad) => {
                    let mut shift = || draws.below(2 * u64::from(*pad) + 1) as i64 - i64::from(*pad);
                    (false, shift(), shift())
                }
            };
            for (at, value) in image.iter_mut().enumerate() {
                let (channel, y, x) = (at / WIDTH / HEIGHT, (at / WIDTH % HEIGHT) as i64, (at % WIDTH) as i64);
                *value = get(channel, y + down, if flip { WIDTH as i64 - 1 - x } else { x + right });
            }
        }
        image
    }

    fn changes() -> impl Strategy<Value = Vec<Augment>> {
        prop::collection::vec(prop_oneof![Just(Augment::Flip), (0_u32..6).prop_map(Augment::PadCrop)], 0..5)
    }

    proptest! {
        #[test]
        fn a_view_is_its_changes_in_order(augment in changes(), seed: u64, epoch: u64, sample: u32) {
            let planes: Vec<u8> = (1..=(3 * HEIGHT * WIDTH) as u8).collect();
            let scaling = [(0.5, 100.0), (2.0, -1.0), (0.25, 7.0)];
            let expected = step_by_step(&augment, seed, epoch, sample, &planes);
            let value = |channel: usize, at: usize| {
                let (factor, offset) = scaling[channel];
                f32::from(expected[channel * HEIGHT * WIDTH + at]) * factor + offset
            };
            let view = drawn(&augment, seed, epoch, sample, HEIGHT, WIDTH);
            let mut output = vec![f32::NAN; planes.len()];
            view.write(&planes, &scaling, MemoryFormat::Contiguous, Values::F32(&mut output));
            let contiguous: Vec<f32> = (0..3).flat_map(|c| (0..HEIGHT * WIDTH).map(move |at| value(c, at))).collect();
            prop_assert_eq!(&output, &contiguous);
            let mut halves = vec![7; planes.len()];
            view.write(&planes, &scaling, MemoryFormat::Contiguous, Values::Bf16(&mut halves));
            prop_assert!(halves.iter().copied().eq(contiguous.iter().map(|value| to_bf16(*value))));
            let mut bytes = vec![7; planes.len()];
            view.write(&planes, &scaling, MemoryFormat::Contiguous, Values::U8(&mut bytes));
            prop_assert_eq!(&bytes, &expected);
            view.write(&planes, &scaling, MemoryFormat::ChannelsLast, Values::F32(&mut output));
            let last: Vec<f32> = (0..HEIGHT * WIDTH).flat_map(|at| (0..3).map(move |c| value(c, at))).collect();
            prop_assert_eq!(&output, &last);
        }
    }

    #[test]
    fn a_pad_of_any_size_is_served() {
        for sample in 0..100 {
            let view = drawn(&[Augment::PadCrop(u32::MAX), Augment::PadCrop(u32::MAX)], 1, 2, sample, HEIGHT, WIDTH);
            let mut output = vec![f32::NAN; HEIGHT * WIDTH];
            view.write(&[7; HEIGHT * WIDTH], &[(1.0, 0.0)], MemoryFormat::Contiguous, Values::F32(&mut output));
            assert!(output.iter().all(|value| [0.0, 7.0].contains(value)), "{output:?}");
        }
    }

    #[test]
    fn draws_differ_by_epoch_sample_and_seed_and_are_even() {
        let augment = [Augment::Flip, Augment::PadCrop(4)];
        let views = |seed, epoch| (0..4000).map(move |sample| drawn(&augment, seed, epoch, sample, 32, 32));
        assert!(views(1, 1).eq(views(1, 1)));
        for (seed, epoch) in [(1, 2), (2, 1)] {
            let same = views(1, 1).zip(views(seed, epoch)).filter(|(a, b)| a == b).count();
            // Two views agree by chance once in 162; five standard deviations above 4000 / 162 are 50.
            assert!(same < 50, "{same} views of seed {seed}, epoch {epoch}");
        }
        let flipped = views(1, 1).filter(|view| view.x.step < 0).count();
        assert!(flipped.abs_diff(2000) < 158, "{flipped} of 4000 are flipped");
    }
}
