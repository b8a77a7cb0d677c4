//! The vocabulary of gradus: values only, and how the job file is read.
//!
//! Every other crate speaks in these types. Nothing here does I/O, reads a clock or decides anything; a decision
//! belongs in `plan`. Each folder below uses only those to its left:
//!
//! ```text
//! values → market → training → runs → jobs → records → file
//! ```
//!
//! `values` are units, money, names and seeded random draws; `market` is what can be rented and at what price; `training`
//! is what is trained and how; `runs` is where a run stands and what its ranks report; `jobs` is what a user asks for;
//! `records` is what is written down or sent about it; `file` reads the job file. Start with [`Job`], then [`Event`],
//! what has happened to it, then [`rank`] and [`wire`], what the processes of a run send each other.

pub mod file;
mod jobs;
mod market;
mod records;
mod runs;
mod training;
mod values;

pub use jobs::{job, problem, sweep};
pub use market::{accelerators, gpu, listing, offer, plan, region, tariff, terms, wants};
pub use records::{event, files, rental, series, subject, wire};
pub use runs::{finding, rank, run, threads, torch};
pub use training::{architecture, format, span, train, workload};
pub use values::{id, money, random, time, units};

pub use event::{Event, Record};
pub use finding::{Cause, Finding};
pub use id::{AttemptId, Fence, InstanceId, RunId, SweepId};
pub use job::{Command, Job, Secret, Work};
pub use money::{Money, Rate};
pub use offer::{Node, Offer};
pub use plan::{Plan, Share};
pub use problem::{Problem, Problems};
pub use sweep::Sweep;
pub use time::{Elapsed, Timestamp};
pub use train::Train;
pub use units::{Bytes, Duration, Fraction};
