//! Programs that are run to their end, and what they cost and say.

use std::error::Error;
use std::ffi::OsStr;
use std::fs;
use std::process::Command;

use serde_json::Value;

/// A program that takes longer is ended: some try again for hours what a bucket of moto's does not know.
pub const LIMIT_S: &str = "90";
/// Exit code of `timeout` if the program does not exist.
const NO_PROGRAM: i32 = 127;

/// The cost of one run of a program.
pub struct Cost {
    /// Processor seconds.
    pub cpu_s: f64,
    /// Seconds.
    pub wall_s: f64,
    /// Its stdout.
    pub out: String,
    /// Its stderr.
    pub err: String,
}

/// A program that is ended after a while.
pub fn limited(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("timeout");
    command.arg(LIMIT_S).arg(program);
    command
}

/// Runs a program to its end; none when there is no such program.
pub fn measured(command: &mut Command) -> Result<Option<Cost>, Box<dyn Error>> {
    let (cpu, began) = (children(), std::time::Instant::now());
    let output = match command.output() {
        Ok(output) => output,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    if output.status.code() == Some(NO_PROGRAM) {
        return Ok(None);
    }
    if !output.status.success() {
        return Err(format!("`{command:?}` failed: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    let [out, err] = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    Ok(Some(Cost { cpu_s: children() - cpu, wall_s: began.elapsed().as_secs_f64(), out, err }))
}

/// Processor seconds of all children that have ended: fields 16 and 17 of `/proc/self/stat`, in hundredths.
pub fn children() -> f64 {
    let text = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = text.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(13) + ticks(14)) / 100.0
}

/// A number of our `--json`.
pub fn number(out: &str, key: &str) -> Result<u64, Box<dyn Error>> {
    let value: Value = serde_json::from_str(out.lines().last().unwrap_or_default())?;
    value[key].as_u64().ok_or_else(|| format!("`{key}` is not in `{out}`").into())
}

/// A number after a word, with or without commas.
pub fn stated(out: &str, word: &str) -> Option<u64> {
    let line = out.lines().find_map(|line| line.trim().strip_prefix(word))?;
    line.chars().filter(char::is_ascii_digit).collect::<String>().parse().ok()
}

/// The bytes in the last of rclone's statistics.
pub fn copied(log: &str) -> Option<u64> {
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter_map(|line| line["stats"]["bytes"].as_u64()).next_back()
}
