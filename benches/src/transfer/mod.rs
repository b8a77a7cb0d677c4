//! `cargo xtask bench transfer`: bytes and speed of a transfer after a change, compared with rsync, rclone, s5cmd, the
//! AWS CLI and gzip.
//!
//! The data is made here: a tar of noise in the lengths of images, which no program can compress, and text. rsync and
//! rclone are the system's own; a peer that is missing or hangs is reported and skipped. Bytes are as each program
//! reports them; time is CPU time, ours and the peer's in turn, for a machine is rarely quiet.

mod cost;
mod material;

use std::error::Error;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use cost::{Cost, LIMIT_S, copied, limited, measured, number, stated};
use material::{gather, length, member, sources, tar};

use xtask::doing::{self, Outcome};
use xtask::draws::Draws;
use xtask::{build, lab, peers};

/// Images of the tar, of about 98 kB each.
const IMAGES: u64 = 1_500;
/// Those that go to a bucket: the bucket's own speed bounds what can be measured.
const FILES: u64 = 400;
/// Compares, and returns a table.
pub fn transfer(root: &Path) -> Outcome {
    // The full workspace is named so that cargo finds everything built.
    let arguments = ["build", "--release", "--workspace", "--bin", "gradus"];
    doing::run(&mut doing::cargo(root, &arguments), "read the compiler's message above")?;
    let folder = build::target(root).join("bench-transfer");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder)?;
    let bench =
        Bench { gradus: build::target(root).join("release/gradus"), folder: folder.clone(), text: sources(root) };
    let parts = [Bench::changes, Bench::text, Bench::bucket];
    let done = parts.into_iter().try_for_each(|part| part(&bench).map(|lines| println!("{}\n", lines.join("\n"))));
    let _ = fs::remove_dir_all(&folder);
    done.map(|()| "transfer: bytes and times stand above".into())
}

struct Bench {
    gradus: PathBuf,
    folder: PathBuf,
    /// A folder with much text.
    text: PathBuf,
}

impl Bench {
    /// Bytes to send after a change, to a destination that has the old data.
    fn changes(&self) -> Result<Vec<String>, Box<dyn Error>> {
        let all: Vec<u64> = (0..IMAGES).collect();
        let fresh = IMAGES / 100;
        let mut appended = all.clone();
        appended.extend(IMAGES..IMAGES + fresh);
        let mut inserted = all.clone();
        for number in 0..fresh {
            inserted.insert((number * 97 + 41) as usize, IMAGES + 1000 + number);
        }
        let mut moved = all.clone();
        moved.sort_by_key(|number| Draws::new(*number).bits());
        let mut lines = vec![
            format!("bytes sent after a change of a tar of {IMAGES} images"),
            "change            new bytes      gradus  ratio       rsync  ratio      rclone  ratio  processor s: gradus  rsync"
                .to_owned(),
        ];
        let old = tar(&all);
        for (what, members) in [("append 1 %", &appended), ("insert 1 %", &inserted), ("other order", &moved)] {
            let new = tar(members);
            let fresh: u64 = members.iter().filter(|number| **number >= IMAGES).map(|number| member(*number)).sum();
            lines.push(self.change(what, &old, &new, fresh)?);
        }
        let mut patched = old.clone();
        for patch in 0..20 {
            let at = patch * (old.len() / 20) + 1234;
            patched[at..at + 4096].copy_from_slice(&Draws::new(patch as u64 + 77).bytes(4096));
        }
        lines.push(self.change("20 × 4 KiB", &old, &patched, 20 * 4096)?);
        Ok(lines)
    }

    fn change(&self, what: &str, old: &[u8], new: &[u8], fresh: u64) -> Result<String, Box<dyn Error>> {
        let [here, remote, mirror, copy] = ["here", "remote", "mirror", "copy"].map(|name| self.folder.join(name));
        for path in [&here, &remote, &mirror, &copy] {
            let _ = fs::remove_dir_all(path);
            fs::create_dir_all(path)?;
        }
        let file = here.join("images.tar");
        fs::write(&file, old)?;
        fs::write(mirror.join("images.tar"), old)?;
        fs::write(copy.join("images.tar"), old)?;
        self.carry("push", &here, text(&remote), &[])?;
        fs::write(&file, new)?;
        let ours = self.carry("push", &here, text(&remote), &[])?;
        let sent = number(&ours.out, "moved_bytes")?;
        let mut rsync = Command::new("rsync");
        // Files of one length and time would not be looked at.
        rsync.args(["--stats", "--no-whole-file", "--ignore-times"]).arg(&file).arg(mirror.join("images.tar"));
        let rsync = measured(&mut rsync)?;
        let mut rclone = Command::new("rclone");
        rclone.args(["copy", "--config", "/dev/null", "--use-json-log", "-v"]).arg(&file).arg(&copy);
        let rclone = measured(&mut rclone)?;
        let rsync_sent = rsync.as_ref().map(|cost| stated(&cost.out, "Total bytes sent:").ok_or("rsync told no bytes"));
        let rclone_sent = rclone.as_ref().map(|cost| copied(&cost.err).ok_or("rclone told no bytes"));
        let columns = [Some(sent), rsync_sent.transpose()?, rclone_sent.transpose()?].map(|sent| match sent {
            Some(sent) if fresh == 0 => format!("{sent:>11} {:>6}", "-"),
            Some(sent) => format!("{sent:>11} {:>6.2}", sent as f64 / fresh as f64),
            None => format!("{:>11} {:>6}", "not here", "-"),
        });
        let cpu = rsync.map_or("-".to_owned(), |cost| format!("{:.2}", cost.cpu_s));
        Ok(format!("{what:<14} {fresh:>12} {} {:>20.2} {cpu:>6}", columns.join(" "), ours.cpu_s))
    }

