//! `gradus machines stop` and `start`: a machine that is stopped keeps its disk, which costs money until it is given back.

use cloud::Catalog;
use cloud::rented::kept::{KeptMachine, KeptState, named_machine, start_kind};
use cloud::rented::{MachineChoice, offers};
use domain::job::Budget;
use domain::listing::Cloud;
use domain::{Duration, InstanceId, Job, Money, Node, Offer, Plan, Rate, Timestamp};
use plan::{Instance, Run, RunOrSweep};
use server::{Home, State, clock};

use super::disk::{charge, files, of_run, settle};
use super::stoppable::require_stoppable;
use super::{MARK, no_machine, up_of};
use crate::command::find::{find_any, open_named};
use crate::command::run::{StartOptions, start as start_run};
use crate::command::stop;
use crate::error::{Error, exit};
use crate::local::disks::STOPPING_CLOUDS;
use crate::printer::Printer;
use crate::settings::GlobalSettings;

/// Arguments of `gradus machines stop`.
#[derive(Debug, clap::Args)]
pub struct StopArgs {
    /// Machine: the name of its run, a unique prefix of it, or `last`
    machine: String,
    /// Skip the confirmation that its disk is paid for
    #[arg(long, short)]
    yes: bool,
}

/// Arguments of `gradus machines start`.
#[derive(Debug, clap::Args)]
pub struct StartArgs {
    /// Machine: the name of the run that had it last, or a unique prefix of it, as `gradus machines list` shows
    machine: String,
    /// Most that it may cost in all from now on [default: what is left of its budget]
    #[arg(long, value_name = "MONEY", allow_hyphen_values = true)]
    budget: Option<Money>,
    /// When it is given back, whatever runs on it [default: as when it was rented]
    #[arg(long = "for", value_name = "DURATION", value_parser = Duration::parse_with_unit)]
    time: Option<Duration>,
    /// Skip the confirmation before money is spent
    #[arg(long, short)]
    yes: bool,
}

/// The stopped machines of a home.
pub fn stopped(home: &Home) -> Result<Vec<KeptMachine>, Error> {
    let mut all: Vec<KeptMachine> = Vec::new();
    for cloud in STOPPING_CLOUDS {
        let read = files(home, cloud).all();
        all.extend(read.map_err(Error::file("read", &home.root().join(cloud).join("kept")))?);
    }
    all.retain(|machine| machine.stopped().is_some());
    Ok(all)
}

fn usage(message: String, hint: &str) -> Error {
    Error::Usage { message, hint: hint.to_owned() }
}

/// Shows what the disk costs, asks, and stops the machine.
///
/// # Errors
/// [`Error`].
pub fn stop_machine(args: StopArgs, settings: &GlobalSettings, printer: &mut Printer) -> Result<u8, Error> {
    let home = Home::open(&settings.home)?;
    let state = open_named(&home, &args.machine)?;
    let RunOrSweep::Run(run) = find_any(state.world(), &args.machine)? else {
        return Err(usage(format!("`{}` is a sweep", args.machine), "name a machine of `gradus machines list`"));
    };
    if state.world().runs.get(&run).is_some_and(|run| !run.job.envs.contains_key(MARK)) {
        let hint = format!("`gradus stop {run}` saves a checkpoint and gives its machine back");
        return Err(usage(format!("the machine of `{run}` trains a job, which cannot be stopped with it"), &hint));
    }
    let (instance, known) = up_of(state.world(), &run).ok_or_else(|| no_machine(&run))?;
    let catalog = Catalog::open(&settings.home)?;
    let kept = keep((instance, known), &catalog, clock::now())?;
    require_stoppable(&kept, settings, &home)?;
    printer.say(format!(
        "stopping it keeps its disk, {} until `gradus machines down {run}`; its files stay{}, its programs end",
        match kept.disk.micros_per_hour() {
            0 => "whose price is not known and which is paid for".to_owned(),
            _ => format!("which costs {}", kept.disk),
        },
        if kept.offer.provider == cloud::gcp::NAME { ", but for those on Local SSDs" } else { "" }
    ));
    if !args.yes && !printer.confirm("proceed?") {
        let message = "not stopped: it was not confirmed".to_owned();
        return Err(Error::Code { message, hint: Some("pass `--yes` to confirm".to_owned()), code: exit::USAGE });
    }
    // Before its end is asked for, which would delete its disk.
    note_stop(&kept, &home)?;
    drop(state);
    let code = stop::run(stop::Args { run: run.to_string() }, settings, printer)?;
    if code == exit::DONE && !printer.is_json() {
        printer.data(format!("start    gradus machines start {run}"));
        printer.data(format!("delete   gradus machines down {run}"));
    }
    Ok(code)
}

