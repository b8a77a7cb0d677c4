//! The page of a run, most important sections first. Collapsed sections are in [`details`].

use domain::event::RunEnd;
use domain::rank::{Evaluated, Exported};
use domain::run::Outcome;
use maud::{Markup, html};

use super::chart::{Chart, Line, with_mean};
use super::details;
use super::document::{column, document, fact, figure, header, number, number_column, table};
use super::scores::scores;
use super::view::{Tone, View};
use super::words::{count, length, percent, plain, score, size, time};

/// The complete page.
pub fn page(view: &View) -> String {
    let classes: &[String] = view.ready.as_ref().map_or(&[], |ready| &ready.classes);
    let body = html! {
        (head(view))
        (figures(view))
        (curves(view))
        (timeline(view))
        (bill(view))
        (model(view))
        @if let Some(model) = exported(view) { (scores(model, classes)) }
        (details::details(view))
    };
    document(view.run.as_str(), &body)
}

fn head(view: &View) -> Markup {
    let (word, tone, detail) = view.standing();
    let about = html! { (view.run) " · " (view.submitted.file) " · submitted " (time(view.submitted_at)) " UTC" };
    header(&view.submitted.job.name, (word, class(tone)), &about, detail.as_deref())
}

fn figures(view: &View) -> Markup {
    let cost = view.bill.as_ref().map(|bill| bill.total.to_string());
    html! {
        section class="figures" {
            @if let Some((_, test)) = &view.curves.test {
                @let name = test.figures.accuracy_name();
                (figure(&format!("test {name}"), score(name, test.accuracy)))
            }
            @if let Some(best) = best(view) {
                (figure("best validation", score(best.figures.accuracy_name(), best.accuracy)))
            }
            (figure("cost", cost.unwrap_or_else(|| "not billed yet".into())))
            @if let Some((at, _)) = &view.end {
                (figure("submission to end", length(at.since(view.submitted_at))))
            }
            @if let Some((_, step)) = view.curves.steps.last() { (figure("steps", count(step.step))) }
            (figure("attempts", view.attempts))
            @if let Some(arithmetic) = view.arithmetic() {
                (figure("of the network's own arithmetic", arithmetic.rate()))
                @if let Some((share, gpu)) = &arithmetic.utilisation {
                    (figure(&format!("MFU: of {gpu}'s peak"), percent(*share)))
                }
            }
        }
    }
}

/// What the accuracy of the evaluations is called.
pub(super) fn accuracy_name(view: &View) -> &'static str {
    let mut all = view.curves.validations.iter().chain(&view.curves.test);
    all.next().map_or("accuracy", |(_, evaluated)| evaluated.figures.accuracy_name())
}

fn curves(view: &View) -> Markup {
    let curves = &view.curves;
    html! {
        @if !curves.steps.is_empty() || !curves.validations.is_empty() {
            h2 { "Curves" }
            section class="charts" {
                @for chart in charts(view) { (chart.draw()) }
            }
            @if !curves.resumed.is_empty() {
                p class="note" {
                    "A dashed line is a checkpoint that a later attempt resumed from; each step is shown once, as the "
                    "last attempt computed it."
                }
            }
        }
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
    // The mean is one of times, so that it equals the throughput of the run, stalls included.
    // The time of a program's first step is unknown.
    let measured = curves.steps.iter().filter(|(_, step)| step.step_us > 0);
    let per_sample = |step: &domain::rank::Step| step.step_us as f64 / f64::from(step.samples.max(1));
    let mut speed = with_mean("training", measured.map(|(_, step)| (step.step, per_sample(step))).collect());
    for (_, value) in speed.iter_mut().flat_map(|line| &mut line.points) {
        *value = 1e6 / value.max(1e-3);
    }
    let ends = [curves.steps.first(), curves.steps.last()].map(|end| end.map_or(0, |(_, step)| step.step));
    let span = (ends[0], ends[1]);
    let test = curves.test.iter().map(|(_, test)| (test.step, test.accuracy)).collect();
    [
        Chart { title: "Loss", say: |value| plain(value), lines: loss, span, resumed: resumed() },
        Chart {
            title: match accuracy_name(view) {
                "accuracy" => "Accuracy",
                other => other,
            },
            say: match accuracy_name(view) {
                "R²" => |value| plain(value),
                _ => |value| format!("{} %", plain(value * 100.0)),
            },
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
            title: "Samples per second",
            say: |value| if value < 100.0 { plain(value) } else { count(value.round() as u64) },
            lines: speed,
            span,
            resumed: resumed(),
        },
    ]
}

fn timeline(view: &View) -> Markup {
    html! {
        h2 { "Timeline" }
        table class="timeline" {
            thead { tr { (column("UTC")) (number_column("after")) (column("what")) } }
            tbody {
                @for moment in &view.moments {
                    tr class=(class(moment.tone)) {
                        td { (time(moment.at)) }
                        (number(length(moment.at.since(view.submitted_at))))
                        td {
                            (moment.text)
                            @if let Some(detail) = &moment.detail { small { (detail) } }
                        }
                    }
                }
            }
        }
    }
}

fn bill(view: &View) -> Markup {
    let Some(bill) = &view.bill else {
        return html! {
            h2 { "Bill" }
            p class="note" { "Not final: a bill is written when every machine is released." }
        };
    };
    let head = html! {
        (column("machine")) (number_column("amount")) (number_column("seconds")) (number_column("price"))
        (column("kind")) (column("rented from (UTC)"))
    };
    let rows = html! {
        tbody {
            @for line in &bill.lines {
                tr {
                    td { (line.instance) } (number(line.amount))
                    (number(format_args!("{:.6}", line.usage.elapsed.as_secs_f64()))) (number(line.rate))
                    td { (line.kind) } td { (time(line.usage.started)) }
                }
            }
        }
        tfoot { tr { th scope="row" { "total" } (number(bill.total)) td colspan="4" {} } }
    };
    html! {
        h2 { "Bill" }
        (table("Bill", "wide", &head, &rows))
        p class="note" { "Exact to the micro-dollar; each line is rounded up to the next whole one." }
    }
}

fn model(view: &View) -> Markup {
    let Some(model) = exported(view) else { return html! {} };
    let steps = format!("{} of {}, the best by validation", count(model.step), count(model.steps));
    html! {
        h2 { "Model" }
        table class="facts" {
            (fact("file", &model.model))
            (fact("SHA-256", &model.model_sha256))
            (fact("size", size(model.bytes)))
            (fact("weights of step", steps))
        }
    }
}

fn best(view: &View) -> Option<&Evaluated> {
    let validations = view.curves.validations.iter().map(|(_, evaluated)| evaluated);
    validations.max_by(|a, b| a.accuracy.total_cmp(&b.accuracy))
}

/// The exported model of the run, if training completed.
pub fn exported(view: &View) -> Option<&Exported> {
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
