//! Arrows between crates: what `ARCHITECTURE.md` allows, compared with what cargo resolved.
//!
//! The table there has one row a crate: the crates it may depend on, and the heavy dependencies that it hides. A heavy
//! dependency may be reached only by the crate that hides it and by crates that depend on that one, on whatever way.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::path::Path;

use super::graph::Graph;

/// The heading above the table.
const HEADING: &str = "| crate |";

/// One row of the table.
#[derive(Debug, Default, PartialEq)]
struct Row {
    may_use: BTreeSet<String>,
    hides: BTreeSet<String>,
}

type Table = BTreeMap<String, Row>;

/// Returns a sentence for each arrow that is not allowed.
pub fn check(root: &Path, graph: &Graph) -> Result<Vec<String>, Box<dyn Error>> {
    let path = root.join("ARCHITECTURE.md");
    let text = std::fs::read_to_string(&path).map_err(|error| format!("cannot read `{}`: {error}", path.display()))?;
    Ok(complaints(&read_table(&text)?, graph))
}

/// Reads the table: its first column names the crate, its last two what it may use and what it hides, in backticks.
fn read_table(text: &str) -> Result<Table, String> {
    let rows = text.lines().skip_while(|line| !line.starts_with(HEADING)).skip(2);
    let mut table = Table::new();
    for line in rows.take_while(|line| line.starts_with('|')) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').collect();
        let [name, .., may_use, hides] = cells.as_slice() else {
            return Err(format!("`ARCHITECTURE.md` has a row of the table of crates that is too short: {line}"));
        };
        let row = Row { may_use: names(may_use).collect(), hides: names(hides).collect() };
        if let Some(name) = names(name).next() {
            table.insert(name, row);
        }
    }
    match table.is_empty() {
        true => Err(format!("`ARCHITECTURE.md` has no table that begins with `{HEADING}`")),
        false => Ok(table),
    }
}

/// The words in backticks.
fn names(cell: &str) -> impl Iterator<Item = String> + '_ {
    cell.split('`').skip(1).step_by(2).map(str::to_owned)
}

fn complaints(table: &Table, graph: &Graph) -> Vec<String> {
    let ours: BTreeMap<&String, &String> =
        graph.iter().filter_map(|(id, package)| Some((package.crate_name.as_ref()?, id))).collect();
    let mut complaints = Vec::new();
    for (name, id) in &ours {
        let Some(row) = table.get(*name) else {
            complaints.push(format!("crate `{name}` has no row in the table of `ARCHITECTURE.md`"));
            continue;
        };
        for need in graph[*id].needs.iter().filter_map(|need| graph.get(need)) {
            if let Some(below) = need.crate_name.as_ref().filter(|below| !row.may_use.contains(*below)) {
                complaints
                    .push(format!("`{name}` depends on `{below}`, an arrow that `ARCHITECTURE.md` does not list"));
            }
        }
    }
    for name in table.keys().filter(|name| !ours.contains_key(name)) {
        complaints.push(format!("`ARCHITECTURE.md` has a row for `{name}`, and there is no such crate"));
    }
    // A wrong arrow affects all that is below it; one report is enough.
    if complaints.is_empty() {
        complaints.extend(ours.iter().flat_map(|(name, id)| misplaced(name, id, table, graph)));
    }
    complaints
}

/// A sentence for each heavy dependency that a crate reaches and must not.
fn misplaced(name: &str, id: &str, table: &Table, graph: &Graph) -> Vec<String> {
    let heavy: BTreeSet<&String> = table.values().flat_map(|row| &row.hides).collect();
    let hidden = hidden_below(name, table);
    let found = reachable(id, graph).into_iter();
    let misplaced = found.filter(|(dependency, _)| heavy.contains(dependency) && !hidden.contains(dependency));
    let sentence = |(dependency, way): (String, Vec<String>)| {
        format!("`{dependency}` must not be reached from `{name}`, and is: `{}`", way.join("` → `"))
    };
    misplaced.map(sentence).collect()
}

