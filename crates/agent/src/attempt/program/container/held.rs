//! Waits until a container is held open, for a runtime calls it started before its first process is.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use domain::{Cause, ContainerImage, Finding};

/// How long that may take; a busy disk needs seconds to read an image.
const WITHIN: Duration = Duration::from_secs(120);

/// Between two looks.
const LOOK: Duration = Duration::from_millis(20);

/// Between two questions to the runtime.
const ASK: Duration = Duration::from_millis(500);

/// Waits for the number that the script which holds a container writes into its folder, while the runtime says that the
/// container runs.
///
/// # Errors
/// What the image may lack.
pub fn wait_until_held(
    folder: &Path,
    runs: impl Fn() -> Result<bool, String>,
    image: &ContainerImage,
    name: &str,
) -> Result<(), Finding> {
    let is_held = || fs::read_to_string(folder.join("holder")).is_ok_and(|number| number.ends_with('\n'));
    let (begun, mut asked) = (Instant::now(), Instant::now());
    let what = loop {
        if is_held() {
            return Ok(());
        }
        if asked.elapsed() >= ASK {
            // One that does not answer now is asked again.
            if matches!(runs(), Ok(false)) && !is_held() {
                break "ended before it could run anything".to_owned();
            }
            asked = Instant::now();
        }
        if begun.elapsed() >= WITHIN {
            break format!("has not started for {} s", WITHIN.as_secs());
        }
        std::thread::sleep(LOOK);
    };
    let at = image.qualified();
    let hint = format!(
        "choose an image that has `bash` and was built for this machine's processor; \
         `{name} run --rm --entrypoint bash {at} -c true` there says more"
    );
    Err(Finding::new(Cause::Setup, format!("the container of `{image}` {what}")).hint(hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_that_ended_at_once_is_told_from_a_slow_one() {
        let folder = tempfile::tempdir().unwrap();
        let image: ContainerImage = "docker:a/b".parse().unwrap();
        let wait = |runs: &dyn Fn() -> Result<bool, String>| wait_until_held(folder.path(), runs, &image, "podman");
        let found = wait(&|| Ok(false)).unwrap_err();
        assert_eq!(found.message, "the container of `docker:a/b` ended before it could run anything");
        let hint = found.hint.unwrap();
        assert!(hint.contains("has `bash`") && hint.contains("--entrypoint bash docker.io/a/b -c true"), "{hint}");
        // No answer proves nothing, and it may have become ready since it was looked at.
        let holder = folder.path().join("holder");
        wait(&|| {
            fs::write(&holder, "7\n").unwrap();
            Err("no answer".into())
        })
        .unwrap();
        fs::remove_file(&holder).unwrap();
        wait(&|| {
            fs::write(&holder, "7\n").unwrap();
            Ok(false)
        })
        .unwrap();
    }
}
