//! The segments of a JPEG file (ITU-T T.81, annex B): the frame header and the tables that its scans use.

use super::fault::JpegError;

/// The current tables; later segments replace them.
#[derive(Debug, Clone, Default)]
pub(super) struct Tables {
    /// Quantisation steps in zigzag order.
    pub quant: [Option<[u16; 64]>; 4],
    pub dc: [Option<HuffmanSpec>; 4],
    pub ac: [Option<HuffmanSpec>; 4],
    /// MCUs between two restart markers; 0 without.
    pub restart: usize,
}

/// A Huffman table as specified in the file: the number of codes of each length, and their symbols.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct HuffmanSpec {
    pub counts: [u8; 16],
    pub values: [u8; 256],
}

/// One colour component of the image.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Component {
    /// Name in the file.
    pub(super) id: u8,
    /// Sampling factors, 1 to 4.
    pub(super) h: usize,
    pub(super) v: usize,
    /// Index of its quantization table.
    pub(super) quant: usize,
    /// Samples in a row and rows, without padding.
    pub(super) width: usize,
    pub(super) height: usize,
    /// Blocks per row and rows of blocks, up to complete MCUs.
    pub(super) across: usize,
    pub(super) down: usize,
}

/// How samples become colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colour {
    /// One component.
    Grey,
    /// Brightness and two differences (JFIF).
    YCbCr,
    /// Three primaries as they are.
    Rgb,
    /// Four inks, stored inverted as Adobe does.
    Cmyk,
    /// The same, three of them as brightness and differences.
    Ycck,
}

/// The frame header: properties of the image, known before its first scan.
#[derive(Debug, Clone)]
pub struct FrameHeader {
    /// Pixels in a row.
    pub width: usize,
    /// Rows.
    pub height: usize,
    /// How samples become colours.
    pub colour: Colour,
    pub(super) progressive: bool,
    pub(super) components: Vec<Component>,
    /// Largest sampling factors.
    pub(super) h: usize,
    pub(super) v: usize,
    /// MCUs in a row, and rows of them.
    pub(super) across: usize,
    pub(super) down: usize,
}

impl FrameHeader {
    /// Whether its scans make the image better step by step.
    pub fn is_progressive(&self) -> bool {
        self.progressive
    }

    /// A sequential frame of components whose sampling factors are set.
    pub(super) fn new(
        width: usize,
        height: usize,
        colour: Colour,
        mut components: Vec<Component>,
    ) -> Result<FrameHeader, JpegError> {
        if width == 0 || height == 0 || width * height > super::MOST_PIXELS {
            return Err(JpegError::Size { width, height });
        }
        if !components.iter().all(|component| (1..=4).contains(&component.h) && (1..=4).contains(&component.v)) {
            return Err(JpegError::Damaged("sampling factors out of range"));
        }
        let largest = |of: fn(&Component) -> usize| components.iter().map(of).max().unwrap_or(1);
        let (h, v) = (largest(|component| component.h), largest(|component| component.v));
        let (across, down) = (width.div_ceil(8 * h), height.div_ceil(8 * v));
        for component in &mut components {
            if h % component.h != 0 || v % component.v != 0 {
                return Err(JpegError::Unsupported("it is sampled at fractions that are not read"));
            }
            component.width = (width * component.h).div_ceil(h);
            component.height = (height * component.v).div_ceil(v);
            (component.across, component.down) = (across * component.h, down * component.v);
        }
        if components.iter().map(|component| component.h * component.v).sum::<usize>() > 10 && components.len() > 1 {
            return Err(JpegError::Damaged("more than ten blocks in an MCU"));
        }
        Ok(FrameHeader { width, height, colour, progressive: false, components, h, v, across, down })
    }
}

/// The header of one scan.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Scan {
    /// Its components: index in the frame, DC table, AC table.
    pub parts: [(usize, usize, usize); 4],
    pub count: usize,
    /// First and last coefficient in zigzag order.
    pub first: usize,
    pub last: usize,
    /// Successive approximation: the bit before and the bit sent now.
    pub high: u32,
    pub low: u32,
}

/// The next segment of the file.
pub(super) enum Next {
    /// A scan, whose entropy-coded data begin at `Reader::at`.
    Scan(Scan),
    /// The end marker.
    End,
}

/// Reads segments one after another.
pub(super) struct Reader<'a> {
    pub bytes: &'a [u8],
    pub at: usize,
    pub tables: Tables,
    pub frame: Option<FrameHeader>,
    jfif: bool,
    adobe: Option<u8>,
}

