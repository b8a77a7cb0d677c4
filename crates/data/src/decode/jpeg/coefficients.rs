//! The quantized coefficients of an image, decoded from the entropy-coded data of a JPEG file.
//!
//! Progressive files are assembled here scan by scan, and the shards' own codec (`packed`) starts from here. The steps
//! from coefficients to pixels are the same as for files whose blocks are transformed as they are read.

use super::fault::JpegError;
use super::markers::{Component, FrameHeader, Tables, ZIGZAG};
use super::planes::Planes;
use super::region::PixelRegion;
use super::sequential::Blocks;
use crate::decode::kernels::{Block, Kernels, Work};

/// The DCT coefficients of an image, with the headers needed to decode them.
#[derive(Debug, Clone)]
pub struct Coefficients {
    pub(super) frame: FrameHeader,
    pub(super) parts: Vec<Part>,
}

/// The blocks of one component.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Part {
    /// Quantisation steps, row by row.
    pub steps: [u16; 64],
    /// 64 values for each block, row by row in a block; blocks row by row, [`Component::across`] in each.
    pub values: Vec<i16>,
}

impl Coefficients {
    /// Allocates zeroed coefficients for a frame.
    pub(super) fn new(frame: &FrameHeader) -> Coefficients {
        let part =
            |component: &Component| Part { steps: [0; 64], values: vec![0; component.across * component.down * 64] };
        Coefficients { frame: frame.clone(), parts: frame.components.iter().map(part).collect() }
    }

    /// Size and kind of the image.
    pub fn frame(&self) -> &FrameHeader {
        &self.frame
    }

    /// Copies the current quantization table of a component.
    pub(super) fn quantise(&mut self, tables: &Tables, component: usize) -> Result<(), JpegError> {
        let table = tables.quant[self.frame.components[component].quant];
        let table = table.ok_or(JpegError::Damaged("a quantisation table that is not there"))?;
        for (step, index) in table.into_iter().zip(ZIGZAG) {
            self.parts[component].steps[usize::from(index)] = step;
        }
        Ok(())
    }

    /// One block.
    pub(super) fn block(&mut self, component: usize, column: usize, row: usize) -> &mut [i16; 64] {
        let at = row * self.frame.components[component].across + column;
        let (blocks, _) = self.parts[component].values.as_chunks_mut();
        &mut blocks[at]
    }
}

/// Keeps all blocks of sequential scans.
pub(super) struct Keeper<'a> {
    pub coefficients: &'a mut Coefficients,
    pub block: Block,
}

impl Blocks for Keeper<'_> {
    fn region(&self) -> (std::ops::Range<usize>, std::ops::Range<usize>) {
        (0..self.coefficients.frame.across, 0..self.coefficients.frame.down)
    }

    fn wants(&self, _: usize, _: usize, _: usize) -> bool {
        true
    }

    fn block(&mut self) -> &mut Block {
        &mut self.block
    }

    fn put(&mut self, _: impl Kernels, component: usize, column: usize, row: usize, _: bool) {
        let values = self.coefficients.block(component, column, row);
        values.copy_from_slice(&self.block[..64]);
        self.block = [0; 128];
    }

    fn flush(&mut self, _: impl Kernels) {}
}

/// From coefficients to the samples of a region.
pub(super) struct Transform<'a> {
    pub coefficients: &'a Coefficients,
    pub region: PixelRegion,
    pub planes: &'a mut Planes,
}

impl Work for Transform<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self, kernels: impl Kernels) {
        let Transform { coefficients, region, planes } = self;
        planes.lay_out(&coefficients.frame, region);
        let parts = coefficients.parts.iter().zip(&coefficients.frame.components);
        for (place, (part, component)) in parts.enumerate() {
            let plane = &mut planes.planes[place];
            plane.steps.0 = part.steps.map(|step| step as i16);
            let (columns, rows) = (plane.columns.clone(), plane.rows.clone());
            let (blocks, _) = part.values.as_chunks::<64>();
            for row in rows {
                for column in columns.clone() {
                    let block = &blocks[row * component.across + column];
                    let flat = block[1..].iter().fold(0, |all, value| all | value) == 0;
                    planes.block()[..64].copy_from_slice(block);
                    planes.put(kernels, place, column, row, flat);
                }
            }
        }
        planes.flush(kernels);
    }
}
