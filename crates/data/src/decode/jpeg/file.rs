//! A JPEG file: its scans, read into the planes of a region or into coefficients.

use super::bits::Clean;
use super::coefficients::{Coefficients, Keeper, Transform};
use super::fault::JpegError;
use super::huffman::{Kind, Table};
use super::markers::{FrameHeader, HuffmanSpec, Next, Reader, Scan};
use super::packed::{self, PackedJpeg};
use super::planes::Planes;
use super::progressive::Progressive;
use super::region::{OUTSIDE, PixelRegion};
use super::rows::{Lines, Rows};
use super::sequential::Sequential;
use crate::decode::kernels::{Kernels, Work, run};

/// Scratch memory and tables with which one thread decodes, reused between images.
#[derive(Debug, Default)]
pub struct Decoder {
    clean: Clean,
    dc: [Option<Table>; 4],
    ac: [Option<Table>; 4],
    /// DC and AC tables of progressive files.
    symbols: [[Option<Table>; 4]; 2],
    pub(super) planes: Planes,
    pub(super) lines: Lines,
    pub(super) strip: packed::Strip,
}

/// A JPEG file, read up to its first scan.
pub struct JpegFile<'a> {
    reader: Reader<'a>,
    frame: FrameHeader,
    scan: Scan,
}

impl<'a> JpegFile<'a> {
    /// Reads the segments before the first scan.
    ///
    /// # Errors
    /// [`JpegError`].
    pub fn open(bytes: &'a [u8]) -> Result<JpegFile<'a>, JpegError> {
        let mut reader = Reader::new(bytes)?;
        let Next::Scan(scan) = reader.next()? else { return Err(JpegError::Damaged("a file without pixels")) };
        let frame = reader.frame.clone().ok_or(JpegError::Damaged("a scan before the frame"))?;
        // A block takes at least a bit, so a small file cannot claim much memory.
        let blocks: usize = frame.components.iter().map(|component| component.across * component.down).sum();
        if blocks > bytes.len() * 8 {
            return Err(JpegError::Truncated);
        }
        Ok(JpegFile { reader, frame, scan })
    }

    /// Size and kind of the image.
    pub fn frame(&self) -> &FrameHeader {
        &self.frame
    }

    /// Decodes a region; the rows are read from the returned reader.
    ///
    /// # Errors
    /// [`JpegError`].
    pub(crate) fn decode<'d>(
        &'d mut self,
        decoder: &'d mut Decoder,
        region: PixelRegion,
    ) -> Result<Rows<'d>, JpegError> {
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
    /// [`JpegError`].
    pub fn coefficients(&mut self, decoder: &mut Decoder) -> Result<Coefficients, JpegError> {
        let mut into = Into::Coefficients(Coefficients::new(&self.frame));
        self.scans(decoder, &mut into)?;
        match into {
            Into::Coefficients(coefficients) => Ok(coefficients),
            Into::Planes => Err(OUTSIDE),
        }
    }

    /// Reads all scans.
    fn scans(&mut self, decoder: &mut Decoder, into: &mut Into) -> Result<(), JpegError> {
        let mut seen = [false; 4];
        let mut pixels = 0;
        loop {
            let JpegFile { reader, frame, scan } = self;
            let fresh = scan.first == 0 && scan.high == 0;
            for (component, _, _) in scan.parts.into_iter().take(scan.count).filter(|_| fresh) {
                if std::mem::replace(&mut seen[component], true) {
                    return Err(JpegError::Damaged("a component that comes twice"));
                }
                match into {
                    Into::Planes => decoder.planes.quantise(frame, &reader.tables, component)?,
                    Into::Coefficients(coefficients) => coefficients.quantise(&reader.tables, component)?,
                }
            }
            // Many scans with little data about many pixels could take unbounded time.
            pixels += frame.width * frame.height;
            if pixels > MOST_SCANNED && pixels > MOST_VISITS * frame.width * frame.height {
                return Err(JpegError::Damaged("more scans than any image needs"));
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
                Next::End => return Err(JpegError::Truncated),
            }
        }
    }
}

/// Ten components' worth of bits are 80 scans at most; more is an attack, unless the image is small.
const MOST_VISITS: usize = 100;
const MOST_SCANNED: usize = 100_000_000;

/// Where the blocks of scans go.
enum Into {
    /// The decoder's planes.
    Planes,
    Coefficients(Coefficients),
}

impl Coefficients {
    /// Decodes a region; the rows are read from the returned reader.
    ///
    /// # Errors
    /// [`JpegError`], for a region outside the image.
    pub(crate) fn decode<'d>(&'d self, decoder: &'d mut Decoder, region: PixelRegion) -> Result<Rows<'d>, JpegError> {
        if !region.lies_in(&self.frame) {
            return Err(OUTSIDE);
        }
        run(Transform { coefficients: self, region, planes: &mut decoder.planes });
        Ok(Rows::new(&self.frame, &decoder.planes, region, &mut decoder.lines))
    }
}

impl Decoder {
    fn sequential(
        &mut self,
        reader: &Reader<'_>,
        frame: &FrameHeader,
        scan: Scan,
        into: &mut Into,
    ) -> Result<(), JpegError> {
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
        frame: &FrameHeader,
        scan: Scan,
        coefficients: &mut Coefficients,
    ) -> Result<(), JpegError> {
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

/// Decodes a complete file, or packed coefficients: width, height, and three bytes per pixel.
///
/// # Errors
/// [`JpegError`].
pub fn rgb(bytes: &[u8], decoder: &mut Decoder) -> Result<(usize, usize, Vec<u8>), JpegError> {
    if PackedJpeg::is(bytes) {
        let packed = PackedJpeg::open(bytes)?;
        let (width, height) = (packed.frame().width, packed.frame().height);
        let rows = packed.decode(decoder, PixelRegion::whole(width, height))?;
        return Ok((width, height, run(Whole { rows, width, height })));
    }
    let mut image = JpegFile::open(bytes)?;
    let (width, height) = (image.frame.width, image.frame.height);
    let rows = image.decode(decoder, PixelRegion::whole(width, height))?;
    Ok((width, height, run(Whole { rows, width, height })))
}

/// All rows of an image, without the fourth byte of a pixel.
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

/// Makes the table of a specification, unless it is the one of the image before.
fn prepare(table: &mut Option<Table>, spec: &Option<HuffmanSpec>, kind: Kind) -> Result<(), JpegError> {
    let spec = spec.as_ref().ok_or(JpegError::Damaged("a Huffman table that is not there"))?;
    if table.as_ref().is_none_or(|table| !table.is(spec)) {
        *table = Some(Table::new(spec, kind)?);
    }
    Ok(())
}
