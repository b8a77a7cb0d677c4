//! What is said of a job that cannot be planned, held beside what is expected.

use crate::workdir::Workdir;

/// What is said about a job that cannot be planned. Figures of money and time stand as `#`: they follow the catalog and
/// the fit, and are tested elsewhere.
#[track_caller]
pub fn check(yaml: &str, expected: &str) {
    let workdir = Workdir::new();
    workdir.file("job.yaml", yaml);
    let said = workdir.gradus(&["plan", "job.yaml"]);
    assert_eq!((said.code, &*said.out), (Some(2), ""), "{}", said.err);
    let strip = |text: &str| text.lines().map(str::trim).collect::<Vec<_>>().join("\n").trim().to_owned();
    assert_eq!(masked(&strip(&said.err)), strip(expected), "\n{yaml}\n{}", said.err);
}

/// Runs of digits that belong to amounts, times and machines chosen by price become `#`.
fn masked(text: &str) -> String {
    text.lines()
        .map(|line| {
            let is_figure = [
                "the cheapest, ",
                "the fastest, ",
                "the cleanest, ",
                "on each GPU",
                "are left without it",
                "no price is known of ",
                "write `budget",
                "write `deadline",
                "write `max_carbon",
                "write `accelerators: ",
            ];
            if !is_figure.iter().any(|part| line.contains(part)) {
                return line.to_owned();
            }
            // What lies between two commas after the machine is its place, which follows prices.
            let mut out = String::new();
            let mut in_digits = false;
            for letter in line.chars() {
                let is_digit = letter.is_ascii_digit() || (in_digits && matches!(letter, '.' | ','));
                if is_digit && !in_digits {
                    out.push('#');
                } else if !is_digit {
                    out.push(letter);
                }
                in_digits = is_digit;
            }
            out
        })
        .collect::<Vec<_>>()
        .join("\n")
}

/// The message with what depends on prices cut out of the middle: it begins and ends as told.
#[track_caller]
pub fn check_around(yaml: &str, begins: &str, hint: &str) {
    let workdir = Workdir::new();
    workdir.file("job.yaml", yaml);
    let said = workdir.gradus(&["plan", "job.yaml"]);
    assert_eq!((said.code, &*said.out), (Some(2), ""), "{}", said.err);
    let lines: Vec<&str> = said.err.lines().map(str::trim).collect();
    assert_eq!(lines[0], "error: no offer can run this job", "{}", said.err);
    assert!(masked(lines[1]).starts_with(begins), "{}\n{begins}", masked(lines[1]));
    assert_eq!(masked(lines[2]), hint, "{}", said.err);
}
