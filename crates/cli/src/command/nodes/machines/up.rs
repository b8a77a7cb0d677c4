//! `gradus machines up`: the job of a machine that waits for its user.

use std::path::Path;

use cloud::Catalog;
use domain::file::written::JobText;
use domain::{Duration, Rate};
use server::Home;

use super::timetable::{TIMETABLE, Timetable};
use super::{MARK, mig};
use crate::command::run::{StartOptions, start};
use crate::error::{Error, exit};
use crate::local::disks::STOPPING_CLOUDS;
use crate::local::draft::draft_loaded;
use crate::local::job_file::{JobOverrides, load};
use crate::printer::Printer;
use crate::settings::GlobalSettings;

/// Arguments of `gradus machines up`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Name of the machine: letters a–z, digits and `-`
    #[arg(default_value = "machine")]
    name: String,
    /// Where: a cloud with region and zone, such as `aws/us-east-1`, or a node, such as `ssh/NAME`
    #[arg(long, value_name = "PLACE")]
    infra: String,
    /// GPUs, such as `A100:8`
    #[arg(long, value_name = "GPUS")]
    gpus: Option<String>,
    /// The cloud's name of the machine, such as `g4dn.xlarge`
    #[arg(long, value_name = "TYPE")]
    instance_type: Option<String>,
    /// Divide each GPU by MIG into these profiles, such as `3g.40gb,3g.40gb`
    #[arg(long, value_name = "PROFILES", requires = "gpus")]
    mig: Option<String>,
    /// Size of the disk in GB
    #[arg(long, value_name = "GB")]
    disk: Option<String>,
    /// Use a spot machine, which the cloud may take back
    #[arg(long)]
    spot: bool,
    /// Most that it may cost an hour
    #[arg(long, value_name = "PRICE", allow_hyphen_values = true)]
    max_price: Option<String>,
    /// Most that it may cost in all
    #[arg(long, value_name = "MONEY", allow_hyphen_values = true)]
    budget: Option<String>,
    /// When it is given back, whatever runs on it [default: 8h; with `--timetable` 30d]
    #[arg(long = "for", value_name = "DURATION", value_parser = Duration::parse_with_unit)]
    time: Option<Duration>,
    /// When it is on, such as `mon-fri 8:00-19:00 Europe/Berlin`: `gradus serve` stops it, and starts it again with its files.
    /// `--for` counts from each start
    #[arg(long, value_name = "TIMETABLE")]
    timetable: Option<String>,
    /// Give it back when it has been idle for this long: less than 5 % of a core, no GPU, no input in a terminal
    #[arg(long, value_name = "DURATION", value_parser = Duration::parse_with_unit)]
    idle: Option<Duration>,
    /// Project that the cost is counted under
    #[arg(long, value_name = "NAME")]
    project: Option<String>,
    /// Print the job file, and rent nothing
    #[arg(long)]
    dry_run: bool,
    /// Skip the confirmation before money is spent
    #[arg(long, short)]
    yes: bool,
}

impl Args {
    /// For how long it is rented.
    fn length(&self) -> Duration {
        let usual = if self.timetable.is_some() { 30 * 24 * 3600 } else { 8 * 3600 };
        self.time.unwrap_or(Duration::from_secs(usual))
    }

    /// Refuses a timetable that cannot be kept.
    fn check_timetable(&self) -> Result<(), Error> {
        let Some(text) = &self.timetable else { return Ok(()) };
        let zone = text.parse::<Timetable>().and_then(|table| table.time_zone());
        let hint = "write `--timetable 'mon-fri 8:00-19:00 Europe/Berlin'`".to_owned();
        zone.map_err(|why| Error::Usage { message: format!("`--timetable`: {why}"), hint })?;
        let stops = self.infra.split('/').next().is_some_and(|cloud| STOPPING_CLOUDS.contains(&cloud));
        if self.spot || !stops {
            let message = format!("`--timetable`: spot machines and those of `{}` cannot be stopped", self.infra);
            let clouds = STOPPING_CLOUDS.join("`, `");
            let hint = format!("use `--infra` with one of `{clouds}` and without `--spot`, or leave the timetable out");
            return Err(Error::Usage { message, hint });
        }
        Ok(())
    }
}

/// The parts that each GPU is divided into; none where it stays whole.
fn layout(args: &Args, home: &Path) -> Result<Option<Vec<String>>, Error> {
    let (Some(profiles), Some(gpus)) = (&args.mig, &args.gpus) else { return Ok(None) };
    // Only machines of clouds are set up for it, and nobody else computes on their GPUs.
    if args.infra.split('/').next() == Some("ssh") {
        let message = "`--mig`: the GPUs of a node are not divided, only those of a machine that is rented".to_owned();
        let hint = "divide them on the node, as root, with `nvidia-smi mig`, and leave `--mig` out".to_owned();
        return Err(Error::Usage { message, hint });
    }
    let catalog = Catalog::open(home)?;
    let hint = "leave `--mig` out for whole GPUs; `gradus catalog gpus` lists GPUs".to_owned();
    let layout = mig::layout(gpus, profiles, &catalog.gpus);
    layout.map(Some).map_err(|why| Error::Usage { message: format!("`--mig`: {why}"), hint })
}

