//! Which weights a file holds, and how many of their values are trained.
//!
//! Exporters change what they store: equal tensors of a new network are stored once, tables that are looked up with
//! constants are stored as what was looked up, a weight that is also used turned is stored twice. What the training
//! framework would count is told by the values themselves and by the modules that nodes name.

use std::collections::BTreeSet;

use super::super::file::Stored;

/// Modules that are remembered of a weight, tables that are compared, and places at which they are.
const MOST: usize = 256;
const PLACES: u64 = 61;

/// Smaller squares than this are kernels, not scores of positions against positions.
const LEAST_SIDE: u64 = 4;

/// Weights by index.
#[derive(Debug, Clone, Default)]
pub(in super::super) struct Weights<'a> {
    list: Vec<Weight<'a>>,
    /// Those in which rows are looked up.
    tables: Vec<usize>,
}

#[derive(Debug, Clone)]
struct Weight<'a> {
    stored: Stored<'a>,
    /// Values that are trained.
    elements: u64,
    trained: bool,
    /// It was looked up beforehand, and nothing tells how large its table is.
    untold: bool,
    /// Modules that count it as their own.
    modules: Vec<&'a str>,
}

impl<'a> Weights<'a> {
    /// Adds a tensor of the file and returns its index.
    pub fn add(&mut self, stored: &Stored<'a>) -> usize {
        let (elements, trained) = (stored.elements(), stored.is_float());
        self.list.push(Weight { stored: stored.clone(), elements, trained, untold: false, modules: Vec::new() });
        self.list.len() - 1
    }

    /// How many values of it are trained, whoever counts them.
    pub fn elements(&self, weight: usize) -> u64 {
        self.list.get(weight).map_or(0, |weight| weight.elements)
    }

    /// Whether it has rows and columns.
    pub fn is_matrix(&self, weight: usize) -> bool {
        self.list.get(weight).is_some_and(|weight| self.is_matrix_of(weight))
    }

    fn is_matrix_of(&self, weight: &Weight<'a>) -> bool {
        weight.stored.dims.iter().filter(|side| **side > 1).count() > 1
    }

    /// Whether it is stored as whole numbers of few bits.
    pub fn is_in_few_bits(&self, weight: usize) -> bool {
        self.list.get(weight).is_some_and(|weight| weight.stored.is_in_few_bits())
    }

    /// Whether it is as large as it is stored though it was computed from less, as far as that can be seen: a table that was
    /// looked up for pairs of positions, or (`with_buffers`) a product with constants, whose rows depend on each other.
    pub fn is_untold(&self, weight: usize, with_buffers: bool) -> bool {
        let Some(weight) = self.list.get(weight) else { return false };
        let stored = weight.stored.elements();
        weight.untold
            || (with_buffers
                && self.is_matrix_of(weight)
                && weight.elements == stored
                && weight.stored.words().is_none())
    }

    /// Finds out how many rows of a product with constants are independent, where it has far more: a layer of as many
    /// inputs wrote it.
    pub fn multiplied_with_constants(&mut self, weight: usize) {
        let Some(weight) = self.list.get_mut(weight) else { return };
        let columns = weight.stored.dims.last().copied().unwrap_or(1);
        if weight.elements == weight.stored.elements()
            && let Some(rank) = super::rank::rank(&weight.stored)
        {
            weight.elements = rank.saturating_mul(columns);
        }
    }

    /// Whether an exporter may have stored several weights as this one.
    pub fn is_stored_for_many(&self, weight: usize) -> bool {
        self.list.get(weight).is_some_and(Weight::is_stored_for_many)
    }

    /// Whether it holds the values of another, turned or not.
    pub fn is_copy(&self, weight: usize, other: usize) -> bool {
        let pair = self.list.get(weight).zip(self.list.get(other));
        weight != other && pair.is_some_and(|(one, other)| one.holds(other))
    }

    /// Whether its values are ones that training changes.
    pub fn is_trained(&self, weight: usize) -> bool {
        self.list.get(weight).is_some_and(|weight| weight.trained)
    }

