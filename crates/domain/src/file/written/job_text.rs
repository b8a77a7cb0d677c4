//! A job file before it is text.

use super::yaml::{YamlValue, write_entry};

/// The order in which keys stand in a file.
const ORDER: [&str; 18] = [
    "name",
    "project",
    "num_nodes",
    "resources",
    "envs",
    "secrets",
    "workdir",
    "file_mounts",
    "outputs",
    "setup",
    "run",
    "progress",
    "sweep",
    "schedule",
    "budget",
    "deadline",
    "idle_timeout",
    "stop_grace",
];

/// A job file that is being written: keys and their values, in any order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobText {
    /// Comments above the first key, a line each.
    pub comments: Vec<String>,
    entries: Vec<(String, YamlValue)>,
}

impl JobText {
    /// Sets a key, such as `name` or `resources.cpus`, replacing its value.
    pub fn set(&mut self, path: &str, value: YamlValue) {
        let mut entries = &mut self.entries;
        let mut rest = path;
        loop {
            // Names of variables may have points in them; sections are one deep.
            let (key, below) = match rest.split_once('.') {
                Some((key, below))
                    if [
                        "resources",
                        "envs",
                        "secrets",
                        "budget",
                        "job_recovery",
                        "progress",
                        "file_mounts",
                        "schedule",
                    ]
                    .contains(&key) =>
                {
                    (key, Some(below))
                }
                _ => (rest, None),
            };
            let at = entries.iter().position(|(name, _)| name == key).unwrap_or_else(|| {
                entries.push((key.to_owned(), YamlValue::Null));
                entries.len() - 1
            });
            let Some(below) = below else {
                entries[at].1 = value;
                return;
            };
            if !matches!(entries[at].1, YamlValue::Map(_)) {
                entries[at].1 = YamlValue::Map(Vec::new());
            }
            let YamlValue::Map(inner) = &mut entries[at].1 else { return };
            (entries, rest) = (inner, below);
        }
    }

    /// Sets a key to text.
    pub fn text(&mut self, path: &str, text: impl Into<String>) {
        self.set(path, YamlValue::Text(text.into()));
    }

    /// Sets a key to raw text.
    pub fn plain(&mut self, path: &str, text: impl Into<String>) {
        self.set(path, YamlValue::Plain(text.into()));
    }

    /// Whether a key is there.
    pub fn has(&self, path: &str) -> bool {
        let mut entries = &self.entries;
        let mut parts = path.split('.').peekable();
        while let Some(part) = parts.next() {
            let Some((_, value)) = entries.iter().find(|(name, _)| name == part) else { return false };
            match value {
                YamlValue::Map(inner) if parts.peek().is_some() => entries = inner,
                _ => return parts.peek().is_none(),
            }
        }
        true
    }

    /// Removes a key, or the nearest one above it; returns which. The command of the job is never removed.
    pub(super) fn remove(&mut self, path: &str) -> Option<String> {
        let mut path = path.split('[').next().unwrap_or_default();
        while !path.is_empty() && path != "run" && path != "resources" {
            if remove_from(&mut self.entries, path) {
                return Some(path.to_owned());
            }
            path = path.rsplit_once('.')?.0;
        }
        None
    }

    /// The file.
    pub fn render(&self) -> String {
        let mut out = String::new();
        for comment in self.comments.iter().flat_map(|comment| comment.lines()) {
            out.push_str(format!("# {comment}").trim_end());
            out.push('\n');
        }
        let place = |key: &str| ORDER.iter().position(|known| *known == key).unwrap_or(ORDER.len());
        let mut entries: Vec<&(String, YamlValue)> =
            self.entries.iter().filter(|(_, value)| !value.is_empty()).collect();
        entries.sort_by_key(|(key, _)| place(key));
        entries.into_iter().for_each(|(key, value)| write_entry(&mut out, key, value, 0));
        out
    }
}

fn remove_from(entries: &mut Vec<(String, YamlValue)>, path: &str) -> bool {
    if let Some(at) = entries.iter().position(|(name, _)| name == path) {
        entries.remove(at);
        return true;
    }
    let Some((key, below)) = path.split_once('.') else { return false };
    match entries.iter_mut().find(|(name, _)| name == key) {
        Some((_, YamlValue::Map(inner))) => remove_from(inner, below),
        _ => false,
    }
}
