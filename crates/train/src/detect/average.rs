//! Mean average precision, as pycocotools (`COCOeval`, `iouType="bbox"`, all areas, 100 detections) computes it.
//!
//! Per image and class, in order of decreasing score, each detection is matched to the object with the highest IoU that
//! no earlier one has matched. A crowd region (`iscrowd`) may be matched by any number of detections, which are then
//! ignored. The precision at each of 101 recalls is the best that is reached there or beyond; it is averaged over ten
//! IoU thresholds, from 0.5 to 0.95, and over classes. IoUs are in 64 bits, in pixels of the original image.

use super::boxes::coco_overlap;

/// Thresholds of the overlap: 0.5, 0.55, … 0.95.
const THRESHOLDS: usize = 10;
/// Detections of one class in one image that count.
const MOST: usize = 100;

/// A box in COCO's format: left, top, width and height in pixels of the image.
pub type CocoBox = [f64; 4];

/// An annotated object.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Annotated {
    /// Number of its class.
    pub class: u32,
    /// Its box.
    pub bbox: CocoBox,
    /// Whether it is a region of many objects.
    pub is_crowd: bool,
}

/// A detected object.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Detected {
    /// Number of its class.
    pub class: u32,
    /// Its confidence, in 0–1.
    pub score: f32,
    /// Its box.
    pub bbox: CocoBox,
}

/// A detection that was compared with the objects of its image; a bit for each threshold.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Matched {
    image: u64,
    class: u32,
    score: f32,
    /// It matched an object.
    right: u16,
    /// It matched a crowd region, and is ignored.
    ignored: u16,
}

/// Counts detections image by image.
#[derive(Debug, Clone, Default)]
pub struct AveragePrecision {
    found: Vec<Matched>,
    /// Objects of each class, regions of many aside.
    there: Vec<u64>,
}

/// Means over the classes that have objects.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MeanPrecisions {
    /// Over all thresholds: mAP@[.5:.95].
    pub all: f64,
    /// At an IoU threshold of 0.5: mAP@.5.
    pub half: f64,
}

impl AveragePrecision {
    /// Adds the image of this number: its detections and its annotations, in any order.
    pub fn add(&mut self, image: u64, found: &[Detected], there: &[Annotated]) {
        let mut classes: Vec<u32> =
            found.iter().map(|one| one.class).chain(there.iter().map(|one| one.class)).collect();
        classes.sort_unstable();
        classes.dedup();
        for class in classes {
            if self.there.len() <= class as usize {
                self.there.resize(class as usize + 1, 0);
            }
            let (crowds, objects): (Vec<&Annotated>, Vec<&Annotated>) =
                there.iter().filter(|one| one.class == class).partition(|one| one.is_crowd);
            self.there[class as usize] += objects.len() as u64;
            let mut found: Vec<&Detected> = found.iter().filter(|one| one.class == class).collect();
            // Stable, as the merge sort there.
            found.sort_by(|left, right| right.score.total_cmp(&left.score));
            found.truncate(MOST);
            let there: Vec<&Annotated> = objects.iter().chain(&crowds).copied().collect();
            self.found.extend(matched(&found, &there, objects.len()).map(|(detection, [right, ignored])| Matched {
                image,
                class,
                score: detection.score,
                right,
                ignored,
            }));
        }
    }

    /// All that was counted, as one line of text; the inverse of [`AveragePrecision::take_in`].
    pub fn to_text(&self) -> String {
        let there: Vec<String> = self.there.iter().map(u64::to_string).collect();
        let found = self.found.iter().map(|Matched { image, class, score, right, ignored }| {
            format!(";{image:x},{class:x},{:x},{right:x},{ignored:x}", score.to_bits())
        });
        there.join(",") + &found.collect::<String>()
    }

    /// Adds the counts of another rank; `None` if the text is malformed.
    pub fn take_in(&mut self, text: &str) -> Option<()> {
        let mut records = text.split(';');
        let counts = records.next()?.split(',').filter(|count| !count.is_empty());
        for (class, count) in counts.enumerate() {
            if self.there.len() <= class {
                self.there.push(0);
            }
            self.there[class] += count.parse::<u64>().ok()?;
        }
        for record in records {
            let mut numbers = record.split(',').map(|number| u64::from_str_radix(number, 16).ok());
            let mut next = || numbers.next()?;
            let (image, class, score) = (next()?, next()? as u32, f32::from_bits(next()? as u32));
            self.found.push(Matched { image, class, score, right: next()? as u16, ignored: next()? as u16 });
        }
        Some(())
    }

