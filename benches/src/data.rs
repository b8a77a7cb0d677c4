//! `cargo xtask bench data`: what an image costs on its way from a JPEG file to a batch, ours and other loaders'.
//!
//! Each round runs every program once, one after another, so that other load on the machine affects all alike. CPU time
//! is compared, which a busy machine changes less than wall time. A peer that cannot be installed is skipped. Ours runs
//! from the JPEG files and from the same images packed as coefficients; how much a second thread adds is compared with
//! what a second process of Pillow adds. With `--through python`, `gradus.Loader` of the Python package is measured in each
//! round as well.
//! With `--images photographs` they are crops of those that come with scikit-image and scikit-learn, with `--images FOLDER`
//! the user's own. With `--numerics N`, the pixels of N images are compared with
//! torchvision's instead, in every recipe.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::measure::figures::Spread;
use xtask::build::wheel;
use xtask::doing::{self, Outcome};
use xtask::{build, peers, setup};

/// Other loaders, and how many of the recipes each knows.
const PEERS: [(&str, usize); 7] = [
    ("torchvision", 2),
    ("torchvision-tensors", 2),
    ("datasets", 2),
    ("webdataset", 2),
    ("dali", 2),
    ("simplejpeg-opencv", 1),
    ("pillow", 1),
];
/// Our loader as Python programs have it, in the script of the other ones.
const OURS_IN_PYTHON: &str = "gradus";

const RECIPES: [&str; 2] = ["resize256-randomcrop224", "imagenet-train"];

/// Default number of images to load. Fewer would show how long peers take to start.
const IMAGES: usize = 1000;

/// The images that are measured.
#[derive(Debug, PartialEq, Eq)]
enum Images {
    /// So many that are made.
    Made(usize),
    /// Crops of photographs that come with Python packages.
    Photographs,
    /// Those of a folder.
    Of(PathBuf),
}

/// What to measure.
#[derive(Debug, PartialEq, Eq)]
struct Options {
    images: Images,
    rounds: usize,
    threads: usize,
    /// Whether the Python package is measured, too.
    through_python: bool,
    /// Images whose pixels are compared, instead of times.
    numerics: Option<usize>,
}

/// Paths of the compared programs, and of their data.
struct Bench {
    gradus: PathBuf,
    /// Folders of Python packages.
    packages: Vec<PathBuf>,
    /// `benches/peers`.
    scripts: PathBuf,
    set: PathBuf,
    threads: usize,
    /// Whether the Python package is one of the packages.
    through_python: bool,
}

/// Makes the images, installs the peers, measures, and prints CPU µs per image and ratios.
pub fn data(root: &Path, arguments: &[String]) -> Outcome {
    let Options { images, rounds, threads, through_python, numerics } = options(arguments)?;
    // The full workspace is named so that cargo finds everything built.
    let arguments = ["build", "--release", "--workspace", "--bin", "gradus"];
    doing::run(&mut doing::cargo(root, &arguments), "read the compiler's message above")?;
    let mut packages = match numerics {
        Some(_) => vec![peers::pytorch()?],
        None => peers::loaders()?.to_vec(),
    };
    if through_python {
        packages.push(wheel::installed(root)?.1);
    }
    let photographs = match &images {
        Images::Photographs => Some(peers::photographs()?),
        Images::Made(_) | Images::Of(_) => None,
    };
    let gradus = build::target(root).join("release/gradus");
    let mut bench = Bench {
        gradus,
        packages,
        scripts: root.join("benches/peers"),
        set: build::target(root).join("bench"),
        threads,
        through_python,
    };
    bench.set = match &images {
        Images::Photographs => {
            let crops = bench.set.join("photographs");
            let mut cut = bench.python("photographs.py")?;
            let packages = bench.packages.iter().chain(&photographs);
            cut.env("PYTHONPATH", std::env::join_paths(packages)?).arg(&crops);
            doing::run(&mut cut, "read Python's message above")?;
            copied(&crops, &bench.set.join("own-images"))?
        }
        Images::Of(folder) => copied(folder, &bench.set.join("own-images"))?,
        Images::Made(count) => bench.made(&bench.set.join(format!("images-{count}")), *count)?,
    };
    if let Some(count) = numerics {
        let mut compare = bench.python("numerics.py")?;
        compare.arg(&bench.gradus).arg(&bench.set).arg(count.to_string());
        let hint = "`gradus data dump` writes one of the images that differ";
        return doing::run(&mut compare, hint).map(|()| "every recipe is torchvision's".into());
    }
    let packed = packed(&bench.gradus, &bench.set)?;
    let share = 100.0 * bytes(&packed, "shard")? as f64 / bytes(&bench.set, "jpg")? as f64;
    let mut lines = vec![format!("coefficient shards take {share:.1} % of the JPEG files' bytes")];
    for (place, recipe) in RECIPES.into_iter().enumerate() {
        lines.extend(bench.costs(place, recipe, &packed, rounds)?);
    }
    lines.extend(bench.scaling(rounds)?);
    Ok(lines.join("\n"))
}

