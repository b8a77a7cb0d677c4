//! The collapsed sections of a page: every evaluation and checkpoint, the plan, the configuration, the environment.

use domain::Work;
use domain::rank::EvaluatedSplit;
use maud::{Markup, html};

use super::document::{column, configuration, fact, number, number_column, table};
use super::page::{accuracy_name, exported};
use super::view::View;
use super::words::{count, length, percent, score, size, time};
use super::yaml::yaml;
use crate::Loading;

/// All of it.
pub fn details(view: &View) -> Markup {
    html! {
        (goodput(view))
        (evaluations(view))
        (loading(view))
        (checkpoints(view))
        (plan(view))
        (job(view))
        (environment(view))
    }
}

fn goodput(view: &View) -> Markup {
    let wall = view.goodput.wall().0;
    if wall == 0 {
        return html! {};
    }
    let head = html! { (column("what")) (number_column("time")) (number_column("share")) };
    let rows = html! {
        tbody {
            @for (name, part) in view.goodput.parts().into_iter().filter(|(_, part)| part.0 > 0) {
                tr { td { (name) } (number(length(part))) (number(percent(part.0 as f64 / wall as f64))) }
            }
        }
    };
    html! { details { summary { "Where the time went" } (table("Where the time went", "wide", &head, &rows)) } }
}

fn evaluations(view: &View) -> Markup {
    if view.curves.validations.is_empty() && view.curves.test.is_none() {
        return html! {};
    }
    let head = html! {
        (column("samples")) (number_column("epoch")) (number_column("step")) (number_column("loss"))
        (number_column(accuracy_name(view))) (column("note"))
    };
    let rows = html! {
        tbody {
            @for (_, row) in view.curves.validations.iter().chain(&view.curves.test) {
                @let (split, note) = match row.split {
                    EvaluatedSplit::Validation => ("validation", if row.best { "best so far" } else { "" }),
                    EvaluatedSplit::Test => ("test", ""),
                };
                tr {
                    td { (split) } (number(row.epoch + 1)) (number(count(row.step)))
                    (number(format_args!("{:.4}", row.loss))) (number(score(row.figures.accuracy_name(), row.accuracy)))
                    td { (note) }
                }
            }
        }
    };
    html! { details { summary { "Evaluations" } (table("Evaluations", "wide", &head, &rows)) } }
}

fn loading(view: &View) -> Markup {
    let Some(loading) = Loading::of(view.curves.steps.iter().map(|(_, step)| step)) else { return html! {} };
    html! {
        details {
            summary { "Data" }
            table class="facts" {
                @for (name, value) in loading.lines() { (fact(name, value)) }
            }
        }
    }
}

fn checkpoints(view: &View) -> Markup {
    if view.curves.checkpoints.is_empty() {
        return html! {};
    }
    let head = html! {
        (column("UTC")) (number_column("step")) (number_column("size")) (number_column("training stood still"))
        (number_column("until durable"))
    };
    let rows = html! {
        tbody {
            @for (at, checkpoint) in &view.curves.checkpoints {
                tr {
                    td { (time(*at)) } (number(count(checkpoint.step))) (number(size(checkpoint.bytes)))
                    (number(milliseconds(checkpoint.stall_us))) (number(milliseconds(checkpoint.commit_us)))
                }
            }
        }
    };
    html! {
        details {
            summary { "Checkpoints (" (view.curves.checkpoints.len()) ")" }
            (table("Checkpoints", "wide", &head, &rows))
        }
    }
}

fn plan(view: &View) -> Markup {
    let plan = &view.submitted.plan;
    let measured = exported(view).map(|model| model.peak_memory).filter(|bytes| *bytes > 0);
    let ranks = exported(view).map(|model| &model.rank_memory).filter(|ranks| !ranks.is_empty());
    html! {
        details {
            summary { "Plan" }
            table class="facts" {
                (fact("machine", format_args!("{} at {}, {}", plan.offer.kind, plan.offer.provider, plan.offer.rate)))
                (fact("price from", &plan.offer.price_source))
                @if let Some(share) = &plan.share {
                    @let (ranks, accumulate, micro) = (share.ranks, share.accumulate, share.micro_batch);
                    (fact("a step", format_args!(
                        "{} samples: {ranks} ranks × {accumulate} micro-batches × {micro}", share.batch
                    )))
                }
                @if let Some(spread) = &plan.time { (fact("time", format_args!("{} to {}", spread.low, spread.high))) }
                @if let Some(spread) = &plan.cost { (fact("cost", format_args!("{} to {}", spread.low, spread.high))) }
                @if let Some(planned) = plan.memory { (fact("peak memory, estimated", size(planned.0))) }
                @if let Some(measured) = measured {
                    @let ratio = plan.memory.map(|planned| measured as f64 / planned.0.max(1) as f64);
                    @let ratio = ratio.map(|ratio| format!(", {ratio:.2} of the estimate")).unwrap_or_default();
                    (fact("peak memory, measured", size(measured) + &ratio))
                }
                @if let Some(ranks) = ranks {
                    @let each: Vec<String> = ranks.iter().map(|bytes| size(*bytes)).collect();
                    (fact("of each rank, from rank 0 on", each.join(", ")))
                }
                (fact("set aside", plan.reserve))
                @for assumption in &plan.assumptions { (fact("assumed", assumption)) }
            }
        }
    }
}

fn job(view: &View) -> Markup {
    // A job is written by serde without loss; were it not, the page would rather be without it than not be.
    let mut job = serde_json::to_value(&view.submitted.job).unwrap_or_default();
    crate::secrets::hide(&mut job, false);
    let title = match &view.submitted.job.work {
        Work::Train(_) => "Configuration, every default filled in",
        Work::Command(_) => "Configuration",
    };
    html! {
        details open {
            (configuration(title, &yaml(&job)))
            p class="note" { "SHA-256 of what defines the result: " (view.submitted.job_hash) }
        }
    }
}

fn environment(view: &View) -> Markup {
    let node = &view.submitted.plan.offer.node;
    html! {
        details open {
            summary { "Environment" }
            table class="facts" {
                @if let Some(environment) = &view.environment {
                    (fact("device", format_args!("{} ({})", environment.device, environment.device_name)))
                    (fact("libtorch", &environment.torch))
                    (fact("threads", environment.threads))
                    (fact("precision", &environment.precision))
                    (fact("gradus-rank", &environment.gradus))
                }
                @if !view.origin.gradus.is_empty() { (fact("gradus", &view.origin.gradus)) }
                @if let Some(commit) = &view.origin.commit {
                    (fact("commit", format_args!(
                        "{commit}{}", if view.origin.is_modified { ", with uncommitted changes" } else { "" }
                    )))
                }
                @if let Some(data) = &view.origin.data { (fact("data, identity", data)) }
                (fact("machine", format_args!("{}, {} cores, {} memory", node.cpu, node.cores, size(node.memory.0))))
                @if let Some(ready) = &view.ready {
                    @let [train, validation, test] = ready.samples.map(count);
                    (fact("samples", format_args!("{train} training, {validation} validation, {test} test")))
                    (fact("classes", format_args!("{}: {}", ready.classes.len(), ready.classes.join(", "))))
                    (fact("parameters", count(ready.parameters)))
                }
            }
        }
    }
}

fn milliseconds(micros: u64) -> String {
    format!("{:.1} ms", micros as f64 / 1e3)
}