/// Zigzag order: the index in a block, row by row, of each coefficient. Entries past the last one are 64, outside any
/// block, so that a decoder may overrun and check afterwards.
pub(super) const ZIGZAG: [u8; 256] = {
    let mut order = [64_u8; 256];
    let (mut at, mut row, mut column) = (0, 0_i32, 0_i32);
    while at < 64 {
        order[at] = (row * 8 + column) as u8;
        let up = (row + column) % 2 == 0;
        (row, column) = match (up, row, column) {
            (true, _, 7) => (row + 1, 7),
            (true, 0, _) => (0, column + 1),
            (true, _, _) => (row - 1, column + 1),
            (false, 7, _) => (7, column + 1),
            (false, _, 0) => (row + 1, 0),
            (false, _, _) => (row + 1, column - 1),
        };
        at += 1;
    }
    order
};

impl<'a> Reader<'a> {
    /// A reader of the segments behind the start marker.
    ///
    /// # Errors
    /// [`JpegError::Damaged`] if there is no start marker.
    pub fn new(bytes: &'a [u8]) -> Result<Reader<'a>, JpegError> {
        if !bytes.starts_with(&[0xFF, 0xD8]) {
            return Err(JpegError::Damaged("it does not begin with a start marker"));
        }
        Ok(Reader { bytes, at: 2, tables: Tables::default(), frame: None, jfif: false, adobe: None })
    }

    /// Reads up to the next scan header, or to the end.
    pub fn next(&mut self) -> Result<Next, JpegError> {
        loop {
            let marker = self.marker()?;
            match marker {
                0xD9 => return Ok(Next::End),
                0x01 | 0xD0..=0xD7 => continue, // Standalone markers, ignored here.
                0xD8 => return Err(JpegError::Damaged("an image begins inside the image")),
                _ => {}
            }
            let segment = self.segment()?;
            match marker {
                0xC0 | 0xC1 => self.start_frame(segment, false)?,
                0xC2 => self.start_frame(segment, true)?,
                0xC4 => self.huffman(segment)?,
                0xC3 | 0xC7 | 0xCB | 0xCF => {
                    return Err(JpegError::Unsupported("it is a lossless JPEG, which is not read"));
                }
                0xC5 | 0xC6 | 0xCD | 0xCE => {
                    return Err(JpegError::Unsupported("it is a hierarchical JPEG, which is not read"));
                }
                0xC9 | 0xCA | 0xCC => {
                    return Err(JpegError::Unsupported("it is an arithmetic-coded JPEG, which is not read"));
                }
                0xDA => return self.scan(segment).map(Next::Scan),
                0xDB => self.quantisation(segment)?,
                0xDC => return Err(JpegError::Unsupported("its height comes after its pixels, which is not read")),
                0xDD => {
                    let &[high, low] = segment else {
                        return Err(JpegError::Damaged("a restart interval of a wrong length"));
                    };
                    self.tables.restart = usize::from(u16::from_be_bytes([high, low]));
                }
                0xE0 => self.jfif |= segment.starts_with(b"JFIF\0"),
                0xEE if segment.starts_with(b"Adobe") && segment.len() >= 12 => self.adobe = Some(segment[11]),
                _ => {} // Comments, and data of other programs.
            }
        }
    }

    fn marker(&mut self) -> Result<u8, JpegError> {
        // Anything before a marker is passed over, as other decoders do.
        loop {
            match self.bytes.get(self.at..) {
                Some([0xFF, 0xFF, ..]) => self.at += 1,
                Some([0xFF, 0x00, ..]) => self.at += 2,
                Some(&[0xFF, marker, ..]) => {
                    self.at += 2;
                    return Ok(marker);
                }
                Some([_, _, ..]) => self.at += 1,
                Some(_) | None => return Err(JpegError::Truncated),
            }
        }
    }

    fn segment(&mut self) -> Result<&'a [u8], JpegError> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let &[high, low, ..] = rest else { return Err(JpegError::Truncated) };
        let length = usize::from(u16::from_be_bytes([high, low]));
        if length < 2 {
            return Err(JpegError::Damaged("a segment shorter than its own length"));
        }
        let segment = rest.get(2..length).ok_or(JpegError::Truncated)?;
        self.at += length;
        Ok(segment)
    }

    fn start_frame(&mut self, segment: &[u8], progressive: bool) -> Result<(), JpegError> {
        if self.frame.is_some() {
            return Err(JpegError::Damaged("a second frame"));
        }
        let &[bits, high, low, wide, narrow, count, ref rest @ ..] = segment else {
            return Err(JpegError::Damaged("a short frame header"));
        };
        if bits != 8 {
            return Err(JpegError::Unsupported("it does not have 8 bits a sample, which is not read"));
        }
        let (height, width) =
            (usize::from(u16::from_be_bytes([high, low])), usize::from(u16::from_be_bytes([wide, narrow])));
        let count = usize::from(count);
        if ![1, 3, 4].contains(&count) || rest.len() != 3 * count {
            return Err(JpegError::Unsupported("it has neither 1 nor 3 nor 4 components"));
        }
        let mut components = Vec::with_capacity(count);
        for part in rest.chunks_exact(3) {
            let (h, v) = (usize::from(part[1] >> 4), usize::from(part[1] & 15));
            if part[2] > 3 {
                return Err(JpegError::Damaged("a quantisation table out of range"));
            }
            components.push(Component { id: part[0], h, v, quant: usize::from(part[2]), ..Component::default() });
        }
        let colour = self.colour(&components);
        self.frame = Some(FrameHeader { progressive, ..FrameHeader::new(width, height, colour, components)? });
        Ok(())
    }

