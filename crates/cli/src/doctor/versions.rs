//! Comparing versions, and what each release of CUDA needs.

use std::cmp::Ordering;

/// The table.
const CUDA: &str = include_str!("cuda.tsv");

/// What a release of CUDA needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CudaNeeds {
    /// The driver that came with it.
    pub driver: &'static str,
    /// The oldest driver that runs it.
    pub oldest_driver: &'static str,
    /// The oldest compute capability that it compiles for.
    pub capability: &'static str,
}

/// What a release needs; that of its family's newest known release where it is newer than the table.
pub fn needs(release: &str) -> Option<CudaNeeds> {
    let rows = CUDA.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
        let fields: Vec<&str> = line.split('\t').collect();
        let [release, driver, oldest_driver, capability] = fields[..] else { return None };
        Some((release, CudaNeeds { driver, oldest_driver, capability }))
    });
    let major = |release: &str| release.split('.').next().map(str::to_owned);
    let known =
        rows.filter(|(known, _)| major(known) == major(release) && compare(known, release) != Ordering::Greater);
    known.max_by(|(one, _), (other, _)| compare(one, other)).map(|(_, needs)| needs)
}

/// Compares versions number by number; `12.8` and `12.8.0` are the same.
pub fn compare(one: &str, other: &str) -> Ordering {
    let numbers = |text: &str| -> Vec<u64> {
        let mut numbers: Vec<u64> = text.split('.').map(|part| part.parse().unwrap_or(0)).collect();
        while numbers.last() == Some(&0) {
            numbers.pop();
        }
        numbers
    };
    numbers(one).cmp(&numbers(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_number_by_number() {
        let check = |one: &str, other: &str, expected| assert_eq!(compare(one, other), expected, "{one} {other}");
        check("525.60.13", "525.9", Ordering::Greater);
        check("580.65.06", "580.65.6", Ordering::Equal);
        check("12.8", "12.8.0", Ordering::Equal);
        check("9.0", "10.0", Ordering::Less);
        check("450.80.02", "450.80.01", Ordering::Greater);
    }

    #[test]
    fn every_release_needs_a_driver_of_its_family() {
        assert_eq!(
            needs("12.8").unwrap(),
            CudaNeeds { driver: "570.26", oldest_driver: "525.60.13", capability: "5.0" }
        );
        assert_eq!(needs("13.0").unwrap().oldest_driver, "580.65.06");
        assert_eq!(needs("12.7"), needs("12.6"), "one that is not in the table is as the one before it");
        assert_eq!(needs("13.9"), needs("13.1"));
        assert_eq!((needs("99.0"), needs("")), (None, None));
        for line in CUDA.lines().filter(|line| !line.starts_with('#')) {
            let release = line.split('\t').next().unwrap();
            assert!(needs(release).is_some_and(|needs| line.contains(needs.driver)), "{line}");
        }
    }
}
