//! `cargo xtask gpu`: everything about GPUs that only a GPU can show, ready for half an hour of one.
//!
//! `pack` makes one archive of what the suite needs, small enough to be carried to a machine that has PyTorch and nothing of
//! ours; `run` works through the [`section`]s there, or here, and writes each figure down as soon as it is known; `read`
//! turns these lines into the tables of `docs/gpu.md`. What a section does is a Python script in `benches/gpu`, for
//! PyTorch is what the machine has.

mod lines;
mod machine;
mod pack;
mod processes;
mod read;
mod run;
mod section;

#[cfg(test)]
mod tests;

use std::path::Path;

use crate::doing::Outcome;

pub use lines::{End, Line, Verdict};
pub use pack::{MOST_BYTES, Packed, assemble, contents};
pub use read::{table_of, tables};
pub use run::{RunOptions, run, work_through};
pub use section::{Needs, SECTIONS, Section};

/// How the command is called.
pub const USAGE: &str = "\
usage: cargo xtask gpu pack
       cargo xtask gpu run [ARCHIVE|FOLDER] [--out FOLDER] [--limit SECONDS] [--sections A,B] [--python PATH] [--cpu]
       cargo xtask gpu read RESULTS.jsonl [--print]
       cargo xtask gpu sections";

/// Does what `arguments` say; `root` is the checkout, which only `pack` and `read` need.
///
/// # Errors
/// What failed, and what to do.
pub fn gpu(root: Option<&Path>, arguments: &[String]) -> Outcome {
    let outside =
        || "this is not inside a checkout of gradus\n  hint: change to the checkout, then `cargo xtask gpu …`";
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["pack"] => pack::pack(root.ok_or_else(outside)?),
        ["run", rest @ ..] => run(root, &RunOptions::parse(rest)?),
        ["read", file] => read::read(root.ok_or_else(outside)?, Path::new(file)),
        ["read", file, "--print"] | ["read", "--print", file] => read::print(Path::new(file)),
        ["sections"] => Ok(section::listed()),
        _ => Err(USAGE.into()),
    }
}
