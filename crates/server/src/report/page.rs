//! The page itself: what a reader sees first stands first.

use domain::event::RunEnd;
use domain::rank::{Evaluated, Exported, TaskMetrics};
use domain::run::Outcome;
use domain::{Timestamp, Work};

use super::chart::{Chart, Line, with_mean};
use super::markup::Markup;
use super::scores::scores;
use super::view::{Tone, View};
use super::words::{count, length, percent, size, time};
use super::yaml::yaml;
use crate::Loading;

/// The whole page.
pub fn page(view: &View) -> String {
    let mut page = Markup::default();
    page.tags("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">");
    page.tags("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">");
    page.tags("<meta name=\"color-scheme\" content=\"light dark\">");
    page.element("<title>", &view.run, " · gradus</title><style>").tags(include_str!("style.css"));
    page.tags("</style></head><body><main>\n");
    head(&mut page, view);
    figures(&mut page, view);
    curves(&mut page, view);
    timeline(&mut page, view);
    bill(&mut page, view);
    model(&mut page, view);
    if let Some(model) = exported(view) {
        scores(&mut page, model, view.ready.as_ref().map_or(&[], |ready| &ready.classes));
    }
    evaluations(&mut page, view);
    loading(&mut page, view);
    checkpoints(&mut page, view);
    plan(&mut page, view);
    configuration(&mut page, view);
    environment(&mut page, view);
    page.tags("</main></body></html>\n");
    page.finish()
}

fn head(page: &mut Markup, view: &View) {
    let (word, tone, detail) = view.standing();
    page.element("<header><h1>", &view.submitted.job.name, "</h1>");
    page.tags("<span class=\"badge ").text(class(tone)).element("\">", word, "</span>");
    page.element("<p>", &view.run, " · ").text(&view.submitted.file);
    page.element(" · submitted ", time(view.submitted_at), " UTC</p>");
    if let Some(detail) = detail {
        page.tags("<p class=\"").text(class(tone)).element("\">", detail, "</p>");
    }
    page.tags("</header>\n");
}

fn figures(page: &mut Markup, view: &View) {
    page.tags("<section class=\"figures\">");
    if let Some((_, test)) = &view.curves.test {
        figure(page, test_name(test.figures), percent(test.accuracy));
    }
    if let Some(best) = best(view) {
        figure(page, "best validation", percent(best.accuracy));
    }
    let cost = view.bill.as_ref().map(|bill| bill.total.to_string());
    figure(page, "cost", cost.unwrap_or_else(|| "not billed yet".into()));
    if let Some((at, _)) = &view.end {
        figure(page, "submission to end", length(at.since(view.submitted_at)));
    }
    if let Some((_, step)) = view.curves.steps.last() {
        figure(page, "steps", count(step.step));
    }
    figure(page, "attempts", view.attempts);
    if let Some(arithmetic) = view.arithmetic() {
        figure(page, "of the network's own arithmetic", arithmetic.rate());
        if let Some((share, gpu)) = &arithmetic.utilisation {
            page.element("<div><b>", percent(*share), "</b>").element(
                "<span>",
                format_args!("MFU: of {gpu}'s peak"),
                "</span></div>",
            );
        }
    }
    page.tags("</section>\n");
}

fn test_name(figures: TaskMetrics) -> &'static str {
    if figures.map50.is_some() { "test mAP@[.5:.95]" } else { "test accuracy" }
}

fn figure(page: &mut Markup, name: &'static str, value: impl std::fmt::Display) {
    page.element("<div><b>", value, "</b>").element("<span>", name, "</span></div>");
}

/// Whether what stands in place of the accuracy is the mean average precision.
fn finds_objects(view: &View) -> bool {
    view.curves.validations.iter().chain(&view.curves.test).any(|(_, evaluated)| evaluated.figures.map50.is_some())
}

fn curves(page: &mut Markup, view: &View) {
    let curves = &view.curves;
    if curves.steps.is_empty() && curves.validations.is_empty() {
        return;
    }
    page.tags("<h2>Curves</h2><section class=\"charts\">\n");
    for chart in charts(view) {
        page.piece(chart.draw());
    }
    page.tags("</section>\n");
    if !curves.resumed.is_empty() {
        page.tags(
            "<p class=\"note\">A dashed line is a checkpoint that a later attempt resumed from; each step is shown ",
        );
        page.tags("once, as the last attempt made it.</p>\n");
    }
}

/// Loss, accuracy, learning rate and speed over the steps.
fn charts(view: &View) -> [Chart; 4] {
    let curves = &view.curves;
    let of_steps = |value: fn(&domain::rank::Step) -> f64| -> Vec<(u64, f64)> {
        curves.steps.iter().map(|(_, step)| (step.step, value(step))).collect()
    };
    let of_validations = |value: fn(&Evaluated) -> f64| -> Vec<(u64, f64)> {
        curves.validations.iter().map(|(_, evaluated)| (evaluated.step, value(evaluated))).collect()
    };
    let resumed = || curves.resumed.clone();
    let mut loss = with_mean("training", of_steps(|step| step.loss));
    loss.push(Line { name: "validation", class: "second", points: of_validations(|evaluated| evaluated.loss) });
    // The mean is one of times, so that it is what the whole run made, stalls included.
    let mut speed = with_mean("training", of_steps(|step| step.step_us as f64 / f64::from(step.samples.max(1))));
    for (_, value) in speed.iter_mut().flat_map(|line| &mut line.points) {
        *value = 1e6 / value.max(1e-3);
    }
    let ends = [curves.steps.first(), curves.steps.last()].map(|end| end.map_or(0, |(_, step)| step.step));
    let span = (ends[0], ends[1]);
    let test = curves.test.iter().map(|(_, test)| (test.step, test.accuracy)).collect();
    [
        Chart { title: "Loss", say: |value| plain(value), lines: loss, span, resumed: resumed() },
        Chart {
            title: if finds_objects(view) { "mAP@[.5:.95]" } else { "Accuracy" },
            say: |value| format!("{} %", plain(value * 100.0)),
            lines: vec![
                Line { name: "validation", class: "second", points: of_validations(|evaluated| evaluated.accuracy) },
                Line { name: "test", class: "third", points: test },
            ],
            span,
            resumed: resumed(),
        },
        Chart {
            title: "Learning rate",
            say: |value| plain(value),
            lines: vec![Line { name: "training", class: "first", points: of_steps(|step| step.lr) }],
            span,
            resumed: resumed(),
        },
        Chart {
            title: "Samples a second",
            say: |value| if value < 100.0 { plain(value) } else { count(value.round() as u64) },
            lines: speed,
            span,
            resumed: resumed(),
        },
    ]
}

fn timeline(page: &mut Markup, view: &View) {
    page.tags("<h2>Timeline</h2><table class=\"timeline\"><thead><tr><th>UTC</th><th class=\"number\">after</th>");
    page.tags("<th>what</th></tr></thead><tbody>\n");
    for moment in &view.moments {
        page.tags("<tr class=\"").text(class(moment.tone)).element("\"><td>", time(moment.at), "</td>");
        page.element("<td class=\"number\">", length(moment.at.since(view.submitted_at)), "</td><td>");
        page.text(&moment.text);
        if let Some(detail) = &moment.detail {
            page.element("<small>", detail, "</small>");
        }
        page.tags("</td></tr>\n");
    }
    page.tags("</tbody></table>\n");
}

fn bill(page: &mut Markup, view: &View) {
    page.tags("<h2>Bill</h2>");
    let Some(bill) = &view.bill else {
        page.tags("<p class=\"note\">Not final: a bill is written when every machine is released.</p>\n");
        return;
    };
    page.tags(
        "<table><thead><tr><th>machine</th><th>kind</th><th>rented from (UTC)</th><th class=\"number\">seconds</th>",
    );
    page.tags("<th class=\"number\">price</th><th class=\"number\">amount</th></tr></thead><tbody>\n");
    for line in &bill.lines {
        page.element("<tr><td>", &line.instance, "</td>").element("<td>", &line.kind, "</td>");
        page.element("<td>", time(line.usage.started), "</td>");
        page.element("<td class=\"number\">", format_args!("{:.6}", line.usage.elapsed.as_secs_f64()), "</td>");
        page.element("<td class=\"number\">", line.rate, "</td>");
        page.element("<td class=\"number\">", line.amount, "</td></tr>\n");
    }
    page.tags("</tbody><tfoot><tr><td colspan=\"5\">total</td>");
    page.element("<td class=\"number\">", bill.total, "</td></tr></tfoot></table>\n");
    page.tags("<p class=\"note\">Exact to the micro-dollar; each line is rounded up to the next whole one.</p>\n");
}

fn model(page: &mut Markup, view: &View) {
    let Some(model) = exported(view) else { return };
    page.tags("<h2>Model</h2><table class=\"facts\">");
    fact(page, "file", &model.model);
    fact(page, "SHA-256", &model.model_sha256);
    fact(page, "size", size(model.bytes));
    fact(
        page,
        "weights of step",
        format_args!("{} of {}, the best by validation", count(model.step), count(model.steps)),
    );
    page.tags("</table>\n");
}

fn evaluations(page: &mut Markup, view: &View) {
    let rows = view.curves.validations.iter().chain(&view.curves.test);
    if view.curves.validations.is_empty() && view.curves.test.is_none() {
        return;
    }
    page.tags(
        "<details><summary>Evaluations</summary><table><thead><tr><th>samples</th><th class=\"number\">epoch</th>",
    );
    page.tags(
        "<th class=\"number\">step</th><th class=\"number\">loss</th><th class=\"number\">accuracy</th><th></th>",
    );
    page.tags("</tr></thead><tbody>\n");
    for (_, row) in rows {
        let (split, best) = match row.split {
            domain::rank::EvaluatedSplit::Validation => ("validation", if row.best { "best so far" } else { "" }),
            domain::rank::EvaluatedSplit::Test => ("test", ""),
        };
        page.element("<tr><td>", split, "</td>").element("<td class=\"number\">", row.epoch + 1, "</td>");
        page.element("<td class=\"number\">", count(row.step), "</td>");
        page.element("<td class=\"number\">", format_args!("{:.4}", row.loss), "</td>");
        page.element("<td class=\"number\">", percent(row.accuracy), "</td>").element("<td>", best, "</td></tr>\n");
    }
    page.tags("</tbody></table></details>\n");
}

fn loading(page: &mut Markup, view: &View) {
    let Some(loading) = Loading::of(view.curves.steps.iter().map(|(_, step)| step)) else { return };
    page.tags("<details><summary>Data</summary><table class=\"facts\">");
    for (name, value) in loading.lines() {
        fact(page, name, value);
    }
    page.tags("</table></details>\n");
}

fn checkpoints(page: &mut Markup, view: &View) {
    if view.curves.checkpoints.is_empty() {
        return;
    }
    let number = view.curves.checkpoints.len();
    page.element("<details><summary>Checkpoints (", number, ")</summary><table><thead><tr><th>UTC</th>");
    page.tags(
        "<th class=\"number\">step</th><th class=\"number\">size</th><th class=\"number\">training stood still</th>",
    );
    page.tags("<th class=\"number\">until durable</th></tr></thead><tbody>\n");
    for (at, checkpoint) in &view.curves.checkpoints {
        page.element("<tr><td>", time(*at), "</td>").element("<td class=\"number\">", count(checkpoint.step), "</td>");
        page.element("<td class=\"number\">", size(checkpoint.bytes), "</td>");
        page.element("<td class=\"number\">", milliseconds(checkpoint.stall_us), "</td>");
        page.element("<td class=\"number\">", milliseconds(checkpoint.commit_us), "</td></tr>\n");
    }
    page.tags("</tbody></table></details>\n");
}

fn plan(page: &mut Markup, view: &View) {
    let plan = &view.submitted.plan;
    page.tags("<details><summary>Plan</summary><table class=\"facts\">");
    fact(page, "machine", format_args!("{} at {}, {}", plan.offer.kind, plan.offer.provider, plan.offer.rate));
    fact(page, "price from", &plan.offer.price_source);
    if let Some(share) = &plan.share {
        let (ranks, accumulate, micro) = (share.ranks, share.accumulate, share.micro_batch);
        let each = format!("{} samples: {ranks} ranks × {accumulate} micro-batches × {micro}", share.batch);
        fact(page, "a step", each);
    }
    if let Some(spread) = &plan.time {
        fact(page, "time", format_args!("{} to {}", spread.low, spread.high));
    }
    if let Some(spread) = &plan.cost {
        fact(page, "cost", format_args!("{} to {}", spread.low, spread.high));
    }
    if let Some(planned) = plan.memory {
        fact(page, "peak memory, estimated", size(planned.0));
    }
    if let Some(measured) = exported(view).map(|model| model.peak_memory).filter(|bytes| *bytes > 0) {
        let ratio =
            plan.memory.map(|planned| format!(", {:.2} of the estimate", measured as f64 / planned.0.max(1) as f64));
        fact(page, "peak memory, measured", format_args!("{}{}", size(measured), ratio.unwrap_or_default()));
    }
    if let Some(ranks) = exported(view).map(|model| &model.rank_memory).filter(|ranks| !ranks.is_empty()) {
        let each: Vec<String> = ranks.iter().map(|bytes| size(*bytes)).collect();
        fact(page, "of each rank, from rank 0 on", each.join(", "));
    }
    fact(page, "set aside", plan.reserve);
    for assumption in &plan.assumptions {
        fact(page, "assumed", assumption);
    }
    page.tags("</table></details>\n");
}

fn configuration(page: &mut Markup, view: &View) {
    // A job is written by serde without loss; were it not, the page would rather be without it than not be.
    let mut job = serde_json::to_value(&view.submitted.job).unwrap_or_default();
    crate::secrets::hide(&mut job, false);
    let word = match &view.submitted.job.work {
        Work::Train(_) => "Configuration, every default filled in",
        Work::Command(_) => "Configuration",
    };
    page.element("<details open><summary>", word, "</summary>").element("<pre>", yaml(&job), "</pre>");
    page.element(
        "<p class=\"note\">SHA-256 of what defines the result: ",
        &view.submitted.job_hash,
        "</p></details>\n",
    );
}

fn environment(page: &mut Markup, view: &View) {
    let node = &view.submitted.plan.offer.node;
    page.tags("<details open><summary>Environment</summary><table class=\"facts\">");
    if let Some(environment) = &view.environment {
        fact(page, "device", format_args!("{} ({})", environment.device, environment.device_name));
        fact(page, "libtorch", &environment.torch);
        fact(page, "threads", environment.threads);
        fact(page, "precision", &environment.precision);
        fact(page, "gradus-rank", &environment.gradus);
    }
    fact(page, "machine", format_args!("{}, {} cores, {} memory", node.cpu, node.cores, size(node.memory.0)));
    if let Some(ready) = &view.ready {
        let [train, validation, test] = ready.samples.map(count);
        fact(page, "samples", format_args!("{train} training, {validation} validation, {test} test"));
        fact(page, "classes", format_args!("{}: {}", ready.classes.len(), ready.classes.join(", ")));
        fact(page, "parameters", count(ready.parameters));
    }
    page.tags("</table></details>\n");
}

fn fact(page: &mut Markup, name: &'static str, value: impl std::fmt::Display) {
    page.element("<tr><th>", name, "</th>").element("<td>", value, "</td></tr>\n");
}

fn best(view: &View) -> Option<&Evaluated> {
    let validations = view.curves.validations.iter().map(|(_, evaluated): &(Timestamp, Evaluated)| evaluated);
    validations.max_by(|a, b| a.accuracy.total_cmp(&b.accuracy))
}

fn exported(view: &View) -> Option<&Exported> {
    match &view.end.as_ref()?.1 {
        RunEnd::Done { outcome: Outcome::Trained { model } } => Some(model),
        RunEnd::Done { outcome: Outcome::Succeeded | Outcome::Failed { .. } } | RunEnd::Stopped { .. } => None,
    }
}

fn class(tone: Tone) -> &'static str {
    match tone {
        Tone::Neutral => "plain",
        Tone::Success => "good",
        Tone::Failure => "bad",
    }
}

fn milliseconds(micros: u64) -> String {
    format!("{:.1} ms", micros as f64 / 1e3)
}

/// A number with three significant digits or so, without zeros that say nothing.
fn plain(value: f64) -> String {
    let size = value.abs();
    let text = if size == 0.0 {
        return "0".into();
    } else if size >= 100.0 {
        format!("{value:.0}")
    } else if size >= 10.0 {
        format!("{value:.1}")
    } else if size >= 1.0 {
        format!("{value:.2}")
    } else if size >= 1e-4 {
        // The first digit that counts, and two more.
        let places = (2.0 - size.log10().floor()) as usize;
        format!("{value:.places$}")
    } else {
        return format!("{value:.1e}");
    };
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}
