//! Cost against time as SVG: every candidate a dot, the front a line, recommendations in rings.

use std::collections::BTreeSet;

use maud::{Markup, PreEscaped, html};
use plan::search::PurchaseOption;

use super::super::figures::{cents, time};
use super::super::{MarketPlan, PlanRow};
use super::machines;
use super::plot::Scale;

/// Width of the drawing's coordinates.
pub const WIDTH: f64 = 860.0;
/// Height of the drawing's coordinates.
pub const HEIGHT: f64 = 480.0;
const LEFT: f64 = 78.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 20.0;
const BOTTOM: f64 = 52.0;

/// Colours come from the page, or from the chart's own rules where it stands alone. The two hues differ in lightness
/// too, so that they can be told apart without colour.
pub const STYLE: &str = "\
:root{--ink:#1d2430;--faint:#67707f;--line:#d8dde5;--paper:#fff;--dot:#a9b4c4;--spot:#0b6bcb;--demand:#b4450f;--pick:#111}\
@media(prefers-color-scheme:dark){:root{--ink:#e6e9ee;--faint:#98a2b3;--line:#333c4a;--paper:#12161d;--dot:#4d5868;--spot:#6db3ff;--demand:#ff9e66;--pick:#fff}}\
svg{background:var(--paper);font:13px system-ui,sans-serif}\
.grid{stroke:var(--line)}.axis{fill:var(--faint)}.other{fill:var(--dot)}.spot{fill:var(--spot)}.demand{fill:var(--demand)}\
.front{fill:none;stroke:var(--faint);stroke-dasharray:3 3}.pick{fill:none;stroke:var(--pick);stroke-width:2}.name{fill:var(--ink);font-weight:600}";

/// The chart as a separate file, with its own colours.
pub fn svg(plan: &MarketPlan) -> String {
    let markup = html! {
        svg xmlns="http://www.w3.org/2000/svg" viewBox=(view_box()) role="img" aria-label="cost against time" {
            style { (PreEscaped(STYLE)) }
            (marks(plan))
        }
    };
    format!("{}\n", markup.into_string())
}

/// The part of the coordinates that is seen: all of them.
pub fn view_box() -> String {
    format!("0 0 {WIDTH} {HEIGHT}")
}

/// The marks; empty without a front.
pub fn marks(plan: &MarketPlan) -> Markup {
    let Some(scale) = Scale::of(plan) else { return html! {} };
    html! {
        (grid(&scale))
        (others(plan, &scale))
        (front(plan, &scale))
        (picks(plan, &scale))
    }
}

/// From shares of the axes to coordinates.
fn at((x, y): (f64, f64)) -> (f64, f64) {
    (LEFT + x * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - y * (HEIGHT - TOP - BOTTOM))
}

/// A coordinate with the digits that can be seen.
fn px(value: f64) -> String {
    format!("{value:.1}")
}

/// Both axes: grid lines at round values, with labels and titles.
fn grid(scale: &Scale) -> Markup {
    let [times, costs] = scale.ticks();
    html! {
        @for (place, label) in times {
            @let (x, bottom) = at((place, 0.0));
            line class="grid" x1=(px(x)) y1=(TOP.to_string()) x2=(px(x)) y2=(px(bottom)) {}
            text class="axis" x=(px(x)) y=(px(bottom + 18.0)) text-anchor="middle" { (label) }
        }
        @for (place, label) in costs {
            @let (left, y) = at((0.0, place));
            line class="grid" x1=(px(left)) y1=(px(y)) x2=(px(WIDTH - RIGHT)) y2=(px(y)) {}
            text class="axis" x=(px(left - 8.0)) y=(px(y + 4.0)) text-anchor="end" { (label) }
        }
        text class="axis" x=(px((LEFT + WIDTH - RIGHT) / 2.0)) y=(px(HEIGHT - 10.0)) text-anchor="middle" {
            "time from rent to release"
        }
        @let middle = px((TOP + HEIGHT - BOTTOM) / 2.0);
        text class="axis" transform=(format!("translate(16 {middle}) rotate(-90)")) text-anchor="middle" { "cost" }
    }
}

