//! Cost against time in the terminal: every candidate a dot, the front with letters, both axes logarithmic.

use plan::search::Recommendation;

use super::super::MarketPlan;
use super::super::figures::{cents, time};

const HEIGHT: usize = 16;
/// Width of the labels at the left, such as `$1,234.56 `.
const MARGIN: usize = 12;
const NARROWEST: usize = 60;
const WIDEST: usize = 110;

/// The plot; `None` if the terminal is too narrow or there is nothing to plot.
pub fn lines(plan: &MarketPlan, width: usize) -> Option<Vec<String>> {
    let columns = width.min(WIDEST).checked_sub(MARGIN + 1)?;
    if width < NARROWEST || plan.answer.candidates.len() < 3 {
        return None;
    }
    let scale = Scale::of(plan)?;
    let mut cells = vec![vec![' '; columns]; HEIGHT];
    let place = |candidate: &plan::search::Candidate| {
        let (x, y) = scale.place(candidate);
        let column = (x * (columns - 1) as f64).round() as usize;
        let row = ((1.0 - y) * (HEIGHT - 1) as f64).round() as usize;
        (row.min(HEIGHT - 1), column.min(columns - 1))
    };
    for candidate in plan.answer.candidates.iter().filter(|candidate| scale.holds(candidate)) {
        let (row, column) = place(candidate);
        cells[row][column] = '·';
    }
    for shown in &plan.front {
        let (row, column) = place(&shown.candidate);
        cells[row][column] = 'o';
    }
    for (pick, shown) in plan.picks.iter().rev() {
        let (row, column) = place(&shown.candidate);
        cells[row][column] = letter(pick.role);
    }
    let mut lines = vec![legend(plan.picks.iter().map(|(pick, _)| pick.role))];
    for (row, line) in cells.into_iter().enumerate() {
        let label = match row {
            0 => cents(domain::Money::from_micros(scale.cost(1.0) as i64)),
            _ if row == HEIGHT - 1 => cents(domain::Money::from_micros(scale.cost(0.0) as i64)),
            _ => String::new(),
        };
        let line: String = line.into_iter().collect();
        lines.push(format!("{label:>width$} │{}", line.trim_end(), width = MARGIN - 2));
    }
    let (from, to) = (scale.time(0.0), scale.time(1.0));
    lines.push(format!("{:>width$} └{}", "", "─".repeat(columns), width = MARGIN - 2));
    let gap = columns.saturating_sub(from.chars().count() + to.chars().count());
    lines.push(format!("{}{from}{}{to}", " ".repeat(MARGIN), " ".repeat(gap)));
    Some(lines)
}

/// What the axes and letters are, of the roles that are in the plot.
fn legend(roles: impl Iterator<Item = Recommendation>) -> String {
    let letters: Vec<String> = roles.map(|role| format!("{} {}", letter(role), role.word())).collect();
    format!(
        "cost against time, both on logarithmic scales: {}, o front (nothing else is both cheaper and faster), · others",
        letters.join(", ")
    )
}

fn letter(role: Recommendation) -> char {
    match role {
        Recommendation::Recommended => 'R',
        Recommendation::Cheapest => 'C',
        Recommendation::Fastest => 'F',
        Recommendation::Robust => 'S',
        Recommendation::OneMachine => '1',
        Recommendation::SameOnDemand => 'D',
        Recommendation::SameSpot => 'P',
    }
}

/// Logarithms of the corners of the plot.
pub struct Scale {
    time: [f64; 2],
    cost: [f64; 2],
}

/// How far beyond the front's corners a candidate still stands in the chart.
const AROUND: f64 = 2.5;

impl Scale {
    /// A scale that covers the front, and candidates that are not much slower or more expensive; `None` without a
    /// front.
    pub fn of(plan: &MarketPlan) -> Option<Scale> {
        let points: Vec<[f64; 2]> = plan
            .front
            .iter()
            .chain(plan.picks.iter().map(|(_, shown)| shown))
            .map(|shown| {
                let (time, cost) = shown.candidate.point();
                [(time as f64).max(1.0).ln(), (cost as f64).max(1.0).ln()]
            })
            .collect();
        points.first()?;
        let bounds = |axis: usize| {
            let values = points.iter().map(|point| point[axis]);
            let low = values.clone().fold(f64::INFINITY, f64::min);
            let high = values.fold(f64::NEG_INFINITY, f64::max);
            [low - 0.1, high + AROUND.ln()]
        };
        Some(Scale { time: bounds(0), cost: bounds(1) })
    }

    /// Where a candidate stands, from 0 to 1 to the right and up.
    pub fn place(&self, candidate: &plan::search::Candidate) -> (f64, f64) {
        let (time, cost) = candidate.point();
        let share = |value: f64, [low, high]: [f64; 2]| (value.max(1.0).ln() - low) / (high - low);
        (share(time as f64, self.time), share(cost as f64, self.cost))
    }

    /// Whether a candidate stands within the chart.
    pub fn holds(&self, candidate: &plan::search::Candidate) -> bool {
        let (x, y) = self.place(candidate);
        (0.0..=1.0).contains(&x) && (0.0..=1.0).contains(&y)
    }

    /// The time at a position on the axis.
    pub fn time(&self, x: f64) -> String {
        let micros = (self.time[0] + x * (self.time[1] - self.time[0])).exp();
        time(domain::Duration::from_micros(micros as u64))
    }

    /// The cost at a position on the axis, in micro-dollars.
    pub fn cost(&self, y: f64) -> f64 {
        (self.cost[0] + y * (self.cost[1] - self.cost[0])).exp()
    }

    /// Positions of round hours on the time axis, and of round dollars on the cost axis, with their labels.
    pub fn ticks(&self) -> [Vec<(f64, String)>; 2] {
        let steps = |[low, high]: [f64; 2], unit: f64, tell: &dyn Fn(f64) -> String| {
            let mut ticks = Vec::new();
            for power in -6..10 {
                for digit in [1.0, 2.0, 5.0] {
                    let value = digit * 10f64.powi(power);
                    let place = ((value * unit).ln() - low) / (high - low);
                    if (0.0..=1.0).contains(&place) {
                        ticks.push((place, tell(value)));
                    }
                }
            }
            ticks
        };
        let hours = |hours: f64| time(domain::Duration::from_micros((hours * 3.6e9) as u64));
        let dollars = |dollars: f64| match dollars < 1.0 {
            true => format!("${dollars:.2}"),
            false => format!("${}", crate::figures::grouped(dollars as u64)),
        };
        [steps(self.time, 3.6e9, &hours), steps(self.cost, 1e6, &dollars)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_letter_of_the_plot_is_explained() {
        let text =
            legend([Recommendation::Recommended, Recommendation::OneMachine, Recommendation::SameOnDemand].into_iter());
        assert_eq!(
            text,
            "cost against time, both on logarithmic scales: R recommended, 1 best on one machine, D the same on demand, \
             o front (nothing else is both cheaper and faster), · others"
        );
    }
}
