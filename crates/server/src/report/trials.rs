//! The charts of a sweep: parallel coordinates over all keys, and the metric against each key, as inline SVG.

use domain::sweep::{Between, Metric, Parameter, Range, Setting};
use maud::{Markup, html};
use serde_json::Value;

const HEIGHT: f64 = 300.0;
const WIDTH: f64 = 1000.0;
const SIDE: f64 = 90.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 30.0;
/// A chart of the metric against one key.
const PANEL: f64 = 640.0;
const LEFT: f64 = 70.0;

/// Longest text at an axis, in letters.
const LONGEST: usize = 22;

/// One key as an axis from 0 to 1.
pub struct Axis {
    name: String,
    scale: Scale,
}

enum Scale {
    Words(Vec<Value>),
    Numbers(Between<f64>),
}

/// One trial.
pub struct Dot {
    /// Where its values stand on the axes, 0 to 1.
    pub places: Vec<f64>,
    /// Its metric.
    pub value: f64,
    /// Epochs that it was trained for.
    pub epochs: u32,
    /// Whether it is the best.
    pub is_best: bool,
    /// Its title.
    pub title: String,
}

impl Axis {
    /// The axis of a key.
    pub fn of(parameter: &Parameter) -> Axis {
        let scale = match &parameter.range {
            Range::Choices(values) => Scale::Words(values.clone()),
            Range::Numbers(between) => Scale::Numbers(*between),
            Range::Integers(Between { min, max, log, points }) => {
                Scale::Numbers(Between { min: *min as f64, max: *max as f64, log: *log, points: *points })
            }
        };
        Axis { name: parameter.key.clone(), scale }
    }

    /// Where a value stands, 0 to 1.
    pub fn place(&self, value: &Value) -> f64 {
        match &self.scale {
            Scale::Words(values) => {
                let place = values.iter().position(|one| one == value).unwrap_or(0);
                // Categories are inset from the ends.
                (place as f64 + 0.5) / values.len().max(1) as f64
            }
            Scale::Numbers(between) => {
                let by = |number: f64| if between.log { number.ln() } else { number };
                let value = value.as_f64().unwrap_or(between.min);
                ((by(value) - by(between.min)) / (by(between.max) - by(between.min)).max(f64::MIN_POSITIVE))
                    .clamp(0.0, 1.0)
            }
        }
    }

    /// Labels along the axis, with their positions.
    fn ticks(&self) -> Vec<(f64, String)> {
        match &self.scale {
            Scale::Words(values) => values.iter().map(|value| (self.place(value), said(value))).collect(),
            Scale::Numbers(between) => {
                let middle = match between.log {
                    true => (between.min * between.max).sqrt(),
                    false => (between.min + between.max) / 2.0,
                };
                let middle = format!("{middle:.1e}").parse().unwrap_or(middle);
                [between.min, middle, between.max]
                    .into_iter()
                    .map(|number| {
                        let value = Value::from(number);
                        (self.place(&value), said(&value))
                    })
                    .collect()
            }
        }
    }
}

/// A value as shown in a table, shortened if it is long.
fn said(value: &Value) -> String {
    let text = Setting { key: String::new(), value: value.clone() }.say();
    let text = text.strip_suffix(".0").map(str::to_owned).unwrap_or(text);
    if text.chars().count() <= LONGEST {
        return text;
    }
    let mut cut: String = text.chars().take(LONGEST - 1).collect();
    cut.push('…');
    cut
}

/// From the least to the most value, a little wider, so that no dot stands on the edge; a share is at most all.
fn span(dots: &[Dot], metric: Metric) -> (f64, f64) {
    let low = dots.iter().map(|dot| dot.value).fold(f64::INFINITY, f64::min);
    let high = dots.iter().map(|dot| dot.value).fold(f64::NEG_INFINITY, f64::max);
    let wider = if high > low { 0.05 * (high - low) } else { low.abs().max(1e-6) * 0.05 };
    let (least, most) = match metric {
        Metric::Loss | Metric::Perplexity => (f64::NEG_INFINITY, f64::INFINITY),
        Metric::Accuracy | Metric::F1 | Metric::Top5 | Metric::Map | Metric::Map50 => (low.min(0.0), high.max(1.0)),
    };
    ((low - wider).max(least), (high + wider).min(most))
}

/// How strongly a trial is drawn: the fewer epochs, the fainter. Those of a program are not known.
fn strength(dot: &Dot, dots: &[Dot]) -> f64 {
    match dots.iter().map(|dot| dot.epochs).max() {
        None | Some(0) => 0.9,
        Some(most) => 0.25 + 0.65 * f64::from(dot.epochs) / f64::from(most),
    }
}

