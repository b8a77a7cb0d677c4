//! From the keys of a file to a [`Job`]: defaults filled in, the two front ends joined.

mod disk;
mod recovery;

use std::collections::BTreeMap;

use super::keys::{AnyAccelerators, JobFile, NodeCount, Numbers, Resources, SweepKeys};
use super::tree::Node;
use crate::accelerators::{AcceleratorKind, Accelerators};
use crate::gpu::GpuSpec;
use crate::image::ContainerImage;
use crate::job::{Budget, Command, Job, Needs, Secret, Work};
use crate::mounts;
use crate::problem::Problem;
use crate::progress::Progress;
use crate::sweep::{Goal, Method, Metric, Parameter, Sweep};
use crate::train::Train;
use crate::wants::{Spot, Wants};
use disk::disk;
use recovery::recovery;

/// The result of lowering.
pub(super) struct Lowered {
    /// Everything but the work.
    pub rest: Job,
    /// The work, unless the keys specify none or two.
    pub work: Option<Work>,
}

impl Lowered {
    /// The complete job.
    pub fn job(self) -> Option<Job> {
        Some(Job { work: self.work?, ..self.rest })
    }
}

/// Lowers the keys, filling in every default.
pub(super) fn lower(
    file: JobFile,
    parameters: Vec<Parameter>,
    tree: &Node,
    file_name: &str,
    problems: &mut Vec<Problem>,
) -> Lowered {
    let mut resources = file.resources.unwrap_or_default();
    let mut wants = wants(&mut resources, file.num_nodes, problems);
    wants.spares = file.spares.unwrap_or_default();
    let (workdir, setup, outputs) = (file.workdir, file.setup, file.outputs);
    let file_mounts = file.file_mounts.map(|keys| mounts::lowered(keys, problems));
    let image = image(resources.image_id.take(), problems);
    let program = Program { workdir, file_mounts, setup, run: file.run, outputs, image, progress: file.progress };
    let work = work(file.train, program, tree, problems);
    let sweep = file.sweep.and_then(|keys| sweep(keys, parameters, work.as_ref(), tree, problems));
    let (disk, speed) = disk(&resources, wants.only_cloud("aws"), problems);
    let rest = Job {
        name: file.name.unwrap_or_else(|| name_from(stem(file_name))),
        project: file.project,
        work: Work::Command(Command::default()),
        envs: file.envs.into_iter().flatten().filter_map(|(name, value)| Some((name, value?.0))).collect(),
        secrets: file
            .secrets
            .into_iter()
            .flatten()
            .map(|(name, value)| (name, Secret(value.map(|text| text.0))))
            .collect(),
        needs: Needs {
            cores: resources.cpus.map(|cores| cores.0),
            memory: resources.memory.map(|size| size.0),
            disk,
            speed,
            enforce: resources.enforce.unwrap_or_default(),
        },
        budget: file.budget.map(|budget| Budget { max: budget.max, alert: budget.alert }),
        deadline: file.deadline,
        idle_timeout: file.idle_timeout,
        stop_grace: file.stop_grace,
        hang_after: file.hang_after.unwrap_or_default(),
        checkpoint_store: file.checkpoint_store,
        recovery: recovery(resources.job_recovery),
        wants,
        workload: file.workload,
        data: file.data.unwrap_or_default(),
        sweep,
        schedule: file.schedule,
    };
    Lowered { rest, work }
}

/// The keys of a program of the user's own.
struct Program {
    workdir: Option<String>,
    file_mounts: Option<BTreeMap<String, String>>,
    setup: Option<String>,
    run: Option<String>,
    outputs: Option<Vec<String>>,
    image: Option<ContainerImage>,
    progress: Option<Progress>,
}

/// The container image of a program.
fn image(text: Option<String>, problems: &mut Vec<Problem>) -> Option<ContainerImage> {
    match text.filter(|text| !text.trim().is_empty())?.parse::<ContainerImage>() {
        Ok(image) => Some(image),
        Err(why) => {
            let hint = "write for example `image_id: docker:pytorch/pytorch:2.11.0-cuda12.8-cudnn9-runtime`";
            clash(problems, "resources.image_id", &why, hint);
            None
        }
    }
}