    /// The means; `None` if there were no objects.
    pub fn precisions(mut self) -> Option<MeanPrecisions> {
        // By image, so that equal scores are in the order of their images however ranks shared them; stable within one.
        self.found.sort_by_key(|one| one.image);
        self.found.sort_by(|left, right| right.score.total_cmp(&left.score));
        let mut by_class = vec![Vec::new(); self.there.len()];
        for one in &self.found {
            by_class[one.class as usize].push(one);
        }
        let (mut sums, mut classes) = ([0.0; THRESHOLDS], 0.0);
        for (found, there) in by_class.iter().zip(&self.there).filter(|(_, there)| **there > 0) {
            classes += 1.0;
            for (step, sum) in sums.iter_mut().enumerate() {
                let counted = found.iter().filter(|one| one.ignored >> step & 1 == 0);
                *sum += average(counted.map(|one| one.right >> step & 1 == 1), *there);
            }
        }
        let all = sums.iter().sum::<f64>() / THRESHOLDS as f64;
        (classes > 0.0).then(|| MeanPrecisions { all: all / classes, half: sums[0] / classes })
    }
}

/// Compares detections of one class, the surest first, with annotations, of which the first `objects` are single objects
/// and the others regions of many. Returns for each the thresholds at which it is right, and at which it does not count.
fn matched<'a>(
    found: &'a [&'a Detected],
    there: &[&Annotated],
    objects: usize,
) -> impl Iterator<Item = (&'a Detected, [u16; 2])> {
    let mut marks = vec![[0u16; 2]; found.len()];
    let overlaps: Vec<Vec<f64>> = found
        .iter()
        .map(|one| there.iter().map(|other| coco_overlap(one.bbox, other.bbox, other.is_crowd)).collect())
        .collect();
    for step in 0..THRESHOLDS {
        let mut taken = vec![false; objects];
        for (overlaps, marks) in overlaps.iter().zip(&mut marks) {
            let mut best = (threshold(step).min(1.0 - 1e-10), None);
            for (place, overlap) in overlaps.iter().enumerate() {
                // A single object is preferred to any region of many.
                if place >= objects && best.1.is_some_and(|best| best < objects) {
                    break;
                }
                if (place >= objects || !taken[place]) && *overlap >= best.0 {
                    best = (*overlap, Some(place));
                }
            }
            match best.1 {
                Some(place) if place < objects => {
                    taken[place] = true;
                    marks[0] |= 1 << step;
                }
                Some(_) => marks[1] |= 1 << step,
                None => {}
            }
        }
    }
    found.iter().copied().zip(marks)
}

/// As `numpy.linspace(0.5, 0.95, 10)` has them.
fn threshold(step: usize) -> f64 {
    if step + 1 == THRESHOLDS { 0.95 } else { step as f64 * ((0.95 - 0.5) / 9.0) + 0.5 }
}

