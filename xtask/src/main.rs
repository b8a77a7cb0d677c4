//! `cargo xtask`: the entry point to building, testing and measuring gradus.
//!
//! Each command is one function in its own module; this file only dispatches. Long steps are announced on stderr, and
//! CI runs nothing that cannot be run here.

mod chaos;
mod check;
mod docs;
mod mutants;
mod test;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use xtask::build::{cuda, install, package, wheel};
use xtask::doing::Outcome;
use xtask::{bench, build, gpu, lab, root};

const USAGE: &str = "\
usage: cargo xtask COMMAND

  setup            fetch libtorch and put it where cargo finds it
  run [ARGS…]      set up, build both executables, then `gradus run ARGS…`; a first build has only what the job needs
  install [--prefix FOLDER]
                   set up, build, and install both executables into FOLDER/bin, by default ~/.cargo/bin
  package          build, and pack a tarball and a Debian package with libtorch
  test             set up, check, build, run every test, and try the packages: what CI runs
  test --fast      the checks and tests that take seconds: nothing is linted or trained
  test --long [STEP…]
                   the whole with ten times as many runs killed, and with deliberate mistakes; or some steps of it
  check            format, lints, arrows between crates, words, structure, licences, documents
  check --fast     those of them that compile nothing
  check --figures  print the structure of the code in numbers
  check --offences print every offence against the checks of words and structure, known ones included
  check --prune    take known offences that are gone off the list
  chaos [ARGS…]    kill runs at every phase; they must end as if undisturbed
  mutants [NAME…]  make deliberate bugs, one at a time; the test that each names must fail
  sim [ARGS…]      run the control protocol against a simulated cloud, thousands of schedules a second
  versions [COMMIT]
                   build the executable of another commit; its loops and agents must work with ours
  bench [ARGS…]    step time against PyTorch, a run's step against the bare one, scores against torchvision, plans
  fit FOLDER…      fit the planner's numbers to tables of measurements; writes catalog/fitted.json
  lab [ARGS…]      start and stop moto, which speaks S3, and hosts that speak SSH, to try things by hand
  wheel [--test|--integrations|--overheads]
                   build the Python package from crates/door, and try it with PyTorch, or with Transformers, Lightning,
                   JAX and Keras, or measure what it costs a program
  cuda [FOLDER]    build the library for exchange over NCCL and CUDA graphs, against the PyTorch that pip put in FOLDER
  gpu [ARGS…]      pack the suite that needs a GPU, run it where one is, and read its results into docs/gpu.md
  docs [--check]   write the documents that are generated from types, or check that they are not stale
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let folder = std::env::current_dir().unwrap_or_default();
    let root = root::find(manifest.as_deref(), &folder);
    // On a machine with a GPU there is no checkout.
    if let (Some("gpu"), rest) = (arguments.first().map(String::as_str), arguments.get(1..).unwrap_or_default()) {
        return report(gpu::gpu(root.as_deref(), rest));
    }
    let Some(root) = root else {
        eprintln!(
            "error: `{}` is not inside a checkout of gradus\n  hint: change to the checkout, then `cargo xtask …`",
            folder.display()
        );
        return ExitCode::FAILURE;
    };
    dispatch(&root, &arguments).map_or_else(
        || {
            eprint!("{USAGE}");
            ExitCode::from(2)
        },
        report,
    )
}

/// Says how a command ended.
fn report(outcome: Outcome) -> ExitCode {
    match outcome {
        Ok(line) => {
            eprintln!("{line}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the command that `arguments` name; none when there is no such command.
fn dispatch(root: &Path, arguments: &[String]) -> Option<Outcome> {
    let (command, rest) = arguments.split_first()?;
    match (command.as_str(), rest) {
        ("setup", []) => Some(build::setup(root)),
        ("run", arguments) => Some(build::run(root, arguments)),
        ("install", []) => Some(install::install(root, None)),
        ("install", [flag, prefix]) if flag == "--prefix" => Some(install::install(root, Some(prefix))),
        ("package", []) => Some(package::package(root)),
        ("test", []) => Some(test::test(root)),
        ("test", [flag]) if flag == "--fast" => Some(test::fast(root)),
        ("test", [flag, steps @ ..]) if flag == "--long" => Some(test::long(root, steps)),
        ("check", []) => Some(check::check(root, check::Missing::Fails)),
        ("check", [flag]) if flag == "--fast" => Some(check::fast(root, check::Missing::Fails)),
        ("check", [flag]) if flag == "--figures" => Some(check::figures(root)),
        ("check", [flag]) if flag == "--offences" => Some(check::offences(root)),
        ("check", [flag]) if flag == "--prune" => Some(check::prune(root)),
        ("chaos", arguments) => Some(chaos::chaos(root, arguments)),
        ("mutants", names) => Some(mutants::mutants(root, names)),
        ("sim", arguments) => Some(test::sim(root, arguments)),
        ("versions", []) => Some(test::versions(root, test::BEFORE)),
        ("versions", [commit]) => Some(test::versions(root, commit)),
        ("bench", arguments) => Some(bench::bench(root, arguments)),
        ("fit", folders) if !folders.is_empty() => Some(bench::fit(root, folders)),
        ("lab", arguments) => Some(lab::lab(root, arguments)),
        ("wheel", []) => Some(wheel::wheel(root).map(|path| format!("`pip install {}`", path.display()))),
        ("wheel", [flag]) if flag == "--test" => Some(wheel::test(root)),
        ("wheel", [flag]) if flag == "--integrations" => Some(wheel::integrations(root)),
        ("wheel", [flag]) if flag == "--overheads" => Some(wheel::overheads(root)),
        ("cuda", []) => Some(cuda::cuda(root, None)),
        ("cuda", [folder]) => Some(cuda::cuda(root, Some(folder))),
        ("docs", []) => Some(docs::docs(root, false)),
        ("docs", [flag]) if flag == "--check" => Some(docs::docs(root, true)),
        _ => None,
    }
}
