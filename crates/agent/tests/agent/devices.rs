//! What the machine's GPUs do, said by an agent that finds a stand-in for NVIDIA's library where libraries are looked for.

use std::fs;
use std::path::Path;
use std::process::Command;

use domain::rank::{DeviceUse, Report};
use domain::wire::{AgentEvent, Entry};

use crate::scene::Scene;

/// Compiles the stand-in, whose state is the file beside it.
fn stand_in(folder: &Path) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/nvml/standin.c");
    let state = format!("-DSTATE=\"{}\"", folder.join("state").display());
    let mut compiler = Command::new("c++");
    compiler.args(["-xc", "-shared", "-fPIC", &state]).arg(source).arg("-o").arg(folder.join("libnvidia-ml.so.1"));
    assert!(compiler.status().unwrap().success());
}

/// The reports of devices, in order.
fn reports(entries: &[Entry]) -> Vec<&[DeviceUse]> {
    entries
        .iter()
        .filter_map(|entry| match &entry.event {
            AgentEvent::Reported { report: Report::Devices { devices }, .. } => Some(devices.as_slice()),
            _ => None,
        })
        .collect()
}

#[test]
fn devices_are_reported_while_an_attempt_runs() {
    let folder = tempfile::tempdir().unwrap();
    stand_in(folder.path());
    fs::write(folder.path().join("state"), "0 busy 97\n1 mig 2\n").unwrap();
    let scene = Scene::new("devices", &format!("devices:50 LD_LIBRARY_PATH={}", folder.path().display()));
    scene.control.order(vec![scene.start(1, "run: sleep 100")]);
    let entries = scene.control.wait("devices", |entries| !reports(entries).is_empty());
    let first = reports(&entries)[0];
    let places: Vec<_> = first.iter().map(|device| (device.gpu, device.mig, device.busy_percent)).collect();
    assert_eq!(places, [(0, None, Some(97)), (1, Some(0), None), (1, Some(1), None)]);

    // What a device does changes, and is said again.
    fs::write(folder.path().join("state"), "0 busy 5\n").unwrap();
    scene.control.wait("another report", |entries| {
        reports(entries).iter().any(|devices| devices.len() == 2 && devices[0].busy_percent == Some(5))
    });
}
