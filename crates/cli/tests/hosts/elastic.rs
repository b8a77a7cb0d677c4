//! A job on a number of nodes that changes: one loses power, the others continue without it, and with it once it is back.

use std::fs;

use super::Scene;

/// No other test has them.
const HOSTS: [u32; 3] = [26, 27, 28];

/// The numbers in a text that come after these words, in order.
fn numbers_after(text: &str, words: &str) -> Vec<u64> {
    let number = |rest: &str| rest.chars().take_while(char::is_ascii_digit).collect::<String>().parse().ok();
    text.split(words).skip(1).filter_map(number).collect()
}

fn newest_checkpoint(scene: &Scene) -> Option<u64> {
    let entries = fs::read_dir(scene.run_folder().join("checkpoints")).unwrap().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter_map(|name| name.strip_prefix("manifest-")?.strip_suffix(".json")?.parse().ok()).max()
}

/// Takes minutes: a node is given up after 55 s, the others start without it a minute later, and have to make steps for a
/// minute before they are interrupted for it.
#[test]
#[ignore = "needs hosts: `cargo xtask test` provides them"]
fn a_job_continues_on_two_of_three_nodes_and_grows_again() {
    let scene = Scene::with(&HOSTS);
    let job = scene.job_on("ssh", 3, 1, 100_000);
    let text = fs::read_to_string(&job).unwrap().replace("num_nodes: 3", "num_nodes: {min: 2, max: 3}");
    fs::write(&job, text).unwrap();
    let mut run = scene.start(&job);
    scene.wait("checkpoints have come here", 60, || scene.manifests() >= 2);
    let trains = |host: u32| scene.processes(host).iter().any(|line| line.contains("gradus-rank"));
    assert!(HOSTS.into_iter().all(trains), "it starts on all three");
    // Rank 0 is on the machine that was rented first.
    let place = scene.path("home/instances").join(format!("{}-i3", scene.name())).join("host");
    let lost = fs::read_to_string(place).unwrap().trim().to_owned();
    let number: u32 = lost.strip_prefix("host-").unwrap().parse().unwrap();
    scene.lab(&["kill", &number.to_string()]);
    let resumes = || numbers_after(&scene.events(), "resumed at step ");
    scene.wait("it continues on two", 240, || resumes().len() == 1);
    assert!(HOSTS.into_iter().filter(|host| *host != number).all(trains), "on those that are left");
    scene.lab(&["start", &number.to_string()]);
    scene.wait("it continues on three", 300, || resumes().len() == 2 && trains(number));
    assert!(HOSTS.into_iter().all(trains));
    let shrunk = newest_checkpoint(&scene).unwrap();
    scene.wait("another checkpoint has come here", 60, || newest_checkpoint(&scene).is_some_and(|step| step > shrunk));
    scene.ok(&["stop", "last"]);
    scene.wait("the run has ended", 120, || run.try_wait().unwrap().is_some());

    let events = scene.events();
    assert_eq!(events.matches("trains from step 0 ").count(), 1, "{events}");
    assert_eq!(events.matches("more machines are there for the next one").count(), 1, "it grew once: {events}");
    let (resumed, stopped) = (resumes(), numbers_after(&events, "stopped with a checkpoint at step "));
    let last = *stopped.iter().max().expect("the step of its last checkpoint");
    assert!(0 < resumed[0] && resumed[0] < resumed[1] && resumed[1] < last, "{resumed:?} {stopped:?}: {events}");
    assert!(stopped.contains(&resumed[1]), "it saved before it grew, and repeats no step: {resumed:?} {stopped:?}");
    assert_eq!(newest_checkpoint(&scene), Some(last), "the state of the last step is here");
    scene.wait("no process is left", 60, || HOSTS.into_iter().all(|host| scene.processes(host).is_empty()));
}
