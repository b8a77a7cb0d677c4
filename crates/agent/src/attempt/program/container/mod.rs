//! A program's container: `image_id` of its job.
//!
//! One container per attempt, started by podman or docker once its inputs are there. A script of ours holds it open;
//! `setup` and `run` are executed in it, so that what the first installs is there for the second. An order to stop goes to
//! the script by the runtime's `kill`, and from there to each process once. At the end the container is removed by its
//! name, and the attempt is not over before the runtime lists none of that name, or has not answered for minutes.

mod advice;
mod held;
mod line;
mod view;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use domain::{Cause, ContainerImage, Finding};
use node::containers::{self, ContainerEngine, ContainerRuntime};
use node::processes::{INSTANCE, OWNER};
use node::session;
use rustix::process::{getegid, geteuid};

use super::super::workdir::Placed;
use advice::advice;
use held::wait_until_held;
use line::{BindMount, ContainerSpec, ContainerUser, exec_line, place_inside, run_line};
use node::folder::not_written;
use node::log::tail;
use view::ContainerView;

pub use line::container_name;

/// Between two tries to remove a container.
const AGAIN: Duration = Duration::from_secs(1);

/// How long an attempt waits for that: nobody should pay for a machine because its docker hangs. What may be left is tried
/// again before the next attempt, and by the machine's provider.
const GIVE_UP: Duration = Duration::from_secs(300);

/// Where a program finds the socket of its agent.
const SOCKET: &str = "/run/gradus.sock";

/// Its first process, and what starts each script in it.
const SCRIPTS: [(&str, &str); 2] = [("hold.sh", include_str!("hold.sh")), ("enter.sh", include_str!("enter.sh"))];

/// What a container is made for.
#[derive(Debug)]
pub struct ContainerRequest {
    /// The image of the job.
    pub image: ContainerImage,
    /// The attempt.
    pub attempt: String,
    /// The folder of the attempt.
    pub folder: PathBuf,
    /// The folder that survives attempts.
    pub checkpoints: PathBuf,
    /// The socket of the agent for programs, if there is one.
    pub socket: Option<PathBuf>,
    /// The log of the attempt, for what the runtime says.
    pub log: PathBuf,
    /// The folder of the instance.
    pub instance: PathBuf,
    /// The folder of all runs and caches of this owner.
    pub root: PathBuf,
    /// The home folder of the agent's user.
    pub user_home: Option<PathBuf>,
    /// Owner and instance.
    pub tags: [String; 2],
    /// Whether the job sees NVIDIA GPUs.
    pub has_gpus: bool,
    /// The most memory in bytes, and cores.
    pub limits: (Option<u64>, Option<u32>),
}

/// A container that waits for scripts.
#[derive(Debug)]
pub struct Container {
    runtime: ContainerRuntime,
    name: String,
    /// Of its scripts and marks.
    folder: PathBuf,
    /// The process namespace of the machine.
    namespace: String,
    has_socket: bool,
    /// What the machine shows of it.
    view: ContainerView,
    /// Removes it.
    ending: Option<JoinHandle<()>>,
}

/// Whom an order to stop is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopScope {
    /// Each process.
    All,
    /// The script, whose program has been told by other means.
    Script,
}

