//! Exports of providers as lines of a bill.

use csv::StringRecord;
use domain::run::BilledKind;

use super::amount::InvoiceAmount;
use super::columns::Columns;
use super::{Invoice, InvoiceError, InvoiceFormat, InvoiceLine, days, explorer, kinds};

/// Reads a provider's export: a Cost and Usage Report of AWS, a billing export of Google Cloud, cost details of Azure, or
/// `resource,day,usd`, of which the columns say which one it is; or JSON of the Cost Explorer of AWS.
///
/// # Errors
/// [`InvoiceError`] at the first line that cannot be read, and for amounts in another currency than US dollars.
pub fn read_invoice(text: &str) -> Result<Invoice, InvoiceError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if explorer::is_explorers(text) {
        return explorer::read(text);
    }
    let mut reader = csv::ReaderBuilder::new().flexible(true).trim(csv::Trim::All).from_reader(text.as_bytes());
    let at = |line: u64| move |(message, hint): (String, &str)| InvoiceError { line, message, hint: hint.to_owned() };
    let columns = match reader.headers() {
        Ok(head) => Columns::of(head),
        Err(error) => return Err(at(1)((error.to_string(), FORMATS))),
    };
    let layout = InvoiceLayout::of(&columns).map_err(at(1))?;
    let mut lines = Vec::new();
    for record in reader.records() {
        let record = record.map_err(|error| {
            let line = error.position().map_or(0, csv::Position::line);
            at(line)((error.to_string(), FORMATS))
        })?;
        let number = record.position().map_or(0, csv::Position::line);
        lines.push(layout.line(&columns, &record).map_err(at(number))?);
    }
    Ok(Invoice { format: layout.format, lines })
}

const FORMATS: &str = "give a Cost and Usage Report of AWS, a billing export of Google Cloud, cost details of Azure, or \
    columns `resource,day,usd`, as CSV";
const VALUES: &str = "export the bill again; amounts are decimal, and days are written as `2026-11-24`";

/// Where the values of a line are.
struct InvoiceLayout {
    format: InvoiceFormat,
    names: Vec<usize>,
    begin: usize,
    end: Option<usize>,
    amount: usize,
    /// Reductions of the amount, as JSON.
    credits: Option<usize>,
    currency: Option<usize>,
    /// What a line is for, and for Azure the meter below it.
    usage: Option<usize>,
    detail: Option<usize>,
}

impl InvoiceLayout {
    fn of(columns: &Columns) -> Result<InvoiceLayout, (String, &'static str)> {
        if columns.has(&["lineitemunblendedcost"]) {
            InvoiceLayout::aws(columns)
        } else if columns.has(&["metercategory"]) {
            InvoiceLayout::azure(columns)
        } else if columns.has(&["usagestarttime", "cost"]) {
            InvoiceLayout::gcp(columns)
        } else if columns.has(&["resource", "day", "usd"]) {
            let need = |name| need(columns, &[name], name, FORMATS);
            let (names, begin, amount) = (vec![need("resource")?], need("day")?, need("usd")?);
            let (end, credits, currency, usage, detail) = (None, None, None, None, None);
            Ok(InvoiceLayout {
                format: InvoiceFormat::Simple,
                names,
                begin,
                end,
                amount,
                credits,
                currency,
                usage,
                detail,
            })
        } else {
            Err(("its columns are those of no known export".to_owned(), FORMATS))
        }
    }

    fn aws(columns: &Columns) -> Result<InvoiceLayout, (String, &'static str)> {
        let again = "create the report with resource IDs, and with tags as cost allocation tags";
        let need = |name: &str, shown: &str| need(columns, &[name], shown, again);
        Ok(InvoiceLayout {
            format: InvoiceFormat::Aws,
            names: vec![need("lineitemresourceid", "lineItem/ResourceId")?],
            begin: need("lineitemusagestartdate", "lineItem/UsageStartDate")?,
            end: columns.find(&["lineitemusageenddate"]),
            amount: need("lineitemunblendedcost", "lineItem/UnblendedCost")?,
            credits: None,
            currency: Some(need("lineitemcurrencycode", "lineItem/CurrencyCode")?),
            usage: Some(need("lineitemusagetype", "lineItem/UsageType")?),
            detail: columns.find(&["lineitemlineitemtype"]),
        })
    }