/// Writes down that a machine is to be stopped; what its disk has cost while its last start waited is kept.
pub fn note_stop(machine: &KeptMachine, home: &Home) -> Result<(), Error> {
    let files = files(home, &machine.offer.provider);
    let noted = files.read(&machine.handle).and_then(|known| match known {
        Some(known) if known.instance == machine.instance => files.change(&known, machine.state),
        _ => Ok(()),
    });
    noted.and_then(|()| files.write(machine)).map_err(Error::file("write", home.root()))
}

/// What is written down of a machine that is to be stopped.
pub fn keep(
    (instance, known): (&InstanceId, &Instance),
    catalog: &Catalog,
    now: Timestamp,
) -> Result<KeptMachine, Error> {
    let down = "`gradus machines down` gives it back, and what is on its disk is lost";
    let provider = known.offer.provider.as_str();
    let cannot = |why: &str| usage(format!("`{instance}` cannot be stopped: {why}"), down);
    match provider {
        known if STOPPING_CLOUDS.contains(&known) => {}
        "lambda" => return Err(cannot("Lambda ends machines and does not stop them")),
        "ssh" | "local" => return Err(cannot("it is not rented")),
        other => return Err(cannot(&format!("machines of `{other}` are not stopped and started from here"))),
    }
    let kind = named_machine(&known.offer.kind).map_or(known.offer.kind.as_str(), |(kind, _)| kind);
    let choice = kind.parse::<MachineChoice>().map_err(|why| cannot(&why))?;
    if choice.is_spot {
        return Err(cannot("spot machines that were asked for once are not stopped"));
    }
    if provider == cloud::alibaba::NAME && !cloud::alibaba::has_economical_mode(&choice.machine) {
        return Err(cannot("Alibaba bills machines with local disks while they are stopped, too"));
    }
    let Some(handle) = &known.handle else { return Err(cannot("its name at its cloud is not known yet")) };
    Ok(KeptMachine {
        handle: handle.0.clone(),
        disk: disk_price(provider, catalog, &choice.region, &known.offer.node),
        region: choice.region,
        account: known.account.clone(),
        instance: instance.clone(),
        offer: Offer { kind: kind.to_owned(), ..known.offer.clone() },
        state: KeptState::Stopped { since: now },
    })
}

/// What the disk of a stopped machine costs; nothing where the catalog has no price of disks.
fn disk_price(provider: &str, catalog: &Catalog, region: &str, node: &Node) -> Rate {
    let work = node.disk_free;
    match provider {
        cloud::gcp::NAME => offers::disk_rate(catalog, &Cloud::Gcp, Some(region), cloud::gcp::disk_gib(work)),
        cloud::azure::NAME => offers::disk_rate(catalog, &Cloud::Azure, Some(region), cloud::azure::disk_gib(work)),
        cloud::alibaba::NAME => {
            offers::disk_rate(catalog, &Cloud::Alibaba, Some(region), cloud::alibaba::disk_gib(work))
        }
        cloud::tencent::NAME => {
            offers::disk_rate(catalog, &Cloud::Tencent, Some(region), cloud::tencent::disk_gib(work))
        }
        _ => cloud::aws::disk_rate(catalog, Some(region), node),
    }
}

/// The stopped machine of a name.
pub fn find(machines: Vec<KeptMachine>, name: &str) -> Result<Option<KeptMachine>, Error> {
    // A variable of a shell that is not set names none: what is found may be deleted.
    let is_meant = |machine: &KeptMachine| !name.is_empty() && machine.run().as_str().starts_with(name);
    let mut found: Vec<KeptMachine> = machines.into_iter().filter(is_meant).collect();
    if let Some(exact) = found.iter().position(|machine| machine.run().as_str() == name) {
        return Ok(Some(found.swap_remove(exact)));
    }
    if found.len() > 1 {
        let names: Vec<String> = found.iter().map(|machine| format!("`{}`", machine.run())).collect();
        let message = format!("`{name}` may be {}", names.join(" or "));
        return Err(usage(message, "name one of them in full"));
    }
    Ok(found.pop())
}