impl Container {
    /// Pulls the image unless it is there, and starts the container. It takes as long as the image does.
    ///
    /// # Errors
    /// What the machine lacks, or what the runtime says.
    pub fn start(request: &ContainerRequest, placed: &Placed) -> Result<Container, Finding> {
        let runtime = ContainerRuntime::find().ok_or_else(no_runtime)?;
        // Of earlier attempts, and what agents of this machine that were killed have left.
        containers::end_all(&request.instance).map_err(|error| *not_written("read", &request.instance, &error))?;
        request.instance.parent().into_iter().for_each(containers::end_leftovers);
        let folder = request.folder.join("container");
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |error: std::io::Error| *not_written("write", &path, &error)
        };
        let caches = request.root.join("cache/container");
        for made in [&folder, &caches] {
            fs::create_dir_all(made).map_err(failed(made))?;
        }
        for (name, text) in SCRIPTS {
            fs::write(folder.join(name), text).map_err(failed(&folder))?;
        }
        let namespace = fs::read_link("/proc/self/ns/pid").unwrap_or_default().to_string_lossy().into_owned();
        let spec = spec(request, placed, &runtime, (folder.as_path(), caches.as_path(), namespace.as_str()))?;
        let line = run_line(&spec).map_err(|path| {
            let message =
                format!("`{path}` cannot be mounted into a container: its name has a comma or a quotation mark");
            Finding::new(Cause::Job, message).hint("choose a folder without them, or leave `image_id` out")
        })?;
        let has_image = runtime.ask(&["image", "inspect", "--format", "{{.Id}}", spec.image.as_str()]).is_ok();
        if !has_image {
            call(&runtime, &["pull".to_owned(), spec.image.clone()], request)?;
        }
        containers::record(&request.instance, &runtime, &spec.name).map_err(failed(&request.instance))?;
        let name = spec.name.clone();
        let has_socket = request.socket.is_some();
        let (view, ending) = (ContainerView::default(), None);
        let mut container = Container { runtime: runtime.clone(), name, folder, namespace, has_socket, view, ending };
        // One that does not start may be there all the same: it is removed when it is dropped.
        call(&runtime, &line, request)?;
        wait_until_held(&container.folder, || runtime.runs(&container.name), &request.image, runtime.engine.name())?;
        container.view = ContainerView::of(&runtime, &container.name, &container.folder, request.limits.0);
        Ok(container)
    }

    /// What the machine shows of it.
    pub fn view(&self) -> &ContainerView {
        &self.view
    }

    /// What is not as the job asks for.
    pub fn note(&self) -> Option<String> {
        self.view.note(self.runtime.engine.name())
    }

    /// Whether it has ended, or was told to, though the agent has not asked for that: `podman stop`, or docker that starts
    /// again.
    pub fn is_ended_by_others(&self) -> bool {
        self.folder.join("told").exists() || self.view.has_ended()
    }

    /// The command that runs in it what `plain` runs on the machine: with the same arguments, folder and variables.
    ///
    /// # Errors
    /// A secret that cannot be passed.
    pub fn enter(&self, plain: &Command, is_secret: impl Fn(&str) -> bool) -> Result<Command, Box<Finding>> {
        let text = |value: &std::ffi::OsStr| value.to_string_lossy().into_owned();
        let mut variables: Vec<(String, String)> =
            plain.get_envs().filter_map(|(name, value)| Some((text(name), text(value?)))).collect();
        for (_, value) in variables.iter_mut().filter(|(name, _)| name == "GRADUS_SOCKET" && self.has_socket) {
            SOCKET.clone_into(value);
        }
        let enter = self.folder.join("enter.sh");
        let mut command = vec!["bash".to_owned(), text(enter.as_os_str()), text(self.folder.as_os_str())];
        command.push(self.namespace.clone());
        command.extend(plain.get_args().map(text));
        let workdir = plain.get_current_dir().map_or_else(|| "/".to_owned(), |folder| text(folder.as_os_str()));
        let line = exec_line(&self.name, &workdir, &variables, is_secret, &command).map_err(|name| {
            let message = format!(
                "the secret `{name}` cannot be passed to a container: `{}` would act on it itself",
                self.runtime.engine.name()
            );
            Box::new(Finding::new(Cause::Job, message).hint("give it another name, and set this one in `run`"))
        })?;
        let mut entered = Command::new(&self.runtime.program);
        entered.args(line);
        entered.envs(variables.into_iter().filter(|(name, _)| !line::means_something(name)));
        Ok(entered)
    }

    /// Passes an order to stop on. Whoever does not follow it is killed at the attempt's deadline.
    pub fn stop(&self, scope: StopScope) {
        let (runtime, name) = (self.runtime.clone(), self.name.clone());
        let signal = match scope {
            StopScope::All => "TERM",
            StopScope::Script => "USR1",
        };
        std::thread::spawn(move || {
            let _ = runtime.ask(&["kill", "--signal", signal, &name]);
        });
    }

    /// Kills and removes it; returns whether that is proved, or was tried for long enough.
    pub fn is_removed(&mut self) -> bool {
        let (runtime, name) = (self.runtime.clone(), self.name.clone());
        let remove = || {
            std::thread::spawn(move || {
                let until = Instant::now() + GIVE_UP;
                while !runtime.end(&name) && Instant::now() < until {
                    std::thread::sleep(AGAIN);
                }
            })
        };
        self.ending.get_or_insert_with(remove).is_finished()
    }
}

/// An attempt that ended before it had its container leaves none. A later look finds its name if this process ends first.
impl Drop for Container {
    fn drop(&mut self) {
        self.is_removed();
    }
}

fn spec(
    request: &ContainerRequest,
    placed: &Placed,
    runtime: &ContainerRuntime,
    (folder, caches, namespace): (&Path, &Path, &str),
) -> Result<ContainerSpec, Finding> {
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
    let is_rootless = match runtime.engine {
        ContainerEngine::Podman => uid != 0,
        ContainerEngine::Docker => {
            runtime.ask(&["info", "--format", "{{.SecurityOptions}}"]).is_ok_and(|said| said.contains("rootless"))
        }
    };
    let user = ContainerUser::of(is_rootless, uid, gid);
    let home = match user {
        ContainerUser::Root => "/root".to_owned(),
        ContainerUser::Same { .. } => text(&folder.join("home")),
    };
    if let ContainerUser::Same { .. } = user {
        fs::create_dir_all(&home).map_err(|error| *not_written("make", Path::new(&home), &error))?;
    }
    let bind = |source: &Path, target: String, is_writable| BindMount { source: text(source), target, is_writable };
    let mut mounts: Vec<BindMount> = [&*request.folder, &*request.checkpoints, caches]
        .into_iter()
        .map(|path| bind(path, text(path), true))
        .collect();
    mounts.extend(request.socket.as_deref().map(|socket| bind(socket, SOCKET.to_owned(), true)));
    let user_home = request.user_home.as_deref().map(text);
    for (place, source, is_writable) in placed.places() {
        let target = place_inside(&text(place), user_home.as_deref(), &home);
        if Path::new(&target).starts_with(folder) {
            mount_point(Path::new(&target), source).map_err(|error| *not_written("make", place, &error))?;
        }
        mounts.push(bind(source, target, is_writable));
    }
    let held_by = vec![text(&folder.join("hold.sh")), text(folder), namespace.to_owned()];
    Ok(ContainerSpec {
        engine: runtime.engine,
        name: container_name(&request.attempt, &request.tags[0]),
        image: request.image.qualified(),
        user,
        home,
        caches: text(caches),
        mounts,
        has_gpus: request.has_gpus,
        limits: request.limits,
        held_by,
    })
}

