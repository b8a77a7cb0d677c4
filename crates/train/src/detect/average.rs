//! How good detections are: the mean over classes of the average precision, as the COCO evaluation defines it.
//!
//! Surest first, a detection is right if an object of its class, that no surer one has taken, overlaps it enough. The
//! precision at each of 101 recalls is the best that is reached there or beyond; ten demands on the overlap, from 0.5
//! to 0.95, are averaged.

use super::boxes::overlap;
use super::{Detection, GroundTruth};

/// Demands on the overlap: 0.5, 0.55, … 0.95.
const DEMANDS: usize = 10;

/// Counts detections frame by frame.
#[derive(Debug, Clone, Default)]
pub struct AveragePrecision {
    /// Of each class: the score of every detection, and whether it is right at each demand.
    found: Vec<Vec<(f32, [bool; DEMANDS])>>,
    /// Objects of each class.
    there: Vec<u64>,
}

/// Means over classes that are there.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MeanPrecisions {
    /// Over all demands: mAP@[.5:.95].
    pub all: f64,
    /// At an overlap of a half: mAP@.5.
    pub half: f64,
}

impl AveragePrecision {
    /// Adds a frame: what was found in it, surest first, and what is there.
    pub fn add(&mut self, found: &[Detection], there: &[GroundTruth]) {
        let classes = found.iter().map(|one| one.class).chain(there.iter().map(|one| one.class)).max();
        let classes = classes.map_or(0, |most| most as usize + 1).max(self.there.len());
        self.found.resize(classes, Vec::new());
        self.there.resize(classes, 0);
        for truth in there {
            self.there[truth.class as usize] += 1;
        }
        let mut taken = vec![[false; DEMANDS]; there.len()];
        for detection in found {
            let mut right = [false; DEMANDS];
            for (step, right) in right.iter_mut().enumerate() {
                let mut best = (demand(step), None);
                for (place, truth) in there.iter().enumerate() {
                    let overlap = overlap(detection.edges, truth.edges);
                    if truth.class == detection.class && !taken[place][step] && overlap >= best.0 {
                        best = (overlap, Some(place));
                    }
                }
                if let Some(place) = best.1 {
                    taken[place][step] = true;
                    *right = true;
                }
            }
            self.found[detection.class as usize].push((detection.score, right));
        }
    }

    /// The means; none if no object was there.
    pub fn precisions(mut self) -> Option<MeanPrecisions> {
        let mut sums = [0.0; DEMANDS];
        let mut classes = 0.0;
        for (found, there) in self.found.iter_mut().zip(&self.there) {
            if *there == 0 {
                continue;
            }
            classes += 1.0;
            found.sort_by(|left, right| right.0.total_cmp(&left.0));
            for (step, sum) in sums.iter_mut().enumerate() {
                *sum += average(found.iter().map(|(_, right)| right[step]), *there);
            }
        }
        let all = sums.iter().sum::<f64>() / DEMANDS as f64;
        (classes > 0.0).then(|| MeanPrecisions { all: all / classes, half: sums[0] / classes })
    }
}

fn demand(step: usize) -> f32 {
    0.5 + 0.05 * step as f32
}

/// The mean precision over 101 recalls, of detections that are `right` or not, surest first.
fn average(right: impl Iterator<Item = bool>, there: u64) -> f64 {
    let mut points: Vec<(f64, f64)> = Vec::new();
    let mut hits = 0.0;
    for (place, right) in right.enumerate() {
        hits += f64::from(u8::from(right));
        points.push((hits / there as f64, hits / (place + 1) as f64));
    }
    // The best precision at each recall or beyond.
    let mut best = 0.0_f64;
    for (_, precision) in points.iter_mut().rev() {
        best = best.max(*precision);
        *precision = best;
    }
    let at = |recall: f64| {
        let first = points.partition_point(|(reached, _)| *reached < recall);
        points.get(first).map_or(0.0, |(_, precision)| *precision)
    };
    (0..=100).map(|step| at(f64::from(step) / 100.0)).sum::<f64>() / 101.0
}