    /// Notes that a network computes with it: whole numbers are a weight in few bits then.
    pub fn computed_with(&mut self, weight: usize) -> bool {
        match self.list.get_mut(weight) {
            Some(weight) if weight.stored.is_in_few_bits() => {
                weight.trained = true;
                true
            }
            Some(_) | None => false,
        }
    }

    /// Notes that rows are looked up in it.
    pub fn looked_up(&mut self, weight: usize) {
        if self.is_trained(weight) && self.tables.len() < MOST && !self.tables.contains(&weight) {
            self.tables.push(weight);
        }
    }

    /// Notes that it is added to scores of `side` positions against as many. A table of distances that was looked up with
    /// constants repeats its values: as many are trained as there are different ones. A mask has two,
    /// but not where the file lists the weight.
    pub fn added_to_scores(&mut self, weight: usize, side: u64, listed: bool) {
        let Some(weight) = self.list.get_mut(weight).filter(|weight| weight.trained && weight.modules.is_empty())
        else {
            return;
        };
        let square = side.saturating_mul(side);
        if side < LEAST_SIDE || !weight.elements.is_multiple_of(square) {
            return;
        }
        let Some((width, raw)) = weight.stored.words() else {
            weight.untold = listed;
            return;
        };
        let different = raw.chunks_exact(width).collect::<BTreeSet<&[u8]>>().len() as u64;
        if different.saturating_mul(2) <= weight.elements {
            weight.untold = listed && different <= 2;
            weight.elements = match (different <= 2, listed) {
                (true, true) => weight.elements,
                (true, false) => 0,
                (false, _) => different,
            };
        }
    }

    /// Notes that values are multiplied with it. A table of positions by which pairs of values are turned (rotary
    /// embeddings) is computed once and not trained: its first row is the cosine or the sine of nothing.
    pub fn multiplied(&mut self, weight: usize) {
        let Some(weight) = self.list.get_mut(weight).filter(|weight| weight.trained && weight.modules.is_empty())
        else {
            return;
        };
        let long = weight.stored.dims.iter().filter(|side| **side > 1).count();
        let (Some((width, raw)), Some(row), true) = (weight.stored.words(), weight.stored.dims.last(), long > 1) else {
            return;
        };
        let first = &raw[..width];
        let is_one = matches!(first, [0, 0, 0x80, 0x3f] | [0, 0x3c] | [0x80, 0x3f]);
        let is_zero = first.iter().all(|byte| *byte == 0);
        let mut words = raw.chunks_exact(width).take(*row as usize);
        if (is_one || is_zero) && *row > 1 && words.all(|word| word == first) {
            weight.elements = 0;
        }
    }

    /// Leaves out weights that hold the values of another among them, turned or not: an exporter stores a weight once for
    /// each way in which a network computes with it before it is used, as where its mean is taken first (NFNet).
    pub fn without_copies(&self, all: &mut Vec<usize>) {
        let mut kept: Vec<usize> = Vec::with_capacity(all.len());
        for index in all.drain(..) {
            let weight = self.list.get(index);
            let same = |other: &usize| weight.zip(self.list.get(*other)).is_some_and(|(one, other)| one.holds(other));
            if !kept.iter().any(same) {
                kept.push(index);
            }
        }
        *all = kept;
    }

    /// Values that a node of this name trains in a weight, beside what other nodes already count.
    pub fn count(&mut self, index: usize, node: &'a str) -> u64 {
        self.count_in(index, node.rsplit_once('/').map_or("", |(module, _)| module))
    }

    /// The same of a node of this module.
    pub fn count_in(&mut self, index: usize, module: &'a str) -> u64 {
        if !self.is_trained(index) || self.is_turned_table(index) {
            return 0;
        }
        let weight = &mut self.list[index];
        let is_first = weight.modules.is_empty();
        // One module that runs again has the same weights; exporters number its further runs.
        let again = without_number(module);
        let may_differ = module.is_empty() || !weight.modules.iter().any(|known| *known == module || *known == again);
        if is_first || (may_differ && weight.is_stored_for_many()) || weight.is_copied_to(module) {
            if weight.modules.len() < MOST {
                weight.modules.push(module);
            }
            return weight.elements;
        }
        0
    }

