//! The vocabulary of gradus: plain values, and the parser of job files.
//!
//! Every other crate uses these types. This crate does no I/O, reads no clock and makes no decisions; decisions belong
//! in `plan`. Each folder below uses only those to its left:
//!
//! ```text
//! values → market → training → runs → jobs → records → file
//! ```
//!
//! `values` are units, money, names and seeded random draws; `market` is offers and prices; `training` is the model and
//! its training; `runs` is the state of a run and its ranks' reports; `jobs` is the user's request; `records` is what
//! is stored or sent about it; `file` parses the job file. Start with [`Job`], then [`Event`], its history, then
//! [`rank`] and [`wire`], the messages between the processes of a run.

pub mod file;
mod jobs;
mod market;
mod records;
mod runs;
mod training;
mod values;

pub use jobs::{hang, image, job, mounts, pipeline, problem, progress, schedule, sweep};
pub use market::{accelerators, boot_disk, gpu, listing, offer, plan, region, tariff, terms, volume, wants};
pub use records::{event, files, joining, rental, series, subject, wire};
pub use runs::{all_reduce, finding, rank, run, threads, torch};
pub use training::{architecture, format, span, train, workload};
pub use values::{id, money, random, time, units};

pub use event::{Event, Record};
pub use finding::{Cause, Finding};
pub use id::{AttemptId, Fence, InstanceId, PipelineId, RunId, ScheduleId, SweepId};
pub use image::ContainerImage;
pub use job::{Command, Job, Secret, Work};
pub use money::{Money, Rate};
pub use offer::{Node, Offer};
pub use plan::{Plan, Share};
pub use problem::{Problem, Problems};
pub use sweep::Sweep;
pub use time::{Elapsed, Timestamp};
pub use train::Train;
pub use units::{Bytes, Duration, Fraction};
