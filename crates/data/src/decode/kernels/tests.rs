//! All forms of the kernels give the same bytes, for any input.

use proptest::prelude::*;

use super::*;

/// Results of everything, with one form.
fn all(kernels: impl Kernels, values: &[i16], bytes: &[u8], width: usize) -> Vec<Vec<u8>> {
    let mut results = Vec::new();
    let mut blocks = [[0_i16; 128]; 2];
    let mut steps = [[0_i16; 64]; 2];
    for at in 0..64 {
        blocks[0][at] = values[at];
        blocks[1][at] = values[64 + at] >> 6;
        steps[0][at] = values[128 + at];
        steps[1][at] = 1 + (values[192 + at] & 63);
    }
    let mut samples = vec![7; 300];
    let targets = [Target { at: 3, stride: 16 }, Target { at: 140, stride: 20 }];
    kernels.inverse([&blocks[0], &blocks[1]], [&steps[0], &steps[1]], &mut samples, targets);
    results.push(samples);

    let mut eight = [[0; 128]; 8];
    let offsets = std::array::from_fn(|k| (k as u32 * 37) % 500);
    kernels.gather(bytes, &offsets, width % 20, 1 + width % 4, &mut eight);
    results.push(eight.as_flattened().iter().flat_map(|value| value.to_le_bytes()).collect());

    // Any slots at all, and words that may run out.
    let slots: [u32; SLOTS] =
        std::array::from_fn(|at| u32::from(bytes[at % 600]).wrapping_mul(0x0101_0101).wrapping_add(at as u32));
    let mut states: [u32; STATES] = std::array::from_fn(|at| values[at].unsigned_abs().into());
    let (mut words, mut symbols) = (bytes, vec![0; 3 * width]);
    if kernels.symbols(&slots, &mut states, &mut words, &mut symbols) {
        results.push(symbols);
        results.push(states.iter().flat_map(|state| state.to_le_bytes()).chain(words.iter().copied()).collect());
    }

    let mut pixels = vec![[0; 4]; width];
    kernels.colour(&bytes[..width], &bytes[240..][..width], &bytes[480..][..width], &mut pixels);
    results.push(pixels.as_flattened().to_vec());

    let input: Vec<[u8; 4]> = bytes.chunks_exact(4).map(|four| [four[0], four[1], four[2], four[3]]).collect();
    let each = 4 + 4 * (width % 2);
    let first: Vec<u32> = (0..width as u32).map(|at| at % (input.len() - each) as u32).collect();
    let weights: Vec<i16> = values.iter().map(|value| value >> 2).cycle().take(each * width).collect();
    let taps = Taps { first: &first, weights: &weights, each, precision: 15 };
    kernels.across(&taps, &input, &mut pixels);
    results.push(pixels.as_flattened().to_vec());

    let mut pixels = vec![[0; 4]; width];
    let rows = [&input[..240], &input[20..], &input[33..], &input[7..]];
    kernels.down(&rows, &weights[..4], 15, &mut pixels);
    results.push(pixels.as_flattened().to_vec());

    for mirrored in [false, true] {
        let mut rows = vec![0; 3 * width];
        let (first, rest) = rows.split_at_mut(width);
        let (second, third) = rest.split_at_mut(width);
        kernels.apart(&bytes.as_chunks::<3>().0[..width], mirrored, [first, second, third]);
        results.push(rows);
        let mut pixels = vec![[0; 3]; width];
        kernels.together([&bytes[..width], &bytes[300..][..width], &bytes[600..][..width]], mirrored, &mut pixels);
        results.push(pixels.as_flattened().to_vec());
    }
    let mut pixels = vec![[0; 3]; width];
    kernels.turned(&bytes.as_chunks::<3>().0[..width], &mut pixels);
    results.push(pixels.as_flattened().to_vec());
    kernels.soon(&bytes[..width]);
    let numbers = |halves: &[u16]| halves.iter().flat_map(|value| value.to_le_bytes()).collect();
    let table = |place: usize| Halves::of((0.017 * f32::from(values[place] >> 8), f32::from(values[place + 1])));
    let mut halves = vec![9; 3 * width];
    kernels.halves(&table(10), &bytes[..3 * width], &mut halves);
    results.push(numbers(&halves));
    kernels.halves_in_turn(&[table(12), table(14), table(16)], &bytes[..3 * width], &mut halves);
    results.push(numbers(&halves));
    let mut turned = vec![0; width];
    kernels.mirrored(&bytes[..width], &mut turned);
    results.push(turned);

    // Any part of a channel of four rows, any way round.
    let (width, height) = (50 + width, 4);
    let draw = |place: usize, below: usize| usize::from(values[place].unsigned_abs()) % below;
    let (columns, rows) = (draw(0, width + 1), draw(1, height + 1));
    let (right, down) = (draw(2, width - columns + 1), draw(3, height - rows + 1));
    let shown = Shown {
        width,
        columns: right..right + columns,
        from_column: draw(4, width - columns + 1),
        mirrored: draw(5, 2) == 1,
        rows: down..down + rows,
        from_row: draw(6, height - rows + 1),
    };
    let mut moved = vec![9; width * height];
    kernels.moved(&shown, &bytes[..width * height], &mut moved);
    results.push(moved);
    let mut halves = vec![9; width * height];
    kernels.moved_halves(&shown, &bytes[..width * height], &table(7), &mut halves);
    results.push(numbers(&halves));
    results
}

struct Any<'a>(&'a [i16], &'a [u8], usize);

impl Work for Any<'_> {
    type Output = Vec<Vec<u8>>;

    fn run(self, kernels: impl Kernels) -> Vec<Vec<u8>> {
        all(kernels, self.0, self.1, self.2)
    }
}

proptest! {
    #[test]
    fn all_forms_agree(
        values in prop::collection::vec(any::<i16>(), 256),
        small in prop::bool::ANY,
        bytes in prop::collection::vec(any::<u8>(), 1200),
        width in 1_usize..240,
    ) {
        let values: Vec<i16> = values.into_iter().map(|value| if small { value >> 8 } else { value }).collect();
        let wanted = all(Plain, &values, &bytes, width);
        prop_assert_eq!(run(Any(&values, &bytes, width)), wanted.as_slice());
        #[cfg(target_arch = "x86_64")]
        if let Some(avx2) = avx2::Avx2::detect() {
            prop_assert_eq!(avx2.narrow().run(Any(&values, &bytes, width)), wanted);
        }
    }
}

#[test]
#[should_panic(expected = "a block outside its plane")]
fn a_block_outside_its_plane_is_refused() {
    struct Outside;
    impl Work for Outside {
        type Output = ();
        fn run(self, kernels: impl Kernels) {
            let targets = [Target { at: 0, stride: 8 }, Target { at: 1, stride: 8 }];
            kernels.inverse([&[0; 128]; 2], [&[0; 64]; 2], &mut [0; 64], targets);
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    panic!("a block outside its plane");
    run(Outside);
    panic!("a block outside its plane, found by the bounds of a slice");
}
