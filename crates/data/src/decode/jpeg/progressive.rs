//! Progressive scans (T.81, annex G): each adds some coefficients of every block, or one more bit of them.

use super::bits::{Bits, Clean};
use super::coefficients::Coefficients;
use super::fault::JpegError;
use super::huffman::{Table, extend};
use super::markers::{FrameHeader, Scan, ZIGZAG};

/// One scan, to be added to the coefficients.
pub(super) struct Progressive<'a> {
    pub frame: &'a FrameHeader,
    pub scan: Scan,
    /// DC table of each part, where the scan uses one.
    pub dc: [Option<&'a Table>; 4],
    /// AC table, where the scan uses one.
    pub ac: Option<&'a Table>,
    pub clean: &'a Clean,
    /// MCUs between restart markers; 0 without.
    pub restart: usize,
}

/// What continues from block to block.
#[derive(Default)]
struct Running {
    predicted: [i16; 4],
    /// Blocks without further data in this scan (the end-of-band run).
    ended: u32,
}

const MISSING: JpegError = JpegError::Damaged("a Huffman table that is not there");

impl Progressive<'_> {
    /// Reads the scan.
    pub fn add(&self, coefficients: &mut Coefficients) -> Result<(), JpegError> {
        let Progressive { frame, scan, clean, restart, .. } = self;
        let single = scan.count == 1;
        let (across, down) = match single {
            true => {
                let component = &frame.components[scan.parts[0].0];
                (component.width.div_ceil(8), component.height.div_ceil(8))
            }
            false => (frame.across, frame.down),
        };
        let mcus = across * down;
        let interval = if *restart == 0 { mcus } else { *restart };
        if clean.segments() > mcus.div_ceil(interval) {
            return Err(JpegError::Damaged("more restart markers than its header says"));
        }
        for segment in 0..mcus.div_ceil(interval) {
            let mut bits = clean.segment(segment)?;
            let mut running = Running::default();
            for mcu in segment * interval..mcus.min((segment + 1) * interval) {
                let (column, row) = (mcu % across, mcu / across);
                for (part, (component, _, _)) in scan.parts.into_iter().take(scan.count).enumerate() {
                    let (h, v) = match single {
                        true => (1, 1),
                        false => (frame.components[component].h, frame.components[component].v),
                    };
                    for index in 0..h * v {
                        let block = coefficients.block(component, column * h + index % h, row * v + index / h);
                        self.block(&mut bits, &mut running, part, block)?;
                    }
                }
                bits.check()?;
            }
        }
        Ok(())
    }

    fn block(
        &self,
        bits: &mut Bits<'_>,
        running: &mut Running,
        part: usize,
        block: &mut [i16; 64],
    ) -> Result<(), JpegError> {
        match (self.scan.first, self.scan.high) {
            (0, 0) => {
                let dc = self.dc[part].ok_or(MISSING)?;
                bits.refill()?;
                let (length, size) = dc.symbol(bits.buffer)?;
                if size > 15 {
                    return Err(JpegError::Damaged("a difference of more than 15 bits"));
                }
                bits.drop(length);
                let difference = extend(bits.take(u32::from(size)), u32::from(size));
                running.predicted[part] = running.predicted[part].wrapping_add(difference);
                block[0] = running.predicted[part] << self.scan.low;
                Ok(())
            }
            (0, _) => {
                bits.refill()?;
                block[0] |= (bits.take(1) as i16) << self.scan.low;
                Ok(())
            }
            (_, 0) => self.first(bits, running, block),
            (_, _) => self.refine(bits, running, block),
        }
    }

    /// The first bits of some coefficients.
    fn first(&self, bits: &mut Bits<'_>, running: &mut Running, block: &mut [i16; 64]) -> Result<(), JpegError> {
        if running.ended > 0 {
            running.ended -= 1;
            return Ok(());
        }
        let ac = self.ac.ok_or(MISSING)?;
        let mut k = self.scan.first;
        while k <= self.scan.last {
            bits.refill()?;
            let (length, symbol) = ac.symbol(bits.buffer)?;
            bits.drop(length);
            let (run, size) = (u32::from(symbol >> 4), u32::from(symbol & 15));
            if size == 0 && run < 15 {
                running.ended = (1 << run) + bits.take(run) - 1;
                return Ok(());
            }
            k += run as usize;
            if size > 0 {
                let index = usize::from(ZIGZAG[k]);
                let value = extend(bits.take(size), size);
                *block.get_mut(index).ok_or(JpegError::Damaged("a block with too many coefficients"))? =
                    value << self.scan.low;
            }
            k += 1;
        }
        Ok(())
    }

    /// Reads one more bit of nonzero coefficients, and new nonzero coefficients.
    fn refine(&self, bits: &mut Bits<'_>, running: &mut Running, block: &mut [i16; 64]) -> Result<(), JpegError> {
        let ac = self.ac.ok_or(MISSING)?;
        let bit = 1_i16 << self.scan.low;
        let mut k = self.scan.first;
        while k <= self.scan.last && running.ended == 0 {
            bits.refill()?;
            let (length, symbol) = ac.symbol(bits.buffer)?;
            bits.drop(length);
            let (mut run, size) = (u32::from(symbol >> 4), symbol & 15);
            let mut value = 0;
            if size > 0 {
                value = if bits.take(1) == 1 { bit } else { -bit };
            } else if run < 15 {
                running.ended = (1 << run) + bits.take(run);
                break;
            }
            // Skips `run` zeros, refining the coefficients in between, and stops at the zero after them.
            while k <= self.scan.last {
                let here = &mut block[usize::from(ZIGZAG[k])];
                if *here != 0 {
                    refined(bits, here, bit)?;
                } else if run == 0 {
                    *here = value;
                    break;
                } else {
                    run -= 1;
                }
                k += 1;
            }
            k += 1;
        }
        if running.ended > 0 {
            for index in ZIGZAG.iter().take(self.scan.last + 1).skip(k) {
                let here = &mut block[usize::from(*index)];
                if *here != 0 {
                    refined(bits, here, bit)?;
                }
            }
            running.ended -= 1;
        }
        Ok(())
    }
}

fn refined(bits: &mut Bits<'_>, value: &mut i16, bit: i16) -> Result<(), JpegError> {
    bits.refill()?;
    if bits.take(1) == 1 && *value & bit == 0 {
        *value = value.wrapping_add(if *value >= 0 { bit } else { -bit });
    }
    Ok(())
}
