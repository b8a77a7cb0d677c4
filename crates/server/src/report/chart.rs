//! One chart of a report: lines over optimiser steps, as inline SVG without a script.

use maud::{Markup, html};

use super::words;

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 240.0;
const LEFT: f64 = 72.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 30.0;

/// A line is drawn with this many pairs of points at most: its lowest and highest value in each stretch of steps.
const STRETCHES: usize = 300;

/// A smoothed line shows the mean over this share of its length.
const SMOOTHING: usize = 50;

/// A line with more points than this has no dots.
const DOTS: usize = 60;

/// Lines over steps.
pub struct Chart {
    /// The title, with the unit.
    pub title: &'static str,
    /// Formats a value.
    pub say: fn(f64) -> String,
    /// The lines, from back to front.
    pub lines: Vec<Line>,
    /// The first and last step of the run, so that all charts are drawn over the same.
    pub span: (u64, u64),
    /// Steps that an attempt resumed from.
    pub resumed: Vec<u64>,
}

/// One line.
pub struct Line {
    /// Its name in the legend.
    pub name: &'static str,
    /// Its class in the style sheet.
    pub class: &'static str,
    /// Step and value, by step.
    pub points: Vec<(u64, f64)>,
}

/// A noisy line behind its moving average; a short one alone.
pub fn with_mean(name: &'static str, points: Vec<(u64, f64)>) -> Vec<Line> {
    let mean = Line { name, class: "first", points: smoothed(&points) };
    match points.len() < 2 * SMOOTHING {
        true => vec![mean],
        false => vec![Line { name: "each step", class: "faint", points }, mean],
    }
}

fn smoothed(points: &[(u64, f64)]) -> Vec<(u64, f64)> {
    let window = (points.len() / SMOOTHING).max(1);
    let mut sum = 0.0;
    let mean = |(index, (step, value)): (usize, &(u64, f64))| {
        sum += value;
        if index >= window {
            sum -= points[index - window].1;
        }
        (*step, sum / (index + 1).min(window) as f64)
    };
    points.iter().enumerate().map(mean).collect()
}

impl Chart {
    /// Renders it; empty if no line has a point.
    pub fn draw(mut self) -> Markup {
        for line in &mut self.lines {
            line.points.retain(|(_, value)| value.is_finite());
        }
        self.lines.retain(|line| !line.points.is_empty());
        let Some(axes) = Axes::around(&self.lines, self.span) else { return html! {} };
        let within = |step: &&u64| (axes.left..=axes.right).contains(&(**step as f64));
        html! {
            figure {
                figcaption {
                    b { (self.title) }
                    @for line in &self.lines {
                        @let last = line.points.last().map(|(_, value)| (self.say)(*value)).unwrap_or_default();
                        span class=(format!("key {}", line.class)) { (line.name) " " em { (last) } }
                    }
                }
                svg role="img" viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } {
                    title { (self.title) " over optimiser steps" }
                    (self.draw_axes(&axes))
                    @for step in self.resumed.iter().filter(within) {
                        line class="resumed" y1=(TOP) y2=(HEIGHT - BOTTOM) x1=(axes.x(*step)) x2=(axes.x(*step)) {
                            title { "resumed from step " (step) }
                        }
                    }
                    @for line in &self.lines { (self.draw_line(line, &axes)) }
                }
            }
        }
    }

    fn draw_axes(&self, axes: &Axes) -> Markup {
        let run = nice((axes.right - axes.left) / 5.0).max(1.0);
        html! {
            @for value in ticks(axes.bottom, axes.top, axes.rise) {
                @let y = axes.y(value);
                line class="grid" x1=(LEFT) x2=(WIDTH - RIGHT) y1=(y) y2=(y) {}
                text class="y" x=(LEFT - 8.0) y=(y) { ((self.say)(value)) }
            }
            @for value in ticks((axes.left / run).ceil() * run, axes.right, run) {
                @let step = value.round() as u64;
                text class="x" x=(axes.x(step)) y=(HEIGHT - 10.0) { (words::count(step)) }
            }
        }
    }

    fn draw_line(&self, line: &Line, axes: &Axes) -> Markup {
        let place = |(step, value): (u64, f64)| format!("{},{} ", axes.x(step), axes.y(value));
        let dots: &[(u64, f64)] = if line.points.len() > DOTS { &[] } else { &line.points };
        html! {
            polyline class=(line.class) points=(thinned(&line.points).into_iter().map(place).collect::<String>()) {}
            @for (step, value) in dots {
                circle class=(line.class) r="3" cx=(axes.x(*step)) cy=(axes.y(*value)) {
                    title { "step " (words::count(*step)) ": " ((self.say)(*value)) }
                }
            }
        }
    }
}

