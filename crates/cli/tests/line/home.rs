//! A home folder of its own, and the command run in it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// A home folder, gone with everything that runs in it when the test is over.
pub struct Home {
    folder: tempfile::TempDir,
}

/// What a command came to.
pub struct Said {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Home {
    pub fn new() -> Home {
        Home { folder: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    /// Writes a job file beside the home.
    pub fn job(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::write(&path, text).unwrap();
        path
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        self.command_of(Path::new(env!("CARGO_BIN_EXE_gradus")), arguments)
    }

    fn command_of(&self, program: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(arguments).arg("--home").arg(self.path()).stdin(Stdio::null());
        command.env_remove("GRADUS_HOME").env("NO_COLOR", "1");
        command
    }

    pub fn gradus(&self, arguments: &[&str]) -> Said {
        said(self.command(arguments).output().unwrap())
    }

    /// Starts a command and leaves it running.
    pub fn start(&self, arguments: &[&str]) -> Child {
        self.start_with(Path::new(env!("CARGO_BIN_EXE_gradus")), arguments)
    }

    /// The same with another executable.
    pub fn start_with(&self, program: &Path, arguments: &[&str]) -> Child {
        let mut command = self.command_of(program, arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Waits until something holds, for two minutes at most: a busy machine is slow.
    pub fn until(&self, what: &str, holds: impl Fn() -> bool) {
        let started = Instant::now();
        while !holds() {
            assert!(
                started.elapsed() < Duration::from_secs(240),
                "waited in vain for {what}; {}",
                self.gradus(&["status", "last"]).out
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// The state's word of the newest run; empty before there is one.
    pub fn state(&self) -> String {
        let said = self.gradus(&["status", "--json"]);
        let last = said.out.lines().last().map(|line| serde_json::from_str::<Value>(line).unwrap());
        last.map_or(String::new(), |value| value["word"].as_str().unwrap().to_owned())
    }

    /// How far the newest run of [`counting`] came; 0 before it began.
    pub fn counted(&self) -> u32 {
        let runs = fs::read_dir(self.path().join("runs")).into_iter().flatten().flatten();
        let counts = runs.filter_map(|run| fs::read_to_string(run.path().join("checkpoints/count")).ok());
        counts.filter_map(|count| count.trim().parse().ok()).max().unwrap_or(0)
    }

    /// Lets every started run of [`gated`] end.
    pub fn open_gate(&self) {
        for run in fs::read_dir(self.path().join("runs")).unwrap().flatten() {
            let folder = run.path().join("checkpoints");
            if folder.is_dir() {
                fs::write(folder.join("gate"), "").unwrap();
            }
        }
    }

    /// Whether this process holds the lock of the home's one loop, by the kernel's own list.
    pub fn is_loop(&self, pid: u32) -> bool {
        let Ok(lock) = fs::metadata(self.path().join("loop.lock")) else { return false };
        let (pid, file) = (format!(" {pid} "), format!(":{} ", lock.ino()));
        let locks = fs::read_to_string("/proc/locks").unwrap();
        locks.lines().any(|line| line.contains("FLOCK") && line.contains(&pid) && line.contains(&file))
    }

    /// The pids of living processes that were started for this home, by a word on their command line.
    pub fn pids(&self, word: &str) -> Vec<u32> {
        // A command that only looks makes no home; an empty path would be part of every process' words.
        let Ok(home) = fs::canonicalize(self.path()) else { return Vec::new() };
        let mut pids = Vec::new();
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            let tagged = String::from_utf8_lossy(&environment).contains(&*home.to_string_lossy());
            if line.contains(word)
                && (tagged || line.contains(&*self.path().to_string_lossy()) || line.contains(&*home.to_string_lossy()))
            {
                pids.push(pid);
            }
        }
        pids
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        for pid in self.pids("") {
            signal(pid, "KILL");
        }
    }
}

impl Said {
    /// The last line of stdout, as JSON.
    pub fn last(&self) -> Value {
        let line = self.out.lines().last().unwrap_or_else(|| panic!("nothing was printed; {}", self.err));
        serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }
}

pub fn said(output: Output) -> Said {
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Said { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

pub fn signal(pid: u32, name: &str) {
    let _ = Command::new("kill").args(["-s", name, &pid.to_string()]).stderr(Stdio::null()).status();
}

/// A program that counts to `count` in tenths of a second, in a file that outlives its attempts.
pub fn counting(count: u32) -> String {
    format!(
        "name: count\nrun: |\n  file=$GRADUS_CHECKPOINTS/count\n  n=$(cat $file 2>/dev/null || echo 0)\n  echo attempt starts at $n\n  while [ $n -lt {count} ]; do n=$((n+1)); echo $n > $file.new; mv $file.new $file; sleep 0.1; done\n  echo counted to $n\n"
    )
}

/// A program that runs until [`Home::open_gate`], so that a test sees it run however busy the machine is.
pub fn gated() -> String {
    "name: gated\nrun: |\n  echo attempt starts\n  while [ ! -e $GRADUS_CHECKPOINTS/gate ]; do sleep 0.05; done\n  echo went through\n".to_owned()
}

/// The job file's path as an argument.
pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
