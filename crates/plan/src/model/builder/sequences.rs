//! Layers over sequences: positions × width.

use super::super::graph::{Function, Input, Norm, OpKind, TensorId, WeightSplit};
use super::{Builder, Owned};

/// A tensor of `rows` vectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rows {
    pub tensor: TensorId,
    pub rows: u64,
    pub width: u64,
}

impl Rows {
    /// Values of one sample: rows × width.
    pub fn elements(&self) -> u64 {
        self.rows.saturating_mul(self.width)
    }
}

impl Builder {
    /// Token embedding: looks up `rows` tokens of a vocabulary.
    pub fn embed_tokens(&mut self, name: &str, rows: u64, vocabulary: u64, width: u64) -> Rows {
        self.reads(Input::Tokens(rows));
        self.embed(name, rows, vocabulary, width, WeightSplit::Rows)
    }

    /// Looks up `rows` vectors of `width` in a table with an entry for each of `vocabulary`.
    pub fn embed(&mut self, name: &str, rows: u64, vocabulary: u64, width: u64, split: WeightSplit) -> Rows {
        let indices = self.input(rows);
        let kind = OpKind::Embedding { rows, vocabulary, width, split };
        let tensor = self.add(name, kind, &[indices], rows * width, Owned::parameters(vocabulary * width));
        Rows { tensor, rows, width }
    }

    /// A linear layer: rows × `from.width` in, rows × `columns` out.
    pub fn linear(
        &mut self,
        name: impl Into<String>,
        from: Rows,
        columns: u64,
        bias: bool,
        split: WeightSplit,
    ) -> Rows {
        let owned = Owned::parameters(from.width * columns + if bias { columns } else { 0 });
        self.linear_with(name, from, columns, owned, split)
    }

    /// A linear layer whose weight is counted elsewhere (`Owned::NOTHING`), or that has several to choose from.
    pub fn linear_with(
        &mut self,
        name: impl Into<String>,
        from: Rows,
        columns: u64,
        owned: Owned,
        split: WeightSplit,
    ) -> Rows {
        let kind = OpKind::Linear { rows: from.rows, inner: from.width, columns, split };
        let tensor = self.add(name, kind, &[from.tensor], from.rows * columns, owned);
        Rows { tensor, rows: from.rows, width: columns }
    }

    /// Layer or RMS normalisation of each row, with a weight and maybe a bias.
    pub fn norm(&mut self, name: impl Into<String>, from: Rows, norm: Norm, bias: bool) -> Rows {
        let kind = OpKind::Norm { norm, elements: from.elements(), groups: from.rows };
        let owned = Owned::parameters(from.width * if bias { 2 } else { 1 });
        Rows { tensor: self.add(name, kind, &[from.tensor], from.elements(), owned), ..from }
    }

    /// Layer normalisation, an operator for each sign of its formula: the difference from the mean, its square, the
    /// difference again and divided, and what the weight and the bias make of it.
    pub fn norm_steps(&mut self, name: &str, from: Rows) -> Rows {
        let centered = self.rotate(format!("{name}.centered"), from);
        let squares = self.combine(format!("{name}.squares"), centered, centered, true);
        let kind = OpKind::Elementwise { elements: from.elements(), inputs: 1, product: false };
        let spread = self.add(format!("{name}.spread"), kind, &[squares.tensor], from.rows, Owned::NOTHING);
        let again = self.rotate(format!("{name}.again"), from);
        let elements = from.elements();
        let kind = OpKind::Elementwise { elements, inputs: 1, product: true };
        let inputs = [again.tensor, spread];
        let divided = self.add(format!("{name}.divided"), kind.clone(), &inputs, elements, Owned::NOTHING);
        let owned = Owned::parameters(2 * from.width);
        Rows { tensor: self.add(format!("{name}.scaled"), kind, &[divided], elements, owned), ..from }
    }

    /// A function of each value.
    pub fn apply(&mut self, name: impl Into<String>, from: Rows, function: Function) -> Rows {
        let kind = OpKind::Activation { function, elements: from.elements(), in_place: false };
        Rows { tensor: self.add(name, kind, &[from.tensor], from.elements(), Owned::NOTHING), ..from }
    }

    /// Dropout over each value.
    pub fn dropout(&mut self, name: impl Into<String>, from: Rows) -> Rows {
        let kind = OpKind::Dropout { elements: from.elements() };
        Rows { tensor: self.add(name, kind, &[from.tensor], from.elements(), Owned::NOTHING), ..from }
    }

    /// The sum or product of two tensors of one shape.
    pub fn combine(&mut self, name: impl Into<String>, left: Rows, right: Rows, product: bool) -> Rows {
        let kind = OpKind::Elementwise { elements: left.elements(), inputs: 2, product };
        Rows { tensor: self.add(name, kind, &[left.tensor, right.tensor], left.elements(), Owned::NOTHING), ..left }
    }

    /// A function of one tensor that keeps nothing, such as a rotation by position.
    pub fn rotate(&mut self, name: impl Into<String>, from: Rows) -> Rows {
        let kind = OpKind::Elementwise { elements: from.elements(), inputs: 1, product: false };
        Rows { tensor: self.add(name, kind, &[from.tensor], from.elements(), Owned::NOTHING), ..from }
    }

    /// The scores of the next or masked token at each row, by a table that is shared with the embedding or not, and
    /// the loss.
    pub fn predict_tokens(&mut self, name: &str, from: Rows, vocabulary: u64, tied: bool, bias: bool) {
        let weight = if tied { 0 } else { from.width * vocabulary };
        let owned = Owned::parameters(weight + if bias { vocabulary } else { 0 });
        let scores = self.linear_with(name, from, vocabulary, owned, WeightSplit::Columns);
        self.loss(scores.tensor, from.rows, vocabulary);
    }
}