    /// A complete data set to a bucket and back, through moto.
    fn bucket(&self) -> Result<Vec<String>, Box<dyn Error>> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let log = self.folder.join("moto.log");
        let mut moto = lab::moto(port)?;
        let mut moto = moto.stdout(Stdio::null()).stderr(fs::File::create(&log)?).spawn()?;
        let lines = lab::wait(port, &log).and_then(|()| self.through(port));
        let _ = moto.kill();
        let _ = moto.wait();
        lines
    }

    fn through(&self, port: u16) -> Result<Vec<String>, Box<dyn Error>> {
        let here = self.folder.join("here");
        let _ = fs::remove_dir_all(&here);
        fs::create_dir_all(&here)?;
        // Single files, as they lie in most data sets.
        for number in 0..FILES {
            fs::write(here.join(format!("{number:06}.jpg")), Draws::new(number).bytes(length(number)))?;
        }
        let peers = peers::transfer();
        if let Err(error) = &peers {
            eprintln!("without s5cmd and the AWS CLI: {error}");
        }
        bucket(port)?;
        let bucket = Bucket { endpoint: format!("http://127.0.0.1:{port}"), peers: peers.ok() };
        let mut lines = vec![
            format!("{FILES} files of 98 kB to moto and back (moto's own speed bounds the wall clock)"),
            "                     processor s   wall s".to_owned(),
        ];
        self.push_to_bucket(&bucket, &here, &mut lines)?;
        self.pull_from_bucket(&bucket, &mut lines)?;
        Ok(lines)
    }

    fn push_to_bucket(&self, bucket: &Bucket, here: &Path, lines: &mut Vec<String>) -> Result<(), Box<dyn Error>> {
        let env = &bucket.env();
        lines.push(row("gradus push", Ok(Some(self.carry("push", here, "s3://bucket/chunks", env)?))));
        lines.push(row("gradus push --plain", Ok(Some(self.plain(here, "s3://bucket/plain", env)?))));
        lines.push(row("rclone copy", bucket.rclone(text(here), ":s3:bucket/rclone")));
        let files = format!("{}/*", text(here));
        lines.push(row("s5cmd cp", bucket.peer("s5cmd", &["--log", "error", "cp", &files, "s3://bucket/s5cmd/"])));
        let aws = ["s3", "cp", "--recursive", "--quiet", text(here), "s3://bucket/aws"];
        lines.push(row("aws s3 cp", bucket.peer("aws", &aws)));
        Ok(())
    }

    fn pull_from_bucket(&self, bucket: &Bucket, lines: &mut Vec<String>) -> Result<(), Box<dyn Error>> {
        let env = &bucket.env();
        let back = |name: &str| self.folder.join(name);
        for (what, from, name) in
            [("gradus pull", "s3://bucket/chunks", "a"), ("gradus pull (plain)", "s3://bucket/plain", "b")]
        {
            lines.push(row(what, Ok(Some(self.carry("pull", Path::new(from), text(&back(name)), env)?))));
        }
        lines.push(row("rclone copy (back)", bucket.rclone(":s3:bucket/rclone", text(&back("c")))));
        let there = format!("{}/", text(&back("d")));
        lines.push(row(
            "s5cmd cp (back)",
            bucket.peer("s5cmd", &["--log", "error", "cp", "s3://bucket/s5cmd/*", &there]),
        ));
        let there = back("e");
        let aws = ["s3", "cp", "--recursive", "--quiet", "s3://bucket/aws", text(&there)];
        lines.push(row("aws s3 cp (back)", bucket.peer("aws", &aws)));
        Ok(())
    }

    /// Compressed transfer of text, compared with gzip.
    fn text(&self) -> Result<Vec<String>, Box<dyn Error>> {
        let (here, remote) = (self.folder.join("text"), self.folder.join("text-remote"));
        fs::create_dir_all(&here)?;
        let mut bytes = Vec::new();
        gather(&self.text, &mut bytes)?;
        let file = here.join("text");
        fs::write(&file, &bytes)?;
        let ours = self.carry("push", &here, text(&remote), &[])?;
        let sent = number(&ours.out, "moved_bytes")?;
        let mut gzip = Command::new("gzip");
        let theirs = measured(gzip.args(["-6", "-k"]).arg(&file))?.ok_or("`gzip` is not installed")?;
        let theirs_bytes = fs::metadata(here.join("text.gz"))?.len();
        let share = |stored: u64| 100.0 * stored as f64 / bytes.len() as f64;
        Ok(vec![
            format!("{:.1} MB of source text", bytes.len() as f64 / 1e6),
            format!("gradus push (cut, hashed, zstd -9)  {sent} bytes, {:.1} %, {:.2} s", share(sent), ours.cpu_s),
            format!(
                "gzip -6                             {theirs_bytes} bytes, {:.1} %, {:.2} s",
                share(theirs_bytes),
                theirs.cpu_s
            ),
            format!(
                "smaller by {:.1} %, {:.1} times as fast",
                100.0 - 100.0 * sent as f64 / theirs_bytes as f64,
                theirs.cpu_s / ours.cpu_s
            ),
        ])
    }

    fn carry(&self, verb: &str, from: &Path, to: &str, env: &[(&str, &str)]) -> Result<Cost, Box<dyn Error>> {
        self.command(&["data", verb, text(from), to, "--json"], env)
    }

    fn plain(&self, from: &Path, to: &str, env: &[(&str, &str)]) -> Result<Cost, Box<dyn Error>> {
        self.command(&["data", "push", text(from), to, "--json", "--plain"], env)
    }

    fn command(&self, arguments: &[&str], env: &[(&str, &str)]) -> Result<Cost, Box<dyn Error>> {
        let mut command = Command::new(&self.gradus);
        command.args(arguments).arg("--home").arg(self.folder.join("home")).envs(env.iter().copied());
        measured(&mut command)?.ok_or_else(|| "gradus was not built".into())
    }
}

