//! A user's own program: started without a job file ([`launch`]), or with one that is made of another system's file
//! ([`import`]) or of what stands in a folder ([`init`]).
//!
//! [`script`] checks the script before anything is submitted, [`composed`] makes the job file of `launch`, a pure
//! function.

mod composed;
mod detected;
mod framework;
pub mod import;
pub mod init;
pub mod launch;
mod script;
mod started;
