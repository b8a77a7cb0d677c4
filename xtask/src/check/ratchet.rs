//! A ratchet: the number of known offences per check in `xtask/known.tsv` may only shrink.
//!
//! A check that is newer than the code would be red from its first day. So the number of offences is listed, a row per
//! check: its name, a tab, and the number. More fail, and fewer do until the number is lowered. Only numbers are
//! listed, so that a file can be moved.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;

/// Path of the numbers.
pub const FILE: &str = "xtask/known.tsv";

/// Offences that are shown where there are too many.
const SHOWN: usize = 40;

/// One violation of a rule.
#[derive(Debug, Clone, PartialEq)]
pub struct Offence {
    /// Its position, and the remedy.
    pub sentence: String,
}

/// The offences of each check, by its name.
pub type Found = BTreeMap<&'static str, Vec<Offence>>;

/// The messages that fail a check: its offences if there are more than listed, or that there are fewer than listed.
pub fn complaints(found: &Found, listed: &str) -> Vec<String> {
    let mut listed: BTreeMap<&str, usize> = rows(listed).collect();
    let mut complaints = Vec::new();
    for (check, offences) in found {
        let (known, count) = (listed.remove(check).unwrap_or(0), offences.len());
        if count > known {
            complaints.push(format!("{check}: {count} offences, {known} of them known"));
            complaints.extend(offences.iter().take(SHOWN).map(|offence| format!("  {}", offence.sentence)));
            complaints.extend((count > SHOWN).then(|| format!("  and {} more", count - SHOWN)));
        }
        if count < known {
            complaints
                .push(format!("{check}: {count} offences are left of {known}; `cargo xtask check --prune` notes it"));
        }
    }
    complaints.extend(listed.keys().map(|check| format!("{FILE}: there is no check `{check}`")));
    complaints
}

/// Lowers the numbers to what offends now, and takes out what offends no more; returns the sum.
pub fn prune(root: &Path, found: &Found) -> Result<usize, Box<dyn Error>> {
    let path = root.join(FILE);
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    let now = |check: &str| found.get(check).map_or(0, Vec::len);
    let left: Vec<(&str, usize)> = rows(&text).map(|(check, known)| (check, known.min(now(check)))).collect();
    let left: Vec<(&str, usize)> = left.into_iter().filter(|(_, known)| *known > 0).collect();
    if left.is_empty() {
        // Nothing is known any more, so every offence fails.
        if path.exists() {
            std::fs::remove_file(&path)?;
        }
        return Ok(0);
    }
    let head = text.lines().take_while(|line| line.starts_with('#')).map(str::to_owned);
    let lines: Vec<String> = head.chain(left.iter().map(|(check, known)| format!("{check}\t{known}"))).collect();
    std::fs::write(&path, lines.join("\n") + "\n")?;
    Ok(left.iter().map(|(_, known)| known).sum())
}

fn rows(text: &str) -> impl Iterator<Item = (&str, usize)> {
    let rows = text.lines().filter(|line| !line.starts_with('#'));
    rows.filter_map(|line| line.split_once('\t')).map(|(check, number)| (check, number.trim().parse().unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(counts: &[(&'static str, usize)]) -> Found {
        let offences =
            |count: usize| (1..=count).map(|number| Offence { sentence: format!("{number} is wrong") }).collect();
        counts.iter().map(|(check, count)| (*check, offences(*count))).collect()
    }

    const LISTED: &str = "# Known.\na\t2\nb\t1\n";

    #[test]
    fn the_numbers_may_only_shrink() {
        assert_eq!(complaints(&found(&[("a", 2), ("b", 1)]), LISTED), Vec::<String>::new());
        assert_eq!(
            complaints(&found(&[("a", 1), ("b", 2), ("c", 1)]), LISTED),
            [
                "a: 1 offences are left of 2; `cargo xtask check --prune` notes it",
                "b: 2 offences, 1 of them known",
                "  1 is wrong",
                "  2 is wrong",
                "c: 1 offences, 0 of them known",
                "  1 is wrong",
            ]
        );
        assert_eq!(complaints(&found(&[("a", 2)]), LISTED), ["xtask/known.tsv: there is no check `b`"]);
        assert_eq!(complaints(&found(&[("c", 100)]), "").len(), SHOWN + 2);
    }

    #[test]
    fn pruning_takes_no_offence_in() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join(FILE);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, LISTED).unwrap();
        assert_eq!(prune(root.path(), &found(&[("a", 3), ("c", 1)])).unwrap(), 2);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "# Known.\na\t2\n");
        assert_eq!(prune(root.path(), &found(&[])).unwrap(), 0);
        assert!(!path.exists());
    }
}
