//! Completion scripts and the manual page, as shells and `man` read them.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::home::Home;

fn script(shell: &str) -> String {
    let said = Home::new().gradus(&["completions", shell]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    said.out
}

#[test]
fn bash_completes_commands_and_options() {
    let script = script("bash");
    let completed = |words: &str, count: usize| {
        let ask = format!(
            "{script}\nCOMP_WORDS=({words}); COMP_CWORD={count}; _gradus gradus \"${{COMP_WORDS[{count}]}}\"; echo \"${{COMPREPLY[@]}}\""
        );
        // Longer than one argument may be.
        let mut bash = Command::new("bash");
        let bash = bash.args(["--norc", "-s"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut bash = bash.spawn().unwrap();
        bash.stdin.take().unwrap().write_all(ask.as_bytes()).unwrap();
        let output = bash.wait_with_output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    assert_eq!(completed("gradus sta", 1), "status");
    assert_eq!(completed("gradus run --det", 2), "--detach");
}

#[test]
fn zsh_and_fish_have_scripts_of_their_own() {
    assert!(script("zsh").starts_with("#compdef gradus\n"));
    let fish = script("fish");
    assert!(fish.contains("complete -c gradus ") && fish.contains("-a \"status\""), "{fish}");
}

#[test]
fn the_manual_has_every_command() {
    let said = Home::new().gradus(&["man"]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert!(said.out.contains(".TH gradus 1"), "{}", said.out);
    for command in ["gradus plan", "gradus run", "gradus status", "gradus completions"] {
        assert!(said.out.contains(&command.replace('-', "\\-")), "{command}");
    }
    assert!(!said.out.contains("reference"), "hidden commands are not in the manual");
}

#[test]
fn the_reference_describes_variables_and_secrets() {
    let said = Home::new().gradus(&["reference", "job-file"]);
    let keys = &said.last()["schema"]["properties"];
    assert!(keys["envs"]["description"].as_str().unwrap().starts_with("Environment variables of the job."));
    assert!(keys["secrets"]["description"].as_str().unwrap().starts_with("Secret environment variables"));
}
