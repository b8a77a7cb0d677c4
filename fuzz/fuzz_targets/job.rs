//! Any text as a job file: `cargo +nightly fuzz run job fuzz/corpus/job examples`.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| {
    match domain::Job::parse(text, "fuzz.yaml") {
        Ok(parsed) => drop(parsed.job.problems()),
        // Told as a user reads them, with the lines of the text.
        Err(problems) => drop(problems.to_string()),
    }
});