/// Every candidate that the axes hold. Thousands hide each other; one for each spot of the chart is drawn.
fn others(plan: &MarketPlan, scale: &Scale) -> Markup {
    let mut drawn = BTreeSet::new();
    let places = plan.answer.candidates.iter().filter(|candidate| scale.holds(candidate));
    let places = places.map(|candidate| at(scale.place(candidate)));
    html! {
        @for (x, y) in places.filter(|(x, y)| drawn.insert(((x / 3.0) as i64, (y / 3.0) as i64))) {
            circle class="other" cx=(px(x)) cy=(px(y)) r="1.8" {}
        }
    }
}

fn front(plan: &MarketPlan, scale: &Scale) -> Markup {
    let points = plan.front.iter().map(|row| at(scale.place(&row.candidate)));
    let points: Vec<String> = points.map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    html! {
        polyline class="front" points=(points.join(" ")) {}
        @for row in &plan.front { (dot(row, scale)) }
    }
}

/// A candidate in the colour of its terms, with a caption.
fn dot(row: &PlanRow, scale: &Scale) -> Markup {
    let (x, y) = at(scale.place(&row.candidate));
    let class = if row.candidate.terms == PurchaseOption::Spot { "spot" } else { "demand" };
    html! { circle class=(class) cx=(px(x)) cy=(px(y)) r="4" { title { (caption(row)) } } }
}

/// Rings around recommendations. One with several roles has one ring and all their names.
fn picks(plan: &MarketPlan, scale: &Scale) -> Markup {
    let mut rings: Vec<(f64, f64, Vec<&str>)> = Vec::new();
    for (pick, row) in &plan.picks {
        let (x, y) = at(scale.place(&row.candidate));
        match rings.iter_mut().find(|(other_x, other_y, _)| (*other_x - x).abs() < 0.5 && (*other_y - y).abs() < 0.5) {
            Some((_, _, names)) => names.push(pick.role.word()),
            None => rings.push((x, y, vec![pick.role.word()])),
        }
    }
    // The front has its dots already; what is recommended need not be on it, nor have the layout of its offer there.
    let is_apart = |row: &&PlanRow| plan.front.iter().all(|other| other.candidate != row.candidate);
    let apart: Vec<&PlanRow> = plan.picks.iter().map(|(_, row)| row).filter(is_apart).collect();
    let mut taken = Vec::new();
    html! {
        @for row in apart { (dot(row, scale)) }
        @for (x, y, names) in rings {
            circle class="pick" cx=(px(x)) cy=(px(y)) r="8" {}
            @let label = Label::beside((x, y), &mut taken);
            text class="name" x=(px(label.x)) y=(px(label.y)) text-anchor=(label.anchor) { (names.join(", ")) }
        }
    }
}

/// Where the name of a ring stands.
struct Label {
    x: f64,
    y: f64,
    anchor: &'static str,
}

impl Label {
    /// The position of a label next to a point, above labels in `taken` that it would overlap.
    fn beside((x, y): (f64, f64), taken: &mut Vec<(f64, f64)>) -> Label {
        let is_right = x > WIDTH * 0.7;
        let (x, anchor) = if is_right { (x - 13.0, "end") } else { (x + 13.0, "start") };
        let mut y = y - 10.0;
        while taken.iter().any(|(other_x, other_y)| (other_x - x).abs() < 150.0 && (other_y - y).abs() < 15.0) {
            y -= 15.0;
        }
        taken.push((x, y));
        Label { x, y: y.max(TOP + 10.0), anchor }
    }
}

fn caption(row: &PlanRow) -> String {
    format!(
        "{} in {} {}, {}: {}, {}",
        machines(row),
        row.listing.cloud,
        row.listing.region,
        row.candidate.terms.word(),
        time(row.forecast.time.middle),
        cents(row.forecast.cost.middle)
    )
}
