//! `agent`.
