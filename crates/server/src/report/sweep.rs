//! The report of a sweep: what was searched, the trials as a table and as charts, and the best of them.

use std::collections::BTreeMap;

use domain::run::StopBy;
use domain::sweep::{Method, Setting, SweepEnd};
use domain::{Elapsed, InstanceId, SweepId};
use plan::sweep::{Stand, TrialRow, best, rows, spent};
use plan::{SweepRecord, SweepState, World};

use super::markup::Markup;
use super::trials::{Axis, Dot, against_keys, coordinates};
use super::words::{length, time};
use super::yaml::yaml;

/// The report of a sweep, as an HTML page; none when it is unknown. `meters` tells the rent so far of machines that are
/// not released.
pub fn sweep_html(world: &World, id: &SweepId, meters: &BTreeMap<InstanceId, Elapsed>) -> Option<String> {
    let sweep = world.sweeps.get(id)?;
    let rows = rows(world, sweep, meters);
    let mut page = Markup::default();
    page.tags("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">");
    page.tags("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">");
    page.tags("<meta name=\"color-scheme\" content=\"light dark\">");
    page.element("<title>", id, " · gradus</title><style>").tags(include_str!("style.css"));
    page.tags("</style></head><body><main>\n");
    head(&mut page, id, sweep);
    figures(&mut page, world, sweep, &rows, meters);
    charts(&mut page, sweep, &rows);
    trials(&mut page, sweep, &rows);
    search(&mut page, sweep);
    page.tags("</main></body></html>\n");
    Some(page.finish())
}

fn head(page: &mut Markup, id: &SweepId, sweep: &SweepRecord) {
    let (tone, detail) = match &sweep.state {
        SweepState::Running | SweepState::Stopping { .. } => ("plain", None),
        SweepState::Ended { how: SweepEnd::Done { .. } } => ("good", None),
        SweepState::Ended { how: SweepEnd::Stopped { by, .. } } => ("plain", Some(format!("by {}", stopper(*by)))),
        SweepState::Ended { how: SweepEnd::Failed { finding, .. } } => ("bad", Some(finding.message.clone())),
    };
    page.element("<header><h1>", &sweep.job.name, "</h1>");
    page.tags("<span class=\"badge ").text(tone).element("\">", sweep.state.word(), "</span>");
    page.element("<p>sweep ", id, " · ").text(&sweep.file);
    page.element(" · submitted ", time(sweep.submitted), " UTC</p>");
    if let Some(detail) = detail {
        page.tags("<p class=\"").text(tone).element("\">", detail, "</p>");
    }
    page.tags("</header>\n");
}

fn stopper(by: StopBy) -> &'static str {
    match by {
        StopBy::User => "the user",
        StopBy::Budget => "the budget",
        StopBy::Deadline => "the deadline",
    }
}

fn figures(
    page: &mut Markup,
    world: &World,
    sweep: &SweepRecord,
    rows: &[TrialRow],
    meters: &BTreeMap<InstanceId, Elapsed>,
) {
    let metric = sweep.search.metric;
    page.tags("<section class=\"figures\">");
    let mut figure = |name: &str, value: String| {
        page.element("<div><b>", value, "</b>").element("<span>", name, "</span></div>");
    };
    if let Some(best) = best(world, sweep) {
        figure(&format!("best {}, trial {}", metric.name(), best.number), metric.say(best.value));
    }
    figure("trials", rows.len().to_string());
    let failed = rows.iter().filter(|row| row.state == Stand::Failed).count();
    if failed > 0 {
        figure("failed", failed.to_string());
    }
    let epochs: u32 = rows.iter().filter_map(|row| row.epochs).sum();
    figure("epochs together", epochs.to_string());
    figure("cost", spent(world, sweep, meters).to_string());
    if let Some(ended) = sweep.ended {
        figure("submission to end", length(ended.since(sweep.submitted)));
    }
    page.tags("</section>\n");
}

fn charts(page: &mut Markup, sweep: &SweepRecord, rows: &[TrialRow]) {
    let axes: Vec<Axis> = sweep.search.parameters.iter().map(Axis::of).collect();
    let metric = sweep.search.metric;
    let dot = |(place, row): (usize, &TrialRow)| {
        let value = row.value?;
        let places = axes.iter().zip(&row.values).map(|(axis, setting)| axis.place(&setting.value)).collect();
        let said: Vec<String> = row.values.iter().map(said).collect();
        let epochs = row.epochs.unwrap_or(0);
        let title = format!(
            "trial {}: {} {}, {epochs} epochs; {}",
            row.number,
            metric.name(),
            metric.say(value),
            said.join(", ")
        );
        Some(Dot { places, value, epochs, is_best: place == 0, title })
    };
    let dots: Vec<Dot> = rows.iter().enumerate().filter_map(dot).collect();
    if dots.is_empty() {
        return;
    }
    page.tags("<h2>Trials</h2>\n");
    page.piece(coordinates(&axes, &dots, metric));
    page.tags("<section class=\"charts\">\n");
    for place in 0..axes.len() {
        page.piece(against_keys(&axes, place, &dots, metric));
    }
    page.tags("</section>\n");
    page.tags(
        "<p class=\"note\">Each line and each dot is a trial by its last result, fainter the fewer epochs it was ",
    );
    page.tags("trained for; the best is drawn thick.</p>\n");
}

fn said(setting: &Setting) -> String {
    format!("{} {}", setting.key, setting.say())
}

fn trials(page: &mut Markup, sweep: &SweepRecord, rows: &[TrialRow]) {
    let metric = sweep.search.metric;
    page.tags("<h2>Table</h2><table class=\"trials\"><thead><tr><th class=\"number\">trial</th><th>state</th>");
    page.tags("<th class=\"number\">epochs</th>").element("<th class=\"number\">", metric.name(), "</th>");
    for parameter in &sweep.search.parameters {
        page.element("<th>", &parameter.key, "</th>");
    }
    page.tags("<th class=\"number\">cost</th><th>run</th></tr></thead><tbody>\n");
    for row in rows {
        page.element("<tr><td class=\"number\">", row.number, "</td>").element("<td>", row.word, "</td>");
        let epochs = row.epochs.map(|epochs| epochs.to_string()).unwrap_or_default();
        page.element("<td class=\"number\">", epochs, "</td>");
        let value = row.value.map(|value| metric.say(value)).unwrap_or_default();
        page.element("<td class=\"number\">", value, "</td>");
        for setting in &row.values {
            page.element("<td>", setting.say(), "</td>");
        }
        page.element("<td class=\"number\">", row.cost, "</td>").tags("<td><a href=\"../../runs/");
        page.text(&row.run).element("/report.html\">", &row.run, "</a></td></tr>\n");
    }
    page.tags("</tbody></table>\n");
}

fn search(page: &mut Markup, sweep: &SweepRecord) {
    let what = match sweep.search.method {
        Method::Grid => "grid",
        Method::Random => "random values",
        Method::Asha(_) => "successive halving (ASHA)",
    };
    // A job is written by serde without loss; were it not, the page would rather be without it than not be.
    let mut job = serde_json::to_value(&sweep.job).unwrap_or_default();
    crate::secrets::hide(&mut job, false);
    page.element("<details><summary>Configuration: ", what, "</summary>").element(
        "<pre>",
        yaml(&job),
        "</pre></details>\n",
    );
}
