//! The range of a key, from the values that it is written with.

use serde_json::Value as Json;

use super::super::tree::{Node, Value, clip};
use super::table::{integer, number};
use super::{Entry, PLACE, Written};
use crate::problem::Problem;
use crate::sweep::{Between, Range};

impl Entry {
    /// The value, if it is a valid range.
    pub(super) fn range(&self, values: Vec<Json>, problems: &mut Vec<Problem>) -> Option<Range> {
        let mut wrong = |below: &str, message: String, hint: &str| {
            let place = format!("{PLACE}.{}{below}", self.key);
            problems.push(Problem { line: Some(self.line), ..Problem::at(place, message) }.hint(hint));
        };
        if let Written::Rows(_) = self.written {
            return Some(Range::Choices(values));
        }
        let Written::Between { ends, log, points } = &self.written else {
            let twice = values.iter().enumerate().find(|(index, value)| values[..*index].contains(value));
            if let Some((index, _)) = twice {
                let message = "the same value stands here twice".to_owned();
                wrong(&format!("[{index}]"), message, "keep one of the two");
                return None;
            }
            return Some(Range::Choices(values));
        };
        let [min, max] = &values[..] else { return None };
        let text = |node: &Node| match &node.value {
            Value::Scalar(raw) => clip(&raw.text),
            Value::List(_) | Value::Map(_) => "…".to_owned(),
        };
        let (Some(least), Some(most)) = (number(min), number(max)) else {
            let message = format!("`{}` to `{}` is no range of numbers", text(&ends[0]), text(&ends[1]));
            wrong("", message, "write the values as a list");
            return None;
        };
        if least > most {
            let message = format!("the range is empty: `min` {least} is more than `max` {most}");
            wrong("", message, "exchange the two");
            return None;
        }
        if least == most {
            let message = format!("the range is the single value {least}");
            wrong("", message, "make `max` larger; a fixed value stands under `train`");
            return None;
        }
        if *log && least <= 0.0 {
            let message = format!("a logarithm needs numbers above 0, and `min` is {least}");
            wrong(".log", message, "raise `min`, or leave `log` out");
            return None;
        }
        let (log, points) = (*log, *points);
        match (integer(min), integer(max)) {
            (Some(min), Some(max)) => Some(Range::Integers(Between { min, max, log, points })),
            _ => Some(Range::Numbers(Between { min: least, max: most, log, points })),
        }
    }
}
