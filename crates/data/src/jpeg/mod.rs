//! JPEG files (ITU-T T.81), decoded to the very pixels of libjpeg-turbo, and no more of them than are asked for.
//!
//! A file is read up to its first scan ([`Picture::open`]), which tells its size; then a [`Region`] of it is decoded:
//! every code has to be read, but only the blocks of the region are transformed, and rows become colours when somebody
//! asks. Accurate transform, smooth enlarging and colours are libjpeg-turbo's to the bit, so training sees what Pillow
//! and torchvision see. What is damaged is an error, never a guess.
//!
//! Read on in `markers` (what a file is made of), `sequential` (its codes), `planes` and `rows` (from blocks to pixels), and
//! `packed` (another form of the same coefficients, for shards).

mod bits;
mod coefficients;
mod fault;
mod huffman;
mod markers;
mod packed;
mod planes;
mod progressive;
mod rows;
mod sequential;
#[cfg(test)]
mod tests;

pub use self::coefficients::Coefficients;
pub use self::fault::{Fault, MOST_PIXELS};
pub use self::markers::{Colour, Component, Frame};

use self::bits::Clean;
use self::coefficients::{Keeper, Transform};
use self::huffman::{Kind, Table};
use self::markers::{HuffmanSpec, Next, Reader, Scan};
pub(crate) use self::packed::{LANES, SLOT_BITS, SLOTS, STATES};
pub use self::packed::{Packed, encode_strips};
use self::planes::Planes;
use self::progressive::Progressive;
use self::rows::Lines;
pub(crate) use self::rows::Rows;
use self::sequential::Sequential;
use crate::kernels::{Kernels, Work, run};

/// A rectangle of a picture, in pixels; not empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    /// First column.
    pub x: usize,
    /// First row.
    pub y: usize,
    /// Columns.
    pub width: usize,
    /// Rows.
    pub height: usize,
}

impl Region {
    /// The whole of a picture.
    pub fn whole(width: usize, height: usize) -> Region {
        Region { x: 0, y: 0, width, height }
    }

    fn lies_in(&self, frame: &Frame) -> bool {
        let inside = |start: usize, length: usize, whole: usize| {
            length > 0 && start.checked_add(length).is_some_and(|end| end <= whole)
        };
        inside(self.x, self.width, frame.width) && inside(self.y, self.height, frame.height)
    }
}

/// What one thread needs to decode; its memory and tables are used again.
#[derive(Debug, Default)]
pub struct Decoder {
    clean: Clean,
    dc: [Option<Table>; 4],
    ac: [Option<Table>; 4],
    /// DC and AC tables of progressive files.
    symbols: [[Option<Table>; 4]; 2],
    planes: Planes,
    lines: Lines,
    strip: packed::Strip,
}

/// A JPEG file, read up to its first scan.
pub struct Picture<'a> {
    reader: Reader<'a>,
    frame: Frame,
    scan: Scan,
}

