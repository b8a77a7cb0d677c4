//! The outlook of a candidate: how sure its time and its cost are.
//!
//! Two things are uncertain: how long a step takes, which the estimate's own band says, and how often machines are
//! taken away, for which runs are drawn ([`bands_of`](crate::spot::bootstrap::bands_of)). They are independent, so
//! their logarithms add up in squares.

use domain::plan::{CostSpread, Spread};
use domain::{Duration, Money};
use serde::Serialize;

use super::course::{self, Course, Load};
use super::market::Terms;
use super::{Candidate, Question, Search, ways::Estimator};
use crate::spot::bootstrap::bands_of;

/// One run in ten is below the low end, one above the high one.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Outlook {
    pub time: Spread,
    pub cost: CostSpread,
}

/// The outlook, where one step in ten takes less than `step.0` times the estimate, and one more than `step.1` times.
pub fn outlook<E: Estimator>(
    search: &mut Search<E>,
    question: &Question,
    candidate: &Candidate,
    step: (f64, f64),
    seed: u64,
) -> Outlook {
    let (task, market) = (search.task, search.market);
    let good = &market.goods[candidate.good];
    let course = &candidate.course;
    let gpu = &market.shapes[good.shape].device.gpu;
    let (middle, start) = match search.way(good.shape, candidate.nodes) {
        Ok(way) => (way.step, way.start),
        // No candidate comes from machines without a way.
        Err(_) => (course.work / (task.steps as f64).max(1.0), 0.0),
    };
    let load = Load::of(task, good, gpu, candidate.nodes, middle, start);
    // Only the steps are uncertain by the band of steps, not the time to boot.
    let scaled = |factor: f64| -> Course {
        let load = Load { work: course.work * factor, ..load };
        let weather = question.weather_of(good, candidate.nodes);
        load.course(task, candidate.terms, course::policy(question.admission.spot, good), weather)
    };
    let (fast, slow) = (scaled(step.0), scaled(step.1));
    let spot = match candidate.terms {
        Terms::OnDemand | Terms::Dedicated => None,
        Terms::Spot => {
            let weather = question.weather_of(good, candidate.nodes);
            let policy = course::policy(question.admission.spot, good);
            bands_of(weather, course.work, course.interval, &load.costs, policy, seed)
        }
    };
    let ratios = |low: f64, high: f64, band: Option<(f64, f64)>| {
        let (fewer, more) = band.unwrap_or((1.0, 1.0));
        let both = |one: f64, other: f64| one.ln().hypot(other.ln()).exp();
        (1.0 / both(low.min(1.0), fewer.min(1.0)), both(high.max(1.0), more.max(1.0)))
    };
    let walls = spot.map(|bands| (bands.wall.low / bands.mean.wall, bands.wall.high / bands.mean.wall));
    let bills = spot.map(|bands| (bands.paid.low / bands.mean.paid(), bands.paid.high / bands.mean.paid()));
    let leaving = question.leaving(good);
    let cost_of =
        |course: &Course| course::cost(task, good, candidate.terms, candidate.nodes, course, &leaving).total();
    let total = candidate.cost.total();
    let share = |money: Money| money.micros() as f64 / (total.micros() as f64).max(1.0);
    let (less, more) = ratios(fast.wall / course.wall, slow.wall / course.wall, walls);
    let (cheaper, dearer) = ratios(share(cost_of(&fast)), share(cost_of(&slow)), bills);
    let time = |factor: f64| Duration::from_micros((course.wall * factor * 1e6).round() as u64);
    let money = |factor: f64| Money::from_micros((total.micros() as f64 * factor).round() as i64);
    Outlook {
        time: Spread { low: time(less), middle: time(1.0), high: time(more) },
        cost: CostSpread { low: money(cheaper), middle: total, high: money(dearer) },
    }
}
