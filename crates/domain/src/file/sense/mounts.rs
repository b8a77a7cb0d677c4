//! Checks of `file_mounts`: each comes to a place of its own, from something that can be copied.

use super::{SCHEMES, Validator};
use crate::file::tree::clip;
use crate::job::Command;
use crate::mounts::{MountPlace, is_address};

impl Validator {
    pub(super) fn mounts(&mut self, command: &Command) {
        let outputs = command.outputs.iter().filter_map(|path| Some((path, MountPlace::parse(path).ok()?)));
        let mut others: Vec<(&String, MountPlace)> = outputs.collect();
        for (target, source) in &command.file_mounts {
            let key = format!("file_mounts.{target}");
            match MountPlace::parse(target) {
                Ok(place) => {
                    if let Some((other, _)) = others.iter().find(|(_, other)| other.meets(&place)) {
                        let message = format!("`{}` and `{}` are one within the other", clip(other), clip(target));
                        self.wrong(&key, message, "name the outer one only, or another place");
                    }
                    others.push((target, place));
                }
                Err(why) => {
                    let message = format!("`{}` {why}", clip(target));
                    let hint = "write a path on the machine, such as `/data`, `~/data` or `data`";
                    self.wrong(&key, message, hint);
                }
            }
            self.source(&key, source);
        }
    }

    fn source(&mut self, key: &str, source: &str) {
        if source.trim().is_empty() {
            self.wrong(key, "the path is empty", "write a path, relative to the job file, or an address");
        } else if source.contains('\0') {
            self.wrong(key, "the path holds a zero byte", "leave it out");
        } else if source.contains('$') {
            self.wrong(key, "variables in a path are not filled in", "write the path out");
        } else if is_address(source) {
            let scheme = source.split("://").next().unwrap_or_default().to_ascii_lowercase();
            if scheme == "file" || !SCHEMES.contains(&&*scheme) {
                let message = format!("`{}://` is not known", clip(&scheme));
                let hint = "write a path, `s3://BUCKET/PREFIX`, `gs://`, `az://`, `oss://`, `cos://` or `https://`";
                self.wrong(key, message, hint);
            }
        }
    }
}
