//! The same plan as JSON: everything, with its units in the keys.

use plan::search::{UnknownTariff, VolumeChoice};
use serde_json::{Value, json};

use super::details::unit;
use super::*;
use crate::local::rented::volumes::sentence;

/// Everything.
pub fn json(plan: &MarketPlan) -> Value {
    let (from, to) = dates(plan);
    let ruled_out: Vec<Value> = plan
        .answer
        .ruled_out
        .iter()
        .map(|(reason, offers)| {
            json!({ "reason": reason, "offers": offers, "sentence": refusal::sentence(*reason, plan.question, &plan.answer) })
        })
        .collect();
    let picks: Vec<Value> = plan
        .picks
        .iter()
        .map(|(pick, one)| {
            let mut value = row(one, plan.today);
            value["role"] = json!(pick.role);
            value["why"] = json!(pick.why);
            value
        })
        .collect();
    json!({
        "job": plan.job,
        "task": plan.subject.spec,
        "unknown_operators": match &plan.subject.network.model {
            plan::model::ModelDescription::Graph(graph) => graph.unknown.clone(),
            plan::model::ModelDescription::Summary(_) => Vec::new(),
        },
        "parameters": plan.subject.network.weights,
        "trained_parameters": plan.subject.network.ops.parameters,
        "samples": plan.subject.samples,
        "prices": { "from": from, "to": to },
        "picks": picks,
        "front": plan.front.iter().map(|one| row(one, plan.today)).collect::<Vec<_>>(),
        "unconfirmed": plan.unconfirmed.iter().map(|one| row(one, plan.today)).collect::<Vec<_>>(),
        "ruled_out": ruled_out,
        "counts": {
            "offers": plan.answer.offers,
            "compared": plan.answer.compared,
            "candidates": plan.answer.candidates.len(),
            "estimated": plan.estimated,
        },
        "measured_steps": plan.lessons.steps.iter().map(|(gpu, step)| json!({
            "gpu": gpu, "seconds": step.seconds, "estimated_seconds": step.estimated,
        })).collect::<Vec<Value>>(),
        "timings": plan.timings,
        "reservations": reservations(plan),
        "assumptions": assumptions(plan),
    })
}

/// The volume of each machine, and why.
fn disk(volume: &VolumeChoice) -> Value {
    let mut value = json!(volume);
    value["is_short"] = json!(volume.is_short());
    value["why"] = json!(sentence(volume));
    value
}

/// A tariff that is not known, and what is counted instead.
fn tariff((of_data, service, bound): &UnknownTariff) -> Value {
    let (per, counted) = (unit(*service), bound.map(|bound| bound.micros()));
    json!({
        "service": service,
        "of": if *of_data { "data" } else { "machine" },
        "counted_micro_usd": counted,
        "per": per,
        "counted_micro_usd_per_gib": counted.filter(|_| per.starts_with("a GiB")),
    })
}

/// One candidate; `today` in days since 1970.
pub fn row(row: &PlanRow, today: i64) -> Value {
    let candidate = &row.candidate;
    let listing = row.listing;
    json!({
        "cloud": listing.cloud,
        "region": listing.region,
        "instance_type": listing.instance_type,
        "terms": candidate.terms,
        "availability": candidate.availability,
        "nodes": candidate.nodes,
        "gpu": row.hardware.device.gpu.name,
        "gpus": candidate.nodes * listing.gpus.count,
        "way": row.config,
        "layout": row.layout,
        "faster_layout": row.faster.as_ref().map(|faster| json!({
            "layout": faster.layout, "step_seconds": faster.seconds, "sentence": faster.sentence(),
        })),
        "program": row.program,
        "calibration": row.calibration,
        "step_seconds": row.step.seconds,
        "step_class": row.step.class,
        "samples_per_second": row.step.samples_per_second,
        "anchor": row.step.anchor,
        "course_seconds": candidate.timeline,
        "time": row.forecast.time,
        "hours": candidate.timeline.wall / 3600.0,
        "cost_micro_usd": {
            "compute": candidate.cost.compute.micros(),
            "storage": candidate.cost.storage.micros(),
            "checkpoints": candidate.cost.checkpoints.micros(),
            "egress": candidate.cost.egress.micros(),
            "total": candidate.cost.total().micros(),
            "low": row.forecast.cost.low.micros(),
            "high": row.forecast.cost.high.micros(),
        },
        "cost_usd": candidate.cost.total().micros() as f64 / 1e6,
        "price": {
            "micro_usd_per_hour": row.price.rate.micros_per_hour(),
            "dated": row.price.dated,
            "source": row.price.source,
            "derived": row.price.derived,
            "age_days": crate::figures::age(&row.price.dated, today),
            "is_old": is_old(row.price, today),
        },
        "exchange": {
            "bytes_per_step": row.step.exchange.bytes,
            "needed_bytes_per_second": row.step.exchange.needed(),
            "bandwidth_bytes_per_second": row.step.exchange.bandwidth,
        },
        "data_bytes_per_second": row.sample.map(|sample| sample * row.step.samples_per_second),
        "disk": candidate.volume.as_ref().map(disk),
        "unknown_tariffs": row.unknown_tariffs.iter().map(tariff).collect::<Vec<_>>(),
        "kilograms_co2": candidate.kilograms,
    })
}
