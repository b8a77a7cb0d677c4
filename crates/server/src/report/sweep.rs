//! The report of a sweep: the search space, the trials as a table and as charts, and the best of them.

use std::collections::BTreeMap;

use domain::run::StopBy;
use domain::sweep::{Method, Setting, SweepEnd};
use domain::{Elapsed, InstanceId, SweepId, Work};
use maud::{Markup, html};
use plan::sweep::{Stand, TrialRow, best, rows, spent};
use plan::{SweepRecord, SweepState, World};

use super::document::{column, configuration, document, figure, header, number, number_column, table};
use super::trials::{Axis, Dot, against_keys, coordinates};
use super::words::{length, time};
use super::yaml::yaml;

/// The report of a sweep, as an HTML page; `None` if it is unknown. `meters` has the rented time of machines that are
/// not released.
pub fn sweep_html(world: &World, id: &SweepId, meters: &BTreeMap<InstanceId, Elapsed>) -> Option<String> {
    let sweep = world.sweeps.get(id)?;
    let rows = rows(world, sweep, meters);
    let body = html! {
        (head(id, sweep))
        (figures(world, sweep, &rows, meters))
        (charts(sweep, &rows))
        (trials(sweep, &rows))
        (search(sweep))
    };
    Some(document(id.as_str(), &body))
}

fn head(id: &SweepId, sweep: &SweepRecord) -> Markup {
    let (tone, detail) = match &sweep.state {
        SweepState::Running | SweepState::Stopping { .. } => ("plain", None),
        SweepState::Ended { how: SweepEnd::Done { .. } } => ("good", None),
        SweepState::Ended { how: SweepEnd::Stopped { by, .. } } => ("plain", Some(format!("by {}", stopper(*by)))),
        SweepState::Ended { how: SweepEnd::Failed { finding, .. } } => ("bad", Some(finding.message.clone())),
    };
    let about = html! { "sweep " (id) " · " (sweep.file) " · submitted " (time(sweep.submitted)) " UTC" };
    header(&sweep.job.name, (sweep.state.word(), tone), &about, detail.as_deref())
}

fn stopper(by: StopBy) -> &'static str {
    match by {
        StopBy::User => "the user",
        StopBy::Budget => "the budget",
        StopBy::Deadline => "the deadline",
        StopBy::Idle => "its idle timeout",
    }
}

fn figures(world: &World, sweep: &SweepRecord, rows: &[TrialRow], meters: &BTreeMap<InstanceId, Elapsed>) -> Markup {
    let metric = sweep.search.metric;
    let failed = rows.iter().filter(|row| row.state == Stand::Failed).count();
    let epochs: u32 = rows.iter().filter_map(|row| row.epochs).sum();
    // Those of a program are not known.
    let has_epochs = matches!(sweep.job.work, Work::Train(_));
    html! {
        section class="figures" {
            @if let (Some(best), Some(metric)) = (best(world, sweep), metric) {
                (figure(&format!("best {}, trial {}", metric.name(), best.number), metric.say(best.value)))
            }
            (figure("trials", rows.len()))
            @if failed > 0 { (figure("failed", failed)) }
            @if metric.is_some() && has_epochs { (figure("epochs, all trials", epochs)) }
            (figure("cost", spent(world, sweep, meters)))
            @if let Some(ended) = sweep.ended { (figure("submission to end", length(ended.since(sweep.submitted)))) }
        }
    }
}

fn charts(sweep: &SweepRecord, rows: &[TrialRow]) -> Markup {
    let Some(metric) = sweep.search.metric else { return html! {} };
    let axes: Vec<Axis> = sweep.search.parameters.iter().map(Axis::of).collect();
    let dot = |(place, row): (usize, &TrialRow)| {
        let value = row.value?;
        let places = axes.iter().zip(&row.values).map(|(axis, setting)| axis.place(&setting.value)).collect();
        let said: Vec<String> = row.values.iter().map(said).collect();
        let after = row.epochs.map_or(String::new(), |epochs| format!(", {epochs} epochs"));
        let title =
            format!("trial {}: {} {}{after}; {}", row.number, metric.name(), metric.say(value), said.join(", "));
        Some(Dot { places, value, epochs: row.epochs.unwrap_or(0), is_best: place == 0, title })
    };
    let dots: Vec<Dot> = rows.iter().enumerate().filter_map(dot).collect();
    if dots.is_empty() {
        return html! {};
    }
    html! {
        h2 { "Trials" }
        (coordinates(&axes, &dots, metric))
        section class="charts" {
            @for axis in 0..axes.len() { (against_keys(&axes, axis, &dots, metric)) }
        }
        p class="note" {
            "Each line and each dot is a trial by its last result, fainter the fewer epochs it was trained for; the best "
            "is drawn thick."
        }
    }
}

fn said(setting: &Setting) -> String {
    format!("{} {}", setting.key, setting.say())
}

fn trials(sweep: &SweepRecord, rows: &[TrialRow]) -> Markup {
    let metric = sweep.search.metric;
    let head = html! {
        (number_column("trial")) (column("state"))
        @if let Some(metric) = metric { (number_column("epochs")) (number_column(metric.name())) }
        @for parameter in &sweep.search.parameters { (column(&parameter.key)) }
        (number_column("cost")) (column("run"))
    };
    let body = html! {
        tbody {
            @for row in rows {
                tr {
                    (number(row.number)) td { (row.word) }
                    @if let Some(metric) = metric {
                        (number(row.epochs.map(|epochs| epochs.to_string()).unwrap_or_default()))
                        (number(row.shown(metric)))
                    }
                    @for setting in &row.values { td { (setting.say()) } }
                    (number(row.cost))
                    td { a href=(format!("../../runs/{}/report.html", row.run)) { (row.run) } }
                }
            }
        }
    };
    html! { h2 { "Table" } (table("Trials", "wide", &head, &body)) }
}

fn search(sweep: &SweepRecord) -> Markup {
    let what = match sweep.search.method {
        Method::Grid => "grid",
        Method::Table => "table",
        Method::Random => "random values",
        Method::Asha(_) => "successive halving (ASHA)",
    };
    // A job is written by serde without loss; were it not, the page would rather be without it than not be.
    let mut job = serde_json::to_value(&sweep.job).unwrap_or_default();
    crate::secrets::hide(&mut job, false);
    html! { details { (configuration(&format!("Configuration: {what}"), &yaml(&job))) } }
}
