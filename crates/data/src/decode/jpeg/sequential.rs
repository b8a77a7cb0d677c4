//! Baseline and extended sequential scans: entropy-coded coefficients, block by block.

use std::ops::Range;

use super::bits::{Bits, Clean};
use super::fault::JpegError;
use super::huffman::{END, LOOK, Table, extend};
use super::markers::{FrameHeader, Scan, ZIGZAG};
use super::planes::Planes;
use crate::decode::kernels::{Block, Kernels, Work};

/// Where the blocks of a scan go.
pub(super) trait Blocks {
    /// Columns and rows of MCUs in an interleaved scan that are needed.
    fn region(&self) -> (Range<usize>, Range<usize>);
    /// Whether a block is needed.
    fn wants(&self, component: usize, column: usize, row: usize) -> bool;
    /// A block of zeros, to be filled.
    fn block(&mut self) -> &mut Block;
    /// Takes the block that was filled.
    fn put(&mut self, kernels: impl Kernels, component: usize, column: usize, row: usize, flat: bool);
    /// Called after the last block.
    fn flush(&mut self, kernels: impl Kernels);
}

impl Blocks for &mut Planes {
    fn region(&self) -> (Range<usize>, Range<usize>) {
        (self.columns.clone(), self.rows.clone())
    }

    #[inline(always)]
    fn wants(&self, component: usize, column: usize, row: usize) -> bool {
        Planes::wants(self, component, column, row)
    }

    #[inline(always)]
    fn block(&mut self) -> &mut Block {
        Planes::block(self)
    }

    #[inline(always)]
    fn put(&mut self, kernels: impl Kernels, component: usize, column: usize, row: usize, flat: bool) {
        Planes::put(self, kernels, component, column, row, flat);
    }

    #[inline(always)]
    fn flush(&mut self, kernels: impl Kernels) {
        Planes::flush(self, kernels);
    }
}

/// One scan, to be decoded.
pub(super) struct Sequential<'a, B> {
    pub frame: &'a FrameHeader,
    pub scan: Scan,
    /// DC and AC table of each part of the scan.
    pub tables: [Option<(&'a Table, &'a Table)>; 4],
    pub clean: &'a Clean,
    /// MCUs between restart markers; 0 without.
    pub restart: usize,
    pub blocks: B,
}

/// A component as traversed by a scan.
#[derive(Clone, Copy)]
struct Part<'a> {
    component: usize,
    h: usize,
    v: usize,
    dc: &'a Table,
    ac: &'a Table,
}

/// The traversal of a scan.
struct Traversal<'a> {
    parts: Vec<Part<'a>>,
    /// Columns and rows of MCUs that are needed.
    columns: Range<usize>,
    rows: Range<usize>,
    /// MCUs in a row, and rows of MCUs.
    across: usize,
    down: usize,
}

impl<'a> Traversal<'a> {
    /// The traversal of a scan whose interleaved MCUs are needed in `region`.
    fn of(
        frame: &FrameHeader,
        scan: Scan,
        tables: [Option<(&'a Table, &'a Table)>; 4],
        region: (Range<usize>, Range<usize>),
    ) -> Result<Traversal<'a>, JpegError> {
        let mut parts = Vec::with_capacity(4);
        for ((component, _, _), tables) in scan.parts.into_iter().zip(tables).take(scan.count) {
            let (dc, ac) = tables.ok_or(JpegError::Damaged("a Huffman table that is not there"))?;
            let (h, v) = (frame.components[component].h, frame.components[component].v);
            parts.push(Part { component, h, v, dc, ac });
        }
        let (mut columns, mut rows) = region;
        let (mut across, mut down) = (frame.across, frame.down);
        if let [part] = parts.as_mut_slice() {
            // A scan of one component has its blocks one by one, without padding to complete MCUs.
            let component = &frame.components[part.component];
            columns = columns.start * part.h..columns.end * part.h;
            rows = rows.start * part.v..rows.end * part.v;
            (across, down) = (component.width.div_ceil(8), component.height.div_ceil(8));
            (part.h, part.v) = (1, 1);
        }
        Ok(Traversal { parts, columns, rows, across, down })
    }
}

