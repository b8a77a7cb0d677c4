//! The whole line, with real processes: the command, its loop, agents and the user's own program as rank.

mod background;
mod faults;
mod home;
mod limits;
mod live;
mod market;
mod processes;
mod recovery;
mod results;
mod secrets;
mod shells;
mod space;
mod status;
mod sweeps;