/// Makes what a mount is put over, where the runtime would make it as the machine's root.
fn mount_point(target: &Path, source: &Path) -> std::io::Result<()> {
    if source.is_dir() {
        return fs::create_dir_all(target);
    }
    fs::create_dir_all(target.parent().unwrap_or(target))?;
    File::options().create(true).append(true).open(target).map(|_| ())
}

/// Calls the runtime; what it says is in the log, but for the number of the container that `run` prints.
fn call(runtime: &ContainerRuntime, line: &[String], request: &ContainerRequest) -> Result<(), Finding> {
    let open = || File::options().create(true).append(true).open(&request.log);
    let outputs = open().and_then(|stdout| Ok((stdout.try_clone()?, stdout)));
    let (stdout, stderr) = outputs.map_err(|error| *not_written("open", &request.log, &error))?;
    let mut command = Command::new(&runtime.program);
    let (name, doing) = (runtime.engine.name(), line.first().map_or("", String::as_str));
    let stdout = if doing == "run" { Stdio::null() } else { Stdio::from(stdout) };
    command.args(line).stdin(Stdio::null()).stdout(stdout).stderr(stderr);
    command.env(OWNER, &request.tags[0]).env(INSTANCE, &request.tags[1]);
    session::own_and_bound(&mut command);
    let status = command.status();
    if status.as_ref().is_ok_and(std::process::ExitStatus::success) {
        return Ok(());
    }
    let how = status.map_or_else(|error| error.to_string(), |status| status.to_string());
    let said = tail(&request.log);
    let message = format!("`{name} {doing}` for `{}` failed ({how}): {said}", request.image);
    Err(Finding::new(Cause::Setup, message).hint(advice(&said, doing, name, &request.image)))
}

fn no_runtime() -> Finding {
    let message = "`image_id` needs podman or docker, and the machine has neither";
    Finding::new(Cause::Setup, message)
        .hint("install one there, such as `sudo apt-get install podman catatonit`, or leave `image_id` out")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container() -> Container {
        let runtime = ContainerRuntime { engine: ContainerEngine::Docker, program: "/no/docker".into() };
        Container {
            runtime,
            name: "gradus-a-1-a1".into(),
            folder: "/h/container".into(),
            namespace: "pid:[1]".into(),
            has_socket: true,
            view: ContainerView::default(),
            ending: Some(std::thread::spawn(|| ())),
        }
    }

    #[test]
    fn a_container_that_was_told_to_end_is_known() {
        let folder = tempfile::tempdir().unwrap();
        let mut told = container();
        folder.path().clone_into(&mut told.folder);
        assert!(!told.is_ended_by_others());
        fs::write(folder.path().join("told"), "").unwrap();
        assert!(told.is_ended_by_others());
    }

    #[test]
    fn a_script_is_executed_with_its_variables_and_no_value_in_sight() {
        let mut plain = Command::new("bash");
        plain.arg("/h/run.sh").current_dir("/h/workdir").env_remove("GONE");
        plain.env("GRADUS_SOCKET", "/long/socket").env("PATH", "/opt/bin").env("TOKEN", "s3cret");
        let entered = container().enter(&plain, |name| name == "TOKEN").unwrap();
        let arguments: Vec<&str> = entered.get_args().map(|word| word.to_str().unwrap()).collect();
        assert_eq!(
            arguments.join(" "),
            "exec --workdir /h/workdir --env GRADUS_SOCKET --env PATH=/opt/bin --env TOKEN --env GRADUS_OWNER \
             --env GRADUS_INSTANCE --env GRADUS_ATTEMPT gradus-a-1-a1 bash /h/container/enter.sh /h/container pid:[1] \
             /h/run.sh"
        );
        let value = |name: &str| {
            let found = entered.get_envs().find(|(known, _)| *known == name)?;
            found.1.map(|value| value.to_str().unwrap().to_owned())
        };
        assert_eq!(value("TOKEN").as_deref(), Some("s3cret"));
        assert_eq!(value("GRADUS_SOCKET").as_deref(), Some(SOCKET));
        assert_eq!((value("PATH"), value("GONE")), (None, None), "the runtime keeps its own");
        let why = container().enter(plain.env("LD_PRELOAD", "x"), |name| name == "LD_PRELOAD").unwrap_err();
        assert!(why.message.contains("`LD_PRELOAD`"), "{why:?}");
    }
}
