use super::*;
use crate::sampling::random::{Purpose, key};

const HEIGHT: usize = 9;
const WIDTH: usize = 12;

fn image() -> Vec<u8> {
    let at = |c: usize, y: usize, x: usize| (c * 90 + y * 17 + x * 11 + x * y % 7) as u8;
    (0..3 * HEIGHT * WIDTH).map(|n| at(n / WIDTH / HEIGHT, n / WIDTH % HEIGHT, n % WIDTH)).collect()
}

fn after(operation: Operation) -> Vec<u8> {
    let (mut planes, mut spare) = (image(), Vec::new());
    operation.apply(&mut planes, &mut spare, HEIGHT, WIDTH);
    planes
}

#[test]
fn no_strength_changes_nothing() {
    for (number, name) in NAMES.iter().enumerate() {
        let operation = Operation::numbered(number, 0, true, HEIGHT, WIDTH);
        match operation {
            // Contrast without strength; these two always act, and the threshold of 255 inverts what is white.
            Operation::AutoContrast | Operation::Equalize | Operation::Solarize(_) => {}
            _ => assert_eq!(after(operation), image(), "{name}"),
        }
    }
}

#[test]
fn bytes_change_as_the_formulas_say() {
    let before = image();
    let each = |operation: Operation, wanted: &dyn Fn(u8) -> u8| {
        let wanted: Vec<u8> = before.iter().map(|value| wanted(*value)).collect();
        assert_eq!(after(operation), wanted, "{operation:?}");
    };
    each(Operation::Brightness(1.27), &|value| (f32::from(value) * 1.27_f32).min(255.0) as u8);
    each(Operation::Posterize(6), &|value| value & 0b1111_1100);
    each(Operation::Solarize(178.5), &|value| if value >= 179 { 255 - value } else { value });
    let stretched = after(Operation::AutoContrast);
    for channel in stretched.chunks(HEIGHT * WIDTH) {
        // A hair below 255 is cut off, as torchvision does it.
        assert!(channel.contains(&0) && channel.iter().any(|value| *value >= 254));
    }
    // All colour gone: every channel is the grey, up to rounding.
    let grey = after(Operation::Color(0.0));
    let (red, rest) = grey.split_at(HEIGHT * WIDTH);
    assert!(rest.chunks(HEIGHT * WIDTH).all(|channel| channel == red));
    // All contrast gone: one byte.
    assert!(after(Operation::Contrast(0.0)).windows(2).all(|pair| pair[0] == pair[1]));
    let smooth = after(Operation::Sharpness(0.0));
    let around: u32 = (0..3).flat_map(|y| (0..3).map(move |x| y * WIDTH + x)).map(|at| u32::from(before[at])).sum();
    let wanted = f64::from(around + 4 * u32::from(before[WIDTH + 1])) / 13.0;
    assert_eq!(f64::from(smooth[WIDTH + 1]), wanted.round());
    assert_eq!(smooth[..WIDTH], before[..WIDTH], "the border stays");
}

#[test]
fn pixels_move_to_their_places() {
    let before = image();
    let at = |planes: &[u8], y: usize, x: usize| planes[y * WIDTH + x];
    let right = after(Operation::TranslateX(3.0));
    assert!((0..HEIGHT).all(|y| (0..WIDTH).all(|x| at(&right, y, x) == if x < 3 { 0 } else { at(&before, y, x - 3) })));
    let up = after(Operation::TranslateY(-2.0));
    let from = |y: usize, x: usize| if y + 2 < HEIGHT { at(&before, y + 2, x) } else { 0 };
    assert!((0..HEIGHT).all(|y| (0..WIDTH).all(|x| at(&up, y, x) == from(y, x))));
    // A quarter turn of a square, counter-clockwise.
    let square: Vec<u8> = (0..27).collect();
    let (mut planes, mut spare) = (square.clone(), Vec::new());
    Operation::Rotate(90.0).apply(&mut planes, &mut spare, 3, 3);
    assert_eq!(planes[..9], [2, 5, 8, 1, 4, 7, 0, 3, 6]);
    let sheared = after(Operation::ShearX(0.5));
    assert!(
        (0..WIDTH - 1).all(|x| at(&sheared, 1, x) == at(&before, 1, x + 1)),
        "row 1.5 shows half of it to the right"
    );
}

#[test]
fn all_operations_come_equally_often_on_both_sides() {
    let mut counts = [0_u32; NAMES.len()];
    let mut turned = 0;
    for sample in 0..7000 {
        let draws = Draws::new(key(Purpose::Augment, 3, &[1, sample, 2]));
        let spec = RandAugment { num_ops: 2, magnitude: 9 };
        for operation in drawn(spec, draws, HEIGHT, WIDTH) {
            let number = (0..NAMES.len())
                .find(|number| {
                    [false, true].iter().any(|side| Operation::numbered(*number, 9, *side, HEIGHT, WIDTH) == operation)
                })
                .unwrap();
            counts[number] += 1;
            turned += u32::from(matches!(operation, Operation::Rotate(degrees) if degrees < 0.0));
        }
    }
    // Five standard deviations of a binomial with n = 14,000 and p = 1/14 are 152; of half of a thousand, 80.
    assert!(counts.iter().all(|count| count.abs_diff(1000) < 152), "{counts:?}");
    assert!(turned.abs_diff(counts[5] / 2) < 80, "{turned} of {} turn clockwise", counts[5]);
}

/// Other draws would change every run that is resumed.
#[test]
fn the_draws_are_a_promise() {
    let draws = Draws::new(key(Purpose::Augment, 42, &[1, 7, 0]));
    let found: Vec<Operation> = drawn(RandAugment { num_ops: 3, magnitude: 15 }, draws, 32, 32).collect();
    let wanted = [Operation::TranslateY(-7.0), Operation::Rotate(-15.0), Operation::TranslateY(7.0)];
    assert_eq!(found, wanted);
}
