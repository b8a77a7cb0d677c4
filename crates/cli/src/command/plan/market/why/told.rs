//! Reports as text and as JSON.

use plan::estimate::memory::MemoryEstimate;
use serde_json::{Value, json};

use super::super::PlanRow;
use super::super::figures::{cents, step, time};
use super::super::present::{machines, needs, program, row as row_json};
use super::{Best, OfferReport, Out};
use crate::figures::{counted, day_of, grouped};

/// Lines for people.
pub fn lines(reports: &[OfferReport]) -> Vec<String> {
    let mut lines = Vec::new();
    for report in reports {
        let word = if report.asked.not { "why not" } else { "why" };
        lines.push(format!("{word} {}: {}", report.asked.text, counted(report.offers as u64, "offer")));
        let mut out: Vec<_> = report.out.iter().collect();
        out.sort_by_key(|(_, out)| std::cmp::Reverse(out.offers));
        for (why, Out { offers, figures }) in out {
            let such = match (figures.is_empty(), offers) {
                (true, _) => String::new(),
                (false, 1) => format!(": {figures}"),
                (false, _) => format!("; for example {figures}"),
            };
            lines.push(format!("  ruled out {:>5}  {why}{such}", grouped(*offers as u64)));
        }
        if let Some(best) = &report.best {
            lines.extend(arithmetic(best).into_iter().map(|line| format!("  {line}")));
        }
    }
    lines
}

/// The parts of memory, time and cost, and the limits.
fn arithmetic(best: &Best) -> Vec<String> {
    let row = &best.row;
    let place = format!("{} {}, {}", row.listing.cloud, row.listing.region, row.candidate.terms.word());
    let head = if best.missed.is_some() { "nearest  " } else { "best     " };
    let mut lines = vec![format!("{head}{} in {place}", machines(row))];
    if best.missed.is_none() && !best.place.is_empty() {
        lines.push(format!("place    {}", best.place));
    }
    lines.extend(best.limits.iter().map(|limit| format!("limit    {limit}")));
    lines.extend(program(row));
    lines.push(format!(
        "memory   {}",
        sum(&memory_parts(&best.memory), |bytes| format!("{:.1}", bytes / f64::from(1 << 30)), "GiB")
    ));
    let usable = row.hardware.device.gpu.usable.0 as f64 / f64::from(1 << 30);
    let high = row.config.needed_high / f64::from(1 << 30);
    lines.push(format!("         {usable:.1} GiB can be used; one run in ten needs more than {high:.1}"));
    lines.push(format!("step     {}", sum(&step_parts(row), step, "")));
    lines.push(format!(
        "time     {}",
        sum(&time_parts(row), |seconds| time(domain::Duration::from_micros((seconds * 1e6) as u64)), "")
    ));
    let cost = &row.candidate.cost;
    let parts = [
        ("machines", cost.compute),
        ("disks", cost.storage),
        ("checkpoints", cost.checkpoints),
        ("traffic", cost.egress),
    ];
    let parts: Vec<String> = parts.iter().map(|(name, part)| format!("{name} {}", cents(*part))).collect();
    lines.push(format!("cost     {} = {}", cents(cost.total()), parts.join(" + ")));
    lines.push(format!("price    {} a machine × {}, of {}", row.price.rate, row.candidate.nodes, row.price.dated));
    lines.extend(needs(row));
    lines
}

/// `70.2 GiB = weights 14.9 + …`; zero parts are omitted.
fn sum(parts: &[(&str, f64)], tell: impl Fn(f64) -> String, unit: &str) -> String {
    let whole: f64 = parts.iter().map(|(_, part)| part).sum();
    let told = parts.iter().filter(|(_, part)| part.abs() > 0.0005 * whole);
    let told: Vec<String> = told.map(|(name, part)| format!("{name} {}", tell(*part))).collect();
    let unit = if unit.is_empty() { String::new() } else { format!(" {unit}") };
    format!("{}{unit} = {}", tell(whole), told.join(" + "))
}

/// The parts of the memory required per GPU; the remainder is fragmentation.
fn memory_parts(memory: &MemoryEstimate) -> Vec<(&'static str, f64)> {
    let parts = vec![
        ("weights", memory.weights),
        ("gradients", memory.gradients),
        ("optimizer", memory.optimizer),
        ("activations", memory.activations),
        ("workspace", memory.workspace),
        ("exchange", memory.communication),
        ("context", memory.context),
    ];
    let known: f64 = parts.iter().map(|(_, part)| part).sum();
    let rest = ("fragmentation", (memory.required - known).max(0.0));
    parts.into_iter().chain([rest]).collect()
}

/// The parts of a step that add up to it.
fn step_parts(row: &PlanRow) -> Vec<(&'static str, f64)> {
    let step = &row.step;
    let overhead = (step.seconds.middle - step.compute - step.communication).max(0.0);
    vec![("computing", step.compute), ("waiting for other GPUs", step.communication), ("optimizer and rest", overhead)]
}

/// The parts of the run that add up to it.
fn time_parts(row: &PlanRow) -> Vec<(&'static str, f64)> {
    let timeline = &row.candidate.timeline;
    let boot = plan::search::assumed::BOOT.min(timeline.wall);
    let rest = (timeline.wall - boot - timeline.work).max(0.0);
    vec![
        ("boot", boot),
        ("steps and evaluation", timeline.work),
        ("fetching data, checkpoints and interruptions", rest),
    ]
}

/// Everything for programs.
pub fn json(reports: &[OfferReport]) -> Value {
    let today = day_of(jiff::Timestamp::now());
    let each = reports.iter().map(|report| {
        json!({
            "offer": report.asked.text,
            "question": if report.asked.not { "why_not" } else { "why" },
            "offers": report.offers,
            "ruled_out": report.out.iter().map(|(why, out)| json!({ "why": why, "offers": out.offers, "figures": out.figures })).collect::<Vec<_>>(),
            "best": report.best.as_ref().map(|best| {
                let mut value = row_json(&best.row, today);
                value["missed"] = json!(best.missed);
                value["limits"] = json!(best.limits);
                value["place"] = json!(best.place);
                value["memory_bytes"] = json!(best.memory);
                value["step_parts_seconds"] = parts(&step_parts(&best.row));
                value["step_terms_seconds"] = json!(best.row.step.terms);
                value["time_parts_seconds"] = parts(&time_parts(&best.row));
                value
            }),
        })
    });
    Value::Array(each.collect())
}

fn parts(parts: &[(&'static str, f64)]) -> Value {
    parts.iter().map(|(name, part)| ((*name).to_owned(), json!(part))).collect::<serde_json::Map<_, _>>().into()
}
