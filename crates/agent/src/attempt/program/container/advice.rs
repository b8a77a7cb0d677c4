//! What to do about what podman or docker has said: a pure function of its words.

use domain::ContainerImage;

/// What a runtime says, in lower case, and what to do about it.
const KNOWN: [(&[&str], &str); 10] = [
    (
        &["nvidia.com/gpu", "could not select device driver"],
        "install NVIDIA's container toolkit on the machine; for podman, also run \
         `sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml` there",
    ),
    (
        &["catatonit", "container-init", "docker-init"],
        "install `catatonit` for podman, or `docker-init` for docker, which `run --init` needs",
    ),
    (
        &["newuidmap", "subuid"],
        "install `uidmap` on the machine and give its user numbers in `/etc/subuid` and `/etc/subgid`",
    ),
    (&["\"bash\": executable file", "executable file `bash`"], "choose an image that has `bash`"),
    (
        &["cgroup controller"],
        "leave `enforce` out, or let systemd pass the controllers `cpu` and `memory` on to users (`Delegate=`)",
    ),
    (
        &["setting rlimit", "setrlimit"],
        "set limits that its user may set, such as `default_ulimits = [\"nofile=1024:1024\", \"nproc=4096:4096\"]` under \
         `[containers]` of `/etc/containers/containers.conf` on the machine",
    ),
    (
        &["cgroups in hybrid mode not supported"],
        "install `runc`, and set `runtime = \"runc\"` under `[engine]` of `/etc/containers/containers.conf` on the machine",
    ),
    (
        &["systemd not running", "systemd cgroup flag passed"],
        "set `cgroup_manager = \"cgroupfs\"` under `[engine]` of `/etc/containers/containers.conf` on the machine",
    ),
    (&["/dev/mqueue"], "type `sudo mkdir -p /dev/mqueue && sudo mount -t mqueue mqueue /dev/mqueue` on the machine"),
    (
        &["permission denied while trying to connect", "the docker daemon", "the docker api"],
        "start docker on the machine, and add the user there to the group `docker`; or install podman",
    ),
];

/// What to do about what a runtime of this name has said while it was `doing` something: `pull` or `run`.
pub fn advice(said: &str, doing: &str, name: &str, image: &ContainerImage) -> String {
    let said = said.to_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| said.contains(word));
    if let Some((_, hint)) = KNOWN.iter().find(|(words, _)| says(words)) {
        return (*hint).to_owned();
    }
    let at = image.qualified();
    if doing == "run" {
        return format!(
            "try `{name} run --rm --entrypoint bash {at} -c true` on the machine; the run's log has all that it says"
        );
    }
    if at.starts_with("localhost/") {
        return format!(
            "the machine has no such image for this user: make it there with `{name} build --tag {at} FOLDER` or `{name} load`"
        );
    }
    if says(&["unauthorized", "access denied", "resource is denied", "manifest unknown", "not found"]) {
        return format!(
            "check the name, and for a private registry log in on the machine with `{name} login`; try `{name} pull {at}` there"
        );
    }
    format!("try `{name} pull {at}` on the machine; the run's log has all that it says")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_runtime_says_leads_to_what_to_do() {
        let image: ContainerImage = "docker:a/b".parse().unwrap();
        for (said, expected) in [
            ("Error: setting up CDI devices: unresolvable CDI devices nvidia.com/gpu=all", "nvidia-ctk cdi generate"),
            ("could not select device driver \"\" with capabilities: [[gpu]]", "container toolkit"),
            ("Error: looking up container-init binary: exec: \"catatonit\": not found", "install `catatonit`"),
            ("permission denied while trying to connect to the Docker daemon socket", "group `docker`"),
            ("failed to connect to the docker API at unix:///var/run/docker.sock", "start docker"),
            ("exec: \"bash\": executable file not found in $PATH: unknown", "an image that has `bash`"),
            ("crun: executable file `bash` not found in $PATH: No such file or directory", "an image that has `bash`"),
            ("cannot find newuidmap: exec: \"newuidmap\": executable file not found in $PATH", "install `uidmap`"),
            ("crun: the requested cgroup controller `cpu` is not available", "leave `enforce` out"),
            ("pull access denied for a/b, repository does not exist", "docker login"),
            ("requested access to the resource is denied", "docker login"),
            ("mkdir /x: permission denied", "try `docker pull docker.io/a/b`"),
            ("i/o timeout", "try `docker pull docker.io/a/b`"),
        ] {
            let found = advice(said, "pull", "docker", &image);
            assert!(found.contains(expected), "{said}: {found}");
        }
        let local: ContainerImage = "docker:localhost/mine:1".parse().unwrap();
        let refused = "pinging container registry localhost: dial tcp 127.0.0.1:443: connect: connection refused";
        for (said, doing, expected) in [
            (refused, "pull", "`podman build --tag localhost/mine:1 FOLDER`"),
            ("something new", "run", "try `podman run --rm --entrypoint bash localhost/mine:1 -c true`"),
            ("runc create failed: error setting rlimit type 7: operation not permitted", "run", "default_ulimits"),
            ("setrlimit `RLIMIT_NOFILE`: Operation not permitted", "run", "default_ulimits"),
            ("crun: cgroups in hybrid mode not supported, drop all controllers", "run", "`runtime = \"runc\"`"),
            ("systemd not running on this host, cannot use systemd cgroups manager", "run", "\"cgroupfs\""),
            ("statfs /dev/mqueue: no such file or directory", "run", "mount -t mqueue"),
        ] {
            let found = advice(said, doing, "podman", &local);
            assert!(found.contains(expected), "{said}: {found}");
        }
    }
}