    /// Whether it holds the values of a table in which rows are looked up, turned or not: the two are one weight.
    pub fn is_turned_table(&self, index: usize) -> bool {
        let Some(weight) = self.list.get(index) else { return false };
        let other = |table: &&usize| **table != index && weight.holds(&self.list[**table]);
        weight.modules.is_empty() && self.tables.iter().any(|table| other(&table))
    }
}

impl<'a> Weight<'a> {
    /// Whether an exporter may have stored several weights as this one, since a new network's are equal: vectors of one
    /// value, as biases are, and matrices of zeros. Where values stand beside the file, vectors may be.
    fn is_stored_for_many(&self) -> bool {
        let vector = self.stored.dims.iter().filter(|side| **side > 1).count() <= 1;
        match self.stored.words() {
            Some((width, raw)) => {
                let first = &raw[..width];
                (vector || first.iter().all(|byte| *byte == 0)) && raw.chunks_exact(width).all(|word| word == first)
            }
            None => vector,
        }
    }

    /// Whether a module is another of the same kind as one that counts it, such as `layers.1` beside `layers.0`: copies
    /// of a layer are equal until they are trained. A layer that is used again has one name.
    fn is_copied_to(&self, module: &str) -> bool {
        !self.modules.contains(&module) && self.modules.iter().any(|other| kind(other) == kind(module))
    }

    /// Whether its values are those of a table, seen at some places.
    fn holds(&self, table: &Weight<'a>) -> bool {
        // Sides of one before the others say nothing.
        let sides = |stored: &Stored<'a>| stored.dims.iter().copied().skip_while(|side| *side == 1).collect::<Vec<_>>();
        let (own, other) = (sides(&self.stored), sides(&table.stored));
        let (&[rows, columns], &[height, width]) = (&own[..], &other[..]) else {
            return false;
        };
        let turned = (rows, columns) == (width, height);
        if !turned && (rows, columns) != (height, width) {
            return false;
        }
        let (Some((bytes, own)), Some((same, other))) = (self.stored.words(), table.stored.words()) else {
            return false;
        };
        let all = rows.saturating_mul(columns).saturating_mul(bytes as u64);
        if all == 0 || own.len() as u64 != all {
            return false;
        }
        let at = |raw: &'a [u8], place: u64| raw.get(place as usize * bytes..)?.get(..bytes);
        let (mut equal, mut different) = (bytes == same, BTreeSet::new());
        for place in 0..PLACES {
            // Spread over the matrix, and never along one row.
            let (row, column) = (place * (rows - 1) / PLACES, place.wrapping_mul(7919) % columns);
            let value = at(own, row * columns + column);
            let place = if turned { column * rows + row } else { row * columns + column };
            equal &= value.is_some() && value == at(other, place);
            different.extend(value);
        }
        equal && different.len() > 2
    }
}

/// A name without its numbers, which tell the layers of one kind apart.
pub(super) fn kind(name: &str) -> String {
    name.chars().filter(|letter| !letter.is_ascii_digit()).collect()
}