/// A line through all keys and the metric for each trial.
pub fn coordinates(axes: &[Axis], dots: &[Dot], metric: Metric) -> Markup {
    let (low, high) = span(dots, metric);
    let last = axes.len();
    let x = |place: usize| SIDE + place as f64 * (WIDTH - 2.0 * SIDE) / last.max(1) as f64;
    let y = |share: f64| HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM);
    let points = |dot: &Dot| -> String {
        let shares = dot.places.iter().copied().chain([(dot.value - low) / (high - low)]).enumerate();
        let points: Vec<String> = shares.map(|(place, share)| format!("{:.1},{:.1}", x(place), y(share))).collect();
        points.join(" ")
    };
    html! {
        figure {
            figcaption { b { "Values and what they came to" } }
            div class="scroll" role="region" tabindex="0" aria-label="Values and what they came to" {
                svg class="wide" role="img" viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } {
                    title { "a line for each trial, through its values" }
                    @for (place, name) in axes.iter().map(|axis| axis.name.as_str()).chain([metric.name()]).enumerate() {
                        @let at = format!("{:.1}", x(place));
                        line class="grid" x1=(at) x2=(at) y1=(TOP) y2=(HEIGHT - BOTTOM) {}
                        text class="x" x=(at) y="16" { (name) }
                        @let ticks = match axes.get(place) {
                            Some(axis) => axis.ticks(),
                            None => vec![(0.0, metric.say(low)), (1.0, metric.say(high))],
                        };
                        @for (share, label) in ticks {
                            text class="axis" x=(format_args!("{:.1}", x(place) + 5.0))
                                y=(format_args!("{:.1}", y(share) - 3.0)) { (label) }
                        }
                    }
                    // The best is drawn last, above the others.
                    @for dot in dots.iter().rev() {
                        polyline class=(class(dot)) stroke-opacity=(opacity(dot, dots)) points=(points(dot)) {
                            title { (dot.title) }
                        }
                    }
                }
            }
        }
    }
}

fn class(dot: &Dot) -> &'static str {
    if dot.is_best { "best" } else { "first" }
}

fn opacity(dot: &Dot, dots: &[Dot]) -> String {
    format!("{:.2}", if dot.is_best { 1.0 } else { strength(dot, dots) })
}

/// The metric against one key.
pub fn against_keys(axes: &[Axis], place: usize, dots: &[Dot], metric: Metric) -> Markup {
    let Some(axis) = axes.get(place) else { return html! {} };
    let (low, high) = span(dots, metric);
    let x = |share: f64| format!("{:.1}", LEFT + 20.0 + share * (PANEL - LEFT - 60.0));
    let y = |value: f64| format!("{:.1}", 210.0 - (value - low) / (high - low) * 190.0);
    html! {
        figure {
            figcaption { b { (axis.name) } }
            svg role="img" viewBox={ "0 0 " (PANEL) " 240" } {
                title { (metric.name()) " against " (axis.name) }
                @for step in 0..=4 {
                    @let value = low + f64::from(step) * (high - low) / 4.0;
                    line class="grid" x1=(LEFT) x2=(PANEL - 10.0) y1=(y(value)) y2=(y(value)) {}
                    text class="y" x=(LEFT - 6.0) y=(y(value)) { (metric.say(value)) }
                }
                @for (share, label) in axis.ticks() { text class="x" x=(x(share)) y="232" { (label) } }
                @for dot in dots.iter().rev() {
                    @let share = dot.places.get(place).copied().unwrap_or(0.0);
                    circle class=(class(dot)) r=(if dot.is_best { 7 } else { 5 }) fill-opacity=(opacity(dot, dots))
                        cx=(x(share)) cy=(y(dot.value)) { title { (dot.title) } }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(range: Range) -> Axis {
        Axis::of(&Parameter { key: "lr".into(), range })
    }

    #[test]
    fn values_stand_where_they_belong() {
        let log = axis(Range::Numbers(Between { min: 1e-4, max: 1e-2, log: true, points: None }));
        let places = [1e-4, 1e-3, 1e-2].map(|value| log.place(&Value::from(value)));
        assert!(
            places.iter().zip([0.0, 0.5, 1.0]).all(|(place, expected)| (place - expected).abs() < 1e-9),
            "{places:?}"
        );
        let words = axis(Range::Choices(vec!["mlp".into(), "cnn".into()]));
        assert_eq!(words.place(&Value::from("cnn")), 0.75);
        let whole = axis(Range::Integers(Between { min: 10, max: 20, log: false, points: None }));
        assert_eq!(whole.place(&Value::from(15)), 0.5);
        assert_eq!(
            said(&serde_json::json!({"resnet": {"blocks": [1, 1, 1, 1], "width": 8}})),
            "{resnet: {blocks: [1,…"
        );
    }

    #[test]
    fn every_trial_can_be_drawn() {
        let axes = [axis(Range::Choices(vec![1.into(), 2.into()]))];
        for values in [&[0.5][..], &[0.5, 0.5], &[0.0, 0.0], &[-1e12, 1e12], &[0.1, 0.9, 0.5]] {
            let dot = |(place, value): (usize, &f64)| Dot {
                places: vec![0.25],
                value: *value,
                epochs: 3,
                is_best: place == 0,
                title: "<trial>".into(),
            };
            let dots: Vec<Dot> = values.iter().enumerate().map(dot).collect();
            let svg = coordinates(&axes, &dots, Metric::Loss).into_string()
                + &against_keys(&axes, 0, &dots, Metric::Loss).into_string();
            assert_eq!(svg.matches("<polyline").count(), values.len());
            assert_eq!(svg.matches("<circle").count(), values.len());
            assert!(!svg.contains("NaN") && !svg.contains("inf") && !svg.contains("<trial>"), "{values:?}: {svg}");
        }
    }
}
