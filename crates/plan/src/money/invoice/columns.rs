//! Columns of a provider's export, by names that do not depend on how it writes them.

use std::collections::BTreeMap;

use csv::StringRecord;
use serde_json::Value;

/// Where each column is.
#[derive(Debug)]
pub struct Columns(BTreeMap<String, usize>);

impl Columns {
    /// The columns of a head. Of two with the same name, the first counts.
    pub fn of(head: &StringRecord) -> Columns {
        let mut places = BTreeMap::new();
        for (place, name) in head.iter().enumerate() {
            places.entry(plain(name)).or_insert(place);
        }
        Columns(places)
    }

    /// The first of these columns that there is.
    pub fn find(&self, names: &[&str]) -> Option<usize> {
        names.iter().find_map(|name| self.0.get(*name).copied())
    }

    /// Whether there are all of these columns.
    pub fn has(&self, names: &[&str]) -> bool {
        names.iter().all(|name| self.0.contains_key(*name))
    }

    /// The value of a tag: in a column of its own, or in one that has all tags as JSON.
    pub fn tag(&self, record: &StringRecord, key: &str) -> Option<String> {
        let key = plain(key);
        let own = [format!("resourcetagsuser{key}"), format!("resourcetags{key}"), format!("labels{key}")];
        let own = own.iter().find_map(|name| self.0.get(name));
        let value = own.and_then(|place| record.get(*place)).map(str::to_owned).filter(|value| !value.is_empty());
        value.or_else(|| {
            let all = self.find(&["resourcetags", "labels", "tags"])?;
            in_json(record.get(all)?, &key)
        })
    }
}

/// Letters and digits of a name, in lower case: `lineItem/UsageType` of AWS' legacy reports and `line_item_usage_type` of the
/// newer ones are the same.
fn plain(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).map(|letter| letter.to_ascii_lowercase()).collect()
}

/// The value of a key: of an object, of a list of `key` and `value`, or of an object without its braces, as Azure writes it.
fn in_json(text: &str, key: &str) -> Option<String> {
    let value: Value = serde_json::from_str(text).or_else(|_| serde_json::from_str(&format!("{{{text}}}"))).ok()?;
    let is_meant = |name: &str| {
        let name = plain(name);
        name == key || name.strip_prefix("user").is_some_and(|name| name == key)
    };
    let found = match &value {
        Value::Object(tags) => tags.iter().find(|(name, _)| is_meant(name)).map(|(_, value)| value),
        Value::Array(labels) => {
            let label = labels.iter().find(|label| label["key"].as_str().is_some_and(is_meant));
            label.map(|label| &label["value"])
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    };
    found?.as_str().filter(|value| !value.is_empty()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(column: &str, value: &str, expected: Option<&str>) {
        let columns = Columns::of(&StringRecord::from(vec!["a", column]));
        let found = columns.tag(&StringRecord::from(vec!["", value]), "gradus-owner");
        assert_eq!(found.as_deref(), expected);
    }

    #[test]
    fn tags_are_found_however_they_are_written() {
        check("resourceTags/user:gradus-owner", "me", Some("me"));
        check("resource_tags_user_gradus_owner", "me", Some("me"));
        check("resource_tags", r#"{"user_name": "x", "user_gradus_owner": "me"}"#, Some("me"));
        check("labels", r#"[{"key": "a", "value": "b"}, {"key": "gradus-owner", "value": "me"}]"#, Some("me"));
        check("Tags", r#""env": "x","gradus-owner": "me""#, Some("me"));
        check("tags", r#"{"gradus-owner": "me"}"#, Some("me"));
        check("tags", "", None);
        check("tags", "no JSON", None);
        check("resourceTags/user:gradus-owner", "", None);
    }

    #[test]
    fn names_of_columns_do_not_depend_on_their_spelling() {
        let columns = Columns::of(&StringRecord::from(vec!["lineItem/UsageType", "line_item_usage_type"]));
        assert_eq!(columns.find(&["nothing", "lineitemusagetype"]), Some(0));
        assert!(!columns.has(&["lineitemusagetype", "nothing"]));
    }
}
