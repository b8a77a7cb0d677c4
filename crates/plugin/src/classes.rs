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
    /// Parses a number or a name; `None` for an empty text.
    pub fn parse(text: &str) -> Option<NamedClass> {
        let text = text.trim();
        match text.parse() {
            Ok(number) => Some(NamedClass::Number(number)),
            Err(_) if text.is_empty() => None,
            Err(_) => Some(NamedClass::Word(text.to_owned())),
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
