//! `file_mounts`: files and folders that a machine is given beside the working folder. Where on it, as text and as parts, and
//! SkyPilot's way to write what comes there.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::problem::Problem;

/// Where a mount is put on a machine: a path of names only, below one of three folders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MountPlace {
    /// Below the working folder of the attempt.
    Workdir(String),
    /// Below the home folder of the user that the program runs as.
    Home(String),
    /// An absolute path, without the `/` at its beginning.
    Root(String),
}

impl MountPlace {
    /// Reads a key of `file_mounts`.
    ///
    /// # Errors
    /// Why it is no such path: lower case, no full stop.
    pub fn parse(text: &str) -> Result<MountPlace, &'static str> {
        let (place, rest): (fn(String) -> MountPlace, &str) = match (text.strip_prefix("~/"), text.strip_prefix('/')) {
            (Some(rest), _) => (MountPlace::Home, rest),
            (None, Some(rest)) => (MountPlace::Root, rest),
            (None, None) if text.starts_with('~') => return Err("is no path below a home folder"),
            (None, None) => (MountPlace::Workdir, text),
        };
        if text.contains(['\0', '\\', '\n']) || text.contains("://") {
            return Err("is no path");
        }
        if text.contains('$') {
            return Err("holds a variable, and variables in a path are not filled in");
        }
        let names: Vec<&str> = rest.split('/').filter(|name| !matches!(*name, "" | ".")).collect();
        if names.contains(&"..") {
            return Err("leads upwards");
        }
        if names.is_empty() {
            return Err("is a folder that is there already");
        }
        Ok(place(names.join("/")))
    }

    /// Whether one lies within the other, or both are the same.
    pub fn meets(&self, other: &MountPlace) -> bool {
        let is_within = |one: &str, other: &str| {
            one.strip_prefix(other).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        match (self, other) {
            (MountPlace::Workdir(one), MountPlace::Workdir(other))
            | (MountPlace::Home(one), MountPlace::Home(other))
            | (MountPlace::Root(one), MountPlace::Root(other)) => is_within(one, other) || is_within(other, one),
            (MountPlace::Workdir(_) | MountPlace::Home(_) | MountPlace::Root(_), _) => false,
        }
    }
}

/// Whether the source of a mount is an address and not a local path.
pub fn is_address(source: &str) -> bool {
    source.contains("://")
}

/// A path or an address.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum MountKeys {
    /// A path here, relative to the job file, or an address such as `s3://BUCKET/PREFIX`.
    Source(String),
    /// SkyPilot's form.
    Bucket(BucketKeys),
}

/// SkyPilot's form of a mount: served with `mode: COPY`, or without a `source`, as a folder that is kept with the run.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BucketKeys {
    /// A path or an address, as without this mapping.
    pub source: Option<String>,
    /// `COPY`. With a `source`, `MOUNT` and `MOUNT_CACHED` are refused.
    pub mode: Option<String>,
    /// Refused beside a `source`: no bucket is made.
    pub name: Option<String>,
    /// Refused beside a `source`: no bucket is made.
    pub store: Option<String>,
    /// Refused beside a `source`: no bucket is made.
    pub persistent: Option<bool>,
}

/// The mounts of a job file. What of SkyPilot's forms is not served is told by name.
pub(crate) fn lowered(keys: BTreeMap<String, MountKeys>, problems: &mut Vec<Problem>) -> BTreeMap<String, String> {
    let source = |(target, keys): (String, MountKeys)| {
        let source = match keys {
            MountKeys::Source(source) => source,
            MountKeys::Bucket(bucket) => {
                problems.extend(refused(&format!("file_mounts.{target}"), &bucket));
                bucket.source.unwrap_or_default()
            }
        };
        (target, source)
    };
    keys.into_iter().map(source).collect()
}

fn refused(key: &str, bucket: &BucketKeys) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut refuse = |name: &str, message: &str, hint: &str| {
        let key = if name.is_empty() { key.to_owned() } else { format!("{key}.{name}") };
        problems.push(Problem::at(key, message).hint(hint));
    };
    let keep = "what the program writes is kept in `outputs: [FOLDER]` or `$GRADUS_CHECKPOINTS`";
    let copy = "write `mode: COPY`, which copies it before `setup`; what the program writes is kept in `outputs`";
    match bucket.mode.as_deref() {
        Some(mode) if mode.eq_ignore_ascii_case("copy") => {}
        Some(mode) => {
            let mode: String = mode.chars().take(40).collect();
            refuse("mode", &format!("`{mode}` keeps a bucket mounted, which is not supported"), copy);
        }
        None if bucket.source.is_some() => {
            refuse("", "without `mode` SkyPilot keeps the bucket mounted, which is not supported", copy);
        }
        None => {}
    }
    if bucket.name.is_some() {
        refuse("name", "no bucket is made for a job", keep);
    } else if bucket.source.is_none() {
        refuse("source", "this key is missing", "write a path, or an address such as `s3://BUCKET/PREFIX`");
    }
    for (name, is_given) in [("store", bucket.store.is_some()), ("persistent", bucket.persistent.is_some())] {
        if is_given {
            refuse(name, "no bucket is made for a job", "leave the key out");
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_path_of_names_below_one_of_three_folders() {
        let check = |text: &str, expected: Result<MountPlace, &str>| assert_eq!(MountPlace::parse(text), expected);
        check("/data/x.csv", Ok(MountPlace::Root("data/x.csv".into())));
        check("~/.netrc", Ok(MountPlace::Home(".netrc".into())));
        check("./a//b/", Ok(MountPlace::Workdir("a/b".into())));
        for (text, why) in [
            ("", "is a folder that is there already"),
            ("/", "is a folder that is there already"),
            ("~/", "is a folder that is there already"),
            (".", "is a folder that is there already"),
            ("~", "is no path below a home folder"),
            ("~root/x", "is no path below a home folder"),
            ("../x", "leads upwards"),
            ("/data/../etc", "leads upwards"),
            ("~/a/../../b", "leads upwards"),
            ("/$HOME/x", "holds a variable, and variables in a path are not filled in"),
            ("a\0b", "is no path"),
            ("s3://x/y", "is no path"),
        ] {
            check(text, Err(why));
        }
    }

    #[test]
    fn places_meet_where_one_lies_within_the_other() {
        let place = |text: &str| MountPlace::parse(text).unwrap();
        for (one, other, expected) in [
            ("/data", "/data/x", true),
            ("/data/x", "/data", true),
            ("/data", "/data/", true),
            ("/data", "/data2", false),
            ("data", "/data", false),
            ("~/data", "data/x", false),
        ] {
            assert_eq!(place(one).meets(&place(other)), expected, "{one} {other}");
        }
    }
}