/// The one work of a job: `train:`, or the program of `run:`.
fn work(train: Option<Train>, program: Program, tree: &Node, problems: &mut Vec<Problem>) -> Option<Work> {
    let Program { workdir, file_mounts, setup, run, outputs, image, progress } = program;
    match (train, run) {
        (Some(train), None) => {
            let given = [
                ("setup", setup.is_some()),
                ("workdir", workdir.is_some()),
                ("file_mounts", file_mounts.is_some()),
                ("outputs", outputs.is_some()),
                ("resources.image_id", image.is_some()),
                ("progress", progress.is_some()),
            ];
            for (key, _) in given.into_iter().filter(|(_, is_given)| *is_given) {
                let alone = Problem::at(key, format!("`{key}` is for a `run:` program; `train:` needs none"));
                problems.push(alone.hint("leave the key out"));
            }
            Some(Work::Train(train))
        }
        (None, Some(run)) => {
            let (outputs, progress) = (outputs.unwrap_or_default(), progress.unwrap_or_default());
            let file_mounts = file_mounts.unwrap_or_default();
            Some(Work::Command(Command { workdir, file_mounts, setup, run, outputs, image, progress }))
        }
        (Some(_), Some(_)) => {
            let both = Problem::at("run", "`run` and `train` exclude each other");
            problems.push(both.hint("keep `train` for our own trainer, or `run` for a program of your own"));
            None
        }
        (None, None) => {
            // A section that is there but could not be read was already complained about.
            let is_tried = ["train", "run"].iter().any(|key| tree.get(key).is_some());
            if !is_tried || problems.is_empty() {
                let neither = Problem::at("", "there is nothing to do: neither `train` nor `run` is given");
                problems.push(neither.hint(match tree.get("workload") {
                    Some(_) => "`workload:` describes what a program trains: add `run: python train.py`, or how else yours is started",
                    None => "write a `train:` section, or a `run:` program of your own",
                }));
            }
            None
        }
    }
}

/// The search: over values of the built-in trainer's keys, or over variables of a program.
fn sweep(
    keys: SweepKeys,
    parameters: Vec<Parameter>,
    work: Option<&Work>,
    tree: &Node,
    problems: &mut Vec<Problem>,
) -> Option<Sweep> {
    let is_given = |key: &str| tree.get("sweep").is_some_and(|(_, sweep)| sweep.get(key).is_some());
    match (is_given("parameters"), is_given("table")) {
        (false, false) => {
            let missing = Problem::at("sweep.parameters", "this key is missing");
            problems
                .push(missing.hint("add `parameters: …`, the keys and their values; or `table: …`, a row per trial"));
        }
        (true, true) => {
            clash(problems, "sweep.table", "`table` and `parameters` exclude each other", "keep one of the two");
        }
        (false, true) if is_given("method") => {
            clash(problems, "sweep.method", "the rows of a table are tried in their order", "leave the key out");
        }
        (true, false) if parameters.is_empty() && problems.is_empty() => {
            clash(problems, "sweep.parameters", "nothing is searched", "write for example `batch: [32, 64]`");
        }
        (true, false) | (false, true) => {}
    }
    if keys.goal.is_some() && keys.metric.is_none() && matches!(work, Some(Work::Command(_))) {
        let why = "trials of a `run:` program are compared only by a metric that is named";
        clash(problems, "sweep.goal", why, "add for example `metric: accuracy`, which the program reports");
    }
    let metric = match work? {
        Work::Train(train) => Some(keys.metric.unwrap_or(Metric::usual(train))),
        Work::Command(_) => keys.metric,
    };
    Some(Sweep {
        parameters,
        method: if keys.table.is_some() { Method::Table } else { keys.method },
        trials: keys.trials,
        metric,
        goal: keys.goal.or(metric.map(Metric::goal)).unwrap_or(Goal::Maximize),
        seed: keys.seed,
        parallel: keys.parallel,
        max_failed: keys.max_failed,
    })
}

