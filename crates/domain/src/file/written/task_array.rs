//! `#SBATCH --array`: a sweep over the number of the task.

use super::yaml::YamlValue;
use crate::sweep::MOST_TRIALS;

/// The variable that has the number.
pub(super) const TASK_ID: &str = "SLURM_ARRAY_TASK_ID";

/// The tasks of `1-10%3`, `0,2,5` or `0-31:4`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TaskArray {
    /// The number of each, rising.
    ids: Vec<u64>,
    /// How many may run at once, if that is said.
    pub parallel: Option<u32>,
}

impl TaskArray {
    /// Reads the value of the option; `None` if it is none, or has more tasks than a sweep may have trials.
    pub fn read(text: &str) -> Option<TaskArray> {
        let (ranges, parallel) = match text.split_once('%') {
            Some((ranges, parallel)) => (ranges, Some(parallel.parse::<u32>().ok().filter(|parallel| *parallel > 0)?)),
            None => (text, None),
        };
        let mut ids = Vec::new();
        for part in ranges.split(',') {
            let (range, step) = match part.split_once(':') {
                Some((range, step)) => (range, step.parse::<usize>().ok().filter(|step| *step > 0)?),
                None => (part, 1),
            };
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (first, last) = (first.parse::<u64>().ok()?, last.parse::<u64>().ok()?);
            let most = u64::from(MOST_TRIALS);
            if first > last || (last - first) / step as u64 >= most {
                return None;
            }
            ids.extend((first..=last).step_by(step));
            if ids.len() as u64 > 4 * most {
                return None;
            }
        }
        ids.sort_unstable();
        ids.dedup();
        (ids.len() <= MOST_TRIALS as usize).then_some(TaskArray { ids, parallel })
    }

    /// The same as a sweep, in which each task runs whatever becomes of the others.
    pub fn sweep(&self) -> YamlValue {
        let number = |number: u64| YamlValue::Plain(number.to_string());
        let (min, max) = self.bounds();
        let values = if self.ids.len() > 2 && max - min == self.ids.len() as u64 - 1 {
            YamlValue::Map(vec![("min".to_owned(), number(min)), ("max".to_owned(), number(max))])
        } else {
            YamlValue::List(self.ids.iter().map(|id| number(*id)).collect())
        };
        let parameters = YamlValue::Map(vec![(format!("envs.{TASK_ID}"), values)]);
        let mut keys = vec![
            ("method".to_owned(), YamlValue::Plain("grid".to_owned())),
            ("parameters".to_owned(), parameters),
            ("max_failed".to_owned(), number(self.ids.len() as u64)),
        ];
        keys.extend(self.parallel.map(|parallel| ("parallel".to_owned(), number(u64::from(parallel)))));
        YamlValue::Map(keys)
    }

    /// The other variables of an array, and their values.
    pub fn variables(&self) -> [(&'static str, String); 4] {
        let (min, max) = self.bounds();
        [
            ("SLURM_ARRAY_TASK_COUNT", self.ids.len().to_string()),
            ("SLURM_ARRAY_TASK_MIN", min.to_string()),
            ("SLURM_ARRAY_TASK_MAX", max.to_string()),
            // A trial is named `SWEEP-tN`.
            ("SLURM_ARRAY_JOB_ID", "${GRADUS_RUN%-t*}".to_owned()),
        ]
    }

    fn bounds(&self) -> (u64, u64) {
        (self.ids.first().copied().unwrap_or(0), self.ids.last().copied().unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::TaskArray;

    #[test]
    fn arrays_are_read_as_slurm_means_them() {
        let check = |text: &str, expected: Option<(&[u64], Option<u32>)>| {
            let read = TaskArray::read(text);
            let found = read.as_ref().map(|array| (&array.ids[..], array.parallel));
            assert_eq!(found, expected, "{text}");
        };
        check("1-4%3", Some((&[1, 2, 3, 4], Some(3))));
        check("0,5,2", Some((&[0, 2, 5], None)));
        check("0-9:4", Some((&[0, 4, 8], None)));
        check("7", Some((&[7], None)));
        check("1-3,3-4", Some((&[1, 2, 3, 4], None)));
        for wrong in ["", "x", "4-1", "1-4%0", "1-4:0", "1-10001", "0-18446744073709551615"] {
            check(wrong, None);
        }
    }
}
