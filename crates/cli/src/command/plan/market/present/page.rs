//! The plan as a page that stands alone.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::super::figures::{cents, time};
use super::super::{MarketPlan, PlanRow, refusal};
use super::{chart, dates, lines, machines};

const STYLE: &str = "\
body{background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,sans-serif;max-width:1240px;margin:2rem auto;padding:0 1rem}\
h1{font-size:1.5rem}h2{font-size:1.1rem;margin-top:2rem}figure{margin:0}svg{width:100%;height:auto}\
figcaption,p{color:var(--faint)}table{border-collapse:collapse;width:100%}.scroll{overflow-x:auto}\
th,td{text-align:left;padding:.3rem .7rem .3rem 0;border-bottom:1px solid var(--line);white-space:nowrap}.said td,.said th{border-bottom:none;padding-bottom:0}.why td{white-space:normal;color:var(--faint);padding-top:0}.why div{position:sticky;left:0;max-width:calc(100vw - 3rem)}\
th{color:var(--faint);font-weight:500}tbody th{color:var(--ink)}.n{text-align:right;font-variant-numeric:tabular-nums}\
pre{white-space:pre-wrap;font-size:12.5px}.key{display:inline-block;width:.7rem;height:.7rem;border-radius:50%}.key.spot{background:var(--spot)}.key.demand{background:var(--demand);margin-left:.8rem}\
@media(max-width:640px){svg{min-width:600px;font-size:17px}.ruled td{white-space:normal}pre{white-space:pre;overflow-x:auto}}";

/// The page.
pub fn html(plan: &MarketPlan) -> String {
    frame(&plan.job.name, &body(plan))
}

/// A page that stands alone, of the plan of a job.
pub fn frame(job: &str, body: &Markup) -> String {
    let title = format!("Plan of {job}");
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width";
                title { (title) }
                style { (PreEscaped(chart::STYLE)) (PreEscaped(STYLE)) }
            }
            body {
                main {
                    h1 { (title) }
                    (body)
                }
            }
        }
    };
    format!("{}\n", page.into_string())
}

fn body(plan: &MarketPlan) -> Markup {
    let (from, to) = dates(plan);
    let picks = plan.picks.iter().map(|(pick, row)| (pick.role.word().to_owned(), pick.why.as_str(), row));
    let front = plan.front.iter().zip(1..).map(|(row, place)| (place.to_string(), "", row));
    html! {
        p { (plan.answer.offers) " offers, on " (plan.numbers()) "; prices of " (from) " to " (to) "." }
        figure {
            div class="scroll" role="region" tabindex="0" aria-label="Cost against time" {
                svg viewBox=(chart::view_box()) role="img" aria-label="cost against time" { (chart::marks(plan)) }
            }
            figcaption {
                span class="key spot" {} " spot " span class="key demand" {}
                " on demand; the line is the front: nothing else is both cheaper and faster. Grey: other offers."
            }
        }
        h2 { "What to choose" }
        (rows("What to choose", "choice", picks))
        h2 { "The front" }
        (rows("The front", "place", front))
        h2 { "Ruled out" }
        table class="ruled" {
            thead { tr { th scope="col" class="n" { "offers" } th scope="col" { "why" } } }
            tbody {
                @for (reason, offers) in &plan.answer.ruled_out {
                    tr {
                        td class="n" { (offers) }
                        td { (refusal::sentence(*reason, plan.question, &plan.answer)) }
                    }
                }
            }
        }
        h2 { "In words" }
        pre tabindex="0" role="region" aria-label="In words" { (lines(plan, None).join("\n")) }
    }
}

/// Headers of the columns, after that of the names; the second and the third are what most readers look for, and stand
/// where a phone shows them. `n` is the class of numbers.
const COLUMNS: [(&str, &str); 7] = [
    ("n", "cost"),
    ("n", "time"),
    ("", "machines"),
    ("", "where"),
    ("", "terms"),
    ("n", "cost, P10–P90"),
    ("n", "time, P10–P90"),
];

/// A row each: its name, why it is there, which stands below it as wide as it needs, and what it comes to.
fn rows<'a>(label: &str, names: &str, rows: impl Iterator<Item = (String, &'a str, &'a PlanRow<'a>)>) -> Markup {
    html! {
        div class="scroll" role="region" tabindex="0" aria-label=(label) {
            table {
                thead {
                    tr {
                        th scope="col" { (names) }
                        @for (class, name) in COLUMNS { th scope="col" class=(class) { (name) } }
                    }
                }
                tbody { @for (name, why, row) in rows { (one(&name, why, row)) } }
            }
        }
    }
}

fn one(name: &str, why: &str, row: &PlanRow) -> Markup {
    let forecast = &row.forecast;
    html! {
        tr class=[(!why.is_empty()).then_some("said")] {
            th scope="row" { (name) }
            td class="n" { (cents(forecast.cost.middle)) }
            td class="n" { (time(forecast.time.middle)) }
            td { (machines(row)) }
            td { (row.listing.cloud.name()) " " (row.listing.region) }
            td { (row.candidate.terms.word()) }
            td class="n" { (cents(forecast.cost.low)) "–" (cents(forecast.cost.high)) }
            td class="n" { (time(forecast.time.low)) "–" (time(forecast.time.high)) }
        }
        @if !why.is_empty() {
            tr class="why" { td colspan="8" { div { (why) } } }
        }
    }
}
