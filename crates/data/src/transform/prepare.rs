//! From the bytes of a file to the numbers of a sample in one go: the region that a crop needs is decoded, resized and
//! written at its final address.

use domain::train::MemoryFormat;

use super::cut::Cut;
use super::recipe::ImageTransform;
use super::resample::{Resize, Span};
use super::slots::Values;
use crate::decode::jpeg::{Decoder, JpegFile, PackedJpeg, PixelRegion, Rows};
use crate::decode::kernels::{Kernels, Work, run, to_bf16};
use crate::decode::rgb::{Pixels, decode_other};
use crate::sampling::random::Draws;

/// Scratch buffers with which one thread decodes images.
#[derive(Debug, Default)]
pub(crate) struct Tools {
    pub decoder: Decoder,
    pub resize: Resize,
    /// One row, between two forms of it.
    pub line: Vec<u8>,
}

/// Where a sample is written, and how.
pub(crate) struct Output<'a> {
    pub values: Values<'a>,
    pub layout: MemoryFormat,
    /// Factor and offset of each channel, from a byte to its normalised value; bytes are written as they are.
    pub scaling: &'a [(f32, f32)],
    /// Height and width of the sample.
    pub size: usize,
}

/// Prepares the image in `file`. The error is a short reason.
pub(crate) fn prepare(
    file: &[u8],
    tools: &mut Tools,
    recipe: &ImageTransform,
    draws: Draws,
    output: Output<'_>,
) -> Result<(), String> {
    let Tools { decoder, resize, line } = tools;
    if let Some(image) = Pixels::plain(file) {
        show(image?, recipe, draws, (resize, line), output);
        return Ok(());
    }
    if PackedJpeg::is(file) {
        let packed = PackedJpeg::open(file).map_err(|fault| fault.to_string())?;
        set(resize, recipe, packed.frame().height, packed.frame().width, draws);
        let rows = packed.decode(decoder, needed(resize)).map_err(|fault| fault.to_string())?;
        run(FromRows { rows, resize, output });
        return Ok(());
    }
    if !file.starts_with(&[0xFF, 0xD8]) {
        let image = decode_other(file)?;
        show(image.view(), recipe, draws, (resize, line), output);
        return Ok(());
    }
    let mut image = JpegFile::open(file).map_err(|fault| fault.to_string())?;
    let (height, width) = (image.frame().height, image.frame().width);
    set(resize, recipe, height, width, draws);
    let rows = image.decode(decoder, needed(resize)).map_err(|fault| fault.to_string())?;
    run(FromRows { rows, resize, output });
    Ok(())
}

/// The region that a resize reads.
fn needed(resize: &Resize) -> PixelRegion {
    let (columns, rows) = (resize.columns.inputs(), resize.rows.inputs());
    PixelRegion { x: columns.start, y: rows.start, width: columns.len(), height: rows.len() }
}

/// Crops a decoded image; without resizing, a faster path gives the same bytes.
fn show(
    image: Pixels<'_>,
    recipe: &ImageTransform,
    draws: Draws,
    (resize, line): (&mut Resize, &mut Vec<u8>),
    output: Output<'_>,
) {
    let spans = recipe.place(image.height, image.width, draws);
    if spans.iter().all(Span::is_as_is) {
        run(Cut { image, spans, line, output });
        return;
    }
    resize.set(&spans);
    run(FromPixels { image, resize, output });
}

fn set(resize: &mut Resize, recipe: &ImageTransform, height: usize, width: usize, draws: Draws) {
    resize.set(&recipe.place(height, width, draws));
}

struct FromRows<'a> {
    rows: Rows<'a>,
    resize: &'a mut Resize,
    output: Output<'a>,
}

impl Work for FromRows<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self, kernels: impl Kernels) {
        let FromRows { mut rows, resize, mut output } = self;
        resize.perform(kernels, |y, line| rows.read(kernels, y, line), |y, line| output.row(y, line));
    }
}

pub(crate) struct FromPixels<'a> {
    pub image: Pixels<'a>,
    pub resize: &'a mut Resize,
    pub output: Output<'a>,
}

impl Work for FromPixels<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self, kernels: impl Kernels) {
        let FromPixels { image, resize, mut output } = self;
        let start = resize.columns.inputs().start;
        let read = |y: usize, line: &mut [[u8; 4]]| {
            let pixels = image.pixels[(y * image.width + start) * 3..].chunks_exact(3);
            for (pixel, found) in line.iter_mut().zip(pixels) {
                *pixel = [found[0], found[1], found[2], 255];
            }
        };
        resize.perform(kernels, read, |y, line| output.row(y, line));
    }
}

impl Output<'_> {
    /// Writes one row of pixels.
    #[inline(always)]
    fn row(&mut self, y: usize, line: &[[u8; 4]]) {
        let (size, scaling, layout) = (self.size, self.scaling, self.layout);
        match &mut self.values {
            Values::F32(values) => {
                place(values, layout, size, y, line, |c, byte| f32::from(byte) * scaling[c].0 + scaling[c].1);
            }
            Values::Bf16(values) => {
                let number = |c: usize, byte| to_bf16(f32::from(byte) * scaling[c].0 + scaling[c].1);
                place(values, layout, size, y, line, number);
            }
            Values::U8(values) => place(values, layout, size, y, line, |_, byte| byte),
        }
    }
}

#[inline(always)]
fn place<T>(
    values: &mut [T],
    layout: MemoryFormat,
    size: usize,
    y: usize,
    line: &[[u8; 4]],
    number: impl Fn(usize, u8) -> T,
) {
    match layout {
        MemoryFormat::Contiguous => {
            for c in 0..3 {
                let row = &mut values[(c * size + y) * size..][..size];
                for (value, pixel) in row.iter_mut().zip(line) {
                    // A shift of all pixels becomes vector code; extracting one byte of four does not.
                    *value = number(c, (u32::from_le_bytes(*pixel) >> (8 * c)) as u8);
                }
            }
        }
        MemoryFormat::ChannelsLast => {
            let row = &mut values[y * size * 3..][..size * 3];
            for (value, pixel) in row.as_chunks_mut::<3>().0.iter_mut().zip(line) {
                for (c, value) in value.iter_mut().enumerate() {
                    *value = number(c, pixel[c]);
                }
            }
        }
    }
}
