//! This machine's part in an all-reduce between machines: `gradus-rank all-reduce`, ended once nobody waits for it.

use std::io::Read;
use std::process::Stdio;
use std::sync::mpsc::channel;
use std::time::Duration;

use domain::all_reduce::{AllReduceFigures, AllReduceRequest};
use domain::finding::{Cause, Finding};
use serde_json::Value;

use crate::settings::GlobalSettings;

/// It is ended after this. A rank waits for the others for 40 s, twice at most.
const LIMIT: Duration = Duration::from_secs(100);

/// Takes part, and ends at the latest when standard input does: with the connection over which it was asked.
///
/// # Errors
/// Why there are no figures.
pub fn take_part(settings: &GlobalSettings, request: &AllReduceRequest) -> Result<AllReduceFigures, Finding> {
    let question = serde_json::to_string(request).unwrap_or_default();
    let mut command = super::command(settings, "all-reduce", &question).map_err(|error| Finding {
        cause: Cause::Library,
        message: error.to_string(),
        hint: error.hint(),
    })?;
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let started = command.spawn().map_err(|error| {
        Finding::new(Cause::Library, format!("cannot start `{}`: {error}", settings.rank_program.display()))
    });
    let mut child = started?;
    let (sender, heard) = channel();
    let (output, answered) = (child.stdout.take(), sender.clone());
    std::thread::spawn(move || {
        let mut text = String::new();
        // What cannot be read is no answer.
        let _ = output.map(|mut output| output.read_to_string(&mut text));
        let _ = answered.send(Some(text));
    });
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        let _ = sender.send(None);
    });
    let said = heard.recv_timeout(LIMIT);
    // It may have exited already.
    let _ = child.kill();
    let _ = child.wait();
    match said {
        Ok(Some(text)) => answer(&text),
        Ok(None) => Err(Finding::new(Cause::RankLost, "nobody waits for the all-reduce any more")),
        Err(_) => Err(Finding::new(Cause::Hang, format!("it was not over after {} s", LIMIT.as_secs()))),
    }
}

/// What `gradus-rank` has printed: figures, or the finding why there are none.
fn answer(text: &str) -> Result<AllReduceFigures, Finding> {
    let value: Value = serde_json::from_str(text).unwrap_or_default();
    let finding = serde_json::from_value(value["finding"].clone()).ok();
    serde_json::from_value(value).map_err(|_| {
        let silent = || Finding::new(Cause::Internal, "the process `gradus-rank` has ended without an answer");
        finding.unwrap_or_else(silent)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_answers_with_figures_or_with_why_not() {
        let figures = answer(r#"{"backend":"gloo","size":2,"bytes":8,"rounds":3,"micros":5}"#).unwrap();
        assert_eq!((figures.size, figures.rounds), (2, 3));
        let finding = answer(r#"{"finding":{"cause":"rank_lost","message":"rank 1 did not arrive","hint":null}}"#);
        assert_eq!(finding.unwrap_err().message, "rank 1 did not arrive");
        assert_eq!(answer("").unwrap_err().cause, Cause::Internal);
    }
}
