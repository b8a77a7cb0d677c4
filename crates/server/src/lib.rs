//! `server`.
