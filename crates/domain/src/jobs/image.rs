//! The container image that a program runs in.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// What stands before the name of an image in a job file.
const SCHEME: &str = "docker:";

/// The registry of names without one, which podman does not look up by itself.
const USUAL_REGISTRY: &str = "docker.io";

/// A container image, as `podman pull` and `docker pull` take it: `[HOST[:PORT]/]PATH[:TAG][@sha256:DIGEST]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ContainerImage(String);

impl ContainerImage {
    /// Its name with the registry, as both runtimes understand it.
    pub fn qualified(&self) -> String {
        match self.0.split_once('/') {
            Some((first, _)) if is_host(first) => self.0.clone(),
            Some(_) => format!("{USUAL_REGISTRY}/{}", self.0),
            None => format!("{USUAL_REGISTRY}/library/{}", self.0),
        }
    }
}

/// Whether what stands before the first `/` is a registry and no folder of the usual one.
fn is_host(first: &str) -> bool {
    first == "localhost" || first.contains(['.', ':'])
}

impl fmt::Display for ContainerImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}", self.0)
    }
}

impl From<ContainerImage> for String {
    fn from(image: ContainerImage) -> String {
        image.to_string()
    }
}

impl TryFrom<String> for ContainerImage {
    type Error = String;

    fn try_from(text: String) -> Result<ContainerImage, String> {
        text.parse()
    }
}

impl FromStr for ContainerImage {
    type Err = String;

    /// Why it is no image: lower case, no full stop.
    fn from_str(text: &str) -> Result<ContainerImage, String> {
        let Some(name) = text.trim().strip_prefix(SCHEME) else {
            return Err(format!("`{text}` does not begin with `{SCHEME}`, and images of machines cannot be chosen"));
        };
        let wrong = || format!("`{name}` is not the name of a container image");
        let (rest, digest) = name.split_once('@').map_or((name, None), |(rest, digest)| (rest, Some(digest)));
        let is_hex = |hex: &str| hex.len() == 64 && hex.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        if digest.is_some_and(|digest| !digest.strip_prefix("sha256:").is_some_and(is_hex)) {
            return Err(format!("`{name}` has a digest that is not `sha256:` and 64 digits"));
        }
        let (host, path) = match rest.split_once('/') {
            Some((first, path)) if is_host(first) => (Some(first), path),
            _ => (None, rest),
        };
        let (path, tag) = path.split_once(':').map_or((path, None), |(path, tag)| (path, Some(tag)));
        let is_right = host.is_none_or(is_address)
            && path.split('/').all(is_component)
            && tag.is_none_or(is_tag)
            && name.len() <= 512;
        if is_right { Ok(ContainerImage(name.to_owned())) } else { Err(wrong()) }
    }
}

fn is_address(host: &str) -> bool {
    let (name, port) = host.split_once(':').map_or((host, None), |(name, port)| (name, Some(port)));
    let is_label = |label: &str| {
        let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        !label.is_empty() && !label.starts_with('-') && label.bytes().all(is_letter)
    };
    name.split('.').all(is_label) && port.is_none_or(|port| port.parse::<u16>().is_ok())
}

/// Lower-case letters and digits, with separators between them.
fn is_component(part: &str) -> bool {
    let is_inner = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'-');
    let is_end = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let bytes = part.as_bytes();
    is_end(bytes.first()) && is_end(bytes.last()) && part.bytes().all(is_inner)
}

fn is_tag(tag: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
    (1..=128).contains(&tag.len()) && !tag.starts_with(['.', '-']) && tag.bytes().all(is_letter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_images_are_read_as_registries_do() {
        let digest = format!("sha256:{}", "0a".repeat(32));
        for (text, expected) in [
            ("docker:ubuntu", "docker.io/library/ubuntu"),
            ("docker:ubuntu:24.04", "docker.io/library/ubuntu:24.04"),
            (
                " docker:pytorch/pytorch:2.11.0-cuda12.8-cudnn9-runtime",
                "docker.io/pytorch/pytorch:2.11.0-cuda12.8-cudnn9-runtime",
            ),
            ("docker:nvcr.io/nvidia/pytorch:25.01-py3", "nvcr.io/nvidia/pytorch:25.01-py3"),
            ("docker:localhost/mine", "localhost/mine"),
            ("docker:registry:5000/a/b_c:V1", "registry:5000/a/b_c:V1"),
            (&format!("docker:a/b@{digest}"), &format!("docker.io/a/b@{digest}")),
            (&format!("docker:ghcr.io/a/b:c@{digest}"), &format!("ghcr.io/a/b:c@{digest}")),
        ] {
            let image: ContainerImage = text.parse().unwrap_or_else(|why| panic!("{why}"));
            assert_eq!(image.qualified(), *expected, "{text}");
            let json = serde_json::to_string(&image).unwrap();
            assert_eq!(serde_json::from_str::<ContainerImage>(&json).unwrap(), image);
            assert_eq!(image.to_string(), text.trim());
        }
    }

    #[test]
    fn what_is_no_image_is_no_option_of_a_runtime_either() {
        for text in [
            "ubuntu",
            "ami-0123",
            "docker:",
            "docker:-v",
            "docker:--privileged",
            "docker:a b",
            "docker:A/b",
            "docker:a/",
            "docker:a:",
            "docker:a:-x",
            "docker:a@sha256:12",
            "docker:a@md5:12",
            "docker:a//b",
            "docker:a/../b",
            "docker:host.x:port/a",
            "docker:-h.x/a",
            "docker:a\n",
            "docker:a;b",
            "docker://a",
        ] {
            let found = text.parse::<ContainerImage>();
            assert!(found.is_err() || text == "docker:a\n", "{text}");
        }
        assert!(serde_json::from_str::<ContainerImage>("\"docker:--rm\"").is_err());
    }
}
