//! `report.html`: a self-contained report of a run.
//!
//! [`html`] is a pure function of the event log, the measurements and the operations log. [`view`] collects the data,
//! [`page`] and [`details`] render it, [`chart`] draws; [`sweep_html`] does the same for a sweep and its trials, drawn
//! by [`trials`]. [`document`] ensures that untrusted text cannot become markup. The file needs no network and no
//! script, and follows the reader's colour scheme.

mod arithmetic;
mod chart;
pub(crate) mod curves;
mod details;
mod document;
mod origin;
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
pub use origin::RunOrigin;
pub use sweep::sweep_html;

/// The report of a run, as an HTML page; `None` if no event mentions it.
///
/// `records` and `operations` may include other runs; `points` are this run's, in the order of their arrival. `origin` is what is
/// known of where it comes from.
pub fn html(
    run: &RunId,
    records: &[Record],
    points: &[Point],
    operations: &[(Timestamp, OperationNote)],
    origin: &RunOrigin,
) -> Option<String> {
    let view = view::View::of(run, records, points, operations)?;
    Some(page::page(&view::View { origin: origin.clone(), ..view }))
}

#[cfg(test)]
mod tests;
