//! What the machine's GPUs do, and what goes wrong with them, said while an attempt runs.
//!
//! A thread asks NVIDIA's management library every few seconds, and reads the kernel's messages for errors of the driver
//! (Xid). Neither is there on a machine without such a GPU; then the thread ends, and nothing is said.

mod nvml;
mod xid;

use std::path::Path;
use std::sync::mpsc::Sender;
use std::time::Duration;

use domain::rank::Report;

use crate::event::Wakeup;
use nvml::Nvml;
use xid::KernelLog;

/// The library, which every driver brings along, and the kernel's messages.
const LIBRARY: &str = "libnvidia-ml.so.1";
const KERNEL_LOG: &str = "/dev/kmsg";

/// From now on reports what the GPUs of this machine do, at intervals of `pause`.
pub fn watch(events: Sender<Wakeup>, pause: Duration) {
    let look = move || {
        // Opening the library wakes sleeping devices, which may take seconds.
        let Some(library) = Nvml::open(LIBRARY) else { return };
        // Not everybody may read them.
        let mut messages = KernelLog::open(Path::new(KERNEL_LOG)).ok();
        loop {
            let devices = library.devices();
            let used = (!devices.is_empty()).then_some(Report::Devices { devices });
            let errors = messages.as_mut().map(KernelLog::new_errors).unwrap_or_default();
            let errors = errors.iter().map(|error| Report::Note { text: error.to_string() });
            for report in used.into_iter().chain(errors) {
                if events.send(Wakeup::OfMachine(report)).is_err() {
                    return;
                }
            }
            std::thread::sleep(pause);
        }
    };
    // Training does not depend on this thread.
    let _ = std::thread::Builder::new().name("devices".to_owned()).spawn(look);
}
