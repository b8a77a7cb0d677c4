//! The lab's hosts are machines to `ssh`: they are reached, break and return as machines do, and leave nothing behind.

use std::fs;
use std::io::Read;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// A lab in its own folder.
struct Lab {
    folder: PathBuf,
}

impl Lab {
    fn command(&self, arguments: &[&str]) -> Command {
        let mut xtask = Command::new(env!("CARGO_BIN_EXE_xtask"));
        xtask.args(["lab", "hosts", "--folder"]).arg(&self.folder).args(arguments);
        xtask
    }

    fn output(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    fn lab(&self, arguments: &[&str]) {
        let output = self.output(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    fn ssh(&self, arguments: &[&str]) -> Command {
        let mut ssh = Command::new("ssh");
        ssh.arg("-F").arg(self.folder.join("ssh_config")).args(["-o", "ConnectTimeout=2"]).args(arguments);
        ssh.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        ssh
    }

    /// The output of a command on a host, or the error of ssh.
    fn on(&self, host: &str, command: &str) -> Result<String, String> {
        let output = self.ssh(&[host, command]).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap().trim().to_owned();
        if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
    }

    /// Everything on this machine that is of the lab: links, processes and mounts that name its folder.
    fn left(&self, bridge: &str) -> Vec<String> {
        let folder = self.folder.to_str().unwrap();
        let mut left: Vec<String> = entries("/sys/class/net").into_iter().filter(|l| l.starts_with(bridge)).collect();
        for process in entries("/proc").iter().filter(|name| name.parse::<u32>().is_ok()) {
            let text = |file: &str| fs::read(format!("/proc/{process}/{file}")).unwrap_or_default();
            let is_marked = String::from_utf8_lossy(&text("cmdline")).contains(&format!("gradus-lab:{folder}"));
            if is_marked || String::from_utf8_lossy(&text("mountinfo")).contains(folder) {
                left.push(format!("process {process}: {}", String::from_utf8_lossy(&text("cmdline"))));
            }
        }
        left.extend(self.folder.exists().then(|| folder.to_owned()));
        left
    }
}

/// A test that fails leaves nothing behind either.
impl Drop for Lab {
    fn drop(&mut self) {
        let _ = self.output(&["down"]);
    }
}

/// A program that ends with the test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn entries(folder: &str) -> Vec<String> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// The link on the bridge that this host is behind.
fn bridge(lab: &Lab) -> String {
    let address = lab.on("host-1", "echo $SSH_CONNECTION").unwrap();
    let server = format!("{}/24", address.split(' ').next().unwrap());
    let output = Command::new("ip").args(["-brief", "-4", "address"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let line = text.lines().find(|line| line.contains(&server)).unwrap();
    line.split_whitespace().next().unwrap().to_owned()
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(20), "waited for {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
#[ignore = "needs root and sshd: cargo xtask test provides them"]
fn hosts_are_reached_break_and_return() {
    let scratch = tempfile::tempdir().unwrap();
    let lab = Lab { folder: scratch.path().canonicalize().unwrap().join("a lab") };
    lab.lab(&["up", "2"]);
    // A running host is not touched.
    lab.on("host-1", "echo here >/dev/shm/memory").unwrap();
    lab.lab(&["up", "2"]);
    assert_eq!(lab.on("host-1", "cat /dev/shm/memory").unwrap(), "here");
    let bridge = bridge(&lab);

    each_has_its_own(&lab);
    a_socket_is_forwarded_back(&lab, scratch.path());
    power_fails_and_returns(&lab);
    a_link_breaks_and_heals(&lab);

    lab.lab(&["down"]);
    assert_eq!(lab.left(&bridge), [""; 0]);
    a_killed_start_is_cleared(&lab, &bridge);
}

/// Names, homes, processes and `/tmp` are a host's own; host-2 can be reached from host-1 by its name.
fn each_has_its_own(lab: &Lab) {
    for host in ["host-1", "host-2"] {
        assert_eq!(lab.on(host, "hostname").unwrap(), host);
        assert_eq!(lab.on(host, "cat ~/name /tmp/name 2>/dev/null || echo none").unwrap(), "none");
        lab.on(host, "hostname >~/name && cp ~/name /tmp/name").unwrap();
        assert_eq!(lab.on(host, "cat ~/name").unwrap(), host);
    }
    assert!(fs::read_to_string(lab.folder.join("host-2/root/name")).unwrap() == "host-2\n");
    assert!(lab.on("host-1", "tr '\\0' ' ' </proc/1/cmdline").unwrap().contains("sshd"));
    let greeting = "exec 3<>/dev/tcp/host-2/22 && head -c 4 <&3";
    assert_eq!(lab.on("host-1", &format!("bash -c '{greeting}'")).unwrap(), "SSH-");

    let exec = lab.output(&["exec", "2", "sh", "-c", "hostname; exit 7"]);
    assert_eq!((exec.stdout.as_slice(), exec.status.code()), (b"host-2\n".as_slice(), Some(7)));
    // The program in the folder does the same.
    let program = Command::new(lab.folder.join("lab")).args(["exec", "1", "hostname"]).output().unwrap();
    assert_eq!(program.stdout, b"host-1\n");
}

/// A program on the host reaches a socket of ours at a path there.
fn a_socket_is_forwarded_back(lab: &Lab, scratch: &Path) {
    let path = scratch.join("ours.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let received = thread::spawn(move || {
        let mut text = String::new();
        listener.accept().unwrap().0.read_to_string(&mut text).unwrap();
        text
    });
    let forward = format!("/tmp/theirs.sock:{}", path.display());
    let send = "import socket; s = socket.socket(socket.AF_UNIX); s.connect('/tmp/theirs.sock'); s.sendall(b'hello')";
    let forwarding = ["-o", "ExitOnForwardFailure=yes", "-R", &forward, "host-1"];
    let output = lab.ssh(&[&forwarding[..], &[&format!("python3 -c \"{send}\"")]].concat()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(received.join().unwrap(), "hello");
}

/// A host that lost its power sends no message; its disk is there when it runs again.
fn power_fails_and_returns(lab: &Lab) {
    let boot = || lab.on("host-1", "cat /proc/sys/kernel/random/boot_id").unwrap();
    let before = boot();
    let mut session = Ended(lab.ssh(&["host-1", "touch ~/began; exec sleep 1000"]).spawn().unwrap());
    wait_until("a session", || lab.folder.join("host-1/root/began").exists());
    lab.lab(&["kill", "1"]);

    let error = lab.on("host-1", "true").unwrap_err();
    assert!(error.contains("timed out"), "{error}");
    // It took two seconds to notice that nothing answers, and the session has still not been closed.
    assert_eq!(session.0.try_wait().unwrap(), None);
    let off = String::from_utf8(lab.output(&["partition", "1"]).stderr).unwrap();
    assert!(off.starts_with("error: host-1 is off\n  hint: "), "{off}");
    assert_eq!(lab.on("host-2", "hostname").unwrap(), "host-2");

    lab.lab(&["start", "1"]);
    let remains = "cat ~/name; ls /dev/shm; grep -l sleep /proc/[0-9]*/comm || echo none";
    assert_eq!(lab.on("host-1", remains).unwrap(), "host-1\nnone");
    assert_ne!(boot(), before);
}

/// Programs run on while a host is cut off.
fn a_link_breaks_and_heals(lab: &Lab) {
    let command = "mkfifo ~/pipe; touch ~/began; read -r x <~/pipe; echo through";
    let mut session = Ended(lab.ssh(&["host-2", command]).spawn().unwrap());
    wait_until("a session", || lab.folder.join("host-2/root/began").exists());
    lab.lab(&["partition", "2"]);
    let error = lab.on("host-2", "true").unwrap_err();
    assert!(error.contains("timed out"), "{error}");
    lab.lab(&["exec", "2", "true"]);
    assert_eq!(session.0.try_wait().unwrap(), None);

    lab.lab(&["heal", "2"]);
    assert_eq!(lab.on("host-2", "echo x >~/pipe; echo sent").unwrap(), "sent");
    let mut text = String::new();
    session.0.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "through\n");
}

/// `up` may be killed at any time.
fn a_killed_start_is_cleared(lab: &Lab, bridge: &str) {
    for hosts in 1..=3 {
        let mut up = Ended(lab.command(&["up", "6"]).stderr(Stdio::null()).spawn().unwrap());
        wait_until("a host", || lab.folder.join(format!("host-{hosts}/boot_id")).exists());
        up.0.kill().unwrap();
        up.0.wait().unwrap();
        lab.lab(&["down"]);
        assert_eq!(lab.left(bridge), [""; 0]);
    }
}
