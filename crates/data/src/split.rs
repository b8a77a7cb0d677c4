//! Which samples are for training, validation and test.

/// One of the three parts that the samples are divided into.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Part {
    /// What the weights are fitted to.
    Train,
    /// What the best model is chosen by.
    Validation,
    /// What is used once, at the end.
    Test,
}
