//! Support of SkyPilot's task keys, and why unsupported ones are refused. One table for the parser and for
//! `docs/job-file.md`; a key in it is never silently ignored.

/// One of SkyPilot's keys.
#[derive(Debug, Clone, Copy)]
pub struct SkyKey {
    /// Key path, such as `resources.cpus`.
    pub path: &'static str,
    /// What becomes of it.
    pub served: SkySupport,
}

/// What becomes of one of SkyPilot's keys.
#[derive(Debug, Clone, Copy)]
pub enum SkySupport {
    /// Supported; documented at its type.
    Yes,
    /// Accepted for plans over the market; `gradus run` refuses all values but these.
    Planned {
        /// The accepted values.
        words: &'static [&'static str],
        /// Why `gradus run` refuses the others: lower case, no full stop.
        why: &'static str,
        /// The hint.
        hint: &'static str,
    },
    /// Accepted with a warning: a run computes the same without it, or it is done in another way.
    Noted {
        /// Why it changes nothing: lower case, no full stop.
        why: &'static str,
        /// The hint.
        hint: &'static str,
    },
    /// Refused, unless it is empty.
    No {
        /// Why: lower case, no full stop.
        why: &'static str,
        /// The hint.
        hint: &'static str,
    },
}

const fn yes(path: &'static str) -> SkyKey {
    SkyKey { path, served: SkySupport::Yes }
}

