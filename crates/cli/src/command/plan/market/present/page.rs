//! The plan as a page that stands alone, and cost against time as a picture.

use std::fmt::Write;

use plan::search::{PurchaseOption, Recommendation};

use super::super::figures::{cents, time};
use super::super::{Found, Shown, refusal};
use super::plot::Scale;
use super::{dates, lines, machines};

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 480.0;
const LEFT: f64 = 78.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 20.0;
const BOTTOM: f64 = 52.0;

/// Colours come from the page, or from the picture's own rules where it stands alone. The two hues differ in lightness
/// too, so that they can be told apart without colour.
const STYLE: &str = "\
:root{--ink:#1d2430;--faint:#67707f;--line:#d8dde5;--paper:#fff;--dot:#a9b4c4;--spot:#0b6bcb;--demand:#b4450f;--pick:#111}\
@media(prefers-color-scheme:dark){:root{--ink:#e6e9ee;--faint:#98a2b3;--line:#333c4a;--paper:#12161d;--dot:#4d5868;--spot:#6db3ff;--demand:#ff9e66;--pick:#fff}}\
svg{background:var(--paper);font:13px system-ui,sans-serif}\
.grid{stroke:var(--line)}.axis{fill:var(--faint)}.other{fill:var(--dot)}.spot{fill:var(--spot)}.demand{fill:var(--demand)}\
.front{fill:none;stroke:var(--faint);stroke-dasharray:3 3}.pick{fill:none;stroke:var(--pick);stroke-width:2}.name{fill:var(--ink);font-weight:600}";

/// The picture, with its own colours.
pub fn svg(found: &Found) -> String {
    let inner = picture(found);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"cost against time\"><style>{STYLE}</style>{inner}</svg>\n"
    )
}

fn picture(found: &Found) -> String {
    let Some(scale) = Scale::of(found) else { return String::new() };
    let at = |(x, y): (f64, f64)| (LEFT + x * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - y * (HEIGHT - TOP - BOTTOM));
    let mut text = String::new();
    let [times, costs] = scale.ticks();
    for (place, label) in times {
        let (x, bottom) = at((place, 0.0));
        let _ = write!(text, "<line class=\"grid\" x1=\"{x:.1}\" y1=\"{TOP}\" x2=\"{x:.1}\" y2=\"{bottom:.1}\"/>");
        let _ = write!(
            text,
            "<text class=\"axis\" x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>",
            bottom + 18.0
        );
    }
    for (place, label) in costs {
        let (left, y) = at((0.0, place));
        let _ = write!(
            text,
            "<line class=\"grid\" x1=\"{left:.1}\" y1=\"{y:.1}\" x2=\"{:.1}\" y2=\"{y:.1}\"/>",
            WIDTH - RIGHT
        );
        let _ = write!(
            text,
            "<text class=\"axis\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
            left - 8.0,
            y + 4.0
        );
    }
    let _ = write!(
        text,
        "<text class=\"axis\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">time from rent to release</text>",
        (LEFT + WIDTH - RIGHT) / 2.0,
        HEIGHT - 10.0
    );
    let _ = write!(
        text,
        "<text class=\"axis\" transform=\"translate(16 {:.1}) rotate(-90)\" text-anchor=\"middle\">cost</text>",
        (TOP + HEIGHT - BOTTOM) / 2.0
    );
    // Thousands of candidates hide each other; one for each spot of the picture is drawn.
    let mut drawn = std::collections::BTreeSet::new();
    for candidate in found.answer.candidates.iter().filter(|candidate| scale.holds(candidate)) {
        let (x, y) = at(scale.place(candidate));
        if drawn.insert(((x / 3.0) as i64, (y / 3.0) as i64)) {
            let _ = write!(text, "<circle class=\"other\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"1.8\"/>");
        }
    }
    let points: Vec<String> = found
        .front
        .iter()
        .map(|shown| at(scale.place(&shown.candidate)))
        .map(|(x, y)| format!("{x:.1},{y:.1}"))
        .collect();
    let _ = write!(text, "<polyline class=\"front\" points=\"{}\"/>", points.join(" "));
    for shown in &found.front {
        let (x, y) = at(scale.place(&shown.candidate));
        let class = if shown.candidate.terms == PurchaseOption::Spot { "spot" } else { "demand" };
        let _ = write!(
            text,
            "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"><title>{}</title></circle>",
            escaped(&caption(shown))
        );
    }
    // What is chosen for several wishes has one ring and all their names.
    let mut rings: Vec<(f64, f64, Vec<&str>)> = Vec::new();
    for (pick, shown) in &found.picks {
        let (x, y) = at(scale.place(&shown.candidate));
        match rings.iter_mut().find(|(other_x, other_y, _)| (*other_x - x).abs() < 0.5 && (*other_y - y).abs() < 0.5) {
            Some((_, _, names)) => names.push(pick.role.word()),
            None => rings.push((x, y, vec![pick.role.word()])),
        }
        if pick.role == Recommendation::Robust {
            let class = if shown.candidate.terms == PurchaseOption::Spot { "spot" } else { "demand" };
            let _ = write!(
                text,
                "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"><title>{}</title></circle>",
                escaped(&caption(shown))
            );
        }
    }
    let mut taken: Vec<(f64, f64)> = Vec::new();
    for (x, y, names) in rings {
        let _ = write!(text, "<circle class=\"pick\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"8\"/>");
        let is_right = x > WIDTH * 0.7;
        let (label_x, anchor) = if is_right { (x - 13.0, "end") } else { (x + 13.0, "start") };
        let mut label_y = y - 10.0;
        // Labels that would stand on one another move up.
        while taken
            .iter()
            .any(|(other_x, other_y)| (other_x - label_x).abs() < 150.0 && (other_y - label_y).abs() < 15.0)
        {
            label_y -= 15.0;
        }
        taken.push((label_x, label_y));
        let _ = write!(
            text,
            "<text class=\"name\" x=\"{label_x:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{}</text>",
            label_y.max(TOP + 10.0),
            names.join(", ")
        );
    }
    text
}

