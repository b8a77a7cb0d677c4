//! Traces: the number of available spot machines over time, in published formats.
//!
//! A JSON of SkyPilot's spot traces (`{"metadata": {"gap_seconds": …}, "data": [n, …]}`), Parcae's events (a JSON list
//! `[ms, "add"|"remove"|"no-op", {"nodes": […]}]` per line), and tables of `time,count`, whose unit of time is inferred
//! from the values. The text is passed in.

use std::collections::BTreeSet;

use serde::Deserialize;

/// How many machines there were, from each moment until the next.
#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    /// Seconds from the start, rising, and machines from then on.
    pub steps: Vec<(f64, u32)>,
    /// Seconds at which it ends.
    pub end: f64,
}

/// Days of the longest trace: five years. Runs are replayed from every ten minutes of a trace, so it must end somewhere.
const LONGEST_DAYS: f64 = 1826.0;
const LONGEST: f64 = LONGEST_DAYS * 86400.0;

#[derive(Deserialize)]
struct Sampled {
    metadata: Metadata,
    data: Vec<u32>,
}

#[derive(Deserialize)]
struct Metadata {
    gap_seconds: f64,
}

/// One line of Parcae's events.
#[derive(Deserialize)]
struct TraceEvent(f64, String, NodeChange);

#[derive(Deserialize)]
struct NodeChange {
    nodes: Vec<String>,
    #[serde(default)]
    duration: f64,
}

impl Trace {
    /// Parses a trace in any of the formats.
    ///
    /// # Errors
    /// Which line matches none of them.
    pub fn read(text: &str) -> Result<Trace, String> {
        let trace = match text.trim_start().bytes().next() {
            Some(b'{') => sampled(text)?,
            Some(b'[') => events(text)?,
            Some(_) => table(text)?,
            None => return Err("the file is empty".to_owned()),
        };
        let start = trace.steps.first().map_or(0.0, |(at, _)| *at);
        match (trace.steps.is_empty() || trace.end.is_nan() || trace.end <= 0.0, trace.end - start.min(0.0) > LONGEST) {
            (true, _) => Err("it holds no stretch of time".to_owned()),
            (false, true) => Err(format!("it spans {:.1e} days; {LONGEST_DAYS} are the most", trace.end / 86400.0)),
            (false, false) => Ok(trace),
        }
    }

    /// The middle of how many there are when there are any, over time.
    pub fn usual(&self) -> u32 {
        let ends = self.steps.iter().skip(1).map(|(at, _)| *at).chain([self.end]);
        let mut stays: Vec<(u32, f64)> =
            self.steps.iter().zip(ends).map(|((at, count), end)| (*count, end - at)).collect();
        stays.retain(|(count, _)| *count > 0);
        stays.sort_by_key(|(count, _)| *count);
        let half = stays.iter().map(|(_, seconds)| seconds).sum::<f64>() / 2.0;
        let mut passed = 0.0;
        let middle = stays.iter().find(|(_, seconds)| {
            passed += seconds;
            passed >= half
        });
        middle.map_or(0, |(count, _)| *count)
    }

    /// Whether `count` machines were there, and for how many seconds each time, between two moments.
    pub fn uptime_intervals(&self, count: u32, from: f64, to: f64) -> Vec<super::UptimeInterval> {
        let mut uptime_intervals: Vec<super::UptimeInterval> = Vec::new();
        let ends = self.steps.iter().skip(1).map(|(at, _)| *at).chain([self.end]);
        for ((at, machines), end) in self.steps.iter().zip(ends) {
            let seconds = end.min(to) - at.max(from);
            if seconds <= 0.0 {
                continue;
            }
            let is_up = *machines >= count;
            match uptime_intervals.last_mut() {
                Some(last) if last.is_up == is_up => last.seconds += seconds,
                Some(_) | None => uptime_intervals.push(super::UptimeInterval { is_up, seconds }),
            }
        }
        uptime_intervals
    }
}

fn sampled(text: &str) -> Result<Trace, String> {
    let sampled: Sampled = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let gap = sampled.metadata.gap_seconds;
    if !gap.is_finite() || gap <= 0.0 {
        return Err(format!("`gap_seconds` is {gap}; it must be above 0"));
    }
    let end = gap * sampled.data.len() as f64;
    let steps = sampled.data.into_iter().enumerate().map(|(index, count)| (gap * index as f64, count));
    Ok(Trace { steps: steps.collect(), end })
}

fn events(text: &str) -> Result<Trace, String> {
    let mut here: BTreeSet<String> = BTreeSet::new();
    let mut trace = Trace { steps: Vec::new(), end: 0.0 };
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let line_number = index + 1;
        let event: TraceEvent = serde_json::from_str(line).map_err(|error| format!("line {line_number}: {error}"))?;
        let TraceEvent(at, what, change) = event;
        match what.as_str() {
            "add" => here.extend(change.nodes),
            "remove" => change.nodes.iter().for_each(|node| {
                here.remove(node);
            }),
            // Work moves between machines that are there.
            "no-op" | "migration" => {}
            other => return Err(format!("line {line_number}: `{other}` is no event")),
        }
        let seconds = at / 1e3;
        if !seconds.is_finite() || !change.duration.is_finite() || change.duration < 0.0 {
            return Err(format!("line {line_number}: its times are no moments"));
        }
        if trace.steps.last().is_some_and(|(last, _)| *last > seconds) {
            return Err(format!("line {line_number}: the time goes back"));
        }
        trace.steps.push((seconds, u32::try_from(here.len()).unwrap_or(u32::MAX)));
        trace.end = seconds + change.duration / 1e3;
    }
    Ok(trace)
}

