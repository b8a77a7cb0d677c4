//! Steps of xtask: other programs, one after the other, each announced before it starts, and timed.

use std::error::Error;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

/// The result of a command of xtask: a closing line, or an error.
pub type Outcome = Result<String, Box<dyn Error>>;

/// The cargo that runs us, started at `root`.
pub fn cargo(root: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(root).stdin(Stdio::null());
    as_typed(root, &mut command);
    command
}

/// Removes from a command that is cargo, or calls it, what `cargo xtask` has set for us.
pub fn as_typed(root: &Path, command: &mut Command) {
    // `.cargo/config.toml` has set this for us. Handed on, it would look like the user's own choice, and cargo would
    // rebuild what depends on it each time somebody types `cargo` after `cargo xtask`.
    let ours = root.join("vendor/libtorch");
    if std::env::var_os("LIBTORCH").is_some_and(|path| Path::new(&path) == ours) {
        command.env_remove("LIBTORCH");
    }
    // `cargo xtask` has described this package to us. Build scripts that ask to be run again when such a variable changes,
    // as ring's does, would be, and all that rests on them.
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(describes_package)) {
        command.env_remove(name);
    }
}

/// Whether cargo sets a variable for what it runs, to describe its package.
fn describes_package(name: &str) -> bool {
    name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
}

/// The same command with the lowest priority: it computes with what others leave.
pub fn nice(command: &Command) -> Command {
    let mut nice = Command::new("nice");
    nice.args(["-n", "19"]).arg(command.get_program()).args(command.get_args()).stdin(Stdio::null());
    if let Some(folder) = command.get_current_dir() {
        nice.current_dir(folder);
    }
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => nice.env(name, value),
            None => nice.env_remove(name),
        };
    }
    nice
}

/// Runs one step: prints its name, and how long it took.
pub fn step<T>(what: &str, work: impl FnOnce() -> Result<T, Box<dyn Error>>) -> Result<T, Box<dyn Error>> {
    eprintln!("xtask: {what}");
    let start = Instant::now();
    let done = work()?;
    eprintln!("xtask: {what}: {:.1} s", start.elapsed().as_secs_f64());
    Ok(done)
}

/// Runs a program to its end; its output goes where ours goes.
pub fn run(command: &mut Command, hint: &str) -> Result<(), Box<dyn Error>> {
    let program = command.get_program().to_string_lossy().into_owned();
    let status = command.status().map_err(|error| format!("cannot start `{program}`: {error}"))?;
    if status.success() {
        return Ok(());
    }
    let arguments: Vec<_> = command.get_args().map(|argument| argument.to_string_lossy()).collect();
    let name = Path::new(&program).file_name().unwrap_or_default().to_string_lossy();
    Err(format!("`{name} {}` failed: {status}\n  hint: {hint}", arguments.join(" ")).into())
}

/// Runs a program to its end and returns its stdout.
pub fn read(command: &mut Command) -> Result<String, Box<dyn Error>> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| format!("cannot start `{program}`: {error}"))?;
    if !output.status.success() {
        return Err(format!("`{program}` failed: {}", String::from_utf8_lossy(&output.stderr).trim()).into());
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// Whether a program can be started with these arguments and succeeds.
pub fn works(command: &mut Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargo_is_told_nothing_of_this_package() {
        assert!(std::env::var_os("CARGO_PKG_NAME").is_some() && std::env::var_os("CARGO_MANIFEST_DIR").is_some());
        let cargo = cargo(Path::new("/"), &[]);
        let removed: Vec<_> = cargo.get_envs().filter(|(_, value)| value.is_none()).map(|(name, _)| name).collect();
        assert!(removed.contains(&"CARGO_PKG_NAME".as_ref()) && removed.contains(&"CARGO_MANIFEST_DIR".as_ref()));
        assert!(!removed.contains(&"CARGO_HOME".as_ref()), "{removed:?}");
    }

    #[test]
    fn a_nice_command_is_the_same_command() {
        let mut command = Command::new("sh");
        command
            .args(["-c", "echo $ONE ${TWO-unset} $(pwd) $(nice)"])
            .current_dir("/")
            .env("ONE", "1")
            .env_remove("TWO");
        assert_eq!(read(&mut nice(&command)).expect("sh runs"), "1 unset / 19\n");
    }
}