/// Heavy dependencies that a crate or an allowed one below it hides.
fn hidden_below(name: &str, table: &Table) -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    let mut hidden = BTreeSet::new();
    let mut ahead = vec![name.to_owned()];
    while let Some(name) = ahead.pop() {
        let Some(row) = table.get(&name) else { continue };
        if seen.insert(name) {
            hidden.extend(row.hides.iter().cloned());
            ahead.extend(row.may_use.iter().cloned());
        }
    }
    hidden
}

/// Every package below `start` by name, with one of the shortest ways to it.
fn reachable(start: &str, graph: &Graph) -> BTreeMap<String, Vec<String>> {
    let mut ways: BTreeMap<&str, Vec<String>> = BTreeMap::from([(start, Vec::new())]);
    let mut ahead = std::collections::VecDeque::from([start]);
    while let Some(id) = ahead.pop_front() {
        let Some(package) = graph.get(id) else { continue };
        let mut way = ways[id].clone();
        way.push(package.crate_name.clone().unwrap_or_else(|| package.name.clone()));
        for need in &package.needs {
            if !ways.contains_key(need.as_str()) {
                ways.insert(need, way.clone());
                ahead.push_back(need);
            }
        }
    }
    let named = ways.into_iter().filter_map(|(id, mut way)| {
        let name = graph.get(id)?.name.clone();
        way.push(name.clone());
        Some((name, way))
    });
    named.collect()
}

#[cfg(test)]
mod tests {
    use super::super::graph::Package;
    use super::*;

    const TABLE: &str = "\
text before
| crate | holds | may depend on | hides |
|---|---|---|---|
| `words` | words | – | – |
| `tensors` | numbers | `words` | `tch` |
| `loop` | the loop | `words` | `tokio`, `axum` |
| `cli` | commands | `words`, `loop` | `clap` |

text after
";

    /// `edges` are lines `from: to to`; names of the table are crates of ours.
    fn check(edges: &str) -> Vec<String> {
        let table = read_table(TABLE).unwrap();
        let mut graph = Graph::new();
        for line in edges.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let (from, to) = line.split_once(':').unwrap();
            let needs: Vec<String> = to.split_whitespace().map(str::to_owned).collect();
            for name in needs.iter().map(String::as_str).chain([from]) {
                let crate_name = Some(name.to_owned()).filter(|name| table.contains_key(name) || name == "stray");
                let package = Package { name: name.to_owned(), crate_name, ..Package::default() };
                graph.entry(name.to_owned()).or_insert(package);
            }
            graph.get_mut(from).unwrap().needs = needs;
        }
        complaints(&table, &graph)
    }

    const GOOD: &str = "
        words: serde
        tensors: words tch
        loop: words axum
        axum: tokio
        cli: words loop clap
    ";

    #[test]
    fn what_is_listed_passes() {
        assert_eq!(check(GOOD), Vec::<String>::new());
    }

    #[test]
    fn an_arrow_that_is_not_listed_fails() {
        let complaints = check(&GOOD.replace("words: serde", "words: serde loop"));
        assert_eq!(complaints, ["`words` depends on `loop`, an arrow that `ARCHITECTURE.md` does not list"]);
    }

    #[test]
    fn a_heavy_dependency_fails_on_every_way() {
        let direct = check(&GOOD.replace("cli: words", "cli: tch words"));
        assert_eq!(direct, ["`tch` must not be reached from `cli`, and is: `cli` → `tch`"]);
        let through_another = check(&GOOD.replace("words: serde", "words: serde\nserde: tokio"));
        assert!(through_another.contains(
            &"`tokio` must not be reached from `tensors`, and is: `tensors` → `words` → `serde` → `tokio`".to_owned()
        ));
    }

    #[test]
    fn table_and_crates_agree() {
        let complaints = check(&format!("{}\nstray: serde", GOOD.replace("tensors: words tch", "")));
        assert_eq!(complaints.len(), 2, "{complaints:?}");
        assert!(read_table("no table").is_err());
    }
}
