use tch::{Device, Kind, Tensor};

use super::average::AveragePrecision;
use super::suppress::suppressed;
use super::*;

fn found(class: u32, score: f32, edges: [f32; 4]) -> Detection {
    Detection { class, score, edges }
}

fn there(class: u32, edges: [f32; 4]) -> GroundTruth {
    GroundTruth { class, edges }
}

/// Adds an image whose frame is the image itself.
fn add(average: &mut AveragePrecision, image: u64, found: &[Detection], there: &[GroundTruth]) {
    let bbox = |[left, top, right, bottom]: [f32; 4]| [left, top, right - left, bottom - top].map(f64::from);
    let detected = |one: &Detection| Detected { class: one.class, score: one.score, bbox: bbox(one.edges) };
    let annotated = |one: &GroundTruth| Annotated { class: one.class, bbox: bbox(one.edges), is_crowd: false };
    let found: Vec<Detected> = found.iter().map(detected).collect();
    average.add(image, &found, &there.iter().map(annotated).collect::<Vec<_>>());
}

const LEFT: [f32; 4] = [0.0, 0.0, 10.0, 10.0];
const RIGHT: [f32; 4] = [20.0, 0.0, 30.0, 10.0];

#[test]
fn of_boxes_that_overlap_the_surest_stays() {
    let nearly = [0.5, 0.0, 10.5, 10.0];
    let all = vec![found(0, 0.5, LEFT), found(0, 0.9, nearly), found(1, 0.4, LEFT), found(0, 0.3, RIGHT)];
    let kept: Vec<f32> = suppressed(all).iter().map(|detection| detection.score).collect();
    assert_eq!(kept, [0.9, 0.4, 0.3]);
    // An IoU of one half is another object.
    let half = suppressed(vec![found(0, 0.5, LEFT), found(0, 0.9, [0.0, 0.0, 10.0, 5.0])]);
    assert_eq!(half.len(), 2);
}

#[test]
fn precision_is_averaged_as_coco_defines_it() {
    let check = |frames: &[(Vec<Detection>, Vec<GroundTruth>)], expected: Option<[f64; 2]>| {
        let mut average = AveragePrecision::default();
        for (image, (found, there)) in (0..).zip(frames) {
            add(&mut average, image, found, there);
        }
        let precisions = average.precisions().map(|found| [found.all, found.half]);
        let close = match (precisions, expected) {
            (Some(found), Some(expected)) => found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-9),
            (found, expected) => found == expected,
        };
        assert!(close, "{precisions:?}, expected {expected:?}");
    };
    check(&[], None);
    check(&[(vec![found(0, 0.9, LEFT)], vec![])], None);
    check(&[(vec![found(0, 0.9, LEFT)], vec![there(0, LEFT)])], Some([1.0, 1.0]));
    check(&[(vec![], vec![there(0, LEFT)])], Some([0.0, 0.0]));
    check(&[(vec![found(1, 0.9, LEFT)], vec![there(0, LEFT)])], Some([0.0, 0.0]));
    // A second detection of a matched object is wrong; higher scores come first, in any frame.
    let twice = vec![found(0, 0.9, LEFT), found(0, 0.8, LEFT), found(0, 0.7, RIGHT)];
    // Recall 0.5 at precision 1, recall 1 at two thirds: 51 of 101 points see the one, 50 the other.
    let mean = (51.0 + 50.0 * 2.0 / 3.0) / 101.0;
    check(&[(twice, vec![there(0, LEFT), there(0, RIGHT)])], Some([mean, mean]));
    // An IoU of 8/10 passes the thresholds 0.5 to 0.8, seven of ten.
    check(&[(vec![found(0, 0.9, [0.0, 0.0, 10.0, 8.05])], vec![there(0, LEFT)])], Some([0.7, 1.0]));
    // Two classes count alike.
    let both = vec![there(0, LEFT), there(1, RIGHT)];
    check(&[(vec![found(0, 0.9, LEFT)], both)], Some([0.5, 0.5]));
}

#[test]
fn ground_truth_tensors_round_trip() {
    let frames = vec![vec![there(2, LEFT), there(0, RIGHT)], vec![], vec![there(1, RIGHT)]];
    let tensor = ground_truth_tensor(&frames, Device::Cpu).unwrap();
    assert_eq!(tensor.size(), [3, 2, 5]);
    assert_eq!(objects(&tensor).unwrap(), frames);
    assert_eq!(ground_truth_tensor(&[vec![]], Device::Cpu).unwrap().size(), [1, 1, 5]);
}

#[test]
fn what_is_said_becomes_what_is_there() {
    // Without a network: the predictions themselves are trained.
    let frames = vec![
        vec![there(0, [4.0, 6.0, 28.0, 30.0]), there(2, [34.0, 10.0, 60.0, 58.0])],
        vec![there(1, [10.0, 8.0, 58.0, 60.0])],
        vec![],
    ];
    let expected = ground_truth_tensor(&frames, Device::Cpu).unwrap();
    let cells = [8, 4, 2].iter().map(|side| side * side).sum();
    let predictions = Tensor::zeros([3, cells, 4 * BINS + 3], (Kind::Float, Device::Cpu));
    let _ = predictions.narrow(-1, 4 * BINS, 3).fill_(-3.0);
    let mut predictions = predictions.set_requires_grad(true);
    let mut losses = Vec::new();
    for _ in 0..150 {
        let value = loss(&predictions, &expected, [64, 64]).unwrap();
        value.backward();
        losses.push(value.double_value(&[]));
        tch::no_grad(|| {
            // By the direction alone: each value moves as if it were a parameter of Adam.
            let _ = predictions.g_sub_(&(predictions.grad().sign() * 0.15));
        });
        predictions.zero_grad();
    }
    assert!(losses.iter().all(|loss| loss.is_finite()) && losses[149] < 0.5 * losses[0], "{losses:?}");
    let mut average = AveragePrecision::default();
    for (image, (found, there)) in (0..).zip(detections(&predictions.detach(), [64, 64]).unwrap().iter().zip(&frames)) {
        add(&mut average, image, found, there);
    }
    let precisions = average.precisions().unwrap();
    assert!(precisions.half > 0.99 && precisions.all > 0.7, "{precisions:?}");
}

#[test]
fn nothing_to_be_seen_has_a_loss_too() {
    let predictions = Tensor::zeros([2, 84, 4 * BINS + 1], (Kind::Float, Device::Cpu)).set_requires_grad(true);
    let value = loss(&predictions, &ground_truth_tensor(&[vec![], vec![]], Device::Cpu).unwrap(), [64, 64]).unwrap();
    value.backward();
    // Half of ln 2 for each of 168 cells.
    assert!((value.double_value(&[]) - 0.5 * 168.0 * 2f64.ln()).abs() < 1e-3);
    assert!(predictions.grad().isfinite().all().int64_value(&[]) == 1);
}
