//! The samples of a region: which blocks it takes, and the blocks that become samples.
//!
//! Only blocks that the region needs are transformed. Smoothly enlarged components need one sample more on each side
//! than the region covers, so that a pixel does not depend on where the region ends.

use super::fault::JpegError;
use super::markers::{Component, FrameHeader, Tables, ZIGZAG};
use super::region::PixelRegion;
use crate::decode::kernels::{Block, Kernels, Target};

/// The blocks of one component that a region needs, and where their samples are.
#[derive(Debug, Clone, Default)]
pub(super) struct Plane {
    /// Columns and rows of blocks.
    pub columns: std::ops::Range<usize>,
    pub rows: std::ops::Range<usize>,
    /// Index of the first sample, and samples from one row to the next.
    pub at: usize,
    pub stride: usize,
    /// Quantisation steps, row by row.
    pub steps: Box<Steps>,
}

/// Quantisation steps, row by row.
#[derive(Debug, Clone)]
pub(super) struct Steps(pub [i16; 64]);

impl Default for Steps {
    fn default() -> Steps {
        Steps([0; 64])
    }
}

/// Samples of all components for one region. Its memory is used again for the next image.
#[derive(Debug)]
pub(crate) struct Planes {
    pub(super) samples: Vec<u8>,
    pub(super) planes: Vec<Plane>,
    /// Columns and rows of MCUs that hold blocks of the region.
    pub(super) columns: std::ops::Range<usize>,
    pub(super) rows: std::ops::Range<usize>,
    /// Blocks on their way: two are transformed at a time.
    blocks: Box<[Block; 2]>,
    waiting: Option<(usize, Target)>,
}

/// Bytes after the last sample, which a wide load may read.
const PADDING: usize = 64;

impl Default for Planes {
    fn default() -> Planes {
        let (samples, planes, blocks) = (Vec::new(), Vec::new(), Box::new([[0; 128]; 2]));
        Planes { samples, planes, columns: 0..0, rows: 0..0, blocks, waiting: None }
    }
}

impl Planes {
    /// Allocates memory for a region, which must be inside the image.
    pub(super) fn lay_out(&mut self, frame: &FrameHeader, region: PixelRegion) {
        self.waiting = None;
        *self.blocks = [[0; 128]; 2];
        self.planes.resize(frame.components.len(), Plane::default());
        let mut at = 0;
        let (mut columns, mut rows) = (frame.across..0, frame.down..0);
        for (plane, component) in self.planes.iter_mut().zip(&frame.components) {
            let Component { h, v, width, height, .. } = *component;
            plane.columns = blocks(region.x, region.width, frame.h / h, width);
            plane.rows = blocks(region.y, region.height, frame.v / v, height);
            columns = columns.start.min(plane.columns.start / h)..columns.end.max(plane.columns.end.div_ceil(h));
            rows = rows.start.min(plane.rows.start / v)..rows.end.max(plane.rows.end.div_ceil(v));
            (plane.at, plane.stride) = (at, plane.columns.len() * 8);
            at += plane.stride * plane.rows.len() * 8;
        }
        (self.columns, self.rows) = (columns, rows);
        // Every sample is written before it is read, so the previous image need not be cleared.
        self.samples.resize(at + PADDING, 0);
    }

    /// Copies the current quantization table of a component.
    pub(super) fn quantise(&mut self, frame: &FrameHeader, tables: &Tables, component: usize) -> Result<(), JpegError> {
        let table = tables.quant[frame.components[component].quant];
        let table = table.ok_or(JpegError::Damaged("a quantisation table that is not there"))?;
        for (step, index) in table.into_iter().zip(ZIGZAG) {
            self.planes[component].steps.0[usize::from(index)] = step as i16;
        }
        Ok(())
    }

    /// Whether the region needs a block.
    #[inline(always)]
    pub(super) fn wants(&self, component: usize, column: usize, row: usize) -> bool {
        let plane = &self.planes[component];
        plane.columns.contains(&column) && plane.rows.contains(&row)
    }

    /// A block of zeros, to be filled and passed to [`Planes::put`].
    #[inline(always)]
    pub(super) fn block(&mut self) -> &mut Block {
        &mut self.blocks[usize::from(self.waiting.is_some())]
    }

    /// Adds the filled block; `flat` means that it has only a DC coefficient.
    #[inline(always)]
    pub(super) fn put(&mut self, kernels: impl Kernels, component: usize, column: usize, row: usize, flat: bool) {
        let target = self.target((component, column, row));
        if flat {
            let plane = &self.planes[component];
            let step = plane.steps.0[0];
            let value = std::mem::take(&mut self.block()[0]);
            let sample = flat_sample(value, step);
            for line in 0..8 {
                self.samples[target.at + line * target.stride..][..8].fill(sample);
            }
            return;
        }
        match self.waiting.take() {
            None => self.waiting = Some((component, target)),
            Some((other, earlier)) => {
                let steps = [&self.planes[other].steps.0, &self.planes[component].steps.0];
                let [first, second] = &*self.blocks;
                kernels.inverse([first, second], steps, &mut self.samples, [earlier, target]);
                *self.blocks = [[0; 128]; 2];
            }
        }
    }

    /// Where the samples of a block go, by its component, column and row.
    #[inline(always)]
    fn target(&self, (component, column, row): (usize, usize, usize)) -> Target {
        let plane = &self.planes[component];
        let at = plane.at + (row - plane.rows.start) * 8 * plane.stride + (column - plane.columns.start) * 8;
        Target { at, stride: plane.stride }
    }

    /// Transforms two blocks in place, both needed by the region; `positions` has the component, column and row of
    /// each.
    #[inline(always)]
    pub(super) fn transform(
        &mut self,
        kernels: impl Kernels,
        blocks: [&Block; 2],
        positions: [(usize, usize, usize); 2],
    ) {
        let targets = positions.map(|position| self.target(position));
        let steps = positions.map(|(component, ..)| &self.planes[component].steps.0);
        kernels.inverse(blocks, steps, &mut self.samples, targets);
    }

    /// Transforms the remaining block; to be called after the last one.
    #[inline(always)]
    pub(super) fn flush(&mut self, kernels: impl Kernels) {
        if let Some((component, target)) = self.waiting.take() {
            let steps = &self.planes[component].steps.0;
            let block = &self.blocks[0];
            kernels.inverse([block, block], [steps, steps], &mut self.samples, [target, target]);
            *self.blocks = [[0; 128]; 2];
        }
    }
}

/// The blocks along one axis that pixels `start..start + length` need, one sample more on each side.
fn blocks(start: usize, length: usize, factor: usize, samples: usize) -> std::ops::Range<usize> {
    let first = (start / factor).saturating_sub(1);
    let last = (start + length).div_ceil(factor).saturating_add(1).min(samples);
    first / 8..last.div_ceil(8)
}

/// The transform of a block with only a DC coefficient: `pass` twice, with all else zero.
#[inline(always)]
fn flat_sample(value: i16, step: i16) -> u8 {
    let wide = i32::from(value.wrapping_mul(step)) << 2;
    let between = wide.clamp(i32::from(i16::MIN), i32::from(i16::MAX));
    (((between + 16) >> 5).clamp(-128, 127) + 128) as u8
}
