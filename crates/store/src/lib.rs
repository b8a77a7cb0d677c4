//! `store`: bytes between here and elsewhere, by path or URI.