impl<'a> Picture<'a> {
    /// Reads what stands before the first scan.
    ///
    /// # Errors
    /// [`Fault`].
    pub fn open(bytes: &'a [u8]) -> Result<Picture<'a>, Fault> {
        let mut reader = Reader::new(bytes)?;
        let Next::Scan(scan) = reader.next()? else { return Err(Fault::Damaged("a file without pixels")) };
        let frame = reader.frame.clone().ok_or(Fault::Damaged("a scan before the frame"))?;
        // No block takes less than a bit, so a small file does not claim much memory.
        let blocks: usize = frame.components.iter().map(|component| component.across * component.down).sum();
        if blocks > bytes.len() * 8 {
            return Err(Fault::Truncated);
        }
        Ok(Picture { reader, frame, scan })
    }

    /// Size and kind of the picture.
    pub fn frame(&self) -> &Frame {
        &self.frame
    }

    /// Decodes a region of it; its rows are read from what comes back.
    ///
    /// # Errors
    /// [`Fault`].
    pub(crate) fn decode<'d>(&'d mut self, decoder: &'d mut Decoder, region: Region) -> Result<Rows<'d>, Fault> {
        if !region.lies_in(&self.frame) {
            return Err(OUTSIDE);
        }
        if self.frame.progressive {
            let coefficients = self.coefficients(decoder)?;
            coefficients.decode(decoder, region)?;
        } else {
            decoder.planes.lay_out(&self.frame, region);
            self.scans(decoder, &mut Into::Planes)?;
        }
        Ok(Rows::new(&self.frame, &decoder.planes, region, &mut decoder.lines))
    }

    /// Its quantised coefficients, all of them.
    ///
    /// # Errors
    /// [`Fault`].
    pub fn coefficients(&mut self, decoder: &mut Decoder) -> Result<Coefficients, Fault> {
        let mut into = Into::Coefficients(Coefficients::new(&self.frame));
        self.scans(decoder, &mut into)?;
        match into {
            Into::Coefficients(coefficients) => Ok(coefficients),
            Into::Planes => Err(OUTSIDE),
        }
    }

    /// Reads all scans.
    fn scans(&mut self, decoder: &mut Decoder, into: &mut Into) -> Result<(), Fault> {
        let mut seen = [false; 4];
        let mut pixels = 0;
        loop {
            let Picture { reader, frame, scan } = self;
            let fresh = scan.first == 0 && scan.high == 0;
            for (component, _, _) in scan.parts.into_iter().take(scan.count).filter(|_| fresh) {
                if std::mem::replace(&mut seen[component], true) {
                    return Err(Fault::Damaged("a component that comes twice"));
                }
                match into {
                    Into::Planes => decoder.planes.quantise(frame, &reader.tables, component)?,
                    Into::Coefficients(coefficients) => coefficients.quantise(&reader.tables, component)?,
                }
            }
            // Scans that say little about many pixels could go on for ever.
            pixels += frame.width * frame.height;
            if pixels > MOST_SCANNED && pixels > MOST_VISITS * frame.width * frame.height {
                return Err(Fault::Damaged("more scans than any picture needs"));
            }
            reader.at += decoder.clean.take(reader.bytes.get(reader.at..).unwrap_or_default())?;
            if frame.progressive {
                let Into::Coefficients(coefficients) = into else { return Err(OUTSIDE) };
                decoder.progressive(reader, frame, *scan, coefficients)?;
            } else {
                decoder.sequential(reader, frame, *scan, into)?;
                if seen.iter().take(frame.components.len()).all(|seen| *seen) {
                    return Ok(());
                }
            }
            match reader.next()? {
                Next::Scan(next) => *scan = next,
                Next::End if frame.progressive && seen.iter().take(frame.components.len()).all(|seen| *seen) => {
                    return Ok(());
                }
                Next::End => return Err(Fault::Truncated),
            }
        }
    }
}

const OUTSIDE: Fault = Fault::Damaged("a region outside the picture");
/// Ten components' worth of bits are 80 scans at most; more is an attack, unless the picture is small.
const MOST_VISITS: usize = 100;
const MOST_SCANNED: usize = 100_000_000;

/// Where the blocks of scans go.
enum Into {
    /// The decoder's planes.
    Planes,
    Coefficients(Coefficients),
}

impl Coefficients {
    /// Decodes a region; its rows are read from what comes back.
    ///
    /// # Errors
    /// [`Fault`], for a region that is not in the picture.
    pub(crate) fn decode<'d>(&'d self, decoder: &'d mut Decoder, region: Region) -> Result<Rows<'d>, Fault> {
        if !region.lies_in(&self.frame) {
            return Err(OUTSIDE);
        }
        run(Transform { coefficients: self, region, planes: &mut decoder.planes });
        Ok(Rows::new(&self.frame, &decoder.planes, region, &mut decoder.lines))
    }
}

impl Decoder {
    fn sequential(&mut self, reader: &Reader<'_>, frame: &Frame, scan: Scan, into: &mut Into) -> Result<(), Fault> {
        let Decoder { clean, dc, ac, planes, .. } = self;
        for (_, of_dc, of_ac) in scan.parts.into_iter().take(scan.count) {
            prepare(&mut dc[of_dc], &reader.tables.dc[of_dc], Kind::Dc)?;
            prepare(&mut ac[of_ac], &reader.tables.ac[of_ac], Kind::Ac)?;
        }
        let tables = scan.parts.map(|(_, of_dc, of_ac)| Some((dc[of_dc].as_ref()?, ac[of_ac].as_ref()?)));
        let restart = reader.tables.restart;
        match into {
            Into::Planes => run(Sequential { frame, scan, tables, clean, restart, blocks: planes }),
            Into::Coefficients(coefficients) => {
                let blocks = Keeper { coefficients, block: [0; 128] };
                run(Sequential { frame, scan, tables, clean, restart, blocks })
            }
        }
    }

