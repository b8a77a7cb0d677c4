//! Classes as data names them, by number or by name, and the labels that these become.

use std::collections::BTreeMap;

pub(super) use plugin::NamedClass as Named;

/// Names of the classes and the label of each sample: numbers in their order, then names in theirs.
///
/// `names` are the data's names of the numbers from 0; with them a number is a label already, if all are in range.
pub(super) fn numbered(named: Vec<Named>, names: Option<Vec<String>>) -> (Vec<String>, Vec<u32>) {
    if let Some(names) = names {
        let label = |class: &Named| match class {
            Named::Number(number) => u32::try_from(*number).ok().filter(|label| (*label as usize) < names.len()),
            Named::Word(word) => names.iter().position(|name| name == word).map(|place| place as u32),
        };
        if let Some(labels) = named.iter().map(label).collect() {
            return (names, labels);
        }
    }
    let mut classes: BTreeMap<&Named, u32> = named.iter().map(|class| (class, 0)).collect();
    for (label, number) in classes.values_mut().zip(0..) {
        *label = number;
    }
    let labels = named.iter().map(|class| classes[class]).collect();
    let word = |class: &&Named| match class {
        Named::Number(number) => number.to_string(),
        Named::Word(word) => word.clone(),
    };
    (classes.keys().map(word).collect(), labels)
}