/// Refuses to delete the disk of a machine whose name may be that of one that is up.
///
/// # Errors
/// [`Error::Usage`].
pub fn refuse_other(machine: &KeptMachine, name: &str, home: &Home) -> Result<(), Error> {
    let state = State::open_lean(home)?;
    let run = machine.run();
    let is_other = |(_, live): &(&InstanceId, &Instance)| live.run != run && live.run.as_str().starts_with(name);
    match state.world().live_instances().find(is_other) {
        Some((_, live)) if run.as_str() != name => {
            let message = format!("`{name}` may be `{run}`, which is stopped, or `{}`", live.run);
            Err(usage(message, "name one of them in full: what is on its disk is deleted"))
        }
        _ => Ok(()),
    }
}

/// Plans, asks and starts a stopped machine again, as a run of its own.
///
/// # Errors
/// [`Error`].
pub fn start_machine(args: &StartArgs, settings: &GlobalSettings, printer: &mut Printer) -> Result<u8, Error> {
    let home = Home::open(&settings.home)?;
    let Some(machine) = find(stopped(&home)?, &args.machine)? else {
        let hint = "`gradus machines list` shows those that are, and `gradus machines up` rents one";
        return Err(usage(format!("no machine `{}` is stopped", args.machine), hint));
    };
    let mut state = State::open_lean(&home)?;
    if let Some(run) = starting(&state, &machine) {
        return Err(usage(format!("run `{run}` starts it already"), "`gradus machines list` shows when it is up"));
    }
    settle(&home, &mut state)?;
    charge(&machine, &home, &mut state)?;
    let (job, plan, file) = again(of_run(&state, &machine)?, &machine, (args.budget, args.time))?;
    let name = job.name.clone();
    drop(state);
    let code = start_run(job, plan, &file, &StartOptions::detached(args.yes), settings, &home, printer)?;
    if code == exit::DONE && !printer.is_json() {
        printer.data(format!("enter    gradus machines ssh {name}"));
    }
    Ok(code)
}

/// The job, the plan and the file with which a stopped machine is started again; without another budget within what is left of
/// the one that it had.
pub fn again(
    run: &Run,
    machine: &KeptMachine,
    (budget, time): (Option<Money>, Option<Duration>),
) -> Result<(Job, Plan, String), Error> {
    let mut job = run.job.clone();
    let spent = run.bill.as_ref().map_or(Money::default(), |bill| bill.total) + run.adjusted();
    let left = job.budget.map(|budget| budget.max - spent);
    if budget.is_none() && left.is_some_and(|left| left.micros() <= 0) {
        let message = format!("the budget of `{}` is used up: {spent} was spent", machine.run());
        return Err(usage(message, "start it with `--budget AMOUNT`, or give it back with `gradus machines down`"));
    }
    if let Some(max) = budget.or(left) {
        job.budget = Some(Budget { max, ..job.budget.unwrap_or_default() });
    }
    job.deadline = time.or(job.deadline);
    let mut plan = run.plan.clone();
    plan.reserve = job.budget.map_or(plan.reserve, |budget| budget.max);
    plan.offer = Offer { kind: start_kind(&machine.offer.kind, &machine.handle), ..machine.offer.clone() };
    plan.alternatives = Vec::new();
    Ok((job, plan, run.file.clone()))
}

/// The run that is to start a stopped machine and has not ended.
pub fn starting<'a>(state: &'a State, machine: &KeptMachine) -> Option<&'a domain::RunId> {
    let kind = start_kind(&machine.offer.kind, &machine.handle);
    let mut runs = state.world().runs.iter();
    runs.find(|(_, run)| !run.state.is_final() && run.plan.offer.kind == kind).map(|(id, _)| id)
}

#[cfg(test)]
mod tests {
    use domain::RunId;
    use domain::rental::MachineHandle;
    use domain::run::InstanceState;
    use domain::volume::DiskTier;

    use super::*;

