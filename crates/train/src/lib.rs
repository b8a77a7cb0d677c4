//! `train`.
