//! Compares images with Pillow's pixels and regions with complete images, and decodes hostile files.

use std::fs;
use std::path::PathBuf;

use proptest::prelude::*;

use super::*;
use crate::decode::kernels::{Kernels, Work, run};

/// File, bytes, width and height, CRC-32 of the pixels.
type Expected = (String, Vec<u8>, (usize, usize), u32);

/// Every file of the corpus, made by `make.py` next to it, with the pixels that Pillow decodes.
fn corpus() -> Vec<Expected> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/tests/images");
    let expected = fs::read_to_string(folder.join("expected.txt")).unwrap();
    let entry = |line: &str| {
        let fields: Vec<&str> = line.split(' ').collect();
        let &[name, width, height, sum] = fields.as_slice() else { panic!("{line}") };
        let size = (width.parse().unwrap(), height.parse().unwrap());
        (name.to_owned(), fs::read(folder.join(name)).unwrap(), size, u32::from_str_radix(sum, 16).unwrap())
    };
    expected.lines().map(entry).collect()
}

fn region(bytes: &[u8], region: PixelRegion, decoder: &mut Decoder) -> Vec<[u8; 4]> {
    let mut image = JpegFile::open(bytes).unwrap();
    let rows = image.decode(decoder, region).unwrap();
    run(Read { rows, region })
}

struct Read<'a> {
    rows: Rows<'a>,
    region: PixelRegion,
}

impl Work for Read<'_> {
    type Output = Vec<[u8; 4]>;

    fn run(mut self, kernels: impl Kernels) -> Vec<[u8; 4]> {
        let PixelRegion { y, width, height, .. } = self.region;
        let mut pixels = vec![[0; 4]; width * height];
        for (line, y) in pixels.chunks_exact_mut(width).zip(y..) {
            self.rows.read(kernels, y, line);
        }
        pixels
    }
}

#[test]
fn pixels_are_pillows() {
    let mut decoder = Decoder::default();
    let corpus = corpus();
    assert!(corpus.len() >= 48);
    for (name, bytes, size, sum) in corpus {
        let (width, height, pixels) = rgb(&bytes, &mut decoder).unwrap_or_else(|fault| panic!("{name}: {fault}"));
        assert_eq!((width, height), size, "{name}");
        let mut crc = flate2::Crc::new();
        crc.update(&pixels);
        assert_eq!(crc.sum(), sum, "{name}");
    }
}

#[test]
fn a_region_equals_that_part_of_the_image() {
    let mut decoder = Decoder::default();
    for (name, bytes, (width, height), _) in corpus() {
        let image = region(&bytes, PixelRegion::whole(width, height), &mut decoder);
        let coefficients = JpegFile::open(&bytes).unwrap().coefficients(&mut decoder).unwrap();
        for step in 0..40 {
            let (x, y) = (step * 7 % width, step * 5 % height);
            let part = PixelRegion { x, y, width: 1 + step * 11 % (width - x), height: 1 + step * 3 % (height - y) };
            let rows = (y..y + part.height).flat_map(|row| &image[row * width + x..][..part.width]);
            let expected: Vec<[u8; 4]> = rows.copied().collect();
            assert_eq!(region(&bytes, part, &mut decoder), expected, "{name}: {part:?}");
            let rows = coefficients.decode(&mut decoder, part).unwrap();
            assert_eq!(run(Read { rows, region: part }), expected, "{name}: {part:?} from its coefficients");
        }
    }
}

#[test]
fn packed_coefficients_give_the_same_pixels() {
    let mut decoder = Decoder::default();
    for (name, bytes, (width, height), _) in corpus() {
        let coefficients = JpegFile::open(&bytes).unwrap().coefficients(&mut decoder).unwrap();
        let packed = encode_strips(&coefficients);
        let opened = PackedJpeg::open(&packed).unwrap();
        assert_eq!(opened.coefficients().unwrap().parts, coefficients.parts, "{name}");
        for step in 0..20 {
            let (x, y) = (step * 7 % width, step * 5 % height);
            let part = PixelRegion { x, y, width: 1 + step * 11 % (width - x), height: 1 + step * 3 % (height - y) };
            let expected = region(&bytes, part, &mut decoder);
            let rows = opened.decode(&mut decoder, part).unwrap();
            assert_eq!(run(Read { rows, region: part }), expected, "{name}: {part:?}");
        }
        for length in (0..packed.len()).step_by(1 + packed.len() / 50) {
            let cut = PackedJpeg::open(&packed[..length]).and_then(|packed| packed.coefficients());
            assert!(cut.is_err(), "{name}: {length} of {} bytes", packed.len());
        }
    }
}

