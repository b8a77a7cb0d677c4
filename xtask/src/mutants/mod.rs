//! `cargo xtask mutants`: each deliberate bug in [`tables`] must make its test fail.
//!
//! A test that never fails proves nothing. The checkout is copied below `target/`, each test must pass there, and then
//! must fail with its mutant. A mutant that does not compile is an error and not a success.

mod mutant;
pub(crate) mod seed;
mod tables;

use std::collections::BTreeSet;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::{fmt, fs};

use mutant::{CargoTest, SourceMutant};
use tables::all;
use xtask::build;
use xtask::doing::{self, Outcome, step};

/// Applies the mutants that are named, or all.
pub fn mutants(root: &Path, names: &[String]) -> Outcome {
    let chosen = chosen(names)?;
    eprintln!("{}", build::setup(root)?);
    let copy = Copy::of(root)?;
    let (mut tested, mut survivors) = (BTreeSet::new(), Vec::new());
    for mutant in &chosen {
        if tested.insert(mutant.test) {
            step(&format!("without a mutant: `{}`", mutant.test), || copy.passes(mutant.test))?;
        }
        let is_noticed = step(&format!("mutant {}", mutant.name), || copy.notices(mutant))?;
        let SourceMutant { name, harm, .. } = mutant;
        match is_noticed {
            true => eprintln!("mutant {name}: noticed ({harm})"),
            false => survivors.push(*name),
        }
    }
    match survivors.is_empty() {
        true => Ok(format!("mutants: all {} were noticed", chosen.len())),
        false => Err(format!("no test noticed {}", survivors.join(", ")).into()),
    }
}

/// The mutants of these names; all where none is named.
fn chosen(names: &[String]) -> Result<Vec<&'static SourceMutant>, String> {
    let known = |name: &String| {
        all().into_iter().find(|mutant| mutant.name == *name).ok_or_else(|| {
            let names: Vec<&str> = all().into_iter().map(|mutant| mutant.name).collect();
            format!("there is no mutant `{name}`\n  hint: there are {}", names.join(", "))
        })
    };
    match names {
        [] => Ok(all()),
        names => names.iter().map(known).collect(),
    }
}

/// A copy of the checkout with a build of its own, which begins with the libraries that the checkout's release build has.
struct Copy {
    folder: PathBuf,
    libtorch: PathBuf,
    build: PathBuf,
}

impl Copy {
    /// Copies every file that git tracks or would take. Files that are the same keep their times, so that cargo builds
    /// only what has changed.
    fn of(root: &Path) -> Result<Copy, Box<dyn Error>> {
        let target = build::target(root).join("mutants");
        let copy = Copy {
            folder: target.join("checkout"),
            libtorch: root.join("vendor/libtorch"),
            build: target.join("build"),
        };
        let mut git = std::process::Command::new("git");
        git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]).current_dir(root);
        let files = doing::read(&mut git)?;
        for file in files.split('\0').filter(|file| !file.is_empty() && root.join(file).is_file()) {
            let (from, to) = (fs::read(root.join(file))?, copy.folder.join(file));
            if fs::read(&to).is_ok_and(|there| there == from) {
                continue;
            }
            fs::create_dir_all(to.parent().ok_or("a file lies in a folder")?)?;
            fs::write(to, from)?;
        }
        step("libraries of the release build", || Ok(seed::seed(&build::target(root), &copy.build)?))?;
        Ok(copy)
    }

    /// Builds tests, and nothing more.
    fn build(&self, test: CargoTest) -> std::process::Command {
        let mut command = doing::cargo(&self.folder, &["test", "--release", "--package", test.package]);
        command.args(test.target).arg("--quiet");
        command.env("CARGO_TARGET_DIR", &self.build).env("LIBTORCH", &self.libtorch).env("CARGO_INCREMENTAL", "1");
        command
    }

    /// Runs them.
    fn run(&self, test: CargoTest) -> std::process::Command {
        let mut command = self.build(test);
        command.arg(test.filter);
        command
    }

    fn passes(&self, test: CargoTest) -> Result<(), Box<dyn Error>> {
        match tests_run(&doing::read(self.run(test).stderr(Stdio::inherit()))?) {
            0 => Err(format!("`{test}` ran no test; was it renamed?").into()),
            _ => Ok(()),
        }
    }

    /// Whether the mutant's test fails.
    fn notices(&self, mutant: &SourceMutant) -> Result<bool, Box<dyn Error>> {
        let file = self.folder.join(mutant.file);
        let text = fs::read_to_string(&file)?;
        fs::write(&file, text.replacen(mutant.from, mutant.to, 1))?;
        let result = self.fails(mutant.test);
        fs::write(&file, text)?;
        result
    }

    fn fails(&self, test: CargoTest) -> Result<bool, Box<dyn Error>> {
        doing::run(self.build(test).arg("--no-run"), "correct the mutant in `xtask/src/mutants/table.rs`")?;
        let status = self.run(test).stdout(Stdio::null()).stderr(Stdio::null()).status()?;
        Ok(!status.success())
    }
}

impl fmt::Display for CargoTest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CargoTest { package, target, filter } = self;
        write!(formatter, "cargo test -p {package} {} {filter}", target.join(" "))
    }
}

/// How many tests passed, by the closing lines of `cargo test`.
fn tests_run(output: &str) -> usize {
    let counts = output.lines().filter_map(|line| line.strip_prefix("test result: ok. ")?.split(' ').next());
    counts.filter_map(|count| count.parse::<usize>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passed_tests_are_counted() {
        let output = "\nrunning 2 tests\n..\ntest result: ok. 2 passed; 0 failed; 0 ignored\n\nrunning 0 tests\ntest result: ok. 0 passed; 0 failed";
        assert_eq!(tests_run(output), 2);
        assert_eq!(tests_run("error: no such command"), 0);
    }

    #[test]
    fn an_unknown_mutant_is_an_error_that_names_the_known_ones() {
        let error = chosen(&["buckets".to_owned()]).unwrap_err();
        assert!(error.contains("no mutant `buckets`") && error.contains("buckets-are-rebuilt"), "{error}");
        assert_eq!(chosen(&[]).unwrap().len(), all().len());
    }
}