/// The lowest and highest point of each stretch, so that thinning hides no spike.
fn thinned(points: &[(u64, f64)]) -> Vec<(u64, f64)> {
    if points.len() <= 2 * STRETCHES {
        return points.to_vec();
    }
    let mut kept = Vec::with_capacity(2 * STRETCHES);
    for stretch in points.chunks(points.len().div_ceil(STRETCHES)) {
        let lowest = stretch.iter().min_by(|a, b| a.1.total_cmp(&b.1));
        let highest = stretch.iter().max_by(|a, b| a.1.total_cmp(&b.1));
        let mut pair: Vec<(u64, f64)> = lowest.into_iter().chain(highest).copied().collect();
        pair.sort_by_key(|(step, _)| *step);
        kept.extend(pair);
    }
    kept
}

/// Where values are drawn.
struct Axes {
    left: f64,
    right: f64,
    bottom: f64,
    top: f64,
    /// From one grid line to the next.
    rise: f64,
}

impl Axes {
    fn around(lines: &[Line], (first, last): (u64, u64)) -> Option<Axes> {
        let values = || lines.iter().flat_map(|line| &line.points).map(|(_, value)| *value);
        let low = values().min_by(f64::total_cmp)?;
        let high = values().max_by(f64::total_cmp)?;
        // A line that is level or comes near zero is shown with it.
        let low = if low > 0.0 && (low < 0.3 * high || low == high) { 0.0 } else { low };
        let rise = nice(if high > low { (high - low) / 4.0 } else { high.abs().max(1e-9) });
        let bottom = (low / rise).floor() * rise;
        let top = ((high / rise - 1e-9).ceil() * rise).max(bottom + rise);
        let left = first as f64;
        Some(Axes { left, right: (last as f64).max(left + 1.0), bottom, top, rise })
    }

    fn x(&self, step: u64) -> String {
        let share = (step as f64 - self.left) / (self.right - self.left);
        format!("{:.1}", LEFT + share * (WIDTH - LEFT - RIGHT))
    }

    fn y(&self, value: f64) -> String {
        let share = (value - self.bottom) / (self.top - self.bottom);
        format!("{:.1}", HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM))
    }
}

/// The next larger of 1, 2 and 5 times a power of ten.
fn nice(value: f64) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    let factors = [1.0, 2.0, 5.0, 10.0];
    factors.into_iter().map(|factor| factor * power).find(|nice| *nice >= value * 0.999).unwrap_or(10.0 * power)
}

fn ticks(first: f64, last: f64, rise: f64) -> impl Iterator<Item = f64> {
    let number = ((last - first) / rise + 0.001).floor().max(0.0) as u32;
    (0..=number).map(move |index| first + f64::from(index) * rise)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(points: &[(u64, f64)]) -> String {
        let line = Line { name: "train", class: "a", points: points.to_vec() };
        let chart = Chart {
            title: "Loss",
            say: |value| format!("{value:.2}"),
            lines: vec![line],
            span: (1, 9),
            resumed: vec![2],
        };
        chart.draw().into_string()
    }

    #[test]
    fn every_line_can_be_drawn() {
        assert_eq!(check(&[]), "");
        assert_eq!(check(&[(1, f64::NAN)]), "");
        for points in
            [&[(1, 0.0)][..], &[(1, 5.0), (2, 5.0)], &[(1, -1e-12), (2, 1e12)], &[(1, f64::INFINITY), (9, 1.0)]]
        {
            let svg = check(points);
            assert!(svg.contains("<polyline") && !svg.contains("NaN") && !svg.contains("inf"), "{points:?}: {svg}");
        }
    }

    #[test]
    fn thinning_keeps_the_spike() {
        let mut points: Vec<(u64, f64)> = (0..100_000).map(|step| (step, 1.0)).collect();
        points[54_321].1 = 9.0;
        let kept = thinned(&points);
        assert!(kept.len() <= 2 * STRETCHES);
        assert!(kept.contains(&(54_321, 9.0)));
    }

    #[test]
    fn ticks_are_round() {
        assert_eq!([nice(0.03), nice(7.0), nice(20.0), nice(2.2)], [0.05, 10.0, 20.0, 5.0]);
        assert_eq!(ticks(0.0, 1.0, 0.25).collect::<Vec<_>>(), [0.0, 0.25, 0.5, 0.75, 1.0]);
    }

    #[test]
    fn smoothing_keeps_the_mean() {
        let points: Vec<(u64, f64)> = (0..200).map(|step| (step, f64::from(u32::from(step % 2 == 0)))).collect();
        assert_eq!(smoothed(&points)[199], (199, 0.5));
    }
}
