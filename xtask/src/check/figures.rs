//! `cargo xtask check --figures`: the structure of the code in numbers, to compare one state of it with another.

use std::collections::{BTreeMap, BTreeSet};

use super::graph::Graph;
use super::modules;
use super::source::Source;
use super::{items, names, shape, words};

/// The executables of the first build.
const EXECUTABLES: [&str; 2] = ["gradus-cli", "gradus-train"];

/// Lines of text, one a figure. Tests are excluded, except from the number of lines.
pub fn figures(sources: &[Source], graph: &Graph) -> Result<String, String> {
    let rust: Vec<&Source> = sources.iter().filter(|source| source.is_rust()).collect();
    let shipped: Vec<&Source> = rust.iter().copied().filter(|source| !source.is_test()).collect();
    let lines: usize = rust.iter().map(|source| source.lines.len()).sum();
    let files = spread(shipped.iter().map(|source| source.shipped().count()));
    let functions: Vec<items::Function> = shipped.iter().flat_map(|source| items::functions(source)).collect();
    let long = functions.iter().filter(|function| function.lines > items::LINES).count();
    let lengths = spread(functions.iter().map(|function| function.lines));
    let public: Vec<items::Item> = shipped.iter().flat_map(|source| items::public(source)).collect();
    let bare = public.iter().filter(|item| !item.has_docs).count();
    let mut text = format!(
        "lines             {lines} of Rust in {} files, tests included\n\
         files             {} without tests: {files} lines\n\
         functions         {}: {lengths} lines; {long} over {}\n\
         public items      {}, {bare} without documentation\n",
        rust.len(),
        shipped.len(),
        functions.len(),
        items::LINES,
        public.len(),
    );
    let several = names::check(sources)?.len();
    text += &format!("names             {several} of public types stand for several\n");
    text +=
        &format!("vocabulary        {} files with a retired word, counted per word\n", words::check(sources)?.len());
    text += &circles(sources);
    text += &folders(sources);
    text += &packages(graph);
    text += &unsafe_code(&shipped);
    Ok(text)
}

/// Median, ninth decile and largest of some numbers.
fn spread(numbers: impl Iterator<Item = usize>) -> String {
    let mut numbers: Vec<usize> = numbers.collect();
    numbers.sort_unstable();
    let at = |tenths: usize| numbers.get((numbers.len().saturating_sub(1)) * tenths / 10).copied().unwrap_or(0);
    format!("median {}, p90 {}, largest {}", at(5), at(9), at(10))
}

fn circles(sources: &[Source]) -> String {
    let circles = modules::circles(&modules::imports(sources));
    let large: Vec<_> = circles.iter().filter(|circle| circle.len() > modules::FILES).collect();
    let mut text = format!(
        "module circles    {} of more than {} files, {} of two\n",
        large.len(),
        modules::FILES,
        circles.len() - large.len()
    );
    for circle in large {
        text += &format!("                  {:>3} files: {}, …\n", circle.len(), circle[0]);
    }
    text
}

fn folders(sources: &[Source]) -> String {
    let entries = shape::entries(sources);
    let crowded: BTreeMap<&String, &usize> = entries.iter().filter(|(_, count)| **count > shape::ENTRIES).collect();
    let mut text = format!(
        "folders           {} with code: {} entries; {} over {}\n",
        entries.len(),
        spread(entries.values().copied()),
        crowded.len(),
        shape::ENTRIES
    );
    for (folder, count) in crowded {
        text += &format!("                  {count:>3} entries: {folder}\n");
    }
    text
}

/// Packages that are built, those of other platforms aside.
fn packages(graph: &Graph) -> String {
    let starts = |names: &[&str]| {
        let named = graph.iter().filter(|(_, package)| names.contains(&package.name.as_str()));
        named.map(|(id, _)| id.as_str()).collect::<Vec<_>>()
    };
    format!(
        "packages          {} for `gradus` and `gradus-rank`, {} in all with what only tests need\n",
        below(graph, starts(&EXECUTABLES)),
        graph.len()
    )
}

/// The number of packages that are reached from some.
fn below<'a>(graph: &'a Graph, mut ahead: Vec<&'a str>) -> usize {
    let mut seen = BTreeSet::new();
    while let Some(id) = ahead.pop() {
        if seen.insert(id) {
            ahead.extend(graph.get(id).into_iter().flat_map(|package| package.needs.iter().map(String::as_str)));
        }
    }
    seen.len()
}

fn unsafe_code(shipped: &[&Source]) -> String {
    let counts: Vec<(&str, usize)> = shipped
        .iter()
        .map(|source| (source.path.as_str(), items::unsafe_code(source)))
        .filter(|(_, count)| *count > 0)
        .collect();
    let all: usize = counts.iter().map(|(_, count)| count).sum();
    let mut text = format!("unsafe            {all} blocks, functions and implementations in {} files\n", counts.len());
    for (path, count) in counts {
        text += &format!("                  {count:>3} {path}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_counted() {
        assert_eq!(spread([3, 1, 2, 5, 4].into_iter()), "median 3, p90 4, largest 5");
        let sources = [Source::new("crates/a/src/lib.rs", "pub fn a() {\n    unsafe { b() }\n}\n")];
        let text = figures(&sources, &Graph::new()).unwrap();
        assert!(text.contains("functions         1: median 3, p90 3, largest 3 lines; 0 over 60\n"), "{text}");
        assert!(text.contains("public items      1, 1 without documentation\n"), "{text}");
        assert!(text.ends_with("in 1 files\n                    1 crates/a/src/lib.rs\n"), "{text}");
    }
}
