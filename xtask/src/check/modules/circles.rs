//! Circles in a graph: Tarjan's strongly connected components (SIAM Journal on Computing 1(2), 1972).

use std::collections::BTreeMap;

use super::Imports;

/// The circles of two files and more, each in the order of paths, the largest first.
pub fn circles(imports: &Imports) -> Vec<Vec<String>> {
    let mut search = Search { imports, places: BTreeMap::new(), stack: Vec::new(), count: 0, found: Vec::new() };
    for file in imports.keys() {
        if !search.places.contains_key(file.as_str()) {
            search.visit(file);
        }
    }
    let mut found = search.found;
    found.iter_mut().for_each(|circle| circle.sort());
    found.sort_by_key(|circle| (std::cmp::Reverse(circle.len()), circle.clone()));
    found
}

struct Search<'a> {
    imports: &'a Imports,
    /// When each file was first seen, the first file that it leads back to, and whether it is on the stack.
    places: BTreeMap<&'a str, (usize, usize, bool)>,
    stack: Vec<&'a str>,
    count: usize,
    found: Vec<Vec<String>>,
}

impl<'a> Search<'a> {
    fn visit(&mut self, file: &'a str) -> usize {
        let index = self.count;
        self.count += 1;
        self.places.insert(file, (index, index, true));
        self.stack.push(file);
        let mut low = index;
        for next in self.imports.get(file).into_iter().flatten() {
            low = low.min(match self.places.get(next.as_str()) {
                None => self.visit(next),
                Some((index, _, true)) => *index,
                Some((_, _, false)) => low,
            });
        }
        self.places.insert(file, (index, low, true));
        if low == index {
            let start = self.stack.iter().rposition(|other| *other == file).unwrap_or(0);
            let circle = self.stack.split_off(start);
            for member in &circle {
                if let Some(place) = self.places.get_mut(member) {
                    place.2 = false;
                }
            }
            if circle.len() > 1 {
                self.found.push(circle.into_iter().map(str::to_owned).collect());
            }
        }
        low
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn components_are_found() {
        let graph = |edges: &[(&str, &str)]| {
            let mut imports = Imports::new();
            for (from, to) in edges {
                imports.entry((*from).to_owned()).or_default().insert((*to).to_owned());
                imports.entry((*to).to_owned()).or_default();
            }
            circles(&imports).iter().map(|circle| circle.concat()).collect::<Vec<_>>()
        };
        assert_eq!(graph(&[("a", "b"), ("b", "c"), ("c", "d")]), Vec::<String>::new());
        assert_eq!(graph(&[("a", "b"), ("b", "a"), ("b", "c"), ("c", "d"), ("d", "e"), ("e", "c")]), ["cde", "ab"]);
        assert_eq!(graph(&[("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("d", "b")]), ["abcd"]);
    }
}