fn caption(shown: &Shown) -> String {
    format!(
        "{} in {} {}, {}: {}, {}",
        machines(shown),
        shown.listing.cloud,
        shown.listing.region,
        shown.candidate.terms.word(),
        time(shown.forecast.time.middle),
        cents(shown.forecast.cost.middle)
    )
}

/// The page.
pub fn html(found: &Found) -> String {
    let mut body = String::new();
    let name = escaped(&found.job.name);
    let (from, to) = dates(found);
    let _ = write!(body, "<h1>Plan of {name}</h1>");
    let text = lines(found, None);
    let _ = write!(body, "<p>{} offers, on {}; prices of {from} to {to}.</p>", found.answer.offers, found.numbers());
    let _ = write!(
        body,
        "<figure><svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"cost against time\">{}</svg>",
        picture(found)
    );
    body.push_str("<figcaption><span class=\"key spot\"></span> spot <span class=\"key demand\"></span> on demand; the line is the front: nothing else is both cheaper and faster. Grey: other offers.</figcaption></figure>");
    body.push_str("<h2>What to choose</h2>");
    let picks = found.picks.iter().map(|(pick, shown)| (pick.role.word().to_owned(), pick.why.clone(), shown));
    body.push_str(&rows(picks));
    body.push_str("<h2>The front</h2>");
    let front = found.front.iter().enumerate().map(|(index, shown)| ((index + 1).to_string(), String::new(), shown));
    body.push_str(&rows(front));
    body.push_str("<h2>Ruled out</h2><table><tr><th class=\"n\">offers</th><th>why</th></tr>");
    for (reason, offers) in &found.answer.ruled_out {
        let why = escaped(&refusal::sentence(*reason, found.question, &found.answer));
        let _ = write!(body, "<tr><td class=\"n\">{offers}</td><td>{why}</td></tr>");
    }
    let _ = write!(body, "</table><h2>In words</h2><pre>{}</pre>", escaped(&text.join("\n")));
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\"><title>Plan of {name}</title><style>{STYLE}{PAGE}</style></head><body>{body}</body></html>\n"
    )
}

const PAGE: &str = "\
body{background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,sans-serif;max-width:1240px;margin:2rem auto;padding:0 1rem}\
h1{font-size:1.5rem}h2{font-size:1.1rem;margin-top:2rem}figure{margin:0}svg{width:100%;height:auto}\
figcaption,p{color:var(--faint)}table{border-collapse:collapse;width:100%;display:block;overflow-x:auto}\
th,td{text-align:left;padding:.3rem .7rem .3rem 0;border-bottom:1px solid var(--line);white-space:nowrap}.said td{border-bottom:none;padding-bottom:0}.why td{white-space:normal;color:var(--faint);padding-top:0}\
th{color:var(--faint);font-weight:500}.n{text-align:right;font-variant-numeric:tabular-nums}\
pre{overflow-x:auto;font-size:12.5px}.key{display:inline-block;width:.7rem;height:.7rem;border-radius:50%}.key.spot{background:var(--spot)}.key.demand{background:var(--demand);margin-left:.8rem}";

/// A row each; why it is there stands below it, as wide as it needs.
fn rows<'a>(rows: impl Iterator<Item = (String, String, &'a Shown<'a>)>) -> String {
    let mut text = String::from(
        "<table><tr><th></th><th>machines</th><th>where</th><th>terms</th><th class=\"n\">time</th><th class=\"n\">P10–P90</th><th class=\"n\">cost</th><th class=\"n\">P10–P90</th></tr>",
    );
    for (name, why, shown) in rows {
        let forecast = &shown.forecast;
        let _ = write!(
            text,
            "<tr{}><td>{}</td><td>{}</td><td>{} {}</td><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}–{}</td><td class=\"n\">{}</td><td class=\"n\">{}–{}</td></tr>",
            if why.is_empty() { "" } else { " class=\"said\"" },
            escaped(&name),
            escaped(&machines(shown)),
            escaped(shown.listing.cloud.name()),
            escaped(&shown.listing.region),
            shown.candidate.terms.word(),
            time(forecast.time.middle),
            time(forecast.time.low),
            time(forecast.time.high),
            cents(forecast.cost.middle),
            cents(forecast.cost.low),
            cents(forecast.cost.high),
        );
        if !why.is_empty() {
            let _ = write!(text, "<tr class=\"why\"><td></td><td colspan=\"7\">{}</td></tr>", escaped(&why));
        }
    }
    text.push_str("</table>");
    text
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
