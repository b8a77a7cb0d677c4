//! A table that somebody names to be believed: a cell that is no number is refused, and not taken for one that is empty.
//!
//! Tables of published measurements are read leniently, for they hold words where a number is not known; what a plan is
//! corrected by must not be.

use super::row::{MeasuredRow, Unreadable};
use super::table;

/// Columns that hold numbers; those of the second list count something.
const NUMBERS: [&str; 9] = [
    "gpu_mem_gb",
    "batch_per_gpu",
    "throughput",
    "logged_throughput_median",
    "step_time_ms",
    "peak_memory_gib",
    "params_m",
    "gmacs",
    "macts_m",
];
const COUNTS: [&str; 6] = ["n_gpus", "nodes", "n_nodes", "n_accel", "global_batch_size", "grad_accum"];

/// Reads a table in which every number is one; each row with its line, from 1.
///
/// # Errors
/// What [`MeasuredRow::table`] refuses, and the first cell of a column of numbers that holds something else.
pub fn rows(text: &str) -> Result<Vec<(u64, MeasuredRow)>, Unreadable> {
    let rows = MeasuredRow::table(text)?;
    let mut lines = table::numbered(text).into_iter();
    let (_, header) = lines.next().ok_or_else(|| Unreadable("it is empty".to_owned()))?;
    let mut places = Vec::with_capacity(rows.len());
    for (line, fields) in lines {
        for (place, (name, field)) in header.iter().zip(&fields).enumerate() {
            let (field, is_count) = (field.trim(), COUNTS.contains(&name.as_str()));
            let number = field.parse::<f64>().ok().filter(|number| number.is_finite() && *number > 0.0);
            let is_right = number.is_some_and(|number| !is_count || number.fract() == 0.0);
            if field.is_empty() || is_right || !(is_count || NUMBERS.contains(&name.as_str())) {
                continue;
            }
            let wanted = if is_count { "a whole number above 0" } else { "a number above 0" };
            let column = place + 1;
            return Err(Unreadable(format!("line {line}, column {column}: `{name}` is `{field}`, and not {wanted}")));
        }
        places.push(line);
    }
    Ok(places.into_iter().zip(rows).collect())
}

#[cfg(test)]
mod tests {
    use super::rows;

    #[test]
    fn what_is_no_number_is_told_with_its_place() {
        let check = |cells: &str, expected: &str| {
            let text = format!("source_id,model,gpu,n_gpus,batch_per_gpu,throughput\n\nme,a,T4,1,8,100\n{cells}\n");
            let told = match rows(&text) {
                Ok(rows) => rows.iter().map(|(line, _)| line.to_string()).collect::<Vec<_>>().join(" "),
                Err(error) => error.0,
            };
            assert_eq!(told, expected, "{cells}");
        };
        check("me,a,T4,2,8,250", "3 4");
        check("me,a,T4,,,250", "3 4");
        check("me,a,T4,eight,8,250", "line 4, column 4: `n_gpus` is `eight`, and not a whole number above 0");
        check("me,a,T4,1.5,8,250", "line 4, column 4: `n_gpus` is `1.5`, and not a whole number above 0");
        check("me,a,T4,1,8,2k", "line 4, column 6: `throughput` is `2k`, and not a number above 0");
        check("me,a,T4,1,8,-5", "line 4, column 6: `throughput` is `-5`, and not a number above 0");
        check("me,a,T4,1,inf,5", "line 4, column 5: `batch_per_gpu` is `inf`, and not a number above 0");
        assert!(rows("").is_err() && rows("a,b\n").is_err());
    }
}
