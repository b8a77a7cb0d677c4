//! What each optimiser keeps and moves for a trained weight: the one table of them.

use super::setup::{NumericFormat, OptimizerKind};

/// What an optimiser keeps for each weight.
#[derive(Debug, Clone, Copy, PartialEq)]
enum StateOfWeight {
    /// So many values as wide as the weight.
    Values(f64),
    /// So many bytes, whatever the weight's format.
    Bytes(f64),
}

/// One row of the table.
#[derive(Debug, Clone, Copy, PartialEq)]
struct OptimizerFigures {
    state: StateOfWeight,
    /// Bytes that an update moves at least for a weight in fp32: weight, gradient and state read, weight and state
    /// written, the gradient cleared.
    moved: f64,
}

fn figures(optimizer: OptimizerKind) -> OptimizerFigures {
    let (state, moved) = match optimizer {
        OptimizerKind::Sgd => (StateOfWeight::Values(0.0), 16.0),
        OptimizerKind::SgdMomentum => (StateOfWeight::Values(1.0), 24.0),
        OptimizerKind::Adam => (StateOfWeight::Values(2.0), 32.0),
        OptimizerKind::Lamb => (StateOfWeight::Values(2.0), 52.0),
        // Two values of one byte, and a scale of 4 bytes for each of them and 256 values (Dettmers et al. 2021 has blocks
        // of 2,048, today's bitsandbytes 256).
        OptimizerKind::Adam8bit => (StateOfWeight::Bytes(2.0 + 8.0 / 256.0), 20.0),
        // A mean for each row and each column of a matrix (Shazeer and Stern 2018), next to nothing beside the matrix.
        OptimizerKind::Adafactor => (StateOfWeight::Bytes(0.02), 40.0),
    };
    OptimizerFigures { state, moved }
}

/// Returns the bytes of the optimiser's state for each trained weight.
pub fn state_bytes(optimizer: OptimizerKind, precision: NumericFormat) -> f64 {
    match figures(optimizer).state {
        StateOfWeight::Values(values) => values * precision.weight_bytes(),
        StateOfWeight::Bytes(bytes) => bytes,
    }
}

/// Returns the bytes that the optimiser's update moves at least for each trained weight.
pub fn moved_bytes(optimizer: OptimizerKind, precision: NumericFormat) -> f64 {
    figures(optimizer).moved * precision.weight_bytes() / 4.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_those_of_the_papers() {
        let check = |optimizer, precision, bytes: f64| assert_eq!(state_bytes(optimizer, precision), bytes);
        check(OptimizerKind::Sgd, NumericFormat::Fp32, 0.0);
        check(OptimizerKind::SgdMomentum, NumericFormat::AmpFp16, 4.0);
        check(OptimizerKind::Adam, NumericFormat::AmpBf16, 8.0);
        check(OptimizerKind::Adam, NumericFormat::Bf16, 4.0);
        check(OptimizerKind::Adam8bit, NumericFormat::Bf16, 2.03125);
        check(OptimizerKind::Adafactor, NumericFormat::Fp32, 0.02);
    }
}
