//! What is seen of a user's own program while it runs, and what is refused before anything is rented for it.

use std::process::Command;

use crate::home::Home;

#[test]
fn a_program_is_heard_while_it_runs_unless_quiet_is_asked_for() {
    let home = Home::new();
    let job = home.job("talks.yaml", "name: talks\nrun: |\n  echo to stdout\n  printf '1 %%\\r2 %%\\n' >&2\n");
    let ran = home.gradus(&["run", job.to_str().unwrap()]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    for line in ["rank 0 | to stdout\n", "rank 0 | 2 %\n", "(GRADUS_CHECKPOINTS)\n", "/logs\n"] {
        assert!(ran.err.contains(line), "`{line}` is not in {}", ran.err);
    }
    assert!(!ran.out.contains("rank 0 |"), "stdout is for results");
    let quiet = home.gradus(&["run", job.to_str().unwrap(), "--new", "--quiet"]);
    assert!(!quiet.err.contains("rank 0 |"), "{}", quiet.err);
}

/// It waits for ever, saves when it is stopped, and ends at once when it is resumed.
#[test]
fn a_program_that_is_idle_for_its_timeout_is_stopped_and_can_be_resumed() {
    let home = Home::new();
    let text = "name: idle\nrun: |\n  cd $GRADUS_CHECKPOINTS\n  [ -e saved ] && exit 0\n  trap 'touch saved; exit 0' TERM\n  \
                sleep 600 & wait\nidle_timeout: 5s\n";
    let job = home.job("idle.yaml", text);
    let stopped = home.gradus(&["run", job.to_str().unwrap()]);
    assert_eq!(stopped.code, Some(103), "{}", stopped.err);
    assert!(stopped.err.contains("stopping: the program has been idle for its `idle_timeout`"), "{}", stopped.err);
    let status = home.gradus(&["status", "idle"]);
    assert!(status.out.contains("its program was idle for 5s; resume it with `gradus resume idle"), "{}", status.out);
    let resumed = home.gradus(&["resume", "idle", "--yes"]);
    assert_eq!(resumed.code, Some(0), "{}", resumed.err);
}

#[test]
fn a_budget_that_cannot_pay_for_a_start_rents_nothing() {
    let home = Home::new();
    let job = home.job("dear.yaml", "name: dear\nbudget: {max: $0.001}\nrun: sleep 1\n");
    let refused = home.gradus(&["run", job.to_str().unwrap(), "--price", "1000/h", "--yes"]);
    assert_eq!(refused.code, Some(2), "{}", refused.err);
    assert!(
        refused.err.contains("does not pay for a start") && refused.err.contains("hint: write more than $"),
        "{}",
        refused.err
    );
    assert!(home.gradus(&["status", "--json"]).out.is_empty(), "no run was submitted");
}

#[test]
fn a_job_without_its_files_yet_says_how_to_plan_it() {
    let home = Home::new();
    let train = "train:\n  model: resnet50\n  data: {path: nowhere, classes: 1000, size: 224}\n  epochs: 2\n  batch: 256\n  optimizer: {sgd: {lr: 0.1}}\n";
    let job = home.job("bare.yaml", train);
    let bare = home.gradus(&["plan", job.to_str().unwrap()]);
    assert_eq!(bare.code, Some(2), "{}", bare.err);
    assert!(bare.err.contains("`data: {samples:") && bare.err.contains("--catalog"), "{}", bare.err);
    let stated = home.job("stated.yaml", &format!("{train}data: {{samples: 1281167, bytes: 140GB}}\n"));
    let planned = home.gradus(&["plan", stated.to_str().unwrap()]);
    assert_eq!(planned.code, Some(0), "{}", planned.err);
    assert!(planned.err.contains("over the catalog") && planned.out.contains("recommended"), "{}", planned.out);
}

#[test]
fn an_error_is_json_where_json_is_asked_for() {
    let home = Home::new();
    let said = home.gradus(&["status", "nobody", "--json"]);
    assert_eq!(said.code, Some(102));
    let error: serde_json::Value = serde_json::from_str(said.err.trim()).unwrap();
    assert_eq!((&error["event"], &error["code"]), (&"error".into(), &102.into()), "{error}");
    assert!(error["message"].as_str().unwrap().contains("nobody") && error["hint"].is_string(), "{error}");
}

#[test]
fn wrong_arguments_are_json_where_json_is_asked_for() {
    let home = Home::new();
    for words in [&["plan", "--nope", "--json"][..], &["--json", "stat"], &["run", "--json"]] {
        let said = home.gradus(words);
        assert_eq!(said.code, Some(2), "{words:?}");
        let error: serde_json::Value = serde_json::from_str(said.err.trim()).unwrap();
        assert_eq!((&error["event"], &error["code"]), (&"error".into(), &2.into()), "{error}");
        assert!(!error["message"].as_str().unwrap().is_empty() && said.out.is_empty(), "{error}");
    }
    let help = home.gradus(&["plan", "--help", "--json"]);
    assert!(help.code == Some(0) && help.out.contains("Usage: gradus plan"), "{}", help.out);
}

#[test]
fn a_plan_of_this_machine_is_written_as_a_page() {
    let home = Home::new();
    let job = home.job("local.yaml", "name: local\nrun: 'true'\n");
    let page = home.path().parent().unwrap().join("plan.html");
    let said = home.gradus(&["plan", job.to_str().unwrap(), "--html", page.to_str().unwrap()]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("Plan of local") && page.contains(">machine</th>"), "{page}");
}

#[test]
fn lines_break_at_words_on_a_narrow_terminal() {
    let home = Home::new();
    let job = home.job("narrow.yaml", "name: narrow\nrun: 'true'\n");
    for width in [60, 100, 200] {
        let ask = format!(
            "stty cols {width}; {} plan {} --home {}",
            env!("CARGO_BIN_EXE_gradus"),
            job.display(),
            home.path().display()
        );
        let mut script = Command::new("script");
        script.args(["-qec", &ask, "/dev/null"]).env("TERM", "xterm");
        let output = script.stdin(std::process::Stdio::null()).output().unwrap();
        let shown = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(shown.contains("assumed"), "{shown}");
        // A word that is wider than a line, such as a path, stays whole.
        let is_broken = |line: &str| line.trim_end().chars().count() > width && line.trim().contains(' ');
        assert!(!shown.lines().any(is_broken), "{width}: {shown}");
    }
}

#[test]
fn colours_obey_no_color() {
    let home = Home::new();
    let colours = |no_color: bool| {
        let ask = format!("{} status nobody --home {}", env!("CARGO_BIN_EXE_gradus"), home.path().display());
        let mut script = Command::new("script");
        script.args(["-qec", &ask, "/dev/null"]).env("TERM", "xterm").env_remove("NO_COLOR");
        if no_color {
            script.env("NO_COLOR", "1");
        }
        let output = script.stdin(std::process::Stdio::null()).output().unwrap();
        String::from_utf8_lossy(&output.stdout).contains("\u{1b}[31;1m")
    };
    assert_eq!((colours(false), colours(true)), (true, false), "red on a terminal, nothing with NO_COLOR");
}
