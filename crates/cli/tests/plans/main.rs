//! Plans over everything that is offered: what is told of jobs that can be planned, and what of jobs that cannot.

mod answers;
mod connections;
mod gpus;
mod jobs;
mod measured;
mod networks;
mod phantoms;
mod refusals;
mod said;
mod tables;
mod whys;
mod words;
mod workdir;