/// What may be rented. Keys that say the same thing twice, and differently, are told.
fn wants(resources: &mut Resources, num_nodes: Option<NodeCount>, problems: &mut Vec<Problem>) -> Wants {
    let names = |names: &mut Option<super::keys::Names>| names.take().map(super::keys::Names::all).unwrap_or_default();
    let mut wants = Wants {
        accelerators: accelerators(resources.accelerators.take()),
        instance_type: resources.instance_type.take(),
        clouds: names(&mut resources.cloud),
        regions: names(&mut resources.region),
        dedicated: resources.dedicated.unwrap_or_default(),
        max_carbon: resources.max_carbon,
        ..Wants::default()
    };
    for word in names(&mut resources.compliance) {
        match word.parse() {
            Ok(known) => wants.compliance.push(known),
            Err(why) => {
                clash(problems, "resources.compliance", &why, "write for example `compliance: [gdpr, iso27001]`")
            }
        }
    }
    place(&mut wants, resources, problems);
    price(&mut wants, resources, problems);
    nodes(&mut wants, resources, num_nodes, problems);
    wants.gpu_specs = gpu_specs(resources.gpu_specs.take(), problems);
    wants.own_machines = resources.take_over == Some(false);
    wants
}

/// GPUs that are described; what cannot be is told.
fn gpu_specs(keys: Option<BTreeMap<String, GpuSpec>>, problems: &mut Vec<Problem>) -> BTreeMap<String, GpuSpec> {
    let specs = keys.unwrap_or_default();
    for (name, spec) in &specs {
        let key = format!("resources.gpu_specs.{name}");
        if !Accelerators::is_name(name) {
            let message = format!("`{name}` cannot stand in `accelerators`");
            clash(problems, &key, &message, "use a name of letters, digits and `-`, such as `X100-96GB`");
        }
        for problem in spec.problems() {
            clash(problems, &format!("{key}.{}", problem.key), &problem.message, problem.hint);
        }
    }
    specs
}

fn clash(problems: &mut Vec<Problem>, key: &str, message: &str, hint: &str) {
    problems.push(Problem::at(key, message).hint(hint));
}

/// Where: `infra` is short for a cloud and a region, or means this machine.
fn place(wants: &mut Wants, resources: &mut Resources, problems: &mut Vec<Problem>) {
    let infra = resources.infra.take().unwrap_or_default();
    let node = infra.strip_prefix("ssh").filter(|rest| rest.is_empty() || rest.starts_with('/'));
    if node.is_none() && !matches!(infra.as_str(), "" | "local") {
        let mut parts =
            infra.split('/').map(str::trim).map(|part| Some(part).filter(|part| !matches!(*part, "" | "*")));
        let (cloud, region, zone) = (parts.next().flatten(), parts.next().flatten(), parts.next().flatten());
        // `gcp/*/us-central1-a` names a zone alone.
        let region = region.map(str::to_owned).or_else(|| zone.and_then(region_of_zone));
        if cloud.is_some() && !wants.clouds.is_empty() || region.is_some() && !wants.regions.is_empty() {
            let message = "`infra` names a place, and so do `cloud` or `region`";
            clash(problems, "resources.infra", message, "keep one of the two");
        }
        wants.clouds.extend(cloud.map(str::to_owned));
        wants.regions.extend(region);
        wants.zone = zone.map(str::to_owned);
    }
    if infra == "local" && *wants != Wants::default() {
        let message = "`infra: local` is this machine, and other keys ask for one of a cloud";
        clash(problems, "resources.infra", message, "leave `infra` out to plan over everything that is offered");
    }
    let of_nodes = Wants { accelerators: wants.accelerators.clone(), ..Wants::default() };
    if node.is_some() && *wants != of_nodes {
        let message = "`infra: ssh` is a machine of `gradus nodes`, and other keys ask for one of a cloud";
        clash(problems, "resources.infra", message, "leave `infra` out to plan over everything that is offered");
    }
    let name = |rest: &str| rest.trim_start_matches('/').trim().to_owned();
    wants.node = node.map(name).map(|name| if matches!(name.as_str(), "" | "*") { "any".to_owned() } else { name });
    wants.here = infra == "local" || node.is_some();
}

/// The region that a zone's name begins with: `us-east-1a` is in `us-east-1`, `us-central1-a` in `us-central1`.
fn region_of_zone(zone: &str) -> Option<String> {
    let region = zone.strip_suffix(|letter: char| letter.is_ascii_lowercase())?;
    Some(region.strip_suffix('-').unwrap_or(region).to_owned())
}

