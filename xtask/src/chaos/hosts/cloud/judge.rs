//! Whether what was billed is what the lab's cloud has metered, and nothing was rented twice: from the event log and the meter.

use std::collections::BTreeMap;

use serde_json::Value;
use xtask::lab::cloud::machines::MeteredRent;

/// The times of moto are whole seconds, at both ends, and it is asked a moment after the meter is read.
const APART: f64 = 3.0;

/// AWS bills a minute at least.
const LEAST: f64 = 60.0;

/// A rent as the event log has it.
#[derive(Debug, Default)]
struct Logged {
    /// Dollars a second.
    rate: f64,
    /// Seconds, once it is released.
    used: Option<f64>,
}

/// What there is to tell of the rents; an error says what is wrong with them.
pub(super) fn judged(log: &[Value], meter: &[MeteredRent]) -> Result<String, String> {
    let rents = logged(log);
    let mut seen = BTreeMap::new();
    let (mut expected, mut tolerance) = (0.0, 0.0);
    for rent in meter {
        if let Some(other) = seen.insert(rent.tag.as_str(), rent.handle.as_str()) {
            return Err(format!("`{}` was rented twice: as {other} and as {}", rent.tag, rent.handle));
        }
        let ended = rent.ended.ok_or_else(|| format!("{} (`{}`) is rented still", rent.handle, rent.tag))?;
        // What is billed of a rent has the least that AWS charges for already.
        let metered = (ended - rent.began).max(LEAST);
        let Some(Logged { rate, used: Some(used) }) = rents.get(rent.tag.as_str()) else {
            return Err(format!("{} (`{}`) was rented for {metered:.0} s, and never released", rent.handle, rent.tag));
        };
        if (used - metered).abs() > APART {
            return Err(format!("`{}` was rented for {metered:.1} s, and {used:.1} s are billed", rent.tag));
        }
        expected += metered * rate;
        tolerance += APART * rate;
    }
    let billed: f64 = of(log, "billed").filter_map(|record| dollars(&record["bill"]["total"])).sum();
    if (billed - expected).abs() > tolerance + 0.005 {
        return Err(format!("${billed:.4} are billed, and the cloud has metered ${expected:.4}"));
    }
    Ok(format!("{} machines, none twice and none left, ${billed:.4} billed of ${expected:.4} metered", meter.len()))
}

fn logged(log: &[Value]) -> BTreeMap<&str, Logged> {
    let mut rents: BTreeMap<&str, Logged> = BTreeMap::new();
    for record in of(log, "rent_intended") {
        if let (Some(name), Some(rate)) = (record["instance"].as_str(), dollars(&record["offer"]["rate"])) {
            rents.entry(name).or_default().rate = rate / 3600.0;
        }
    }
    for record in of(log, "released") {
        if let (Some(name), Some(used)) = (record["instance"].as_str(), record["usage"]["elapsed"].as_f64()) {
            rents.entry(name).or_default().used = Some(used / 1e6);
        }
    }
    rents
}

fn of<'a>(log: &'a [Value], kind: &'a str) -> impl Iterator<Item = &'a Value> {
    log.iter().filter(move |record| record["event"] == kind)
}

/// Of `$1.25` or `$1.25/h`.
fn dollars(value: &Value) -> Option<f64> {
    value.as_str()?.trim_start_matches('$').trim_end_matches("/h").parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn log(used: u64, total: &str) -> Vec<Value> {
        vec![
            json!({ "event": "rent_intended", "instance": "r-i1", "offer": { "rate": "$3.6/h" } }),
            json!({ "event": "released", "instance": "r-i1", "usage": { "elapsed": used * 1_000_000 } }),
            json!({ "event": "billed", "run": "r", "bill": { "total": total } }),
        ]
    }

    fn rent(handle: &str, ended: Option<f64>) -> MeteredRent {
        MeteredRent { handle: handle.into(), tag: "r-i1".into(), host: 1, began: 100.0, ended }
    }

    #[test]
    fn a_bill_is_what_was_metered_and_each_machine_was_rented_once() {
        let check = |log: &[Value], meter: &[MeteredRent], expected: &str| {
            let found = judged(log, meter).unwrap_or_else(|why| why);
            assert!(found.contains(expected), "{found}");
        };
        let whole = [rent("i-1", Some(300.0))];
        check(&log(201, "$0.201"), &whole, "1 machines, none twice and none left");
        check(&log(210, "$0.210"), &whole, "rented for 200.0 s, and 210.0 s are billed");
        check(&log(200, "$0.100"), &whole, "$0.1000 are billed, and the cloud has metered $0.2000");
        // A minute at least.
        check(&log(60, "$0.06"), &[rent("i-1", Some(105.0))], "none left");
        check(&log(200, "$0.2"), &[rent("i-1", None)], "is rented still");
        check(&log(200, "$0.2")[..1], &whole, "never released");
        check(
            &log(200, "$0.2"),
            &[rent("i-1", Some(300.0)), rent("i-2", Some(300.0))],
            "rented twice: as i-1 and as i-2",
        );
    }
}