impl<B: Blocks> Work for Sequential<'_, B> {
    type Output = Result<(), JpegError>;

    #[inline(always)]
    fn run(self, kernels: impl Kernels) -> Result<(), JpegError> {
        let Sequential { frame, scan, tables, clean, restart, mut blocks } = self;
        let Traversal { parts, columns, rows, across, down } = Traversal::of(frame, scan, tables, blocks.region())?;
        let mcus = across * down;
        let interval = if restart == 0 { mcus } else { restart };
        if clean.segments() > mcus.div_ceil(interval) {
            return Err(JpegError::Damaged("more restart markers than its header says"));
        }
        for segment in 0..mcus.div_ceil(interval) {
            let (start, end) = (segment * interval, mcus.min((segment + 1) * interval));
            let (first, last) = (start / across, (end - 1) / across);
            if first >= rows.end {
                break;
            }
            let outside = first == last && (start % across >= columns.end || (end - 1) % across < columns.start);
            if last < rows.start || outside {
                continue;
            }
            let mut bits = clean.segment(segment)?;
            let mut predicted = [0_i16; 4];
            let (mut row, mut column) = (first, start % across);
            for _ in start..end {
                for (part, predicted) in parts.iter().zip(&mut predicted) {
                    for j in 0..part.v {
                        for i in 0..part.h {
                            let (x, y) = (column * part.h + i, row * part.v + j);
                            if blocks.wants(part.component, x, y) {
                                let flat = decode::<true>(&mut bits, part, predicted, blocks.block())?;
                                blocks.put(kernels, part.component, x, y, flat);
                            } else {
                                decode::<false>(&mut bits, part, predicted, blocks.block())?;
                            }
                        }
                    }
                }
                column += 1;
                if column == across {
                    (row, column) = (row + 1, 0);
                    if row >= rows.end {
                        break;
                    }
                }
            }
            bits.check()?;
        }
        blocks.flush(kernels);
        Ok(())
    }
}

/// Decodes or skips one block; returns whether it has only a DC coefficient.
#[inline(always)]
fn decode<const KEEP: bool>(
    bits: &mut Bits<'_>,
    part: &Part<'_>,
    predicted: &mut i16,
    block: &mut Block,
) -> Result<bool, JpegError> {
    // A copy, which stays in registers.
    let mut here = *bits;
    *predicted = predicted.wrapping_add(difference(&mut here, part.dc)?);
    if KEEP {
        block[0] = *predicted;
    }
    let k = coefficients::<KEEP>(&mut here, part.ac, block)?;
    *bits = here;
    if k != 63 && k < usize::from(END) {
        return Err(JpegError::Damaged("a block with too many coefficients"));
    }
    Ok(k == usize::from(END))
}

/// Decodes how far the first coefficient is from that of the block before.
#[inline(always)]
fn difference(bits: &mut Bits<'_>, dc: &Table) -> Result<i16, JpegError> {
    bits.refill()?;
    let entry = dc.look[(bits.buffer >> (64 - LOOK)) as usize];
    if entry.bits() != 0 {
        bits.drop(entry.bits());
        return Ok(entry.values().0);
    }
    let (length, size) = dc.symbol(bits.buffer)?;
    if size > 15 {
        return Err(JpegError::Damaged("a difference of more than 15 bits"));
    }
    bits.drop(length);
    Ok(extend(bits.take(u32::from(size)), u32::from(size)))
}

/// Decodes the AC coefficients; returns the index of the last one, or at least [`END`] if the block ends early.
#[inline(always)]
fn coefficients<const KEEP: bool>(bits: &mut Bits<'_>, ac: &Table, block: &mut Block) -> Result<usize, JpegError> {
    // The place of the table, found once.
    let look = &*ac.look;
    let mut k = 0;
    let mut put = |k: usize, value: i16| {
        if KEEP {
            block[usize::from(ZIGZAG[k & 255]) & 127] = value;
        }
    };
    'filled: while k < 63 {
        bits.refill()?;
        // Two looks take 22 of 56 bits, and the longest code with its value takes 31.
        for _ in 0..3 {
            let entry = look[(bits.buffer >> (64 - LOOK)) as usize];
            if entry.bits() == 0 {
                let (length, symbol) = ac.symbol(bits.buffer)?;
                bits.drop(length);
                let (run, size) = (usize::from(symbol >> 4), u32::from(symbol & 15));
                if size == 0 {
                    k += if run == 15 { 16 } else { usize::from(END) };
                    continue 'filled;
                }
                k += run + 1;
                put(k, extend(bits.take(size), size));
                continue 'filled;
            }
            let (first, second) = entry.advances();
            let (value, next) = entry.values();
            k += first;
            put(k, value);
            if k >= 63 {
                bits.drop(entry.first_bits());
                break 'filled;
            }
            k += second;
            put(k, next);
            bits.drop(entry.bits());
            if k >= 63 {
                break 'filled;
            }
        }
    }
    Ok(k)
}
