//! Augmentation: where each pixel of a training picture is taken from.
//!
//! Every change is a map of coordinates, so a list of them folds into one [`View`] and the picture is read once. What
//! is drawn depends on (seed, epoch, sample, place in the list) and on nothing else.

use domain::train::{Augment, MemoryFormat};

use crate::prepare::to_bf16;
use crate::random::{Draws, Purpose, key};
use crate::slots::Values;

/// Where the pixels of a picture are taken from.
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
    /// The picture as it is.
    pub fn whole(height: usize, width: usize) -> View {
        View { x: Axis::whole(width), y: Axis::whole(height) }
    }

    /// The view of one sample in one epoch.
    pub fn drawn(augment: &[Augment], seed: u64, epoch: u64, sample: u32, height: usize, width: usize) -> View {
        let mut view = View::whole(height, width);
        for (change, place) in augment.iter().zip(0..) {
            let mut draws = Draws::new(key(Purpose::Augment, seed, &[epoch, u64::from(sample), place]));
            match change {
                Augment::Flip if draws.below(2) == 1 => view.x = view.x.flipped(),
                // Which part of the picture file is shown was settled when it was decoded.
                Augment::Flip | Augment::RandomResizedCrop | Augment::ResizeCrop(_) | Augment::Mosaic => {}
                Augment::PadCrop(pad) => {
                    let mut shift = || draws.below(2 * u64::from(*pad) + 1) as i64 - i64::from(*pad);
                    view.y = view.y.shifted(shift());
                    view.x = view.x.shifted(shift());
                }
            }
        }
        view
    }

    /// Writes the view of `planes`: each byte times its channel's factor plus its offset, or as it is.
    pub fn write(&self, planes: &[u8], scaling: &[(f32, f32)], layout: MemoryFormat, values: Values<'_>) {
        let scaled = |channel: usize| {
            let (factor, offset) = scaling[channel];
            move |byte: u8| f32::from(byte) * factor + offset
        };
        match values {
            Values::F32(values) => self.place(planes, scaling.len(), layout, values, scaled),
            Values::Bf16(values) => {
                let rounded = |channel| {
                    let number = scaled(channel);
                    move |byte| to_bf16(number(byte))
                };
                self.place(planes, scaling.len(), layout, values, rounded);
            }
            Values::U8(values) => self.place(planes, scaling.len(), layout, values, |_| |byte| byte),
        }
    }

    fn place<T: Copy, F: Fn(u8) -> T>(
        &self,
        planes: &[u8],
        channels: usize,
        layout: MemoryFormat,
        output: &mut [T],
        number: impl Fn(usize) -> F,
    ) {
        let (height, width) = (self.y.length as usize, self.x.length as usize);
        let (shown, inputs) = self.x.shown();
        for channel in 0..channels {
            let number = number(channel);
            let nothing = number(0);
            for y in 0..height {
                let input = self.y.input(y).map(|row| &planes[(channel * height + row) * width..][inputs.clone()]);
                match layout {
                    MemoryFormat::Contiguous => {
                        let row = &mut output[(channel * height + y) * width..][..width];
                        row[..shown.start].fill(nothing);
                        row[shown.end..].fill(nothing);
                        let row = &mut row[shown.clone()];
                        match input {
                            None => row.fill(nothing),
                            Some(input) if self.x.step > 0 => fill(input.iter(), row.iter_mut(), &number),
                            Some(input) => fill(input.iter().rev(), row.iter_mut(), &number),
                        }
                    }
                    MemoryFormat::ChannelsLast => {
                        let row = &mut output[y * width * channels..][..width * channels];
                        let row = row.iter_mut().skip(channel).step_by(channels);
                        for (x, value) in row.enumerate() {
                            let pixel = match input {
                                Some(input) if shown.contains(&x) && self.x.step > 0 => input[x - shown.start],
                                Some(input) if shown.contains(&x) => input[shown.end - 1 - x],
                                Some(_) | None => 0,
                            };
                            *value = number(pixel);
                        }
                    }
                }
            }
        }
    }
}