const fn planned(path: &'static str, words: &'static [&'static str], why: &'static str, hint: &'static str) -> SkyKey {
    SkyKey { path, served: SkySupport::Planned { words, why, hint } }
}

const fn noted(path: &'static str, why: &'static str, hint: &'static str) -> SkyKey {
    SkyKey { path, served: SkySupport::Noted { why, hint } }
}

const fn no(path: &'static str, why: &'static str, hint: &'static str) -> SkyKey {
    SkyKey { path, served: SkySupport::No { why, hint } }
}

const ONE_MACHINE: &str = "only this machine, those of `gradus nodes` and machines of AWS, Lambda, Google, Azure, Alibaba and Tencent can be used yet";
const LEAVE_OUT: &str = "leave the key out";
const NO_GPU: &str = "GPUs can be requested only on a cloud or on nodes, and the job names none that can be used";
const NAME_CLOUD: &str =
    "add a cloud, such as `infra: aws`, or `infra: ssh` for nodes, or leave it out to use this machine as it is";
const NO_SPOT: &str = "spot machines can be asked for only from a cloud, and the job names none that can be rented";
const NAME_CLOUD_OR_NO_SPOT: &str = "add a cloud, such as `infra: aws`, or write `spot: never`, or leave it out";
const NO_LIMIT: &str =
    "a limit on the hourly price is for machines of clouds, and the job names none that can be rented";
const BUDGET: &str = "write `budget: {max: $10}` for the whole run, or add `infra: aws`";
const MACHINES: &str = "a run on several machines needs nodes that are reached over SSH, or machines of AWS";
const ONE_CHOICE: &str =
    "kinds of GPUs are joined; of other choices one is taken, because a job has one set of resources";
const PLAN_COMPARES: &str = "`gradus plan JOB --catalog` compares all machines that would do";
const CLONED: &str = "the repository is cloned by `setup` at the beginning of each attempt";
const NO_STORE: &str = "volumes and stores that stay mounted are not supported yet";
const COPY: &str = "copy what the program reads with `file_mounts`, and keep what it writes with `outputs`";

/// All of SkyPilot's keys, in the order of its reference.
pub const SKY_KEYS: &[SkyKey] = &[
    yes("name"),
    yes("workdir"),
    noted("workdir.url", CLONED, "the machine needs git and access to it"),
    noted("workdir.ref", CLONED, "the machine needs git and access to it"),
    planned(
        "num_nodes",
        &["1"],
        MACHINES,
        "write `infra: aws`, `infra: ssh` after `gradus nodes add`, or `num_nodes: 1`",
    ),
    yes("resources"),
    planned(
        "resources.infra",
        &[
            "local", "ssh", "ssh/", "aws", "aws/", "lambda", "lambda/", "gcp", "gcp/", "azure", "azure/", "alibaba",
            "alibaba/", "tencent", "tencent/",
        ],
        ONE_MACHINE,
        "write `infra: local`, `infra: aws`, or `infra: ssh` after `gradus nodes add`, or leave it out",
    ),
    planned("resources.accelerators", &[], NO_GPU, NAME_CLOUD),
    no("resources.accelerator_args", "TPUs and their arguments are not supported", LEAVE_OUT),
    yes("resources.cpus"),
    yes("resources.memory"),
    planned(
        "resources.instance_type",
        &[],
        "types of instances belong to a cloud, and the job names none that can be rented",
        "add `infra: aws`, or state what the machine needs with `cpus`, `memory` and `disk_size`",
    ),
    planned("resources.use_spot", &["false"], NO_SPOT, NAME_CLOUD_OR_NO_SPOT),
    yes("resources.disk_size"),
    yes("resources.disk_tier"),
    noted("resources.network_tier", "the kind of network cannot be chosen yet", LEAVE_OUT),
    no("resources.local_disk", "disks inside the machine cannot be chosen yet", LEAVE_OUT),
    no("resources.ephemeral_storage", "it is SkyPilot's old name for `disk_size`", "write `disk_size`"),
    planned("resources.max_hourly_cost", &[], NO_LIMIT, BUDGET),
    noted("resources.ports", "no port is opened to the network", "reach one with `gradus forward RUN PORT`"),
    yes("resources.image_id"),
    noted("resources.labels", "labels are not supported yet", LEAVE_OUT),
    noted(
        "resources.autostop",
        "a machine is released when its run ends, or goes to a run that waits",
        "leave it out, or write `idle_timeout: 10m` to stop a run whose program is idle",
    ),
    no("resources.hooks", "hooks are not supported yet", LEAVE_OUT),
    noted("resources.priority", "runs start in order of submission", LEAVE_OUT),
    noted("resources.priority_class", "runs start in order of submission", LEAVE_OUT),
    yes("resources.job_recovery"),
    noted(
        "resources.job_recovery.strategy",
        "there is one way to recover: from the newest checkpoint, on the same machine or another node",
        "leave the key out",
    ),
    yes("resources.job_recovery.max_restarts_on_errors"),
    yes("resources.job_recovery.recover_on_exit_codes"),
    noted(
        "resources.spot_recovery",
        "it is SkyPilot's old name for `job_recovery`, whose strategy cannot be chosen",
        LEAVE_OUT,
    ),
    noted("resources.any_of", ONE_CHOICE, PLAN_COMPARES),
    noted("resources.ordered", ONE_CHOICE, PLAN_COMPARES),
    no("resources.volumes", NO_STORE, COPY),
    planned(
        "resources.cloud",
        &[],
        ONE_MACHINE,
        "write `aws`, `lambda`, `gcp`, `azure`, `alibaba` or `tencent`, or leave it out",
    ),
    planned(
        "resources.region",
        &[],
        "regions belong to a cloud, and the job names none that can be rented",
        "write it behind the cloud, such as `infra: aws/us-east-1`, or leave it out",
    ),
    no(
        "resources.zone",
        "a zone is named with its cloud and region",
        "write `infra: aws/us-east-1/us-east-1a` or the like",
    ),
    yes("envs"),
    yes("secrets"),
    yes("file_mounts"),
    no("volumes", NO_STORE, COPY),
    yes("setup"),
    yes("run"),
    no("service", "services are not supported; a job runs to its end", "write the program under `run:`"),
    no("pool", "pools are not supported yet", LEAVE_OUT),
    noted("config", "SkyPilot's own configuration has no meaning here", LEAVE_OUT),
    noted("experimental", "SkyPilot's own configuration has no meaning here", LEAVE_OUT),
    no("event_callback", "callbacks are not supported yet", LEAVE_OUT),
    no("inputs", NO_STORE, COPY),
    yes("outputs"),
    no("execution", "several jobs in one file are not supported yet", "keep one job in one file"),
];

/// Our own keys among SkyPilot's that only a plan can serve yet.
pub(super) const OUR_PLANNED: &[SkyKey] = &[
    planned(
        "resources.compliance",
        &[],
        "certificates are those of a cloud's data centers, and the job names no cloud that can be rented",
        "add `infra: aws` or the like, or leave it out",
    ),
    planned("resources.spot", &["auto", "never"], NO_SPOT, NAME_CLOUD_OR_NO_SPOT),
    planned("resources.max_price", &[], NO_LIMIT, BUDGET),
    planned("resources.dedicated", &["false"], "dedicated machines cannot be rented yet", LEAVE_OUT),
    planned(
        "resources.nodes",
        &["1"],
        MACHINES,
        "write `infra: ssh` and one number, such as `nodes: 2`, or leave it out",
    ),
    planned("resources.max_carbon", &[], "what this machine emits is not known", LEAVE_OUT),
];

/// Keys that renting fulfils: `gradus run` takes them if the job names a cloud that can be rented.
pub const RENTED: &[&str] = &[
    "resources.infra",
    "resources.cloud",
    "resources.region",
    "resources.accelerators",
    "resources.instance_type",
    "resources.use_spot",
    "resources.spot",
    "resources.max_price",
    "resources.max_hourly_cost",
    "resources.compliance",
];

/// The support of the key at `path`, if SkyPilot has it.
pub(super) fn served(path: &str) -> Option<SkySupport> {
    SKY_KEYS.iter().chain(OUR_PLANNED).find(|key| key.path == path).map(|key| key.served)
}
