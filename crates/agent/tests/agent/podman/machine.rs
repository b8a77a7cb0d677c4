//! The podman of this machine, with a storage and settings that are gone with the test.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::scene::write_program;

/// The image with bash and what the programs of the tests call.
const IMAGE: &str = "localhost/gradus-test:1";

/// The image with nothing in it.
pub const EMPTY: &str = "localhost/gradus-empty:1";

/// Makes the file system of an image from programs of this machine, with the libraries that they are linked with.
const ROOT: &str = r#"
root=$1/root
mkdir -p "$root"/{bin,dev,etc,proc,root,run,sys,tmp}
for name in bash cat dd id sleep; do
  file=$(readlink -f "$(command -v "$name")")
  cp "$file" "$root/bin/$name"
  { ldd "$file" 2> /dev/null || true; } | { grep -o '/[^ )]*' || true; } | while read -r library; do
    mkdir -p "$root$(dirname "$library")"
    cp -L "$library" "$root$library"
  done
done
echo 'root:x:0:0:root:/root:/bin/bash' > "$root/etc/passwd"
tar --owner 0 --group 0 -C "$root" -cf "$1/image.tar" .
"#;

/// Settings that are tried in turn: those of most machines, and those of one without systemd whose limits cannot be raised.
const SETTINGS: [(&str, &str); 4] = [
    ("", ""),
    ("", "cgroup_manager = \"cgroupfs\"\n"),
    ("", "cgroup_manager = \"cgroupfs\"\nruntime = \"runc\"\n"),
    (
        "default_ulimits = [\"nofile=1024:1024\", \"nproc=1024:1024\"]\n",
        "cgroup_manager = \"cgroupfs\"\nruntime = \"runc\"\n",
    ),
];

pub struct Podman {
    folder: tempfile::TempDir,
}

impl Podman {
    /// This machine's podman with the image; else it is said why it is left out.
    pub fn new() -> Option<Podman> {
        let found = Command::new("sh").args(["-c", "command -v podman"]).output().unwrap();
        if !found.status.success() {
            eprintln!("containers were left out: there is no podman: `sudo apt-get install podman catatonit`");
            return None;
        }
        let podman = Podman { folder: tempfile::tempdir().unwrap() };
        let here = podman.folder.path().to_owned();
        podman.write_program(String::from_utf8_lossy(&found.stdout).trim());
        let image = here.join("image.tar");
        let made = Command::new("bash").args(["-euc", ROOT, "bash"]).arg(&here).status().unwrap();
        assert!(made.success(), "the image is made of bash, cat, dd, id and sleep, by ldd and tar");
        let storage = format!(
            "[storage]\ndriver = \"vfs\"\ngraphroot = \"{0}/graph\"\nrunroot = \"{0}/runroot\"\n",
            here.display()
        );
        fs::write(here.join("storage.conf"), storage).unwrap();
        let mut why = String::new();
        for (of_containers, of_engine) in SETTINGS {
            let of_test =
                format!("events_logger = \"none\"\nlock_type = \"file\"\ntmp_dir = \"{}/tmp\"\n", here.display());
            let settings = format!("[containers]\n{of_containers}[engine]\n{of_engine}{of_test}");
            fs::write(here.join("containers.conf"), settings).unwrap();
            match podman.tried(&image) {
                Ok(()) => return Some(podman),
                Err(said) => why = said,
            }
        }
        eprintln!("containers were left out: podman cannot run any here: {why}");
        None
    }

    /// Runs a container as the agent does.
    fn tried(&self, image: &Path) -> Result<(), String> {
        if self.ask(&["image", "exists", IMAGE]).is_err() {
            self.ask(&["import", "--quiet", &image.to_string_lossy(), IMAGE])?;
        }
        let line = "run --rm --init --network host --ipc host --security-opt label=disable --user 0:0";
        let words: Vec<&str> = line.split(' ').chain(["--entrypoint", "bash", IMAGE, "-c", "exit 0"]).collect();
        self.ask(&words).map(drop)
    }

    /// The folder of a program `podman` that finds this storage, whoever starts it.
    pub fn programs(&self) -> PathBuf {
        self.folder.path().join("bin")
    }

    fn write_program(&self, real: &str) {
        fs::create_dir(self.programs()).unwrap();
        let here = self.folder.path().display();
        let script = format!(
            "#!/bin/sh\nexport CONTAINERS_CONF='{here}/containers.conf' CONTAINERS_STORAGE_CONF='{here}/storage.conf'\n\
             exec '{real}' \"$@\"\n"
        );
        write_program(&self.programs().join("podman"), &script);
    }

    /// What podman prints to these arguments; else what it says.
    pub fn ask(&self, arguments: &[&str]) -> Result<String, String> {
        let mut command = Command::new(self.programs().join("podman"));
        // Where memory runs out, podman's monitor leaves a file in the current folder.
        command.args(arguments).current_dir(self.folder.path());
        let output = command.output().map_err(|error| error.to_string())?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        }
    }

    /// The names of all containers, one per line.
    pub fn containers(&self) -> String {
        self.ask(&["ps", "--all", "--format", "{{.Names}}"]).unwrap()
    }

    pub fn import(&self, image: &Path, name: &str) {
        self.ask(&["import", "--quiet", &image.to_string_lossy(), name]).unwrap();
    }

    /// The archive of an image without a program.
    pub fn empty_image(&self) -> PathBuf {
        let (folder, image) = (self.folder.path().join("empty"), self.folder.path().join("empty.tar"));
        fs::create_dir_all(folder.join("etc")).unwrap();
        let packed = Command::new("tar").arg("-C").arg(&folder).arg("-cf").arg(&image).arg(".").status().unwrap();
        assert!(packed.success());
        image
    }

    /// Whether a limit of memory holds: without root, control groups of version 1 are not podman's to limit.
    pub fn limits_memory(&self) -> bool {
        let script = "dd if=/dev/zero of=/dev/null bs=512M count=1";
        let line = ["run", "--rm", "--init", "--network", "host", "--memory", "64m", "--entrypoint", "bash", IMAGE];
        self.ask(&[&line[..], &["-c", script]].concat()).is_err()
    }
}

/// Removes what podman has mounted, so that the folder can be removed.
impl Drop for Podman {
    fn drop(&mut self) {
        let _ = self.ask(&["rm", "--all", "--force"]);
        let _ = self.ask(&["rmi", "--all", "--force"]);
    }
}