/// A module's name without the number of its run: `/layer/query` for `/layer/query_1`.
fn without_number(module: &str) -> &str {
    match module.rsplit_once('_') {
        Some((first, number)) if !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit()) => first,
        Some(_) | None => module,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(values: impl IntoIterator<Item = f32>) -> Vec<u8> {
        values.into_iter().flat_map(f32::to_le_bytes).collect()
    }

    /// What nodes of these names count in a weight, one after the other.
    #[track_caller]
    fn check(dims: &[u64], raw: &[u8], nodes: &[&str], expected: &[u64]) {
        let mut weights = Weights::default();
        let weight = weights.add(&Stored::floats(dims, raw));
        let counted: Vec<u64> = nodes.iter().map(|node| weights.count(weight, node)).collect();
        assert_eq!(counted, expected, "{dims:?} {nodes:?}");
    }

    #[test]
    fn equal_weights_of_several_layers_count_for_each() {
        let drawn = bytes((0..6).map(|value| value as f32 * 0.3));
        let copies = ["/layers.0/linear/MatMul", "/layers.1/linear/MatMul"];
        check(&[2, 3], &drawn, &copies, &[6, 6]);
        // The same layer twice, and two that have nothing to do with each other.
        check(&[2, 3], &drawn, &["/layer/MatMul", "/layer/MatMul_1"], &[6, 0]);
        check(&[2, 3], &drawn, &["/embed/Gather", "/scores/MatMul"], &[6, 0]);
        check(&[2, 3], &drawn, &["", ""], &[6, 0]);
        check(&[2, 3], &bytes([0.0; 6]), &["a", "b"], &[6, 6]);
        check(&[6], &bytes([1.0; 6]), &["a", "b"], &[6, 6]);
        check(&[6], &drawn, &["a", "b"], &[6, 0]);
        check(&[6], &bytes([1.0; 6]), &["/layer/norm/Add", "/layer/norm/Add_1", "/other/Add"], &[6, 0, 6]);
        // One module that runs twice, and two whose own names have numbers.
        check(&[6], &bytes([0.0; 6]), &["/layer/query/Add", "/layer/query_1/Add"], &[6, 0]);
        check(&[6], &bytes([0.0; 6]), &["/layer/conv_1/Add", "/layer/conv_2/Add"], &[6, 6]);
        // Beside the file.
        check(&[6], &[], &["a", "b"], &[6, 6]);
    }

    #[test]
    fn a_table_that_is_stored_turned_too_is_one_weight() {
        let (rows, columns) = (40, 12);
        let table = bytes((0..rows * columns).map(|index| (index as f32).sin()));
        let turned = bytes((0..rows * columns).map(|index| ((index % rows * columns + index / rows) as f32).sin()));
        let other = bytes((0..rows * columns).map(|index| (index as f32).cos()));
        for (raw, expected) in [(&turned, 0), (&other, 480)] {
            let mut weights = Weights::default();
            let first = weights.add(&Stored::floats(&[40, 12], &table));
            let second = weights.add(&Stored::floats(&[12, 40], raw));
            weights.looked_up(first);
            assert_eq!([weights.count(first, ""), weights.count(second, "")], [480, expected]);
        }
    }

    #[test]
    fn a_weight_that_others_are_computed_from_is_one_however_often_it_is_stored() {
        let drawn = bytes((0..27 * 16).map(|index| (index as f32).sin()));
        let turned = bytes((0..27 * 16).map(|index| ((index % 16 * 27 + index / 16) as f32).sin()));
        let scales = bytes((0..16).map(|index| index as f32));
        let mut weights = Weights::default();
        let mut all = vec![
            weights.add(&Stored::floats(&[1, 16, 27], &drawn)),
            weights.add(&Stored::floats(&[16], &scales)),
            weights.add(&Stored::floats(&[1, 27, 16], &turned)),
            weights.add(&Stored::floats(&[27, 16], &scales)),
        ];
        weights.without_copies(&mut all);
        assert_eq!(all, [0, 1, 3]);
    }

    #[test]
    fn positions_that_turn_values_are_not_trained() {
        let count = |first: f32| {
            let raw = bytes((0..8 * 4).map(|index| if index < 4 { first } else { (index as f32).cos() }));
            let mut weights = Weights::default();
            let weight = weights.add(&Stored::floats(&[1, 8, 4], &raw));
            weights.multiplied(weight);
            weights.count(weight, "")
        };
        assert_eq!([count(1.0), count(0.0), count(0.5)], [0, 0, 32]);
    }

    #[test]
    fn what_is_added_to_scores_counts_its_different_values() {
        let count = |values: &dyn Fn(u64, u64, u64) -> f32| {
            let raw = bytes((0..2 * 64).map(|index| values(index / 64, index / 8 % 8, index % 8)));
            let mut weights = Weights::default();
            let weight = weights.add(&Stored::floats(&[1, 2, 8, 8], &raw));
            weights.added_to_scores(weight, 8, false);
            weights.count(weight, "")
        };
        // A bias by distance has 15 of them a head, a mask none that are trained.
        assert_eq!(count(&|head, row, column| (head * 100 + 8 + row - column) as f32), 2 * 15);
        assert_eq!(count(&|_, row, column| if row < column { -100.0 } else { 0.0 }), 0);
        assert_eq!(count(&|head, row, column| (head * 64 + row * 8 + column) as f32), 128);
    }
}
