//! What to do about what podman or docker has said: a pure function of its words.

use domain::ContainerImage;

/// What a runtime says, in lower case, and what to do about it.
const KNOWN: [(&[&str], &str); 6] = [
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
        &["permission denied while trying to connect", "the docker daemon", "the docker api"],
        "start docker on the machine, and add the user there to the group `docker`; or install podman",
    ),
];

/// What to do about what a runtime has said.
pub fn advice(said: &str, name: &str, image: &ContainerImage) -> String {
    let said = said.to_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| said.contains(word));
    if let Some((_, hint)) = KNOWN.iter().find(|(words, _)| says(words)) {
        return (*hint).to_owned();
    }
    let at = image.qualified();
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
            let found = advice(said, "docker", &image);
            assert!(found.contains(expected), "{said}: {found}");
        }
    }
}
