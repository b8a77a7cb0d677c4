//! What `transformers` takes for the figures that a file leaves out, by its type.
//!
//! `defaults.tsv` is written by `benches/peers/defaults.py` and says which version of `transformers` it is from.

/// Types and their usual figures, a line each: the name, then `key=value`, with tabs between.
const TABLE: &str = include_str!("defaults.tsv");

/// Names that files give to types which have another name in the table.
const ALSO: [(&str, &str); 3] = [("RefinedWeb", "falcon"), ("RefinedWebModel", "falcon"), ("yi", "llama")];

/// The usual figures of a type; nothing for one that `transformers` does not have.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Usual {
    figures: &'static str,
}

impl Usual {
    /// The usual figures of a `model_type`.
    pub fn of(kind: &str) -> Usual {
        let kind = ALSO.iter().find(|(also, _)| *also == kind).map_or(kind, |(_, name)| *name);
        let line = TABLE.lines().find_map(|line| line.strip_prefix(kind)?.strip_prefix('\t'));
        Usual { figures: line.unwrap_or_default() }
    }

    /// The figure of the first of `keys` that has one, with that key.
    pub fn number(&self, keys: &[&str]) -> Option<(&'static str, u64)> {
        keys.iter().find_map(|wanted| {
            let (key, value) =
                self.figures.split('\t').filter_map(|figure| figure.split_once('=')).find(|(key, _)| key == wanted)?;
            Some((key, value.parse().ok()?))
        })
    }

    /// Yes or no.
    pub fn flag(&self, key: &str) -> Option<bool> {
        self.number(&[key]).map(|(_, value)| value == 1)
    }
}