    /// The rules are those of libjpeg (`default_decompress_parms` of `jdapimin.c`).
    fn colour(&self, components: &[Component]) -> Colour {
        let ids: Vec<u8> = components.iter().map(|component| component.id).collect();
        match (ids.as_slice(), self.jfif, self.adobe) {
            ([_], _, _) => Colour::Grey,
            ([_, _, _], true, _) => Colour::YCbCr,
            ([_, _, _], false, Some(0)) | ([b'R', b'G', b'B'], false, None) => Colour::Rgb,
            ([_, _, _], false, _) => Colour::YCbCr,
            (_, _, None | Some(0)) => Colour::Cmyk,
            (_, _, Some(_)) => Colour::Ycck,
        }
    }

    fn quantisation(&mut self, mut segment: &[u8]) -> Result<(), JpegError> {
        while let Some((&kind, rest)) = segment.split_first() {
            let (wide, index) = (kind >> 4, usize::from(kind & 15));
            let bytes = if wide == 0 { 64 } else { 128 };
            let (Some(values), true) = (rest.get(..bytes), index < 4 && wide < 2) else {
                return Err(JpegError::Damaged("a quantisation table out of range"));
            };
            let value = |at: usize| match wide {
                0 => u16::from(values[at]),
                _ => u16::from_be_bytes([values[2 * at], values[2 * at + 1]]),
            };
            self.tables.quant[index] = Some(std::array::from_fn(value));
            segment = &rest[bytes..];
        }
        Ok(())
    }

    fn huffman(&mut self, mut segment: &[u8]) -> Result<(), JpegError> {
        const WRONG: JpegError = JpegError::Damaged("a Huffman table out of range");
        while let Some((&kind, rest)) = segment.split_first() {
            let counts: [u8; 16] = rest.get(..16).and_then(|counts| counts.try_into().ok()).ok_or(WRONG)?;
            let total: usize = counts.iter().map(|count| usize::from(*count)).sum();
            let listed = rest.get(16..16 + total).filter(|_| total <= 256).ok_or(WRONG)?;
            let mut values = [0; 256];
            values[..total].copy_from_slice(listed);
            let (class, index) = (kind >> 4, usize::from(kind & 15));
            let tables = if class == 0 { &mut self.tables.dc } else { &mut self.tables.ac };
            *tables.get_mut(index).filter(|_| class < 2).ok_or(WRONG)? = Some(HuffmanSpec { counts, values });
            segment = &rest[16 + total..];
        }
        Ok(())
    }

    fn scan(&mut self, segment: &[u8]) -> Result<Scan, JpegError> {
        const WRONG: JpegError = JpegError::Damaged("a scan header out of range");
        let frame = self.frame.as_ref().ok_or(JpegError::Damaged("a scan before the frame"))?;
        let (&count, rest) = segment.split_first().ok_or(WRONG)?;
        let count = usize::from(count);
        if !(1..=frame.components.len()).contains(&count) || rest.len() != 2 * count + 3 {
            return Err(WRONG);
        }
        let mut scan = Scan { count, ..Scan::default() };
        for (part, pair) in rest.chunks_exact(2).take(count).enumerate() {
            let index = frame.components.iter().position(|component| component.id == pair[0]).ok_or(WRONG)?;
            let (dc, ac) = (usize::from(pair[1] >> 4), usize::from(pair[1] & 15));
            if dc > 3 || ac > 3 || scan.parts[..part].iter().any(|(other, _, _)| *other == index) {
                return Err(WRONG);
            }
            scan.parts[part] = (index, dc, ac);
        }
        let &[first, last, bits] = &rest[2 * count..] else { return Err(WRONG) };
        (scan.first, scan.last) = (usize::from(first), usize::from(last));
        (scan.high, scan.low) = (u32::from(bits >> 4), u32::from(bits & 15));
        if !frame.progressive {
            // Some writers leave these at zero in sequential files; their meaning is fixed there.
            (scan.first, scan.last, scan.high, scan.low) = (0, 63, 0, 0);
        }
        let valid = scan.first <= scan.last && scan.last < 64 && scan.low < 14;
        let divided = !frame.progressive || (scan.first == 0) == (scan.last == 0);
        let single = scan.first == 0 || count == 1;
        let refined = scan.high == 0 || scan.high == scan.low + 1;
        if valid && divided && single && refined { Ok(scan) } else { Err(WRONG) }
    }
}
