//! Classes as data names them.

/// Names that are in use for the column of classes.
pub const LABELS: [&str; 7] = ["label", "labels", "fine_label", "class", "cls", "category", "target"];

/// A class as the data names it, by number or by name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum NamedClass {
    /// By its number.
    Number(i64),
    /// By its name.
    Word(String),
}

impl NamedClass {
    /// Parses a number or a name, such as `007`; `None` for an empty text.
    pub fn parse(text: &str) -> Option<NamedClass> {
        let text = text.trim();
        match text.parse::<i64>().ok().filter(|number| number.to_string() == text) {
            Some(number) => Some(NamedClass::Number(number)),
            None if text.is_empty() => None,
            None => Some(NamedClass::Word(text.to_owned())),
        }
    }

    /// The class in one of an object's usual keys.
    pub fn of_json(value: &serde_json::Value) -> Option<NamedClass> {
        ["label", "cls", "class", "class_id", "class_name"].iter().find_map(|key| match value.get(key)? {
            serde_json::Value::Number(number) => number.as_i64().map(NamedClass::Number),
            serde_json::Value::String(text) => NamedClass::parse(text),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_a_number_only_as_numbers_are_written() {
        for (text, number) in [("7", 7), (" -3\n", -3), ("0", 0)] {
            assert_eq!(NamedClass::parse(text), Some(NamedClass::Number(number)));
        }
        for text in ["007", "+7", "-0", "7.0", "n07"] {
            assert_eq!(NamedClass::parse(text), Some(NamedClass::Word(text.to_owned())));
        }
        assert_eq!(NamedClass::parse(" "), None);
    }
}