    fn gcp(columns: &Columns) -> Result<InvoiceLayout, (String, &'static str)> {
        let again = "export the table with detailed usage costs, which has `resource.name`";
        let need = |name: &str, shown: &str| need(columns, &[name], shown, again);
        let mut names = vec![need("resourcename", "resource.name")?];
        names.extend(columns.find(&["resourceglobalname"]));
        Ok(InvoiceLayout {
            format: InvoiceFormat::Gcp,
            names,
            begin: need("usagestarttime", "usage_start_time")?,
            end: columns.find(&["usageendtime"]),
            amount: need("cost", "cost")?,
            credits: columns.find(&["credits"]),
            currency: Some(need("currency", "currency")?),
            usage: Some(need("skudescription", "sku.description")?),
            detail: None,
        })
    }

    fn azure(columns: &Columns) -> Result<InvoiceLayout, (String, &'static str)> {
        let again = "export cost details (usage) of the subscription, not a summary";
        let need = |names: &[&str], shown: &str| need(columns, names, shown, again);
        Ok(InvoiceLayout {
            format: InvoiceFormat::Azure,
            names: vec![need(&["resourceid", "instanceid", "instancename"], "ResourceId")?],
            begin: need(&["date", "usagedatetime", "usagedate"], "Date")?,
            end: None,
            amount: need(&["costinbillingcurrency", "pretaxcost", "cost"], "CostInBillingCurrency")?,
            credits: None,
            currency: Some(need(&["billingcurrency", "billingcurrencycode", "currency"], "BillingCurrency")?),
            usage: Some(need(&["metercategory"], "MeterCategory")?),
            detail: columns.find(&["metername"]),
        })
    }

    fn line(&self, columns: &Columns, record: &StringRecord) -> Result<InvoiceLine, (String, &'static str)> {
        let value = |place: usize| record.get(place).unwrap_or_default();
        let optional = |place: Option<usize>| place.map_or("", value);
        let currency = optional(self.currency);
        if !currency.is_empty() && !currency.eq_ignore_ascii_case("USD") {
            let message = format!("its amount is in {}, and costs here are in US dollars", currency.to_uppercase());
            return Err((message, "export the bill in USD"));
        }
        let wrong = |message: String| (message, VALUES);
        let begin = value(self.begin);
        let first = days::day(begin).ok_or_else(|| wrong(format!("`{begin}` is no day")))?;
        let amount: InvoiceAmount = value(self.amount).parse().map_err(wrong)?;
        let amount = amount + credits(optional(self.credits)).map_err(wrong)?;
        let names = self.names.iter().map(|place| last_part(value(*place))).filter(|name| !name.is_empty());
        Ok(InvoiceLine {
            names: names.flat_map(|name| self.spelled(name)).collect(),
            owner: columns.tag(record, "gradus-owner"),
            instance: columns.tag(record, "gradus-instance"),
            kind: self.kind(optional(self.usage), optional(self.detail)),
            first,
            last: self.end.and_then(|end| days::last_day(value(end))).unwrap_or(first).max(first),
            amount,
        })
    }

    /// A name as machines are called here. Azure writes names in any case, and calls the disk that it makes for a machine
    /// `MACHINE_OsDisk_1_…`; no name of ours has a `_`.
    fn spelled(&self, name: &str) -> Vec<String> {
        if self.format != InvoiceFormat::Azure {
            return vec![name.to_owned()];
        }
        let name = name.to_ascii_lowercase();
        let machine = name.split_once('_').map(|(machine, _)| machine.to_owned());
        std::iter::once(name).chain(machine).collect()
    }