fn fill<'a, T: 'a>(
    input: impl Iterator<Item = &'a u8>,
    output: impl Iterator<Item = &'a mut T>,
    number: impl Fn(u8) -> T,
) {
    for (byte, value) in input.zip(output) {
        *value = number(*byte);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HEIGHT: usize = 3;
    const WIDTH: usize = 4;

    /// Applies the changes one after another to a whole picture, as the job file describes them.
    fn step_by_step(augment: &[Augment], seed: u64, epoch: u64, sample: u32, planes: &[u8]) -> Vec<u8> {
        let mut picture = planes.to_vec();
        for (change, place) in augment.iter().zip(0..) {
            let mut draws = Draws::new(key(Purpose::Augment, seed, &[epoch, u64::from(sample), place]));
            let before = picture.clone();
            let get = |channel: usize, y: i64, x: i64| match (0..HEIGHT as i64).contains(&y)
                && (0..WIDTH as i64).contains(&x)
            {
                true => before[(channel * HEIGHT + y as usize) * WIDTH + x as usize],
                false => 0,
            };
            let (flip, down, right) = match change {
                Augment::Flip => (draws.below(2) == 1, 0, 0),
                Augment::RandomResizedCrop | Augment::ResizeCrop(_) | Augment::Mosaic => (false, 0, 0),
                Augment::PadCrop(pad) => {
                    let mut shift = || draws.below(2 * u64::from(*pad) + 1) as i64 - i64::from(*pad);
                    (false, shift(), shift())
                }
            };
            for (at, value) in picture.iter_mut().enumerate() {
                let (channel, y, x) = (at / WIDTH / HEIGHT, (at / WIDTH % HEIGHT) as i64, (at % WIDTH) as i64);
                *value = get(channel, y + down, if flip { WIDTH as i64 - 1 - x } else { x + right });
            }
        }
        picture
    }

    fn changes() -> impl Strategy<Value = Vec<Augment>> {
        prop::collection::vec(prop_oneof![Just(Augment::Flip), (0_u32..6).prop_map(Augment::PadCrop)], 0..5)
    }

    proptest! {
        #[test]
        fn a_view_is_its_changes_in_order(augment in changes(), seed: u64, epoch: u64, sample: u32) {
            let planes: Vec<u8> = (1..=(2 * HEIGHT * WIDTH) as u8).collect();
            let scaling = [(0.5, 100.0), (2.0, -1.0)];
            let wanted = step_by_step(&augment, seed, epoch, sample, &planes);
            let value = |channel: usize, at: usize| {
                let (factor, offset) = scaling[channel];
                f32::from(wanted[channel * HEIGHT * WIDTH + at]) * factor + offset
            };
            let view = View::drawn(&augment, seed, epoch, sample, HEIGHT, WIDTH);
            let mut output = vec![f32::NAN; planes.len()];
            view.write(&planes, &scaling, MemoryFormat::Contiguous, Values::F32(&mut output));
            let contiguous: Vec<f32> = (0..2).flat_map(|c| (0..HEIGHT * WIDTH).map(move |at| value(c, at))).collect();
            prop_assert_eq!(&output, &contiguous);
            view.write(&planes, &scaling, MemoryFormat::ChannelsLast, Values::F32(&mut output));
            let last: Vec<f32> = (0..HEIGHT * WIDTH).flat_map(|at| (0..2).map(move |c| value(c, at))).collect();
            prop_assert_eq!(&output, &last);
        }
    }

    #[test]
    fn a_pad_of_any_size_is_served() {
        for sample in 0..100 {
            let view =
                View::drawn(&[Augment::PadCrop(u32::MAX), Augment::PadCrop(u32::MAX)], 1, 2, sample, HEIGHT, WIDTH);
            let mut output = vec![f32::NAN; HEIGHT * WIDTH];
            view.write(&[7; HEIGHT * WIDTH], &[(1.0, 0.0)], MemoryFormat::Contiguous, Values::F32(&mut output));
            assert!(output.iter().all(|value| [0.0, 7.0].contains(value)), "{output:?}");
        }
    }

    #[test]
    fn draws_differ_by_epoch_sample_and_seed_and_are_even() {
        let augment = [Augment::Flip, Augment::PadCrop(4)];
        let views = |seed, epoch| (0..4000).map(move |sample| View::drawn(&augment, seed, epoch, sample, 32, 32));
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
