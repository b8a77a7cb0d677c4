//! The same plan as JSON: everything, with its units in the keys.

use serde_json::{Value, json};

use super::*;

/// Everything.
pub fn json(found: &Found) -> Value {
    let (from, to) = dates(found);
    let ruled_out: Vec<Value> = found
        .answer
        .ruled_out
        .iter()
        .map(|(reason, offers)| {
            json!({ "reason": reason, "offers": offers, "sentence": refusal::sentence(*reason, found.question, &found.answer) })
        })
        .collect();
    let picks: Vec<Value> = found
        .picks
        .iter()
        .map(|(pick, one)| {
            let mut value = shown(one);
            value["role"] = json!(pick.role);
            value["why"] = json!(pick.why);
            value
        })
        .collect();
    json!({
        "job": found.job,
        "task": found.subject.spec,
        "unknown_operators": match &found.subject.network.model {
            plan::model::ModelDescription::Graph(graph) => graph.unknown.clone(),
            plan::model::ModelDescription::Summary(_) => Vec::new(),
        },
        "parameters": found.subject.network.ops.parameters,
        "samples": found.subject.samples,
        "prices": { "from": from, "to": to },
        "picks": picks,
        "front": found.front.iter().map(shown).collect::<Vec<_>>(),
        "ruled_out": ruled_out,
        "counts": {
            "offers": found.answer.offers,
            "compared": found.answer.compared,
            "candidates": found.answer.candidates.len(),
            "estimated": found.estimated,
        },
        "measured_steps": found.lessons.steps.iter().map(|(gpu, step)| json!({
            "gpu": gpu, "seconds": step.seconds, "estimated_seconds": step.estimated,
        })).collect::<Vec<Value>>(),
        "timings": found.timings,
        "reservations": reservations(found),
        "assumptions": assumptions(found),
    })
}

fn shown(shown: &Shown) -> Value {
    let candidate = &shown.candidate;
    let listing = shown.listing;
    json!({
        "cloud": listing.cloud,
        "region": listing.region,
        "instance_type": listing.instance_type,
        "terms": candidate.terms,
        "nodes": candidate.nodes,
        "gpu": shown.hardware.device.gpu.name,
        "gpus": candidate.nodes * listing.gpus.count,
        "way": shown.way,
        "calibration": shown.calibration,
        "step_seconds": shown.step.seconds,
        "step_class": shown.step.class,
        "samples_per_second": shown.step.samples_per_second,
        "anchor": shown.step.anchor,
        "course_seconds": candidate.timeline,
        "time": shown.forecast.time,
        "hours": candidate.timeline.wall / 3600.0,
        "cost_micro_usd": {
            "compute": candidate.cost.compute.micros(),
            "storage": candidate.cost.storage.micros(),
            "checkpoints": candidate.cost.checkpoints.micros(),
            "egress": candidate.cost.egress.micros(),
            "total": candidate.cost.total().micros(),
            "low": shown.forecast.cost.low.micros(),
            "high": shown.forecast.cost.high.micros(),
        },
        "cost_usd": candidate.cost.total().micros() as f64 / 1e6,
        "price": {
            "micro_usd_per_hour": shown.price.rate.micros_per_hour(),
            "dated": shown.price.dated,
            "source": shown.price.source,
            "derived": shown.price.derived,
        },
        "kilograms_co2": candidate.kilograms,
    })
}
