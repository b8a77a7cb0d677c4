//! A job on this machine: its file, its data, measured steps, and the plan that follows from them.
//!
//! `rented` → `machine`; `mounts` → `job_file` → `weights`, `job_request`; `machine` → `facts`; `facts`, `formats`,
//! `job_file`, `machine`, `measure`, `weights` → `draft`; `disks`, `ledger` → `spending`.

pub mod disks;
pub mod draft;
pub mod facts;
mod formats;
pub mod job_file;
pub mod job_request;
pub mod ledger;
pub mod machine;
pub mod measure;
pub mod mounts;
pub mod origin;
pub mod rented;
pub mod spending;
pub mod weights;