    fn progressive(
        &mut self,
        reader: &Reader<'_>,
        frame: &Frame,
        scan: Scan,
        coefficients: &mut Coefficients,
    ) -> Result<(), Fault> {
        let Decoder { clean, symbols: [dc, ac], .. } = self;
        for (_, of_dc, of_ac) in scan.parts.into_iter().take(scan.count) {
            if scan.first > 0 {
                prepare(&mut ac[of_ac], &reader.tables.ac[of_ac], Kind::Symbols)?;
            } else if scan.high == 0 {
                prepare(&mut dc[of_dc], &reader.tables.dc[of_dc], Kind::Symbols)?;
            }
        }
        let dc = scan.parts.map(|(_, of_dc, _)| dc[of_dc].as_ref());
        let ac = ac[scan.parts[0].2].as_ref();
        Progressive { frame, scan, dc, ac, clean, restart: reader.tables.restart }.add(coefficients)
    }
}

/// Decodes a whole file, or packed coefficients: width, height, and three bytes a pixel.
///
/// # Errors
/// [`Fault`].
pub fn rgb(bytes: &[u8], decoder: &mut Decoder) -> Result<(usize, usize, Vec<u8>), Fault> {
    if Packed::is(bytes) {
        let packed = Packed::open(bytes)?;
        let (width, height) = (packed.frame().width, packed.frame().height);
        let rows = packed.decode(decoder, Region::whole(width, height))?;
        return Ok((width, height, run(Whole { rows, width, height })));
    }
    let mut picture = Picture::open(bytes)?;
    let (width, height) = (picture.frame.width, picture.frame.height);
    let rows = picture.decode(decoder, Region::whole(width, height))?;
    Ok((width, height, run(Whole { rows, width, height })))
}

/// All rows of a picture, without the fourth byte of a pixel.
struct Whole<'a> {
    rows: Rows<'a>,
    width: usize,
    height: usize,
}

impl Work for Whole<'_> {
    type Output = Vec<u8>;

    #[inline(always)]
    fn run(mut self, kernels: impl Kernels) -> Vec<u8> {
        let mut pixels = Vec::with_capacity(self.width * self.height * 3);
        let mut line = vec![[0; 4]; self.width];
        for y in 0..self.height {
            self.rows.read(kernels, y, &mut line);
            pixels.extend(line.iter().flat_map(|[red, green, blue, _]| [*red, *green, *blue]));
        }
        pixels
    }
}

/// Makes the table of a specification, unless it is the one of the picture before.
fn prepare(table: &mut Option<Table>, spec: &Option<HuffmanSpec>, kind: Kind) -> Result<(), Fault> {
    let spec = spec.as_ref().ok_or(Fault::Damaged("a Huffman table that is not there"))?;
    if table.as_ref().is_none_or(|table| !table.is(spec)) {
        *table = Some(Table::new(spec, kind)?);
    }
    Ok(())
}
