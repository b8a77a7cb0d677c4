//! `report.html`: one file that shows a run to somebody who was not there.
//!
//! [`html`] is a pure function of the event log, the measurements and the operations log. [`view`] gathers from them what is shown,
//! [`page`] and [`details`] write it down, [`chart`] draws; [`sweep_html`] does the same for a sweep and its trials,
//! drawn by [`trials`]. [`document`] is why no text from outside can become a tag. The file needs no network and no
//! script, and follows the reader's choice of light or dark.

mod arithmetic;
mod chart;
pub(crate) mod curves;
mod details;
mod document;
mod page;
mod scores;
mod sweep;
mod trials;
mod view;
mod words;
mod yaml;

use control::OperationNote;
use domain::series::Point;
use domain::{Record, RunId, Timestamp};

pub use arithmetic::{Arithmetic, arithmetic};
pub use curves::Curves;
pub use sweep::sweep_html;

/// The report of a run, as an HTML page; none when no event speaks of it.
///
/// `records` and `operations` may hold what concerns other runs; `points` are this run's, in the order in which they
/// arrived.
pub fn html(
    run: &RunId,
    records: &[Record],
    points: &[Point],
    operations: &[(Timestamp, OperationNote)],
) -> Option<String> {
    view::View::of(run, records, points, operations).map(|view| page::page(&view))
}

#[cfg(test)]
mod tests;
