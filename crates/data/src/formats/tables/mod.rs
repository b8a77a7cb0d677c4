//! Columnar files: Parquet and Arrow, and which of their columns hold samples and classes.

pub(super) mod arrow;
pub(super) mod columns;
mod pages;
pub(super) mod parquet;
