//! The command lines of podman and docker: pure functions of what is wanted.
//!
//! Everything that a program finds has the same path in the container as on the machine, so that links, variables and error
//! messages mean the same on both sides. Values of variables are taken from the runtime's own environment, where other
//! users do not see them.

use node::containers::ContainerEngine;

/// The variables that say which processes are whose; the container's have them as well.
const TAGS: [&str; 3] = [node::processes::OWNER, node::processes::INSTANCE, crate::tools::ATTEMPT];

/// Who a container's processes are. Whatever they write is the agent's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContainerUser {
    /// The image's root, which may install packages. On the machine it is the user of the agent.
    Root,
    /// The user of the agent, by number: the runtime's root is the machine's.
    Same {
        /// The user.
        uid: u32,
        /// Its group.
        gid: u32,
    },
}

impl ContainerUser {
    /// Who they are under a runtime, without root or with it, for an agent of this user.
    pub fn of(is_rootless: bool, uid: u32, gid: u32) -> ContainerUser {
        if is_rootless || uid == 0 { ContainerUser::Root } else { ContainerUser::Same { uid, gid } }
    }
}

/// A file or folder of the machine, and where it is in the container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BindMount {
    /// On the machine.
    pub source: String,
    /// In the container.
    pub target: String,
    /// Whether it may be written to.
    pub is_writable: bool,
}

/// What a container is started with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerSpec {
    /// The kind of runtime.
    pub engine: ContainerEngine,
    /// The container's name.
    pub name: String,
    /// The image, with its registry.
    pub image: String,
    /// Who its processes are.
    pub user: ContainerUser,
    /// The home folder of that user in it.
    pub home: String,
    /// A folder that outlives attempts, for caches of pip and others.
    pub caches: String,
    /// What it sees of the machine.
    pub mounts: Vec<BindMount>,
    /// Whether it gets the machine's NVIDIA GPUs.
    pub has_gpus: bool,
    /// The most memory in bytes, and cores.
    pub limits: (Option<u64>, Option<u32>),
    /// The script that holds it open, and its arguments.
    pub held_by: Vec<String>,
}

/// The arguments that start a container, which then waits.
///
/// # Errors
/// The path that no runtime can mount.
pub fn run_line(spec: &ContainerSpec) -> Result<Vec<String>, String> {
    let mut line = words("run --detach --rm --init --network host --ipc host --security-opt label=disable");
    line.extend(["--name".to_owned(), spec.name.clone(), "--user".to_owned()]);
    line.push(match spec.user {
        ContainerUser::Root => "0:0".to_owned(),
        ContainerUser::Same { uid, gid } => format!("{uid}:{gid}"),
    });
    if spec.has_gpus {
        line.extend(words(match spec.engine {
            ContainerEngine::Podman => "--device nvidia.com/gpu=all",
            ContainerEngine::Docker => "--gpus all",
        }));
    }
    let (memory, cores) = spec.limits;
    line.extend(memory.into_iter().flat_map(|bytes| ["--memory".to_owned(), format!("{bytes}b")]));
    line.extend(cores.into_iter().flat_map(|cores| ["--cpus".to_owned(), cores.to_string()]));
    // The attempt's own tag is that of the scripts: what holds the container open is not a part of the program.
    for tag in &TAGS[..2] {
        line.extend(["--env".to_owned(), (*tag).to_owned()]);
    }
    for (name, value) in [("HOME", &spec.home), ("XDG_CACHE_HOME", &spec.caches)] {
        line.extend(["--env".to_owned(), format!("{name}={value}")]);
    }
    for mount in &spec.mounts {
        line.extend(["--mount".to_owned(), bind(mount)?]);
    }
    // An image's own entry point would run first, and may end without a program.
    line.extend(["--entrypoint".to_owned(), "bash".to_owned(), spec.image.clone()]);
    line.extend(spec.held_by.iter().cloned());
    Ok(line)
}