impl Bench {
    fn python(&self, script: &str) -> Result<Command, Box<dyn Error>> {
        let mut command = Command::new(setup::python()?);
        command.env("PYTHONPATH", std::env::join_paths(&self.packages)?).env("PYTHONWARNINGS", "ignore");
        command.arg(self.scripts.join(script));
        Ok(command)
    }

    /// Images at `set`, made once.
    fn made(&self, set: &Path, count: usize) -> Result<PathBuf, Box<dyn Error>> {
        if !set.is_dir() {
            eprintln!("making {count} images at {}", set.display());
            let unfinished = set.with_extension("part");
            let mut make = self.python("images.py")?;
            make.arg(&unfinished).arg(count.to_string());
            doing::run(&mut make, "read Python's message above")?;
            std::fs::rename(&unfinished, set)?;
        }
        Ok(set.to_owned())
    }

    /// Our loader over a set.
    fn ours(&self, set: &Path, recipe: &str, threads: usize) -> Command {
        let mut bench = Command::new(&self.gradus);
        bench.args(["data", "bench", "--json", "--for", "10s", "--recipe", recipe, "--threads"]);
        bench.arg(threads.to_string()).arg(set);
        bench
    }

    /// Another loader over the JPEG files.
    fn theirs(&self, peer: &str, recipe: &str) -> Result<Command, Box<dyn Error>> {
        let mut other = self.python("loaders.py")?;
        other.args([peer, recipe]).arg(&self.set).arg(self.threads.to_string());
        Ok(other)
    }

    /// CPU µs per image of the recipe with index `place`: ours from files and from shards, and the peers' that support
    /// it.
    fn costs(&self, place: usize, recipe: &str, packed: &Path, rounds: usize) -> Result<Vec<String>, Box<dyn Error>> {
        let (mut own, mut through_python) = ([Vec::new(), Vec::new()], Vec::new());
        let known = PEERS.iter().filter(|(_, recipes)| place < *recipes);
        let mut others: Vec<(&str, Vec<f64>)> = known.map(|(peer, _)| (*peer, Vec::new())).collect();
        for round in 1..=rounds {
            eprintln!("{recipe}: round {round} of {rounds}");
            for (set, costs) in [self.set.as_path(), packed].into_iter().zip(&mut own) {
                let found = cost(&mut self.ours(set, recipe, self.threads))?;
                eprintln!("gradus: {found:.0} µs of CPU time per image");
                costs.push(found);
            }
            if self.through_python {
                let found = cost(&mut self.theirs(OURS_IN_PYTHON, recipe)?)?;
                eprintln!("gradus.Loader: {found:.0} µs of CPU time per image");
                through_python.push(found);
            }
            for (peer, costs) in &mut others {
                match cost(&mut self.theirs(peer, recipe)?) {
                    Ok(found) => {
                        eprintln!("{peer}: {found:.0} µs of CPU time per image");
                        costs.push(found);
                    }
                    Err(error) if round == 1 => eprintln!("{peer} is left out: {error}"),
                    Err(_) => {}
                }
            }
        }
        let own = own.map(|costs| Spread::of(&costs));
        let through_python = (!through_python.is_empty()).then(|| Spread::of(&through_python));
        let mut lines = vec![format!("{recipe}, {} threads, CPU µs per image:", self.threads)];
        lines.push(format!("  gradus, JPEG files {:.0}; coefficient shards {:.0}", own[0], own[1]));
        if let Some(costs) = through_python {
            let ratio = costs.median / own[0].median;
            lines.push(format!("  gradus.Loader, JPEG files {costs:.0}: {ratio:.2} times ours in Rust"));
        }
        for (peer, costs) in others.iter().filter(|(_, costs)| !costs.is_empty()) {
            let costs = Spread::of(costs);
            let [files, shards] = own.map(|own| costs.median / own.median);
            let loader = through_python.map(|own| format!(", {:.2} times gradus.Loader", costs.median / own.median));
            let loader = loader.unwrap_or_default();
            lines.push(format!(
                "  {peer} {costs:.0}: {files:.2} times ours, {shards:.2} times ours from shards{loader}"
            ));
        }
        Ok(lines)
    }