    fn instance(provider: &str, kind: &str) -> Instance {
        let (node, rate) = (Node::default(), "1/h".parse().unwrap());
        let offer = Offer { provider: provider.into(), kind: kind.into(), node, rate, price_source: String::new() };
        Instance {
            run: RunId::new("box-1"),
            token: "t".into(),
            offer,
            reserved: Money::default(),
            intended: Timestamp(0),
            handle: Some(MachineHandle("i-1".into())),
            account: None,
            doubles: Default::default(),
            is_accepted: true,
            was_refused: false,
            started: None,
            reclaim: None,
            lost_race: false,
            first: None,
            incarnation: 0,
            machine: None,
            before: Default::default(),
            state: InstanceState::Up,
        }
    }

    fn kept(provider: &str, kind: &str) -> Result<KeptMachine, Error> {
        let (id, catalog) = (InstanceId::new("box-1-i1"), Catalog::embedded().unwrap());
        keep((&id, &instance(provider, kind)), &catalog, Timestamp(7))
    }

    #[test]
    fn what_cannot_be_stopped_says_so_by_name() {
        let check = |provider: &str, kind: &str, expected: &str| {
            let said = kept(provider, kind).unwrap_err().to_string();
            assert!(said.contains("`box-1-i1` cannot be stopped") && said.contains(expected), "{said}");
        };
        check("lambda", "us-east-1/gpu_1x_a10", "Lambda");
        check("gcp", "us-central1/a2-highgpu-1g/spot", "spot");
        check("azure", "eastus/Standard_NC4as_T4_v3/spot", "spot");
        check("alibaba", "cn-beijing/ecs.gn6i-c4g1.xlarge/spot", "spot");
        check("alibaba", "cn-beijing/ecs.gn5-c4g1.xlarge", "bills machines with local disks while they are stopped");
        check("tencent", "ap-guangzhou/GN7.2XLARGE32/spot", "spot");
        check("vultr", "ewr/x", "`vultr`");
        check("ssh", "node", "not rented");
        check("aws", "us-east-1/g4dn.xlarge/spot", "spot");
    }

    #[test]
    fn machines_of_other_clouds_are_stopped_too() {
        let all = [
            ("gcp", "us-central1/a2-highgpu-1g"),
            ("azure", "eastus/Standard_NC4as_T4_v3"),
            ("alibaba", "cn-hangzhou/cn-hangzhou-h/ecs.gn6i-c4g1.xlarge"),
            ("tencent", "ap-guangzhou/GN7.2XLARGE32"),
        ];
        for (provider, kind) in all {
            let machine = kept(provider, kind).unwrap();
            assert_eq!((machine.offer.kind.as_str(), machine.stopped()), (kind, Some(Timestamp(7))));
            assert!(machine.disk.micros_per_hour() > 0, "{provider} has a price of disks");
        }
    }

    #[test]
    fn a_stopped_machine_costs_its_disk_and_has_the_kind_that_was_rented() {
        for kind in ["us-east-1/g4dn.xlarge", "us-east-1/g4dn.xlarge@i-1"] {
            let machine = kept("aws", kind).unwrap();
            assert_eq!((machine.offer.kind.as_str(), machine.stopped()), ("us-east-1/g4dn.xlarge", Some(Timestamp(7))));
            // 40 GiB for the system at $0.08 a month.
            assert_eq!(machine.disk.to_string(), "$0.004384/h");
            assert_eq!(crate::local::disks::owed(&machine, Timestamp(7 + 10 * 3_600_000_000)).to_string(), "$0.04384");
        }
        // The speed that was provisioned is paid for while it is off: 4,000 IOPS at $0.005 and 312 MiB/s at $0.04 more.
        let mut fast = instance("aws", "us-east-1/g4dn.xlarge");
        fast.offer.node.volume = Some(DiskTier::High.volume());
        let machine = keep((&InstanceId::new("box-1-i1"), &fast), &Catalog::embedded().unwrap(), Timestamp(7)).unwrap();
        assert_eq!(machine.disk.to_string(), "$0.048877/h");
        let machines = || vec![kept("aws", "us-east-1/g4dn.xlarge").unwrap()];
        assert!(find(machines(), "box").unwrap().is_some() && find(machines(), "other").unwrap().is_none());
        assert!(find(machines(), "").unwrap().is_none());
        let two = || [machines(), machines()].concat();
        assert!(find(two(), "box").is_err(), "it may be either");
    }
}