#[test]
fn what_earlier_versions_packed_is_read() {
    let mut decoder = Decoder::default();
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/tests/images");
    let old =
        ["420-40x25", "420-17x33", "444-17x33", "grey", "quality-100", "cmyk", "440-7x9", "tall-420", "tall-grey"];
    for name in old {
        let bytes = fs::read(folder.join(format!("{name}.jpg"))).unwrap();
        let packed = fs::read(folder.join(format!("gjc1/{name}.gjc1"))).unwrap();
        assert!(PackedJpeg::is(&packed) && PackedJpeg::is_of_old(&packed));
        let expected = JpegFile::open(&bytes).unwrap().coefficients(&mut decoder).unwrap();
        assert_eq!(PackedJpeg::open(&packed).unwrap().coefficients().unwrap().parts, expected.parts, "{name}");
        assert_eq!(rgb(&packed, &mut decoder).unwrap(), rgb(&bytes, &mut decoder).unwrap(), "{name}");
        for length in (0..packed.len()).step_by(1 + packed.len() / 50) {
            let cut = PackedJpeg::open(&packed[..length]).and_then(|packed| packed.coefficients());
            assert!(cut.is_err(), "{name}: {length} of {} bytes", packed.len());
        }
    }
}

/// Strips are 128 pixels high in the first form, and 256 in the second.
#[test]
fn regions_cross_from_strip_to_strip() {
    let mut decoder = Decoder::default();
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/tests/images");
    for name in ["tall-420", "tall-grey"] {
        let bytes = fs::read(folder.join(format!("{name}.jpg"))).unwrap();
        let anew = encode_strips(&JpegFile::open(&bytes).unwrap().coefficients(&mut decoder).unwrap());
        let old = fs::read(folder.join(format!("gjc1/{name}.gjc1"))).unwrap();
        for packed in [anew, old] {
            let opened = PackedJpeg::open(&packed).unwrap();
            for (y, height) in
                [(0, 600), (120, 16), (250, 12), (255, 1), (256, 1), (257, 300), (511, 2), (513, 87), (599, 1)]
            {
                let part = PixelRegion { x: y % 50, y, width: 1 + height % 22, height };
                let expected = region(&bytes, part, &mut decoder);
                let rows = opened.decode(&mut decoder, part).unwrap();
                assert!(run(Read { rows, region: part }) == expected, "{name}: {part:?}");
            }
        }
    }
}

#[test]
fn regions_outside_are_refused() {
    let (_, bytes, (width, height), _) = corpus().swap_remove(0);
    for (x, y, w, h) in [(0, 0, width + 1, 1), (0, height, 1, 1), (usize::MAX, 0, 2, 1), (0, 0, 0, 1)] {
        let outside = PixelRegion { x, y, width: w, height: h };
        assert!(JpegFile::open(&bytes).unwrap().decode(&mut Decoder::default(), outside).is_err());
    }
}

#[test]
fn every_truncation_is_refused() {
    let mut decoder = Decoder::default();
    for (name, bytes, ..) in corpus() {
        for length in (0..bytes.len() - 1).step_by(1 + bytes.len() / 200) {
            assert!(rgb(&bytes[..length], &mut decoder).is_err(), "{name}: {length} of {} bytes", bytes.len());
        }
    }
}

#[test]
fn claims_are_checked_before_memory_is_taken() {
    let mut decoder = Decoder::default();
    for (name, bytes, ..) in
        corpus().into_iter().filter(|(name, ..)| name.contains("40x25") || name.starts_with("prog"))
    {
        let frame = bytes.windows(2).position(|pair| matches!(pair, [0xFF, 0xC0 | 0xC2])).unwrap();
        let claiming = |high: u8, wide: u8| {
            let mut bytes = bytes.clone();
            (bytes[frame + 5], bytes[frame + 7]) = (high, wide);
            bytes
        };
        let refused = |bytes: &[u8]| JpegFile::open(bytes).err().unwrap_or_else(|| panic!("{name} was read"));
        assert!(matches!(refused(&claiming(0xFF, 0xFF)), JpegError::Size { .. }));
        assert_eq!(refused(&claiming(0x20, 0x20)), JpegError::Truncated);
        assert!(rgb(&claiming(1, 1), &mut decoder).is_err());
    }
}

proptest! {
    #[test]
    fn damaged_packs_never_panic(index in 0_usize..1000, flips in prop::collection::vec((0_usize..9000, any::<u8>()), 1..8)) {
        let mut decoder = Decoder::default();
        let corpus = corpus();
        let (_, bytes, ..) = &corpus[index % corpus.len()];
        let mut packed = encode_strips(&JpegFile::open(bytes).unwrap().coefficients(&mut decoder).unwrap());
        let length = packed.len();
        for (at, value) in flips {
            packed[at % length] = value;
        }
        if let Ok(packed) = PackedJpeg::open(&packed) {
            let all = PixelRegion::whole(packed.frame().width, packed.frame().height);
            if all.width * all.height < 1_000_000 && let Ok(rows) = packed.decode(&mut decoder, all) {
                prop_assert_eq!(run(Read { rows, region: all }).len(), all.width * all.height);
            }
        }
    }

    #[test]
    fn damage_never_panics(index in 0_usize..1000, flips in prop::collection::vec((0_usize..4000, any::<u8>()), 1..8)) {
        let corpus = corpus();
        let (_, bytes, ..) = &corpus[index % corpus.len()];
        let mut bytes = bytes.clone();
        let length = bytes.len();
        for (at, value) in flips {
            bytes[at % length] = value;
        }
        if let Ok((width, height, pixels)) = rgb(&bytes, &mut Decoder::default()) {
            prop_assert_eq!(pixels.len(), width * height * 3);
        }
    }
}