fn table(text: &str) -> Result<Trace, String> {
    let mut rows: Vec<(f64, u32)> = Vec::new();
    let mut in_fractions = false;
    let is_head = |line: &str| line.split(',').map(str::trim).eq(["time", "count"]);
    let behind_head = usize::from(text.lines().next().is_some_and(is_head));
    let lines = text.lines().enumerate().skip(behind_head);
    for (index, line) in lines.filter(|(_, line)| !line.trim().is_empty()) {
        let number = index + 1;
        let wrong = || format!("line {number}: expected a time and a count, as `3600,4`, found `{}`", line.trim());
        let (time, count) = line.split_once(',').ok_or_else(wrong)?;
        let at: f64 = time.trim().parse().ok().filter(|at: &f64| at.is_finite()).ok_or_else(wrong)?;
        if rows.last().is_some_and(|(last, _)| *last > at) {
            return Err(format!("line {number}: the time goes back"));
        }
        in_fractions |= time.contains('.');
        rows.push((at, count.trim().parse().map_err(|_| wrong())?));
    }
    let last = rows.last().map_or(0.0, |(at, _)| *at);
    // Published tables count hours with a point, milliseconds or seconds without; no trace is a month long.
    let scale = match (in_fractions, last > 32.0 * 86400.0) {
        (true, _) => 3600.0,
        (false, true) => 1e-3,
        (false, false) => 1.0,
    };
    let steps = rows.into_iter().map(|(at, count)| (at * scale, count)).collect();
    Ok(Trace { steps, end: last * scale })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The intervals of a trace for `count` machines, as `+` and `-` with seconds, or its error.
    #[track_caller]
    fn check(text: &str, count: u32, expected: &str) {
        let told = match Trace::read(text) {
            Ok(trace) => trace
                .uptime_intervals(count, 0.0, trace.end)
                .iter()
                .map(|period| format!("{}{}", if period.is_up { '+' } else { '-' }, period.seconds))
                .collect::<Vec<_>>()
                .join(" "),
            Err(error) => error,
        };
        assert_eq!(told, expected, "{text}");
    }

    #[test]
    fn published_formats_are_read() {
        check(r#"{"metadata": {"gap_seconds": 600}, "data": [1, 1, 0, 1]}"#, 1, "+1200 -600 +600");
        check(r#"{"metadata": {"gap_seconds": 600}, "data": [4, 3, 2, 4]}"#, 3, "+1200 -600 +600");
        check("0,0\n100,0\n100,2\n300,2\n300,1\n400,1\n", 2, "-100 +200 -100");
        check("0.0,1\n0.5,0\n1.0,0\n", 1, "+1800 -1800");
        check("time, count\n0.0,1\n0.5,0\n1.0,0\n", 1, "+1800 -1800");
        check("0,1\n6000000000,0\n6000001000,0\n", 1, "+6000000 -1");
        check(
            "[0, \"add\", {\"nodes\": [\"a\", \"b\"], \"duration\": 60000}]\n[60000, \"remove\", {\"nodes\": [\"a\"], \"duration\": 30000}]\n",
            2,
            "+60 -30",
        );
    }

    #[test]
    fn what_is_no_trace_is_told() {
        check("", 1, "the file is empty");
        check("time,count\n", 1, "it holds no stretch of time");
        check("when,count\n0,1\n", 1, "line 1: expected a time and a count, as `3600,4`, found `when,count`");
        check("0,1\ntime,count\n", 1, "line 2: expected a time and a count, as `3600,4`, found `time,count`");
        check("5,1\n4,1\n", 1, "line 2: the time goes back");
        check("0,1\n", 1, "it holds no stretch of time");
        check("[0, \"vanish\", {\"nodes\": []}]\n", 1, "line 1: `vanish` is no event");
        check(r#"{"metadata": {"gap_seconds": 0}, "data": [1]}"#, 1, "`gap_seconds` is 0; it must be above 0");
        check("0,1\nNaN,0\n", 1, "line 2: expected a time and a count, as `3600,4`, found `NaN,0`");
        check("0,1\ninf,0\n", 1, "line 2: expected a time and a count, as `3600,4`, found `inf,0`");
        let long = "it spans 1.2e298 days; 1826 are the most";
        check(r#"{"metadata": {"gap_seconds": 1e303}, "data": [1]}"#, 1, long);
        check("0,1\n1e12,0\n", 1, "it spans 1.2e4 days; 1826 are the most");
        check("[0, \"add\", {\"nodes\": [\"a\"], \"duration\": -5}]\n", 1, "line 1: its times are no moments");
    }
}
