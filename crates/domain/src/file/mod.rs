//! How the job file is read.