    fn kind(&self, usage: &str, detail: &str) -> BilledKind {
        match self.format {
            // Taxes are no part of any price.
            InvoiceFormat::Aws if detail == "Tax" => BilledKind::Other,
            InvoiceFormat::Aws | InvoiceFormat::CostExplorer => kinds::of_aws(usage),
            InvoiceFormat::Gcp => kinds::of_gcp(usage),
            InvoiceFormat::Azure => kinds::of_azure(usage, detail),
            InvoiceFormat::Simple => BilledKind::Machine,
        }
    }
}

/// The place of a column that an export must have.
fn need(columns: &Columns, names: &[&str], shown: &str, hint: &'static str) -> Result<usize, (String, &'static str)> {
    columns.find(names).ok_or_else(|| (format!("it has no column `{shown}`"), hint))
}

/// A name without the path before it, such as `i-0abc` of an ARN.
pub fn last_part(name: &str) -> &str {
    name.trim_end_matches('/').rsplit('/').next().unwrap_or_default()
}

/// The sum of credits, which are negative: `[{"name": "…", "amount": -0.25}]`. Read as text, because JSON's numbers become
/// floating-point numbers.
fn credits(text: &str) -> Result<InvoiceAmount, String> {
    let mut sum = InvoiceAmount::default();
    for part in text.split("\"amount\"").skip(1) {
        let number = part.trim_start().trim_start_matches(':').trim_start().trim_start_matches('"');
        let is_number = |letter: char| letter.is_ascii_alphanumeric() || ['+', '-', '.'].contains(&letter);
        let number: &str = number.split(|letter: char| !is_number(letter)).next().unwrap_or_default();
        sum = sum + number.parse::<InvoiceAmount>()?;
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines of an export, as text.
    #[track_caller]
    fn check(text: &str, expected: &[&str]) {
        let invoice = read_invoice(text).unwrap();
        let start = days::day("2026-11-01").unwrap();
        let shown = invoice.lines.iter().map(|line| {
            let tags = (line.owner.as_deref().unwrap_or("-"), line.instance.as_deref().unwrap_or("-"));
            let (first, last) = (line.first - start, line.last - start);
            let names = line.names.join("+");
            format!("{names} {} {} {} {first}..{last} {}", tags.0, tags.1, line.kind.word(), line.amount.rounded())
        });
        assert_eq!(shown.collect::<Vec<_>>(), expected);
    }

    #[track_caller]
    fn refuse(text: &str, expected: &str) {
        let error = read_invoice(text).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }

    const LEGACY: &str = "identity/LineItemId,lineItem/LineItemType,lineItem/UsageStartDate,lineItem/UsageEndDate,\
        lineItem/UsageType,lineItem/ResourceId,lineItem/CurrencyCode,lineItem/UnblendedCost,\
        resourceTags/user:gradus-owner,resourceTags/user:gradus-instance\n";

    #[test]
    fn a_report_of_aws_is_read() {
        let lines = "a,Usage,2026-11-01T00:00:00Z,2026-11-01T01:00:00Z,BoxUsage:g5.xlarge,i-01,USD,1.0060000000,me,r-i1\n\
            b,Usage,2026-11-01T00:00:00Z,2026-12-01T00:00:00Z,EBS:VolumeUsage.gp3,vol-1,USD,0.0123456789,me,\n\
            c,Tax,2026-11-01T00:00:00Z,2026-12-01T00:00:00Z,BoxUsage:g5.xlarge,,USD,3,,\n";
        let expected =
            ["i-01 me r-i1 machine 0..0 $1.006", "vol-1 me - disk 0..29 $0.012346", " - - other 0..29 $3.00"];
        check(&format!("{LEGACY}{lines}"), &expected);
        check(&format!("\u{feff}{}", format!("{LEGACY}{lines}").replace('\n', "\r\n")), &expected);
    }

    #[test]
    fn a_report_of_aws_in_its_newer_form_is_read() {
        let text = "line_item_line_item_type,line_item_usage_start_date,line_item_usage_end_date,line_item_usage_type,\
            line_item_resource_id,line_item_currency_code,line_item_unblended_cost,resource_tags\n\
            Usage,2026-11-02 23:00:00,2026-11-03 00:00:00,USE1-SpotUsage:p4d.24xlarge,\
            arn:aws:ec2:us-east-1:1:instance/i-02,USD,-1E-06,\
            \"{\"\"user_gradus_owner\"\":\"\"me\"\",\"\"user_gradus_instance\"\":\"\"r-i2\"\"}\"\n";
        check(text, &["i-02 me r-i2 machine 1..1 -$0.000001"]);
    }

    #[test]
    fn an_export_of_google_cloud_is_read_with_its_credits() {
        let text = "service.description,sku.description,usage_start_time,usage_end_time,resource.name,\
            resource.global_name,cost,currency,labels,credits\n\
            Compute Engine,A2 Instance Core running in Americas,2026-11-01 10:00:00 UTC,2026-11-01 11:00:00 UTC,\
            gradus-r-i1,//compute.googleapis.com/projects/p/zones/z/instances/123,1.5,USD,\
            \"[{\"\"key\"\":\"\"gradus-owner\"\",\"\"value\"\":\"\"me\"\"}]\",\
            \"[{\"\"name\"\":\"\"the amount\"\",\"\"amount\"\":-0.1},{\"\"amount\"\":\"\"-0.2\"\"}]\"\n\
            Compute Engine,Storage PD Capacity,2026-11-01 10:00:00 UTC,2026-11-01 11:00:00 UTC,d,,0.25,USD,[],[]\n";
        check(text, &["gradus-r-i1+123 me - machine 0..0 $1.20", "d - - disk 0..0 $0.25"]);
    }

    #[test]
    fn cost_details_of_azure_are_read() {
        let text = "Date,MeterCategory,MeterName,ResourceId,CostInBillingCurrency,BillingCurrencyCode,Tags\n\
            11/03/2026,Virtual Machines,NC24,/subscriptions/s/virtualMachines/gradus-1,2.5,USD,\
            \"\"\"gradus-owner\"\": \"\"me\"\"\"\n\
            2026-11-04,Bandwidth,Out,/subscriptions/s/virtualMachines/gradus-1,0.01,usd,\n\
            2026-11-04,Storage,P10 LRS Disk,/SUBSCRIPTIONS/S/DISKS/GRADUS-1_OSDISK_1_0A,0.25,USD,\n";
        let expected = [
            "gradus-1 me - machine 2..2 $2.50",
            "gradus-1 - - traffic 3..3 $0.01",
            "gradus-1_osdisk_1_0a+gradus-1 - - disk 3..3 $0.25",
        ];
        check(text, &expected);
    }

    #[test]
    fn a_simple_table_is_read() {
        check("resource,day,usd\ni-01,2026-11-01,1.25\n", &["i-01 - - machine 0..0 $1.25"]);
        check("USD, Day, Resource\n2 , 2026-11-02 , i-02\n", &["i-02 - - machine 1..1 $2.00"]);
    }

    #[test]
    fn what_cannot_be_compared_is_refused_by_name() {
        refuse("a,b\n1,2\n", "line 1: its columns are those of no known export");
        refuse("", "line 1: its columns");
        refuse("resource,day,usd\ni-01,2026-11-01,1\ni-01,today,1\n", "line 3: `today` is no day");
        refuse("resource,day,usd\ni-01,2026-11-01,\"1,5\"\n", "line 2: `1,5` is no amount");
        refuse("resource,day,usd\ni-01,2026-11-01\n", "line 2: `` is no amount");
        let euros = "Usage,Usage,2026-11-01T00:00:00Z,2026-11-01T01:00:00Z,BoxUsage:a,i-01,EUR,1,,\n";
        refuse(&format!("{LEGACY}{euros}"), "line 2: its amount is in EUR");
        refuse("lineItem/UnblendedCost,lineItem/UsageStartDate\n1,2026-11-01\n", "no column `lineItem/ResourceId`");
        refuse("usage_start_time,cost,currency\n2026-11-01,1,USD\n", "no column `resource.name`");
    }
}