    /// The speed-up by a second thread of ours, and by a second process of Pillow.
    fn scaling(&self, rounds: usize) -> Result<[String; 2], Box<dyn Error>> {
        let (mut own, mut pillow) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            let [one, two] = [1, 2].map(|threads| rate(&mut self.ours(&self.set, RECIPES[0], threads)));
            own.push(two? / one?);
            let one = rate(&mut self.theirs("pillow", RECIPES[0])?)?;
            let mut second = self.theirs("pillow", RECIPES[0])?.stdout(Stdio::null()).spawn()?;
            let two = rate(&mut self.theirs("pillow", RECIPES[0])?);
            second.wait()?;
            // Both do the same work at the same time.
            pillow.push(2.0 * two? / one);
        }
        Ok([
            format!("images per second of 2 threads over those of 1: gradus {:.2}", Spread::of(&own)),
            format!("  of 2 processes of Pillow over those of 1: {:.2}", Spread::of(&pillow)),
        ])
    }
}

/// The JPEG files below a folder, by name; links to folders are not followed.
fn jpegs(folder: &Path, found: &mut Vec<PathBuf>) -> Result<(), Box<dyn Error>> {
    let entries = std::fs::read_dir(folder).map_err(|error| format!("cannot list `{}`: {error}", folder.display()))?;
    let mut paths = entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<Vec<_>, _>>()?;
    paths.sort();
    for path in paths {
        let ending = path.extension().map(|ending| ending.to_ascii_lowercase());
        if path.symlink_metadata()?.is_dir() {
            jpegs(&path, found)?;
        } else if ending.is_some_and(|ending| ending == "jpg" || ending == "jpeg") {
            found.push(path);
        }
    }
    Ok(())
}

/// Copies of [`IMAGES`] JPEG files of a folder at `set`, in ten classes; where there are fewer, each comes several times.
/// Output of an earlier call or of another peer is removed.
fn copied(folder: &Path, set: &Path) -> Result<PathBuf, Box<dyn Error>> {
    let mut files = Vec::new();
    jpegs(folder, &mut files)?;
    if files.is_empty() {
        return Err(format!("there is no JPEG file below `{}`; name a folder of photographs", folder.display()).into());
    }
    eprintln!("copying {} of {} images to {}", IMAGES.min(files.len()), files.len(), set.display());
    for old in [set.to_owned(), set.with_extension("coefficients"), PathBuf::from(format!("{}-tars", set.display()))] {
        if !old.is_dir() {
            continue;
        }
        if std::fs::canonicalize(folder)?.starts_with(std::fs::canonicalize(&old)?) {
            return Err(format!("`{}` is made anew by each call; name the folder it came from", old.display()).into());
        }
        std::fs::remove_dir_all(old)?;
    }
    for (number, file) in files.iter().cycle().take(IMAGES).enumerate() {
        let class = set.join(format!("c{}", number % 10));
        std::fs::create_dir_all(&class)?;
        std::fs::copy(file, class.join(format!("{number:06}.jpg")))?;
    }
    Ok(set.to_owned())
}

/// The images at `set` as coefficient shards, packed once.
fn packed(gradus: &Path, set: &Path) -> Result<PathBuf, Box<dyn Error>> {
    let packed = set.with_extension("coefficients");
    let mut pack = Command::new(gradus);
    pack.args(["data", "pack", "--codec", "coefficients"]).arg(set).arg(&packed);
    doing::run(&mut pack, "`gradus data inspect` tells what lies in a folder")?;
    Ok(packed)
}

/// Bytes of the files below a folder whose names end so.
fn bytes(folder: &Path, extension: &str) -> Result<u64, Box<dyn Error>> {
    let mut sum = 0;
    for entry in std::fs::read_dir(folder)? {
        let (path, data) = entry.and_then(|entry| Ok((entry.path(), entry.metadata()?)))?;
        match data.is_dir() {
            true => sum += bytes(&path, extension)?,
            false if path.extension().is_some_and(|found| found == extension) => sum += data.len(),
            false => {}
        }
    }
    Ok(sum)
}

