//! Offences that are known and have yet to go: `xtask/known.tsv` may only shrink.
//!
//! A check that came later than the code would be red from its first day. So what offended then is listed, a row each:
//! the check, a tab, and what offends. Whatever is not listed fails, and so does a row that offends no more.

use std::collections::BTreeSet;
use std::error::Error;
use std::path::Path;

/// Where they are listed.
pub const FILE: &str = "xtask/known.tsv";

/// One rule that is broken in one place.
#[derive(Debug, Clone, PartialEq)]
pub struct Offence {
    /// The check that found it.
    pub check: &'static str,
    /// What stays the same while lines move: a path and a name.
    pub key: String,
    /// Where it is, and what to do.
    pub sentence: String,
}

impl Offence {
    fn row(&self) -> String {
        format!("{}\t{}", self.check, self.key)
    }
}

/// The sentences that fail a check: of offences that are not listed, and of rows that offend no more.
pub fn complaints(check: &str, offences: &[Offence], listed: &str) -> Vec<String> {
    let listed: BTreeSet<&str> = rows(listed).filter(|row| row.split('\t').next() == Some(check)).collect();
    let found: BTreeSet<String> = offences.iter().map(Offence::row).collect();
    let fresh = offences.iter().filter(|offence| !listed.contains(offence.row().as_str()));
    let gone = listed.iter().filter(|row| !found.contains(**row));
    let gone =
        gone.map(|row| format!("{FILE}: `{}` offends no more; `cargo xtask check --prune`", row.replace('\t', ": ")));
    fresh.map(|offence| offence.sentence.clone()).chain(gone).collect()
}

/// Takes out of the file what offends no more; returns how many rows are left.
pub fn prune(root: &Path, offences: &[Offence]) -> Result<usize, Box<dyn Error>> {
    let path = root.join(FILE);
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    let found: BTreeSet<String> = offences.iter().map(Offence::row).collect();
    let left: Vec<&str> = rows(&text).filter(|row| found.contains(*row)).collect();
    match left.is_empty() {
        true if text.is_empty() => {}
        true => std::fs::remove_file(&path)?,
        false => {
            let head = text.lines().take_while(|line| line.starts_with('#'));
            let lines: Vec<&str> = head.chain(left.iter().copied()).collect();
            std::fs::write(&path, lines.join("\n") + "\n")?;
        }
    }
    Ok(left.len())
}

fn rows(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offence(key: &str) -> Offence {
        Offence { check: "a", key: key.into(), sentence: format!("{key} is wrong") }
    }

    const LISTED: &str = "# Known.\na\tone\na\ttwo\nb\tone\n";

    #[test]
    fn the_list_may_only_shrink() {
        assert_eq!(complaints("a", &[offence("one"), offence("two")], LISTED), Vec::<String>::new());
        assert_eq!(
            complaints("a", &[offence("one"), offence("three")], LISTED),
            ["three is wrong", "xtask/known.tsv: `a: two` offends no more; `cargo xtask check --prune`"]
        );
    }

    #[test]
    fn pruning_takes_no_offence_in() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join(FILE);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, LISTED).unwrap();
        assert_eq!(prune(root.path(), &[offence("two"), offence("three")]).unwrap(), 1);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "# Known.\na\ttwo\n");
        assert_eq!(prune(root.path(), &[]).unwrap(), 0);
        assert!(!path.exists());
    }
}