/// The arguments that run `command` in a container that waits, in the folder `workdir`, with `variables`, whose values the
/// runtime is started with.
///
/// # Errors
/// A secret whose name means something to the runtime itself.
pub fn exec_line(
    name: &str,
    workdir: &str,
    variables: &[(String, String)],
    is_secret: impl Fn(&str) -> bool,
    command: &[String],
) -> Result<Vec<String>, String> {
    let mut line = words("exec --workdir");
    line.push(workdir.to_owned());
    for (variable, value) in variables.iter().filter(|(variable, _)| !TAGS.contains(&variable.as_str())) {
        let of_runtime = means_something(variable);
        if of_runtime && is_secret(variable) {
            return Err(variable.clone());
        }
        line.push("--env".to_owned());
        line.push(if of_runtime { format!("{variable}={value}") } else { variable.clone() });
    }
    for tag in TAGS {
        line.extend(["--env".to_owned(), tag.to_owned()]);
    }
    line.push(name.to_owned());
    line.extend(command.iter().cloned());
    Ok(line)
}

/// Whether podman, docker or what they are linked with would act on a variable of this name, so that it cannot be put into
/// their environment.
pub fn means_something(variable: &str) -> bool {
    const NAMES: [&str; 9] =
        ["PATH", "HOME", "USER", "TMPDIR", "SHELL", "REGISTRY_AUTH_FILE", "SSL_CERT_FILE", "SSL_CERT_DIR", "GODEBUG"];
    const BEGINNINGS: [&str; 10] = [
        "LD_",
        "XDG_",
        "DBUS_",
        "DOCKER_",
        "CONTAINER_",
        "CONTAINERS_",
        "_CONTAINERS_",
        "PODMAN_",
        "STORAGE_",
        "NOTIFY_",
    ];
    NAMES.contains(&variable) || BEGINNINGS.iter().any(|beginning| variable.starts_with(beginning))
}

/// The name of a container, or of a control group: of the run and the attempt, in letters that each runtime takes, and a
/// mark of the owner, for several may have a run of the same name on one machine.
pub fn container_name(attempt: &str, owner: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.');
    // FNV-1a.
    let add = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(16_777_619);
    let mark = owner.bytes().fold(2_166_136_261, add);
    format!("gradus-{}-{mark:08x}", attempt.replace(|letter: char| !is_plain(letter), "-"))
}

/// Where a place on the machine is in a container: `~` is the home of the user there.
pub fn place_inside(place: &str, home: Option<&str>, home_inside: &str) -> String {
    let below = home.and_then(|home| place.strip_prefix(home)).filter(|below| below.starts_with('/'));
    below.map_or_else(|| place.to_owned(), |below| format!("{home_inside}{below}"))
}

