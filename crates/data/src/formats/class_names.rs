//! Classes as data names them, by number or by name, and the labels that these become.

use std::collections::{BTreeMap, BTreeSet};

pub(super) use plugin::NamedClass as Named;

/// Names of the classes and the label of each sample: numbers in their order, among them names such as `007`, then names
/// in theirs.
///
/// `names` are the data's names of the numbers from 0; with them a number is a label already, if all are in range.
pub(super) fn numbered(named: Vec<Named>, names: Option<Vec<String>>) -> (Vec<String>, Vec<u32>) {
    if let Some(names) = names {
        let label = |class: &Named| match class {
            Named::Number(number) => u32::try_from(*number).ok().filter(|label| (*label as usize) < names.len()),
            Named::Word(word) => {
                let number = || word.parse::<usize>().ok().filter(|place| *place < names.len());
                names.iter().position(|name| name == word).or_else(number).map(|place| place as u32)
            }
        };
        if let Some(labels) = named.iter().map(label).collect() {
            return (names, labels);
        }
    }
    let mut classes: Vec<&Named> = named.iter().collect::<BTreeSet<&Named>>().into_iter().collect();
    classes.sort_by_key(|class| match class {
        Named::Number(number) => (false, *number),
        Named::Word(word) => word.parse().map_or((true, 0), |number| (false, number)),
    });
    let places: BTreeMap<&Named, u32> = classes.iter().copied().zip(0..).collect();
    let labels = named.iter().map(|class| places[class]).collect();
    let word = |class: &Named| match class {
        Named::Number(number) => number.to_string(),
        Named::Word(word) => word.clone(),
    };
    (classes.into_iter().map(word).collect(), labels)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_ordered_by_number_and_then_by_name() {
        let named = |texts: &[&str]| -> Vec<Named> { texts.iter().filter_map(|text| Named::parse(text)).collect() };
        let (classes, labels) = numbered(named(&["10", "b", "007", "9", "7", "a", "007"]), None);
        assert_eq!(classes, ["7", "007", "9", "10", "a", "b"]);
        assert_eq!(labels, [3, 5, 1, 2, 0, 4, 1]);
        let names = Some(vec!["cat".to_owned(), "dog".to_owned()]);
        assert_eq!(numbered(named(&["01", "cat", "1"]), names).1, [1, 0, 1]);
    }
}
