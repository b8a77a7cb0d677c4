//! Which keys of a file were asked for and what was taken where they were missing, so that a misspelt key is found
//! instead of its usual value being taken in silence.

use std::cell::RefCell;
use std::collections::BTreeMap;

use domain::problem::Problem;
use serde_json::{Map, Value};

/// What types call the same figure.
const ALIKE: [&[&str]; 4] = [
    &["num_hidden_layers", "num_layers", "num_layer", "n_layers", "n_layer", "encoder_layers", "depth"],
    &["hidden_size", "d_model", "n_embd", "n_embed", "dim", "hidden_dim", "embed_dim"],
    &["num_attention_heads", "num_heads", "n_heads", "n_head", "attention_heads", "encoder_attention_heads"],
    &["intermediate_size", "ffn_dim", "d_ff", "n_inner", "ffn_hidden_size", "encoder_ffn_dim", "feed_forward_size"],
];

/// What was asked of a file and its parts. Reading only adds to it.
#[derive(Debug, Default)]
pub(in super::super) struct Asked<'a> {
    parts: RefCell<Vec<Part<'a>>>,
    said: RefCell<Vec<String>>,
}

/// One object of the file.
#[derive(Debug)]
struct Part<'a> {
    /// Its key in the file; empty for the file itself.
    path: &'a str,
    object: &'a Map<String, Value>,
    /// Keys, and whether each was missing along with all that could stand for it.
    keys: BTreeMap<String, bool>,
    /// Usual figures that stand for missing keys.
    taken: BTreeMap<String, u64>,
    /// Keys whose value is of another type than what is asked for, and what is asked for.
    strange: Vec<(String, &'static str)>,
}

impl<'a> Asked<'a> {
    /// The place of an object in this record.
    pub fn part(&self, path: &'a str, object: &'a Map<String, Value>) -> usize {
        let mut parts = self.parts.borrow_mut();
        let known = parts.iter().position(|part| part.path == path && std::ptr::eq(part.object, object));
        known.unwrap_or_else(|| {
            let (keys, taken, strange) = Default::default();
            parts.push(Part { path, object, keys, taken, strange });
            parts.len() - 1
        })
    }

    /// Notes that one of `keys` was looked for, any of which would do.
    pub fn note(&self, part: usize, keys: &[&str]) {
        let mut parts = self.parts.borrow_mut();
        let Some(part) = parts.get_mut(part) else { return };
        let missing = keys.iter().all(|key| part.object.get(*key).is_none_or(Value::is_null));
        for key in keys {
            *part.keys.entry((*key).to_owned()).or_insert(true) &= missing;
        }
    }

    /// Notes that the usual figure was taken for a key.
    pub fn taken(&self, part: usize, key: &str, value: u64) {
        if let Some(part) = self.parts.borrow_mut().get_mut(part) {
            part.taken.insert(key.to_owned(), value);
        }
    }

    /// Notes that a key's value is not `wanted`.
    pub fn strange(&self, part: usize, key: &str, wanted: &'static str) {
        if let Some(part) = self.parts.borrow_mut().get_mut(part) {
            part.strange.push((key.to_owned(), wanted));
        }
    }

    /// Notes a sentence for whoever reads the answer.
    pub fn say(&self, sentence: String) {
        let mut said = self.said.borrow_mut();
        if !said.contains(&sentence) {
            said.push(sentence);
        }
    }

    /// What was taken for granted, a sentence each.
    ///
    /// # Errors
    /// A key that is most likely a misspelt one, or one of another type.
    pub fn judge(&self) -> Result<Vec<String>, Problem> {
        let mut said = self.said.borrow().clone();
        for part in self.parts.borrow().iter() {
            if let Some((key, wanted)) = part.strange.first() {
                let value = part.object.get(key).map(Value::to_string).unwrap_or_default();
                let message = format!("`{}` is no {wanted}", shortened(&value));
                return Err(Problem::at(part.name(key), message).hint(format!("write {wanted}")));
            }
            if let Some((written, meant)) = part.misspelt() {
                let message = format!("networks of this type have no such key, and `{meant}` is missing");
                let hint = format!("write `{meant}` instead of `{written}`, or take the key out");
                return Err(Problem::at(part.name(written), message).hint(hint));
            }
            let taken: Vec<String> = part.taken.iter().map(|(key, value)| format!("`{key}` {value}")).collect();
            if !taken.is_empty() {
                let whose = if part.path.is_empty() { "the file".to_owned() } else { format!("`{}`", part.path) };
                said.push(format!("{whose} leaves out what is usual for its type: {}", taken.join(", ")));
            }
        }
        Ok(said)
    }

