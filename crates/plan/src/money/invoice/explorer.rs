//! What `aws ce get-cost-and-usage-with-resources` prints: the costs of AWS by resource and usage type, as JSON.
//!
//! It has no tags, and without a setting of the account no disks: which of them is of which machine is not known, so costs are
//! compared with it and not adjusted to it.

use serde_json::Value;

use super::amount::InvoiceAmount;
use super::read::last_part;
use super::{Invoice, InvoiceError, InvoiceFormat, InvoiceLine, days, kinds};

const ASK: &str = "ask with `--granularity DAILY --metrics UnblendedCost --group-by Type=DIMENSION,Key=RESOURCE_ID \
    Type=DIMENSION,Key=USAGE_TYPE` and a `--filter` of the service `Amazon Elastic Compute Cloud - Compute`";
const PAGES: &str =
    "ask again with `--next-page-token`, and name the files of all pages; then delete the token in each";

/// How Cost Explorer calls what belongs to no resource.
const NOTHING: &str = "NoResourceId";

/// Whether a file is of Cost Explorer, and no CSV.
pub fn is_explorers(text: &str) -> bool {
    text.trim_start().starts_with('{')
}

/// Reads it.
///
/// # Errors
/// [`InvoiceError`]; also where it is a part of an answer, which would bill less than there is.
pub fn read(text: &str) -> Result<Invoice, InvoiceError> {
    let wrong = |message: String, hint: &str| InvoiceError { line: 1, message, hint: hint.to_owned() };
    let answer: Value = serde_json::from_str(text).map_err(|error| InvoiceError {
        line: u64::try_from(error.line()).unwrap_or(0),
        message: error.to_string(),
        hint: ASK.to_owned(),
    })?;
    if answer["NextPageToken"].is_string() {
        return Err(wrong("it is one of several pages".to_owned(), PAGES));
    }
    let place = |key: &str| {
        let groups = answer["GroupDefinitions"].as_array().into_iter().flatten();
        let at = groups.enumerate().find(|(_, group)| group["Key"] == key).map(|(at, _)| at);
        at.ok_or_else(|| wrong(format!("its costs are not grouped by `{key}`"), ASK))
    };
    let places = (place("RESOURCE_ID")?, place("USAGE_TYPE")?);
    let mut lines = Vec::new();
    for result in answer["ResultsByTime"].as_array().into_iter().flatten() {
        for group in result["Groups"].as_array().into_iter().flatten() {
            lines.push(line(result, group, places).map_err(|message| wrong(message, ASK))?);
        }
    }
    Ok(Invoice { format: InvoiceFormat::CostExplorer, lines })
}

/// One group of one period; `resource` and `usage` are where its keys stand.
fn line(result: &Value, group: &Value, (resource, usage): (usize, usize)) -> Result<InvoiceLine, String> {
    let period = |name: &str| result["TimePeriod"][name].as_str().unwrap_or_default();
    let key = |at: usize| group["Keys"][at].as_str().unwrap_or_default();
    let cost = &group["Metrics"]["UnblendedCost"];
    let amount = cost["Amount"].as_str().ok_or_else(|| format!("`{}` has no `UnblendedCost`", key(resource)))?;
    let unit = cost["Unit"].as_str().unwrap_or("USD");
    if unit != "USD" {
        return Err(format!("its amounts are in {unit}, and costs here are in US dollars"));
    }
    let first = days::day(period("Start")).ok_or_else(|| format!("`{}` is no day", period("Start")))?;
    let name = Some(last_part(key(resource))).filter(|name| !name.is_empty() && *name != NOTHING);
    Ok(InvoiceLine {
        names: name.map(str::to_owned).into_iter().collect(),
        // It has no tags: machines are found by their names.
        owner: None,
        instance: None,
        kind: kinds::of_aws(key(usage)),
        first,
        last: days::last_day(period("End")).unwrap_or(first).max(first),
        amount: amount.parse::<InvoiceAmount>()?,
    })
}

#[cfg(test)]
mod tests {
    use super::super::read_invoice;
    use super::*;

    /// In the shape of the reference of the API, with these groups.
    fn answer(groups: &str, keys: &[&str], more: &str) -> String {
        let keys: Vec<String> = keys.iter().map(|key| format!(r#"{{"Type": "DIMENSION", "Key": "{key}"}}"#)).collect();
        format!(
            r#"{{{more}"GroupDefinitions": [{}], "ResultsByTime": [{{"TimePeriod": {{"Start": "2026-11-24",
            "End": "2026-11-25"}}, "Total": {{}}, "Groups": [{groups}], "Estimated": true}}],
            "DimensionValueAttributes": []}}"#,
            keys.join(", ")
        )
    }

    fn group(resource: &str, usage: &str, amount: &str, unit: &str) -> String {
        format!(
            r#"{{"Keys": ["{resource}", "{usage}"], "Metrics": {{"UnblendedCost": {{"Amount": "{amount}",
            "Unit": "{unit}"}}}}}}"#
        )
    }

    const KEYS: [&str; 2] = ["RESOURCE_ID", "USAGE_TYPE"];

    #[test]
    fn an_answer_of_cost_explorer_is_read() {
        let groups = [
            group("i-01", "USE1-BoxUsage:g5.xlarge", "1.0060000000", "USD"),
            group("arn:aws:ec2:us-east-1:1:volume/vol-1", "EBS:VolumeUsage.gp3", "0.0123456789", "USD"),
            group("NoResourceId", "Requests-Tier1", "3", "USD"),
        ];
        let invoice = read_invoice(&answer(&groups.join(", "), &KEYS, "")).unwrap();
        assert_eq!(invoice.format, InvoiceFormat::CostExplorer);
        assert!(!invoice.format.names_disks() && InvoiceFormat::Aws.names_disks());
        let start = days::day("2026-11-24").unwrap();
        let shown = invoice.lines.iter().map(|line| {
            let days = (line.first - start, line.last - start);
            format!("{} {} {}..{} {}", line.names.join("+"), line.kind.word(), days.0, days.1, line.amount.rounded())
        });
        let expected = ["i-01 machine 0..0 $1.006", "vol-1 disk 0..0 $0.012346", " other 0..0 $3.00"];
        assert_eq!(shown.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn what_says_less_than_the_bill_is_refused() {
        let refuse = |text: &str, expected: &str| {
            let error = read_invoice(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        };
        let one = group("i-01", "BoxUsage:a", "1", "USD");
        refuse(&answer(&one, &KEYS, r#""NextPageToken": "more", "#), "one of several pages");
        refuse(&answer(&one, &KEYS[..1], ""), "not grouped by `USAGE_TYPE`");
        refuse(&answer(&one, &["SERVICE", "USAGE_TYPE"], ""), "not grouped by `RESOURCE_ID`");
        refuse(&answer(&group("i-01", "BoxUsage:a", "1", "EUR"), &KEYS, ""), "in EUR");
        refuse(&answer(&group("i-01", "BoxUsage:a", "1,5", "USD"), &KEYS, ""), "`1,5` is no amount");
        let blended = one.replace("Unblended", "Blended");
        refuse(&answer(&blended, &KEYS, ""), "`i-01` has no `UnblendedCost`");
        refuse("{", "line 1: EOF");
    }
}