/// The job file: a program that divides its GPUs, if that is asked for, and waits.
fn compose(args: &Args, layout: Option<&[String]>) -> JobText {
    let mut job = JobText::default();
    let (time, idle) = (args.length().to_string(), args.idle.map(|idle| idle.to_string()));
    job.text("name", &args.name);
    job.text("run", format!("{}exec sleep infinity", layout.map(mig::script).unwrap_or_default()));
    let text = [
        ("project", args.project.as_ref()),
        ("resources.infra", Some(&args.infra)),
        ("resources.accelerators", args.gpus.as_ref()),
        ("resources.instance_type", args.instance_type.as_ref()),
        ("resources.disk_size", args.disk.as_ref()),
        ("resources.max_price", args.max_price.as_ref()),
        ("budget.max", args.budget.as_ref()),
        ("deadline", Some(&time)),
        ("idle_timeout", idle.as_ref()),
    ];
    for (key, value) in text {
        value.into_iter().for_each(|value| job.text(key, value));
    }
    if args.spot {
        job.plain("resources.use_spot", "true");
    }
    job.text(&format!("envs.{MARK}"), "up");
    args.timetable.iter().for_each(|table| job.text(&format!("envs.{TIMETABLE}"), table));
    job
}

/// The flags that the keys of the job file come from.
const FLAGS: [(&str, &str); 10] = [
    ("name", "NAME"),
    ("project", "--project"),
    ("resources.infra", "--infra"),
    ("resources.accelerators", "--gpus"),
    ("resources.instance_type", "--instance-type"),
    ("resources.disk_size", "--disk"),
    ("resources.max_price", "--max-price"),
    ("budget.max", "--budget"),
    ("deadline", "--for"),
    ("idle_timeout", "--idle"),
];

/// A problem of the job file that nobody has written, as one of the flag that it comes from.
fn in_flags(error: Error) -> Error {
    let Some(problem) = error.problems().first() else { return error };
    let Some((_, flag)) = FLAGS.iter().find(|(key, _)| *key == problem.key) else { return error };
    let hint = match *flag {
        "--infra" => {
            let clouds = domain::wants::RENTED_CLOUDS.join("`, `");
            format!("use `--infra {clouds}`, or `--infra ssh/NAME` for a node of `gradus nodes`")
        }
        _ => problem.hint.clone().unwrap_or_else(|| "see `gradus machines up --help`".to_owned()),
    };
    Error::Usage { message: format!("`{flag}`: {}", problem.message), hint }
}

/// Plans, asks and rents.
///
/// # Errors
/// [`Error`].
pub fn run(args: Args, settings: &GlobalSettings, printer: &mut Printer) -> Result<u8, Error> {
    if args.infra == "local" {
        let message = "`--infra`: this machine is up, and not rented".to_owned();
        return Err(Error::Usage {
            message,
            hint: "name a cloud or a node: `--infra aws` or `--infra ssh/NAME`".to_owned(),
        });
    }
    args.check_timetable()?;
    let layout = layout(&args, &settings.home)?;
    let text = compose(&args, layout.as_deref()).render();
    let names = (args.name.as_str(), Path::new("."));
    let loaded = load(text.clone(), names, &JobOverrides::default(), &GlobalSettings::variable, printer);
    let loaded = loaded.map_err(in_flags)?;
    // A dry run too: what it prints is a job file that `gradus run` takes.
    if let Some(unrentable) = &loaded.unrentable {
        return Err(in_flags(Error::Job(unrentable.clone())));
    }
    if args.dry_run {
        match printer.is_json() {
            true => printer.json(&serde_json::json!({ "job_file": text })),
            false => printer.data(text.trim_end()),
        }
        return Ok(exit::DONE);
    }
    let home = Home::open(&settings.home)?;
    if let Some(layout) = layout.filter(|_| !printer.is_json()) {
        printer.data(format!("mig      each GPU as {}", layout.join(", ")));
    }
    let (job, plan) = draft_loaded(loaded, Rate::default(), settings, &home, printer).map_err(in_flags)?;
    let code = start(job, plan, &args.name, &StartOptions::detached(args.yes), settings, &home, printer)?;
    if code == exit::DONE && !printer.is_json() {
        printer.data(format!("enter    gradus machines ssh {}", args.name));
        printer.data(format!("end      gradus machines down {} (or in {})", args.name, args.length()));
    }
    Ok(code)
}

#[cfg(test)]
mod tests {
    use domain::Problems;
    use domain::problem::Problem;

    use super::*;

    #[test]
    fn what_is_wrong_is_said_of_the_flag() {
        let wrong = |key: &str| {
            let problems = vec![Problem { line: Some(3), ..Problem::at(key, "not yet") }.hint("write")];
            in_flags(Error::Job(Problems { file: "box".to_owned(), problems })).to_string()
        };
        assert_eq!(wrong("resources.infra"), "`--infra`: not yet");
        assert_eq!(wrong("deadline"), "`--for`: not yet");
        assert_eq!(wrong("resources.other"), "box:3: `resources.other`: not yet\n  hint: write");
    }
}
