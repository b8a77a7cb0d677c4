//! Masks the values of secrets in the output of a process before it reaches the log, and in what it reports.

use std::fs::File;
use std::io::{PipeReader, Read, Write};

use domain::Job;
use domain::rank::Report;

/// Replacement of a value.
const MASK: &[u8] = b"***";

/// Masks values in a stream of bytes, also where one comes in several reads.
#[derive(Debug)]
pub struct Masking {
    /// Longest first, so that a value is masked completely even if another is a part of it.
    values: Vec<Vec<u8>>,
    /// The end of the input, which may be the start of a value.
    held: Vec<u8>,
}

impl Masking {
    /// Masks these values; empty ones are ignored.
    pub fn new(values: &[String]) -> Masking {
        let mut values: Vec<Vec<u8>> = values.iter().map(|value| value.clone().into_bytes()).collect();
        values.retain(|value| !value.is_empty());
        values.sort_by_key(|value| std::cmp::Reverse(value.len()));
        Masking { values, held: Vec::new() }
    }

    /// The masked bytes that can be written after reading `bytes`.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.held.extend(bytes);
        let (mut out, mut at) = (Vec::with_capacity(self.held.len()), 0);
        while at < self.held.len() {
            let rest = &self.held[at..];
            if let Some(value) = self.values.iter().find(|value| rest.starts_with(value)) {
                out.extend(MASK);
                at += value.len();
            } else if self.values.iter().any(|value| value.starts_with(rest)) {
                break;
            } else {
                out.push(rest[0]);
                at += 1;
            }
        }
        self.held.drain(..at);
        out
    }

    /// The held bytes at the end of the stream: a prefix of a value, but no complete one.
    pub fn finish(self) -> Vec<u8> {
        self.held
    }
}

/// A text without these values.
pub fn masked(text: &str, values: &[String]) -> String {
    let mut masking = Masking::new(values);
    let mut bytes = masking.push(text.as_bytes());
    bytes.extend(masking.finish());
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Masks the values of a job's secrets in what its program reports in words: the text of an error may quote them, and the event
/// log would keep it.
pub fn mask_report(report: &mut Report, job: &Job) {
    match report {
        Report::Note { text } => *text = masked(text, &job.secret_values()),
        Report::Failed(finding) => {
            let values = job.secret_values();
            finding.message = masked(&finding.message, &values);
            finding.hint = finding.hint.as_ref().map(|hint| masked(hint, &values));
        }
        Report::Hello { .. } | Report::Ready(_) | Report::Step(_) | Report::Evaluated(_) | Report::Metrics(_) => {}
        Report::Result(_) | Report::Devices { .. } | Report::Checkpointed(_) | Report::Preparing { .. } => {}
        Report::Pausing { .. } | Report::Exported(_) | Report::Trained | Report::Stopped { .. } => {}
    }
}

/// Copies the output of a process to its log until all of its writers have closed it. A log that cannot be written loses
/// the output, as it would without this.
pub fn copy(mut from: PipeReader, mut log: File, values: &[String]) {
    let mut masking = Masking::new(values);
    let mut buffer = [0; 64 << 10];
    loop {
        match from.read(&mut buffer) {
            Ok(0) | Err(_) => break,
            Ok(read) => drop(log.write_all(&masking.push(&buffer[..read]))),
        }
    }
    let _ = log.write_all(&masking.finish());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(values: &[&str], reads: &[&str], expected: &str) {
        let values: Vec<String> = values.iter().map(|value| (*value).to_owned()).collect();
        let mut masking = Masking::new(&values);
        let mut out: Vec<u8> = reads.iter().flat_map(|read| masking.push(read.as_bytes())).collect();
        out.extend(masking.finish());
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn values_are_masked_wherever_reads_divide_them() {
        check(&["hunter2"], &["token hunter2!\n"], "token ***!\n");
        check(&["hunter2"], &["token hun", "te", "r2!\n"], "token ***!\n");
        check(&["hunter2"], &["hunhunter2 hunter"], "hun*** hunter");
        check(&["abc", "abcdef"], &["abcdef abc abcde"], "*** *** ***de");
        check(&["a\nb"], &["x a", "\nb y"], "x *** y");
        check(&[""], &["plain"], "plain");
    }

    #[test]
    fn no_report_quotes_a_secret() {
        let job = Job::parse("{run: echo, secrets: {TOKEN: hunter2}}", "job.yaml").unwrap().job;
        let text = || "401 with hunter2, hunt".to_owned();
        let finding = domain::Finding::new(domain::Cause::ExitCode, text()).hint(text());
        for mut report in [Report::Note { text: text() }, Report::Failed(finding)] {
            mask_report(&mut report, &job);
            let said = serde_json::to_string(&report).unwrap();
            assert!(said.contains("401 with ***, hunt") && !said.contains("hunter2"), "{said}");
        }
    }

    #[test]
    fn what_cannot_become_a_value_is_not_held_back() {
        let mut masking = Masking::new(&["hunter2".to_owned()]);
        assert_eq!(masking.push(b"Password: "), b"Password: ");
        assert_eq!(masking.push(b"hunt"), b"");
        assert_eq!(masking.push(b"ing"), b"hunting");
    }
}
