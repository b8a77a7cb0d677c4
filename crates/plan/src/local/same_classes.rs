//! Whether data has the classes of the model that training starts with.

use std::collections::BTreeSet;

/// Names that are listed of a difference.
const LISTED: usize = 5;

/// How the classes of data differ from those of a model, in words; `None` if they are the same. Both are names in the order of the
/// outputs: an output that continues under another name would be trained on shuffled labels.
pub fn class_difference(model: &[String], data: &[String]) -> Option<String> {
    let [of_model, of_data] = [model, data].map(|names| names.iter().map(|name| plain(name)).collect::<Vec<String>>());
    if of_model == of_data {
        return None;
    }
    let (gone, new) = (missing(&of_data, &of_model), missing(&of_model, &of_data));
    let mut parts = Vec::new();
    if !gone.is_empty() {
        parts.push(format!("the data lacks {}", listed(&gone)));
    }
    if !new.is_empty() {
        parts.push(format!("the model does not know {}", listed(&new)));
    }
    let moved = of_model.iter().zip(&of_data).position(|(one, other)| one != other);
    if let (true, Some(place)) = (parts.is_empty(), moved) {
        let (one, other) = (&model[place], &data[place]);
        parts.push(format!("their order differs: class {place} is `{one}` in the model and `{other}` in the data"));
    }
    if parts.is_empty() {
        parts.push(format!("the model has {} of them, and the data {}", model.len(), data.len()));
    }
    Some(parts.join(", and "))
}

/// A name as earlier versions wrote it: `7` for `007`.
fn plain(name: &str) -> String {
    name.parse::<i64>().map_or_else(|_| name.to_owned(), |number| number.to_string())
}

/// Those of some names that others lack.
fn missing<'a>(others: &[String], names: &'a [String]) -> Vec<&'a str> {
    let others: BTreeSet<&str> = others.iter().map(String::as_str).collect();
    names.iter().map(String::as_str).filter(|name| !others.contains(name)).collect()
}

/// The first of some names, and how many more there are.
fn listed(names: &[&str]) -> String {
    let first: Vec<String> = names.iter().take(LISTED).map(|name| format!("`{name}`")).collect();
    match names.len().saturating_sub(LISTED) {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Classes that are written with spaces between them.
    fn check(model: &str, data: &str, expected: Option<&str>) {
        let [model, data] = [model, data].map(|names| names.split(' ').map(str::to_owned).collect::<Vec<String>>());
        assert_eq!(class_difference(&model, &data).as_deref(), expected, "{model:?} {data:?}");
    }

    #[test]
    fn the_same_classes_are_no_difference() {
        check("cat dog", "cat dog", None);
        check("0 1 2", "0 1 2", None);
        check("7 8", "007 008", None);
    }

    #[test]
    fn other_classes_are_named() {
        check("cat dog", "cat", Some("the data lacks `dog`"));
        check("cat dog", "cat dog eel", Some("the model does not know `eel`"));
        check("cat dog", "cat fox", Some("the data lacks `dog`, and the model does not know `fox`"));
        check("a b c d e f g", "a", Some("the data lacks `b`, `c`, `d`, `e`, `f` and 1 more"));
        check("cat", "cat cat", Some("the model has 1 of them, and the data 2"));
    }

    #[test]
    fn classes_in_another_order_are_a_difference() {
        let expected = "their order differs: class 1 is `dog` in the model and `eel` in the data";
        check("cat dog eel", "cat eel dog", Some(expected));
    }
}
