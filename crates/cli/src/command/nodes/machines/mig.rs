//! `gradus machines up --mig`: the GPUs of a machine are divided before its user enters it.

use cloud::catalog::gpus::GpuTable;

/// What is divided, checked: before anything is rented.
///
/// # Errors
/// What is wrong with the layout, and which ones there are.
pub fn layout(gpus: &str, profiles: &str, table: &GpuTable) -> Result<Vec<String>, String> {
    let name = gpus.split(':').next().unwrap_or_default();
    let gpu = table.meant(name, None).ok_or_else(|| format!("`{name}` is no GPU of the catalog"))?;
    let profiles: Vec<String> = profiles.split(',').map(|profile| profile.trim().to_owned()).collect();
    table.divided(&gpu.name, &profiles)
}

/// What the machine runs first: each of its GPUs is divided so, whatever a start before has left of its parts. It may do no more
/// as root than this.
pub fn script(layout: &[String]) -> String {
    let profiles = layout.join(",");
    format!(
        "set -e\n\
         for gpu in $(nvidia-smi --query-gpu=index --format=csv,noheader); do\n  \
           sudo -n nvidia-smi -i \"$gpu\" -mig 1\n  \
           sudo -n nvidia-smi mig -i \"$gpu\" -dci || :\n  \
           sudo -n nvidia-smi mig -i \"$gpu\" -dgi || :\n  \
           sudo -n nvidia-smi mig -i \"$gpu\" -cgi {profiles} -C\n\
         done\n\
         nvidia-smi -L\n"
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;

    use cloud::Catalog;

    use super::*;

    #[test]
    fn a_layout_is_checked_before_anything_is_rented() {
        let table = Catalog::embedded().unwrap().gpus;
        let check = |gpus: &str, profiles: &str| layout(gpus, profiles, &table).map(|made| made.join(","));
        assert_eq!(check("H100:2", "3g.40gb, 4g.40gb").as_deref(), Ok("4g.40gb,3g.40gb"));
        assert!(check("H100", "4g.40gb,4g.40gb").unwrap_err().contains("cannot be divided into"));
        assert!(check("nothing:1", "1g.10gb").unwrap_err().contains("no GPU of the catalog"));
    }

    /// What is done as root on a machine of two GPUs, where this fails.
    fn done(fails: &str) -> (bool, String) {
        let folder = tempfile::tempdir().unwrap();
        let program = |name: &str, text: String| {
            let path = folder.path().join(name);
            std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        };
        let said = folder.path().join("said");
        program("nvidia-smi", "case $1 in --query*) echo 0; echo 1 ;; esac".to_owned());
        let log = format!("shift 2; echo \"$@\" >>'{}'; case \"$*\" in *{fails}*) exit 1 ;; esac", said.display());
        program("sudo", log);
        let path = format!("{}:/usr/bin:/bin", folder.path().display());
        let layout = ["4g.40gb".to_owned(), "3g.40gb".to_owned()];
        let output = Command::new("sh").arg("-c").arg(script(&layout)).env("PATH", path).output().unwrap();
        (output.status.success(), std::fs::read_to_string(said).unwrap().trim_end().replace('\n', "; "))
    }

    #[test]
    fn each_gpu_is_divided_and_a_layout_that_cannot_be_made_is_the_end() {
        let one = |gpu: u32| {
            format!("-i {gpu} -mig 1; mig -i {gpu} -dci; mig -i {gpu} -dgi; mig -i {gpu} -cgi 4g.40gb,3g.40gb -C")
        };
        assert_eq!(done("nothing"), (true, format!("{}; {}", one(0), one(1))));
        assert_eq!(done("-dci"), (true, format!("{}; {}", one(0), one(1))), "there were no parts to take away");
        assert_eq!(done("-cgi"), (false, one(0)));
    }
}