/// The mean precision over 101 recalls, of detections that are `right` or not, the surest first.
fn average(right: impl Iterator<Item = bool>, there: u64) -> f64 {
    let mut points: Vec<(f64, f64)> = Vec::new();
    let mut hits = 0.0;
    for (place, right) in right.enumerate() {
        hits += f64::from(u8::from(right));
        points.push((hits / there as f64, hits / ((place + 1) as f64 + f64::EPSILON)));
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
    // As `numpy.linspace(0, 1, 101)` has the recalls.
    (0..=100).map(|step| at(if step == 100 { 1.0 } else { f64::from(step) * 0.01 })).sum::<f64>() / 101.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Random numbers that `tests/detect/reference.py` draws too.
    struct Draws(u64);

    impl Draws {
        fn below(&mut self, bound: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (self.0 >> 33) % bound
        }

        fn bbox(&mut self) -> CocoBox {
            let (left, top) = (self.below(500) as f64 * 0.5, self.below(500) as f64 * 0.5);
            [left, top, self.below(160) as f64 * 0.5, self.below(160) as f64 * 0.5]
        }

        /// An image of a random set: its detections and annotations.
        fn image(&mut self, set: &Set) -> (Vec<Detected>, Vec<Annotated>) {
            let annotated = |draws: &mut Draws| {
                let (class, bbox) = (draws.below(set.classes) as u32, draws.bbox());
                Annotated { class, bbox, is_crowd: draws.below(100) < set.crowds }
            };
            let there: Vec<Annotated> = (0..self.below(set.objects + 1)).map(|_| annotated(self)).collect();
            let detected = |draws: &mut Draws| {
                let (mut class, mut bbox) = (draws.below(set.classes) as u32, draws.bbox());
                if !there.is_empty() && draws.below(10) < 7 {
                    let like = &there[draws.below(there.len() as u64) as usize];
                    let mut near = |value: f64| value + (draws.below(25) as f64 - 12.0) * 0.25;
                    let [left, top, width, height] = like.bbox;
                    bbox = [near(left), near(top), near(width).max(0.0), near(height).max(0.0)];
                    class = like.class;
                }
                Detected { class, score: draws.below(64) as f32 / 64.0, bbox }
            };
            let found = (0..self.below(set.found + 1)).map(|_| detected(self)).collect();
            (found, there)
        }
    }

    /// A random set: so many images, and at most so many annotations and detections in each.
    struct Set {
        seed: u64,
        images: u64,
        classes: u64,
        objects: u64,
        found: u64,
        /// Regions of many among 100 annotations.
        crowds: u64,
    }

    fn counted(set: &Set, images: impl Fn(u64) -> bool) -> AveragePrecision {
        let (mut draws, mut counted) = (Draws(set.seed), AveragePrecision::default());
        for image in 0..set.images {
            let (found, there) = draws.image(set);
            if images(image) {
                counted.add(image, &found, &there);
            }
        }
        counted
    }

    /// Values that `tests/detect/reference.py` printed, with pycocotools 2.0.11 and NumPy 2.4.6.
    #[test]
    fn precisions_are_those_of_pycocotools() {
        for (numbers, all, half) in REFERENCE {
            let [seed, images, classes, objects, found, crowds] = *numbers;
            let set = Set { seed, images, classes, objects, found, crowds };
            let precisions = counted(&set, |_| true).precisions().unwrap();
            assert!((precisions.all - all).abs() < 1e-9, "{numbers:?}: {precisions:?} instead of {all}");
            assert!((precisions.half - half).abs() < 1e-9, "{numbers:?}: {precisions:?} instead of {half}");
        }
    }

    #[test]
    fn ranks_that_share_the_images_count_the_same() {
        let set = Set { seed: 5, images: 50, classes: 4, objects: 9, found: 40, crowds: 20 };
        let whole = counted(&set, |_| true).precisions();
        let mut all = AveragePrecision::default();
        for rank in [2, 0, 1] {
            all.take_in(&counted(&set, |image| image % 3 == rank).to_text()).unwrap();
        }
        assert_eq!(all.precisions(), whole);
        assert!(AveragePrecision::default().take_in("1;x").is_none());
        assert_eq!(AveragePrecision::default().take_in(&AveragePrecision::default().to_text()), Some(()));
    }

    /// Seed, images, classes, most annotations and detections of an image, and percentage of regions of many; mAP@[.5:.95]
    /// and mAP@.5.
    #[rustfmt::skip]
    const REFERENCE: &[([u64; 6], f64, f64)] = &[
        ([2, 20, 3, 5, 10, 0], 0.16709954401819302, 0.27904737218082876),
        ([3, 40, 4, 6, 20, 30], 0.13110351819600355, 0.2473980913356596),
        ([4, 30, 2, 12, 60, 15], 0.14500419275615087, 0.2572818768485095),
        ([5, 50, 4, 9, 40, 20], 0.14594905170189326, 0.25788666764060403),
        ([6, 12, 1, 40, 400, 10], 0.21281125538103712, 0.36586646882159357),
        ([7, 100, 20, 8, 30, 10], 0.1775001249312852, 0.2905053776110313),
        ([9, 25, 3, 20, 150, 60], 0.1906164868443238, 0.293399807406546),
        ([10, 300, 10, 15, 60, 5], 0.1311895821257312, 0.22407925165507503),
    ];
}