    /// A key of the file that is near to `missing`.
    pub fn near(&self, part: usize, missing: &str) -> Option<String> {
        let parts = self.parts.borrow();
        let part = parts.get(part)?;
        part.object.keys().find(|key| !part.keys.contains_key(*key) && are_near(key, missing)).cloned()
    }
}

impl Part<'_> {
    fn name(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// A key that nobody asked for and that other types have for what was missing, or that is spelt nearly as it.
    fn misspelt(&self) -> Option<(&str, &str)> {
        let alike = self.taken.keys().find_map(|meant| {
            let names = ALIKE.iter().find(|names| names.contains(&meant.as_str()))?;
            let other =
                names.iter().find(|name| self.object.contains_key(**name) && !self.keys.contains_key(**name))?;
            Some((*other, meant.as_str()))
        });
        alike.or_else(|| self.misspelt_by_letters())
    }

    fn misspelt_by_letters(&self) -> Option<(&str, &str)> {
        let unread = self
            .object
            .iter()
            .filter(|(key, value)| !value.is_null() && !key.starts_with('_') && !self.keys.contains_key(key.as_str()));
        unread.into_iter().find_map(|(key, _)| {
            let missing = self.keys.iter().filter(|(_, missing)| **missing);
            missing
                .map(|(meant, _)| meant.as_str())
                .find(|meant| are_near(key, meant))
                .map(|meant| (key.as_str(), meant))
        })
    }
}

/// Whether two keys differ by little in one place: by two letters, in short ones by one; not by a digit, which tells
/// keys apart (`dim1`, `dim2`). Capitals and lines between words do not count.
fn are_near(written: &str, meant: &str) -> bool {
    let plain = |key: &str| -> Vec<u8> {
        key.bytes().filter(|byte| !matches!(byte, b'_' | b'-' | b' ')).map(|byte| byte.to_ascii_lowercase()).collect()
    };
    let (one, other) = (plain(written), plain(meant));
    let least = one.len().min(other.len());
    let begin = one.iter().zip(&other).take_while(|(one, other)| one == other).count();
    let end = one.iter().rev().zip(other.iter().rev()).take_while(|(one, other)| one == other).count();
    let same = (begin + end).min(least);
    let (mut rest, mut meant) = (one[begin..].to_vec(), other[begin..].to_vec());
    rest.truncate(one.len() - same);
    meant.truncate(other.len() - same);
    if rest.iter().chain(&meant).any(u8::is_ascii_digit) {
        return false;
    }
    let swapped = rest.len() == 2 && meant.len() == 2 && rest[0] == meant[1] && rest[1] == meant[0];
    let differ = if swapped { 1 } else { rest.len().max(meant.len()) };
    match least {
        0..3 => false,
        3..9 => differ <= 1,
        9.. => differ <= 2,
    }
}

/// The beginning of a value.
fn shortened(value: &str) -> &str {
    &value[..value.floor_char_boundary(80)]
}

#[cfg(test)]
mod tests {
    use super::are_near;

    #[test]
    fn misspelt_keys_are_near() {
        for (written, meant) in [
            ("hiden_size", "hidden_size"),
            ("hiddenSize", "hidden_size"),
            ("hidden-size", "hidden_size"),
            ("hiddne_size", "hidden_size"),
            ("num_hidden_layer", "num_hidden_layers"),
            ("n_layers", "n_layer"),
            ("num_key_value_head", "num_key_value_heads"),
            ("vocab_sise", "vocab_size"),
            ("d_fff", "d_ff"),
        ] {
            assert!(are_near(written, meant), "{written} {meant}");
        }
        for (written, meant) in [
            ("num_layers", "num_hidden_layers"),
            ("max_2d_position_embeddings", "max_position_embeddings"),
            ("head_num", "head_dim"),
            ("d_ff", "d_kv"),
            ("num_kv_heads", "num_key_value_heads"),
        ] {
            assert!(!are_near(written, meant), "{written} {meant}");
        }
    }
}
