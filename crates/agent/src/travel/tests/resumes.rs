//! Which checkpoints of its loop a machine fetches before an attempt, and which of its own it keeps.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, UNIX_EPOCH};

use checkpoint::{
    BestWeights, CheckpointWriter, Dtype, Placement, Snapshot, SnapshotPart, Tensor, WriterIdentity, newest_verified,
};
use domain::{AttemptId, Fence, RunId};
use serde_json::json;

use super::scene::{Scene, refusing};
use super::{manifest, start};
use crate::travel::checkpoints;

/// Of a program's files, those here are newer only if nobody else has written there since.
#[test]
fn a_program_s_newer_files_stay_if_the_attempt_before_was_here() {
    let at = |seconds: u64| UNIX_EPOCH + Duration::from_secs(seconds);
    for (was_here, time, expected) in [(true, 2000, "ours"), (true, 500, "loop"), (false, 2000, "loop")] {
        let scene = Scene::new(0);
        for (path, contents, time) in
            [("there/checkpoints/last.pt", "loop", 1000), ("here/checkpoints/last.pt", "ours", time)]
        {
            fs::File::options().write(true).open(scene.write(path, contents)).unwrap().set_modified(at(time)).unwrap();
        }
        if was_here {
            scene.write("here/attempts/r-a8/fetched", &checkpoints::boot());
        }
        let job = domain::Job::parse("run: echo\n", "job.yaml").unwrap().job;
        let start = domain::wire::Start { job, ..start(&scene.here()) };
        checkpoints::bring(&mut scene.destination(), &start).unwrap();
        let found = fs::read_to_string(scene.here().join("checkpoints/last.pt")).unwrap();
        assert_eq!(found, expected, "{was_here} {time}");
        assert!(scene.here().join("attempts/r-a9/fetched").exists());
        scene.requests();
        checkpoints::bring(&mut scene.destination(), &start).unwrap();
        assert_eq!(scene.requests(), ["GET /v1/runs/r/files"], "nothing travels twice");
    }
}

#[test]
fn the_newer_checkpoint_wins_and_an_attempt_that_was_replaced_never_does() {
    // Attempt and step here and there; the step that results here.
    for (ours, theirs, expected) in [
        (None, Some((1, 10)), 10),
        (Some((1, 20)), Some((1, 10)), 20),
        (Some((1, 10)), Some((1, 20)), 20),
        (Some((1, 30)), Some((2, 20)), 20),
        (Some((3, 5)), Some((2, 20)), 20),
        (Some((1, 10)), None, 10),
    ] {
        let scene = Scene::new(0);
        let folder = scene.here().join("checkpoints");
        let write = |folder: &Path, what: Option<(u64, u64)>| {
            if let Some((fence, step)) = what {
                fs::write(folder.join(format!("manifest-{step}.json")), manifest(fence, step)).unwrap();
            }
        };
        write(&folder, ours);
        fs::create_dir_all(scene.there().join("checkpoints")).unwrap();
        write(&scene.there().join("checkpoints"), theirs);
        checkpoints::bring(&mut scene.destination(), &start(&scene.here())).unwrap();
        let names: Vec<String> =
            fs::read_dir(&folder).unwrap().flatten().map(|entry| entry.file_name().into_string().unwrap()).collect();
        assert_eq!(names, [format!("manifest-{expected}.json")], "{ours:?} here and {theirs:?} there");
    }
}

/// A loop that does not know the machine, or cannot list what it has, has not said that there is nothing to resume from.
#[test]
fn only_where_the_loop_has_no_checkpoint_a_run_begins_at_step_0() {
    for (status, begins) in [
        ("404 Not Found", true),
        ("401 Unauthorized", false),
        ("403 Forbidden", false),
        ("422 Unprocessable Entity", false),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let brought = checkpoints::bring(&mut refusing(folder.path(), status), &start(folder.path()));
        assert_eq!(brought.is_ok(), begins, "{status}: {brought:?}");
    }
}

/// The parts of a checkpoint that two ranks have written, and of its best weights, arrive before the manifest that names
/// them, and the next machine resumes from them.
#[test]
fn parts_of_ranks_travel_there_and_back() {
    let scene = Scene::new(0);
    let folder = scene.here().join("checkpoints");
    let identity = || WriterIdentity {
        run: RunId::new("r"),
        attempt: AttemptId::new("r-a1"),
        fence: Fence(1),
        job_hash: "job".into(),
    };
    let mut first = CheckpointWriter::open(&folder, identity(), 2, domain::train::Codec::Full, None).unwrap();
    let mut second = CheckpointWriter::open_part(&folder, 1, identity(), None);
    let (folders, _) = first.begin_parts(7, Some(5)).unwrap();
    let part = |rank: u32| {
        let tensor = |name: &str| Tensor {
            name: name.into(),
            dtype: Dtype::U8,
            shape: vec![2],
            bytes: vec![2 * rank as u8, 2 * rank as u8 + 1],
        };
        let place = Placement { from: 2 * u64::from(rank), ..Placement::whole(&[4]) };
        let places = ["w", "first.w"].map(|name| (name.to_owned(), place.clone())).into();
        let (folder, best_folder) = (folders.step.clone(), folders.best.clone());
        Snapshot {
            step: 7,
            began: Instant::now(),
            model: vec![tensor("w")],
            training: vec![tensor("first.w")],
            state: json!({}),
            best: Some(Arc::new(BestWeights { step: 5, model: vec![tensor("w")] })),
            part: Some(SnapshotPart { rank, of: 2, folder, best_folder, places: Arc::new(places) }),
        }
    };
    second.save(part(1)).unwrap();
    first.save(part(0)).unwrap();
    assert_eq!(first.wait().unwrap().map(|done| done.step), Some(7));
    fs::write(folder.join(".seen"), "").unwrap();
    scene.upload().unwrap();
    let requests = scene.requests();
    let puts: Vec<&str> =
        requests.iter().filter_map(|request| request.strip_prefix("PUT /v1/runs/r/files/checkpoints/")).collect();
    assert_eq!(puts.len(), 7, "{puts:?}");
    assert_eq!(puts.last(), Some(&"manifest-00000007.json"));
    assert!(puts.iter().all(|put| !put.contains("/.")), "{puts:?}");
    let expected = newest_verified(&folder, "job").unwrap().0.unwrap();
    fs::remove_dir_all(&folder).unwrap();
    fs::create_dir_all(&folder).unwrap();
    checkpoints::bring(&mut scene.destination(), &start(&scene.here())).unwrap();
    let found = newest_verified(&folder, "job").unwrap().0.unwrap();
    assert_eq!((found.manifest, found.model, found.training), (expected.manifest, expected.model, expected.training));
    assert_eq!(found.best.unwrap().model[0].bytes, [0, 1, 2, 3]);
}
