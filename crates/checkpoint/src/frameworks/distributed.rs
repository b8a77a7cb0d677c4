//! A folder of `torch.distributed.checkpoint`: a file `__RANK_N.distcp` for each writer, and `.metadata`, a pickle that
//! names them and is renamed into place once all ranks have synced theirs.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The last operation of a pickle.
const STOP: u8 = b'.';

/// The step of a folder, the last number of its name, if it is one or was to become one.
pub(super) fn step(name: &str, folder: &Path) -> Option<u64> {
    let is_begun = || {
        let mut names = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.file_name());
        names.any(|name| name.to_str().is_some_and(|name| name.ends_with(".distcp")))
    };
    // Accelerate's folders for the network and for the optimizer: each alone is half a checkpoint.
    let is_part = ["pytorch_model_fsdp_", "optimizer_"].iter().any(|part| name.starts_with(part));
    if is_part || (!folder.join(".metadata").exists() && !is_begun()) {
        return None;
    }
    let digits = name.trim_end_matches(|c: char| !c.is_ascii_digit());
    let start = digits.rfind(|c: char| !c.is_ascii_digit()).map_or(0, |at| at + 1);
    Some(digits[start..].parse().unwrap_or(0))
}

/// Whether all files are there that the metadata names.
pub(super) fn verify(folder: &Path) -> Result<(), String> {
    let metadata = fs::read(folder.join(".metadata")).map_err(|_| "`.metadata` is missing".to_owned())?;
    if metadata.last() != Some(&STOP) {
        return Err("`.metadata` is cut short".to_owned());
    }
    for name in names(&metadata) {
        match fs::metadata(folder.join(&name)) {
            Ok(about) if about.len() > 0 => {}
            Ok(_) => return Err(format!("`{name}` is empty")),
            Err(_) => return Err(format!("`{name}` is missing")),
        }
    }
    Ok(())
}

/// The names of files in a pickle, such as `__0_0.distcp`: what stands before the ending, back to a byte that no such name
/// has.
fn names(pickle: &[u8]) -> BTreeSet<String> {
    const ENDING: &[u8] = b".distcp";
    let ends = pickle.windows(ENDING.len()).enumerate().filter(|(_, window)| *window == ENDING).map(|(at, _)| at);
    let is_of_name = |byte: &u8| byte.is_ascii_digit() || *byte == b'_';
    ends.filter_map(|end| {
        let length = pickle[..end].iter().rev().take_while(|byte| is_of_name(byte)).count();
        let name = std::str::from_utf8(&pickle[end - length..end + ENDING.len()]).ok()?;
        let inner = name.strip_prefix("__")?;
        inner.starts_with(|c: char| c.is_ascii_digit()).then(|| name.to_owned())
    })
    .collect()
}