/// A bucket of moto's, and the programs of others that copy to it.
struct Bucket {
    endpoint: String,
    /// Paths of s5cmd and the AWS CLI; `None` if they cannot be installed.
    peers: Option<PathBuf>,
}

impl Bucket {
    fn env(&self) -> [(&str, &str); 5] {
        [
            ("AWS_ENDPOINT_URL", self.endpoint.as_str()),
            // s5cmd's own name for it.
            ("S3_ENDPOINT_URL", self.endpoint.as_str()),
            ("AWS_ACCESS_KEY_ID", "x"),
            ("AWS_SECRET_ACCESS_KEY", "x"),
            ("AWS_DEFAULT_REGION", "us-east-1"),
        ]
    }

    fn rclone(&self, from: &str, to: &str) -> Result<Option<Cost>, Box<dyn Error>> {
        let mut command = limited("rclone");
        command.args(["copy", "--config", "/dev/null", "--transfers", "8", "--s3-provider", "Other"]);
        command.args(["--s3-force-path-style", "--s3-access-key-id", "x", "--s3-secret-access-key", "x"]);
        // Certificates are not needed here, and some versions cannot load others than the system's.
        command.args(["--s3-endpoint", &self.endpoint, from, to]).env_remove("AWS_CA_BUNDLE");
        measured(&mut command)
    }

    fn peer(&self, name: &str, arguments: &[&str]) -> Result<Option<Cost>, Box<dyn Error>> {
        let Some(folder) = &self.peers else { return Ok(None) };
        let mut command = limited(folder.join("bin").join(name));
        measured(command.args(arguments).envs(self.env()).env("PYTHONPATH", folder))
    }
}

/// A row of the table.
fn row(what: &str, cost: Result<Option<Cost>, Box<dyn Error>>) -> String {
    match cost {
        Ok(Some(cost)) => format!("{what:<20} {:>11.2} {:>8.1}", cost.cpu_s, cost.wall_s),
        Ok(None) => format!("{what:<20} not here"),
        Err(error) => {
            eprintln!("{what}: {error}");
            format!("{what:<20} did not end well within {LIMIT_S} s")
        }
    }
}

/// Makes the bucket that everybody uses.
fn bucket(port: u16) -> Result<(), Box<dyn Error>> {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port))?;
    stream.write_all(
        b"PUT /bucket HTTP/1.1\r\nHost: s3.amazonaws.com\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
    )?;
    stream.read_to_end(&mut Vec::new())?;
    Ok(())
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap_or_default()
}
