//! What machines are called at a cloud.

use domain::InstanceId;

/// What the names of all machines of gradus begin with, whoever their owner is.
pub const ANY_PREFIX: &str = "gradus-";

/// The name of a machine at its cloud: letters, digits and `-`, at most 40. All of one owner begin alike.
pub fn machine_name(owner: &str, instance: &InstanceId) -> String {
    format!("{}{}", name_prefix(owner), digest(&format!("{owner}|{instance}"), 16))
}

/// What the names of an owner's machines begin with.
pub fn name_prefix(owner: &str) -> String {
    format!("{ANY_PREFIX}{}-", digest(owner, 12))
}

fn digest(text: &str, letters: usize) -> String {
    use sha2::Digest;
    let all: String = sha2::Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect();
    all.chars().take(letters).collect()
}