fn bind(mount: &BindMount) -> Result<String, String> {
    for path in [&mount.source, &mount.target] {
        // The option is read as a line of CSV.
        if path.contains([',', '"', '\n']) {
            return Err(path.clone());
        }
    }
    let end = if mount.is_writable { "" } else { ",readonly" };
    Ok(format!("type=bind,source={},target={}{end}", mount.source, mount.target))
}

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(engine: ContainerEngine) -> ContainerSpec {
        let mount = |source: &str, target: &str, is_writable| BindMount {
            source: source.into(),
            target: target.into(),
            is_writable,
        };
        ContainerSpec {
            engine,
            name: "gradus-a-1-a2".into(),
            image: "docker.io/library/ubuntu:24.04".into(),
            user: ContainerUser::Root,
            home: "/root".into(),
            caches: "/h/cache/container".into(),
            mounts: vec![mount("/h/runs/a b", "/h/runs/a b", true), mount("/home/me/.netrc", "/root/.netrc", false)],
            has_gpus: false,
            limits: (None, None),
            held_by: vec!["/h/hold.sh".into(), "/h".into()],
        }
    }

    #[test]
    fn a_container_waits_and_sees_what_it_should_at_the_same_paths() {
        let line = run_line(&spec(ContainerEngine::Podman)).unwrap();
        assert_eq!(
            line.join(" "),
            "run --detach --rm --init --network host --ipc host --security-opt label=disable --name gradus-a-1-a2 \
             --user 0:0 --env GRADUS_OWNER --env GRADUS_INSTANCE --env HOME=/root \
             --env XDG_CACHE_HOME=/h/cache/container \
             --mount type=bind,source=/h/runs/a b,target=/h/runs/a b \
             --mount type=bind,source=/home/me/.netrc,target=/root/.netrc,readonly \
             --entrypoint bash docker.io/library/ubuntu:24.04 /h/hold.sh /h"
        );
        assert!(line.contains(&"type=bind,source=/h/runs/a b,target=/h/runs/a b".to_owned()), "one argument");
    }

    #[test]
    fn gpus_and_limits_are_asked_for_as_each_runtime_wants() {
        let line = |engine| {
            let spec = ContainerSpec { has_gpus: true, limits: (Some(8_000_000_000), Some(4)), ..spec(engine) };
            run_line(&spec).unwrap().join(" ")
        };
        let limits = "--memory 8000000000b --cpus 4";
        assert!(line(ContainerEngine::Podman).contains(&format!("--device nvidia.com/gpu=all {limits}")));
        assert!(line(ContainerEngine::Docker).contains(&format!("--gpus all {limits}")));
    }

    #[test]
    fn what_is_written_belongs_to_the_user_of_the_agent() {
        assert_eq!(ContainerUser::of(true, 1000, 1001), ContainerUser::Root);
        assert_eq!(ContainerUser::of(false, 0, 0), ContainerUser::Root);
        let same = ContainerUser::of(false, 1000, 1001);
        assert_eq!(same, ContainerUser::Same { uid: 1000, gid: 1001 });
        let line = run_line(&ContainerSpec { user: same, ..spec(ContainerEngine::Docker) }).unwrap();
        assert!(line.join(" ").contains("--user 1000:1001 "));
    }

    #[test]
    fn a_path_that_would_end_an_option_is_refused() {
        for path in ["/a,readonly=false", "/a\"b", "/a\nb"] {
            let mount = BindMount { source: path.into(), target: "/x".into(), is_writable: true };
            let found = run_line(&ContainerSpec { mounts: vec![mount], ..spec(ContainerEngine::Docker) });
            assert_eq!(found, Err(path.to_owned()));
        }
    }

    /// The arguments before the container's name, for one variable.
    fn exec(variable: &str, secret: &str) -> Result<String, String> {
        let variables = [(variable.to_owned(), "va lue".to_owned())];
        let line = exec_line("c", "/w", &variables, |name| name == secret, &["bash".into(), "/s".into()])?;
        let end = line.iter().position(|word| word == "c").unwrap();
        assert_eq!(line[end..], ["c", "bash", "/s"]);
        Ok(line[..end].join(" "))
    }

    #[test]
    fn values_are_in_no_command_line_but_for_what_the_runtime_reads_itself() {
        let tags = "--env GRADUS_OWNER --env GRADUS_INSTANCE --env GRADUS_ATTEMPT";
        assert_eq!(exec("TOKEN", "TOKEN").unwrap(), format!("exec --workdir /w --env TOKEN {tags}"));
        assert_eq!(exec("MASTER_ADDR", "").unwrap(), format!("exec --workdir /w --env MASTER_ADDR {tags}"));
        assert_eq!(exec("PATH", "").unwrap(), format!("exec --workdir /w --env PATH=va lue {tags}"));
        for name in ["LD_PRELOAD", "DOCKER_HOST", "XDG_RUNTIME_DIR", "HOME", "CONTAINER_HOST", "STORAGE_DRIVER"] {
            assert!(exec(name, "").unwrap().contains(&format!("--env {name}=va lue")), "{name}");
            assert_eq!(exec(name, name), Err(name.to_owned()));
        }
        // A job cannot take its processes out of their instance.
        assert_eq!(exec("GRADUS_INSTANCE", "").unwrap(), format!("exec --workdir /w {tags}"));
    }

    #[test]
    fn names_and_places() {
        assert_eq!(container_name("digits-1-a12", ""), "gradus-digits-1-a12-811c9dc5");
        assert_eq!(container_name("a b/ü", "a"), "gradus-a-b---e40c292c");
        assert_ne!(container_name("a", "one"), container_name("a", "other"), "each owner has its own");
        for (place, home, expected) in [
            ("/home/me/.netrc", Some("/home/me"), "/root/.netrc"),
            ("/home/merle/x", Some("/home/me"), "/home/merle/x"),
            ("/data", Some("/home/me"), "/data"),
            ("/data", None, "/data"),
        ] {
            assert_eq!(place_inside(place, home, "/root"), expected, "{place}");
        }
    }
}