/// At what price: spot or not, dedicated or not, and the most for an hour.
fn price(wants: &mut Wants, resources: &Resources, problems: &mut Vec<Problem>) {
    let spot = resources.use_spot.map(|only| if only { Spot::Only } else { Spot::Never });
    if let (Some(spot), Some(other)) = (spot, resources.spot)
        && spot != other
    {
        clash(problems, "resources.use_spot", "`use_spot` and `spot` contradict each other", "keep `spot`");
    }
    wants.spot = resources.spot.or(spot).unwrap_or_default();
    wants.on_demand = resources.on_demand.unwrap_or_default();
    if let (Some(one), Some(other)) = (resources.max_price, resources.max_hourly_cost)
        && one != other
    {
        clash(
            problems,
            "resources.max_hourly_cost",
            "`max_hourly_cost` and `max_price` contradict each other",
            "keep one of the two",
        );
    }
    wants.max_price = resources.max_price.or(resources.max_hourly_cost);
    if wants.max_price.is_some_and(|most| most.micros_per_hour() == 0) {
        clash(
            problems,
            "resources.max_price",
            "no machine is rented for nothing",
            "write a price such as `$30/h`, or leave it out",
        );
    }
    if wants.dedicated && wants.spot == Spot::Only {
        clash(
            problems,
            "resources.dedicated",
            "no cloud rents dedicated machines as spot machines",
            "leave one of the two out",
        );
    }
}

/// How many machines.
fn nodes(wants: &mut Wants, resources: &mut Resources, num_nodes: Option<NodeCount>, problems: &mut Vec<Problem>) {
    wants.nodes = match resources.nodes.take() {
        None => Vec::new(),
        Some(Numbers::One(number)) => vec![number],
        Some(Numbers::Many(numbers)) => numbers,
    };
    if wants.nodes.iter().any(|number| !(1..=4096).contains(number)) {
        clash(problems, "resources.nodes", "a run has from 1 to 4096 machines", "write for example `nodes: [1, 2, 4]`");
    }
    let number = num_nodes.map(|count| match count {
        NodeCount::Fixed(number) => number,
        NodeCount::Elastic(bounds) => {
            if bounds.min > bounds.max {
                let message = format!("at least {} machines and at most {} cannot both be", bounds.min, bounds.max);
                clash(problems, "num_nodes.min", &message, "write for example `num_nodes: {min: 2, max: 4}`");
            }
            wants.min_nodes = Some(bounds.min.min(bounds.max));
            bounds.max
        }
    });
    if let Some(number) = number {
        if !wants.nodes.is_empty() && wants.nodes != [number] {
            clash(
                problems,
                "num_nodes",
                "`num_nodes` and `resources.nodes` contradict each other",
                "keep one of the two",
            );
        }
        wants.nodes = vec![number];
    }
}

fn accelerators(keys: Option<AnyAccelerators>) -> Vec<Accelerators> {
    match keys {
        None => Vec::new(),
        Some(AnyAccelerators::One(one)) => vec![one],
        Some(AnyAccelerators::Many(several)) => several,
        Some(AnyAccelerators::Counted(counts)) => {
            // A name here is what stands before the number elsewhere: `40GB+` and `A100-80GB:1g.10gb` too.
            let one = |(name, count): (String, u32)| {
                format!("{name}:{count}").parse().unwrap_or(Accelerators {
                    kind: AcceleratorKind::Named(name),
                    part: None,
                    count: Some(count),
                })
            };
            counts.into_iter().map(one).collect()
        }
    }
}

/// `digits` of `examples/digits.yaml`.
pub(super) fn stem(file_name: &str) -> &str {
    let last = file_name.rsplit(['/', '\\']).next().unwrap_or(file_name);
    last.strip_suffix(".yaml").or_else(|| last.strip_suffix(".yml")).unwrap_or(last)
}

/// The nearest name that is allowed: `My job_2` becomes `my-job-2`.
pub fn name_from(text: &str) -> String {
    let mut name = String::new();
    for letter in text.to_lowercase().chars() {
        match letter {
            'a'..='z' | '0'..='9' => name.push(letter),
            _ if name.ends_with('-') || name.is_empty() => {}
            _ => name.push('-'),
        }
    }
    name.truncate(63);
    let name = name.trim_end_matches('-');
    if name.is_empty() { "job".to_owned() } else { name.to_owned() }
}