/// Images per second of wall time.
fn rate(command: &mut Command) -> Result<f64, Box<dyn Error>> {
    let value = said(command)?;
    let number = |key: &str| value[key].as_f64().ok_or_else(|| format!("it says no `{key}`"));
    Ok(number("images")? / number("seconds")?)
}

/// CPU µs per image, from the program's one line of JSON.
fn cost(command: &mut Command) -> Result<f64, Box<dyn Error>> {
    said(command)?["cpu_us_per_image"].as_f64().ok_or_else(|| "it says no `cpu_us_per_image`".into())
}

/// The program's one line of JSON.
fn said(command: &mut Command) -> Result<Value, Box<dyn Error>> {
    let text = doing::read(command)?;
    Ok(serde_json::from_str(text.lines().last().unwrap_or_default())?)
}

fn options(arguments: &[String]) -> Result<Options, String> {
    let mut options =
        Options { images: Images::Made(IMAGES), rounds: 3, threads: 2, through_python: false, numerics: None };
    for pair in arguments.chunks(2) {
        let [word, told] = pair else { return Err(format!("`{}` needs a number", pair.concat())) };
        let number = || told.parse().ok().filter(|n| *n > 0).ok_or_else(|| format!("`{told}` is no number above 0"));
        match word.as_str() {
            "--images" | "--pictures" => {
                options.images = match number() {
                    Ok(count) => Images::Made(count),
                    Err(_) if told == "photographs" => Images::Photographs,
                    Err(_) if Path::new(told).is_dir() => Images::Of(told.into()),
                    Err(error) => return Err(format!("{error}, and neither `photographs` nor a folder")),
                };
            }
            "--rounds" => options.rounds = number()?,
            "--threads" => options.threads = number()?,
            "--through" if told == "python" => options.through_python = true,
            "--through" => {
                return Err(format!("`{told}` is not known; `--through python` measures the package as well"));
            }
            "--numerics" => options.numerics = Some(number()?),
            _ => return Err(crate::table::usage()),
        }
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_a_number_or_a_folder() {
        let asked = |words: &[&str]| options(&words.iter().map(|word| word.to_string()).collect::<Vec<_>>());
        let folder = env!("CARGO_MANIFEST_DIR");
        assert_eq!(asked(&["--pictures", "7"]).unwrap().images, Images::Made(7));
        assert_eq!(asked(&["--pictures", folder]).unwrap().images, Images::Of(folder.into()));
        assert_eq!(asked(&["--images", "photographs"]).unwrap().images, Images::Photographs);
        assert_eq!(
            asked(&["--pictures", "0"]).unwrap_err(),
            "`0` is no number above 0, and neither `photographs` nor a folder"
        );
        assert_eq!(asked(&["--rounds", folder]).unwrap_err(), format!("`{folder}` is no number above 0"));
    }

    #[test]
    fn the_package_is_measured_where_that_is_asked_for() {
        let asked = |told: &str| options(&["--through".to_owned(), told.to_owned()]);
        assert!(asked("python").unwrap().through_python);
        assert!(!options(&[]).unwrap().through_python);
        assert!(asked("ruby").unwrap_err().starts_with("`ruby` is not known"));
    }

    #[test]
    fn few_images_come_several_times() {
        let root = tempfile::tempdir().unwrap();
        let (folder, set) = (root.path().join("own"), root.path().join("set"));
        std::fs::create_dir_all(folder.join("deep")).unwrap();
        assert!(copied(&folder, &set).unwrap_err().to_string().contains("there is no JPEG file below"));
        for (name, text) in [("a.jpg", "a"), ("deep/b.JPEG", "b"), ("c.txt", "c")] {
            std::fs::write(folder.join(name), text).unwrap();
        }
        copied(&folder, &set).unwrap();
        let mut found = Vec::new();
        jpegs(&set, &mut found).unwrap();
        assert_eq!(found.len(), IMAGES);
        assert_eq!(std::fs::read_to_string(set.join("c1/000001.jpg")).unwrap(), "b");
        assert_eq!(std::fs::read_to_string(set.join("c2/000002.jpg")).unwrap(), "a");
        assert!(copied(&set.join("c1"), &set).unwrap_err().to_string().contains("is made anew by each call"));
        assert!(set.join("c1/000001.jpg").is_file());
    }
}
