//! `cargo xtask bench data`: what a picture costs on its way from a JPEG file to a batch, ours and other loaders'.
//!
//! Each round runs every program once, one after another, so that whatever else the machine does hits all alike. CPU
//! time is compared, which a busy machine changes less than wall time. A peer that cannot be installed is left out.
//! With `--numerics N`, the pixels of N pictures are held against torchvision's instead, in every recipe.

use std::error::Error;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::figures::Spread;
use crate::doing::{self, Outcome};
use crate::{build, peers, setup};

const PEERS: [&str; 5] = ["torchvision", "webdataset", "dali", "simplejpeg-opencv", "pillow"];
const RECIPES: [&str; 2] = ["resize256-randomcrop224", "imagenet-train"];

/// What is measured.
struct Options {
    pictures: usize,
    rounds: usize,
    threads: usize,
    /// Pictures whose pixels are compared, instead of times.
    numerics: Option<usize>,
}

/// Makes the pictures, installs the peers, measures, and prints CPU µs a picture and ratios.
pub fn data(root: &Path, arguments: &[String]) -> Outcome {
    let Options { pictures, rounds, threads, numerics } = options(arguments)?;
    // The whole workspace is named so that cargo finds everything built.
    let arguments = ["build", "--release", "--workspace", "--bin", "gradus"];
    doing::run(&mut doing::cargo(root, &arguments), "read the compiler's message above")?;
    let gradus = build::target(root).join("release/gradus");
    let packages = match numerics {
        Some(_) => vec![peers::pytorch()?],
        None => peers::loaders()?.to_vec(),
    };
    let python = || -> Result<Command, Box<dyn Error>> {
        let mut command = Command::new(setup::python()?);
        command.env("PYTHONPATH", std::env::join_paths(&packages)?).env("PYTHONWARNINGS", "ignore");
        Ok(command)
    };
    let set = build::target(root).join(format!("bench/pictures-{pictures}"));
    if !set.is_dir() {
        eprintln!("making {pictures} pictures at {}", set.display());
        let unfinished = set.with_extension("part");
        let mut make = python()?;
        make.arg(root.join("benches/peers/pictures.py")).arg(&unfinished).arg(pictures.to_string());
        doing::run(&mut make, "read Python's message above")?;
        std::fs::rename(&unfinished, &set)?;
    }
    if let Some(count) = numerics {
        let mut compare = python()?;
        compare.arg(root.join("benches/peers/numerics.py")).arg(&gradus).arg(&set).arg(count.to_string());
        let hint = "`gradus data dump` writes one of the pictures that differ";
        return doing::run(&mut compare, hint).map(|()| "every recipe is torchvision's".into());
    }
    let mut lines = Vec::new();
    for recipe in RECIPES {
        let mut ours = Vec::new();
        let mut theirs: Vec<(&str, Vec<f64>)> = PEERS.iter().map(|peer| (*peer, Vec::new())).collect();
        for round in 1..=rounds {
            eprintln!("{recipe}: round {round} of {rounds}");
            let mut bench = Command::new(&gradus);
            bench.args(["data", "bench", "--json", "--seconds", "10", "--recipe", recipe, "--threads"]);
            ours.push(cost(bench.arg(threads.to_string()).arg(&set))?);
            for (peer, costs) in &mut theirs {
                let mut other = python()?;
                other.arg(root.join("benches/peers/loaders.py")).args([*peer, recipe]).arg(&set);
                match cost(other.arg(threads.to_string())) {
                    Ok(found) => costs.push(found),
                    Err(error) if round == 1 => eprintln!("{peer} is left out: {error}"),
                    Err(_) => {}
                }
            }
        }
        let ours = Spread::of(&ours);
        lines.push(format!("{recipe}, {threads} threads, CPU µs a picture: gradus {ours:.0}"));
        for (peer, costs) in theirs.iter().filter(|(_, costs)| !costs.is_empty()) {
            let costs = Spread::of(costs);
            lines.push(format!("  {peer} {costs:.0}: {:.2} times ours", costs.median / ours.median));
        }
    }
    Ok(lines.join("\n"))
}

/// CPU µs a picture, as the program's one line of JSON says.
fn cost(command: &mut Command) -> Result<f64, Box<dyn Error>> {
    let text = doing::read(command)?;
    let value: Value = serde_json::from_str(text.lines().last().unwrap_or_default())?;
    value["cpu_us_per_image"].as_f64().ok_or_else(|| "it says no `cpu_us_per_image`".into())
}

fn options(arguments: &[String]) -> Result<Options, String> {
    let mut options = Options { pictures: 1000, rounds: 3, threads: 2, numerics: None };
    for pair in arguments.chunks(2) {
        let [word, number] = pair else { return Err(format!("`{}` needs a number", pair.concat())) };
        let number =
            number.parse().ok().filter(|n| *n > 0).ok_or_else(|| format!("`{number}` is no number above 0"))?;
        match word.as_str() {
            "--pictures" => options.pictures = number,
            "--rounds" => options.rounds = number,
            "--threads" => options.threads = number,
            "--numerics" => options.numerics = Some(number),
            _ => return Err(super::USAGE.to_owned()),
        }
    }
    Ok(options)
}
