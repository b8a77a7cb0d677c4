//! Access to a server: entering one, and who may enter.

pub mod login;
pub mod token;
