//! GPUs: whether there is a driver, whether what is installed fits to it, and whether each device is well.

use std::cmp::Ordering;

use node::facts::{GpuDevice, GpuFacts, SoftwareFacts, TorchBuild};

use super::versions::{compare, needs};
use super::{Diagnosis, Severity};

/// °C from which most GPUs of data centres slow down.
const HOT: u64 = 85;

/// What replaces or mends a driver.
const INSTALL: &str = "install NVIDIA's driver: `sudo apt install nvidia-driver-580-server` on Ubuntu, or an image of the \
                       provider that has it; then reboot";

/// Whether there is a driver, and the same one in the kernel and in the libraries.
pub(super) fn driver(gpu: &GpuFacts) -> Vec<Diagnosis> {
    let counted = |count: u64| if count == 1 { "1 NVIDIA GPU".to_owned() } else { format!("{count} NVIDIA GPUs") };
    if gpu.on_bus == 0 && gpu.device_files == 0 && gpu.driver.is_none() && gpu.devices.is_empty() {
        let none =
            Diagnosis { severity: Severity::Info, ..Diagnosis::pass("gpu", "no NVIDIA GPU; jobs run on the CPU") };
        return vec![none];
    }
    let Some(driver) = &gpu.driver else {
        let cause =
            "the kernel has loaded no driver for it; after an update of the kernel the module must be built anew";
        let symptom = format!("{} on the bus and no driver", counted(gpu.on_bus.max(gpu.device_files)));
        return vec![Diagnosis::found(Severity::Critical, "gpu", symptom, cause, INSTALL)];
    };
    let mut all = Vec::new();
    if let Some(error) = &gpu.error {
        let is_mismatch = error.contains("mismatch");
        let cause = match is_mismatch {
            true => "the driver's libraries were updated while the kernel runs the version before",
            false => {
                "the driver does not answer: a GPU has failed, its libraries are missing, or this is a container without them"
            }
        };
        let remedy = match is_mismatch {
            true => {
                "reboot the machine, or unload and load the module: `sudo rmmod nvidia_uvm nvidia && sudo modprobe nvidia`"
            }
            false => {
                "read `dmesg | grep -i nvrm`; reboot the machine, or start the container with its GPUs (`--gpus all`)"
            }
        };
        all.push(Diagnosis::found(Severity::Critical, "gpu", error.clone(), cause, remedy));
        return all;
    }
    if let Some(library) = gpu.driver_library.as_ref().filter(|library| compare(library, driver) != Ordering::Equal) {
        let symptom = format!("the kernel runs driver {driver}, and its libraries are {library}");
        let cause = "the driver was updated while the machine ran";
        all.push(Diagnosis::found(Severity::Critical, "gpu", symptom, cause, "reboot the machine"));
    }
    let listed = gpu.devices.len() as u64;
    if listed < gpu.on_bus {
        let symptom = format!("{} on the bus, and the driver lists {listed}", counted(gpu.on_bus));
        let cause =
            "a GPU has failed or has fallen off the bus, or a virtual machine or container was given some of them only";
        let remedy =
            "read `dmesg | grep -i nvrm` for the one that is missing; reboot, and have it replaced if it stays away";
        all.push(Diagnosis::found(Severity::Warning, "gpu", symptom, cause, remedy));
    }
    if all.is_empty() {
        let names: Vec<&str> = gpu.devices.iter().map(|device| device.name.as_str()).collect();
        let first = names.first().copied().unwrap_or("no device");
        let kinds = if names.iter().all(|name| *name == first) { first.to_owned() } else { names.join(", ") };
        all.push(Diagnosis::pass("gpu", format!("{listed} × {kinds}, driver {driver}")));
    }
    all
}

/// Driver, CUDA, libtorch and PyTorch: whether each fits to the one below it.
pub(super) fn versions(gpu: &GpuFacts, software: &SoftwareFacts) -> Vec<Diagnosis> {
    let has_gpu = gpu.on_bus > 0 || !gpu.devices.is_empty();
    let mut all = Vec::new();
    let builds = [("libtorch", &software.libtorch), ("PyTorch", &software.pytorch)];
    for (name, build) in builds.into_iter().filter_map(|(name, build)| Some((name, build.as_ref()?))) {
        match (&build.cuda, has_gpu) {
            (Some(cuda), true) => all.extend(fits(&format!("{name} {}", build.version), cuda, gpu)),
            (None, true) => all.push(without_cuda(name, build)),
            (_, false) => all.push(Diagnosis::pass("versions", said(name, build))),
        }
    }
    if has_gpu && let Some(toolkit) = &software.toolkit {
        all.extend(fits("the CUDA toolkit in `/usr/local/cuda`", &release(toolkit), gpu));
    }
    all
}

fn said(name: &str, build: &TorchBuild) -> String {
    let cuda = build.cuda.as_ref().map_or("for CPUs".to_owned(), |cuda| format!("for CUDA {cuda}"));
    format!("{name} {} {cuda}", build.version)
}

/// `12.4.1` is release 12.4.
fn release(version: &str) -> String {
    version.split('.').take(2).collect::<Vec<_>>().join(".")
}

fn without_cuda(name: &str, build: &TorchBuild) -> Diagnosis {
    let cause = format!("the build in `{}` is one for CPUs; this machine has a GPU, which it cannot use", build.folder);
    let remedy = match name {
        "PyTorch" => "`python3 -m pip install torch --index-url https://download.pytorch.org/whl/cu128`",
        _ => {
            "none is needed for programs under `run:`; the built-in trainer uses GPUs with a libtorch for CUDA in `GRADUS_LIBTORCH`"
        }
    };
    let severity = if name == "PyTorch" { Severity::Warning } else { Severity::Info };
    Diagnosis::found(severity, "versions", said(name, build), cause, remedy)
}

/// Whether the driver runs a release of CUDA, and whether that release still knows the GPUs.
fn fits(what: &str, cuda: &str, gpu: &GpuFacts) -> Vec<Diagnosis> {
    let Some(driver) = &gpu.driver else { return Vec::new() };
    let Some(needs) = needs(cuda) else {
        let symptom = format!("{what} is for CUDA {cuda}, of which this gradus knows nothing");
        let unknown = Diagnosis::found(
            Severity::Unknown,
            "versions",
            symptom,
            "the table of CUDA releases in this version of gradus is older",
            format!("look up the oldest driver for CUDA {cuda} in NVIDIA's release notes; this machine has {driver}"),
        );
        return vec![unknown];
    };
    let mut all = Vec::new();
    if compare(driver, needs.oldest_driver) == Ordering::Less {
        let symptom = format!("{what} is for CUDA {cuda}, and driver {driver} does not run it");
        let cause = format!("CUDA {cuda} needs driver {} or newer", needs.oldest_driver);
        let remedy = format!(
            "install driver {} or newer, or a build for the CUDA that this driver runs{}",
            needs.oldest_driver,
            gpu.cuda.as_ref().map(|cuda| format!(" ({cuda} and older)")).unwrap_or_default()
        );
        all.push(Diagnosis::found(Severity::Critical, "versions", symptom, cause, remedy));
    }
    let is_old = |device: &&GpuDevice| {
        device.capability.as_ref().is_some_and(|own| compare(own, needs.capability) == Ordering::Less)
    };
    if let Some(device) = gpu.devices.iter().find(is_old) {
        let own = device.capability.clone().unwrap_or_default();
        let symptom =
            format!("{what} is for CUDA {cuda}, which has no code for {} (compute capability {own})", device.name);
        let cause = format!("CUDA {cuda} begins with compute capability {}", needs.capability);
        all.push(Diagnosis::found(Severity::Critical, "versions", symptom, cause, "install a build for an older CUDA"));
    }
    if all.is_empty() {
        let note = match compare(driver, needs.driver) {
            Ordering::Less => format!(", within its family (the driver of that release is {})", needs.driver),
            _ => String::new(),
        };
        all.push(Diagnosis::pass("versions", format!("{what} for CUDA {cuda} fits to driver {driver}{note}")));
    }
    all
}

/// Whether each GPU is well.
pub(super) fn devices(gpu: &GpuFacts) -> Vec<Diagnosis> {
    let mut all = Vec::new();
    for device in &gpu.devices {
        let who = format!("GPU {} ({})", device.index, device.name);
        let mut found = |severity, symptom: String, cause: &str, remedy: &str| {
            all.push(Diagnosis::found(severity, "gpu", format!("{who}: {symptom}"), cause, remedy));
        };
        let reset = format!("end what runs on it, then `sudo nvidia-smi --gpu-reset -i {}`", device.index);
        if device.remap_failed == Some(true) {
            found(
                Severity::Critical,
                "rows of its memory could not be remapped".into(),
                "its memory is worn out",
                "have it replaced; give a rented machine back and rent another",
            );
        }
        if device.remap_pending == Some(true) {
            found(
                Severity::Warning,
                "rows of its memory wait to be remapped".into(),
                "memory errors were found; the rows are replaced at the next reset",
                &reset,
            );
        }
        if let Some(errors) = device.uncorrected.filter(|errors| *errors > 0) {
            found(
                Severity::Critical,
                format!("{errors} uncorrectable memory errors since the driver was loaded"),
                "ECC found errors that it could not correct: programs are ended by them",
                &format!("{reset}; have it replaced if they come back"),
            );
        }
        all.extend(running(device, &who));
    }
    all
}

/// Whether a GPU is held up: by heat, power, its slot, or by others who use it.
fn running(device: &GpuDevice, who: &str) -> Vec<Diagnosis> {
    let mut all = Vec::new();
    let mut found = |severity, symptom: String, cause: &str, remedy: &str| {
        all.push(Diagnosis::found(severity, "gpu", format!("{who}: {symptom}"), cause, remedy));
    };
    if device.hardware_slowdown == Some(true) {
        found(
            Severity::Warning,
            "it is slowed down by its hardware".into(),
            "it is too hot, or its power supply says so",
            "look at `nvidia-smi -q -d PERFORMANCE,TEMPERATURE`, fans and air flow",
        );
    }
    if let Some(celsius) = device.temperature.filter(|celsius| *celsius >= HOT) {
        found(
            Severity::Warning,
            format!("{celsius} °C"),
            "GPUs slow down at about this temperature",
            "look at fans and air flow",
        );
    }
    if let Some((used, most)) = device.lanes.filter(|(used, most)| *used < *most && *used <= 4) {
        found(
            Severity::Warning,
            format!("{used} of {most} PCIe lanes in use"),
            "it sits in a narrow slot, or its contacts are bad: copies to it are slow",
            "look at `nvidia-smi -q -d PCIE` under load, then at the slot",
        );
    }
    if device.mig == Some(true) {
        all.push(Diagnosis {
            severity: Severity::Info,
            ..Diagnosis::pass("gpu", format!("{who}: MIG divides it; a program sees one part of it"))
        });
    }
    if device.memory.0 > 0 && device.memory_used.0 > device.memory.0 / 10 {
        let share = device.memory_used.0.saturating_mul(100) / device.memory.0;
        all.push(Diagnosis {
            severity: Severity::Info,
            ..Diagnosis::pass("gpu", format!("{who}: {share} % of its memory is in use, `nvidia-smi` shows by whom"))
        });
    }
    all
}

#[cfg(test)]
mod tests {
    use domain::Bytes;

    use super::*;

    fn h100() -> GpuFacts {
        let device = GpuDevice {
            name: "NVIDIA H100".into(),
            capability: Some("9.0".into()),
            memory: Bytes(80 << 30),
            temperature: Some(40),
            uncorrected: Some(0),
            lanes: Some((16, 16)),
            ..GpuDevice::default()
        };
        GpuFacts {
            on_bus: 1,
            device_files: 1,
            driver: Some("550.54.14".into()),
            driver_library: Some("550.54.14".into()),
            cuda: Some("12.4".into()),
            devices: vec![device],
            error: None,
        }
    }

    fn torch(cuda: Option<&str>) -> SoftwareFacts {
        let build = TorchBuild { folder: "/p/torch".into(), version: "2.11.0".into(), cuda: cuda.map(str::to_owned) };
        SoftwareFacts { pytorch: Some(build), ..SoftwareFacts::default() }
    }

    #[test]
    fn the_driver_is_judged() {
        let check = |change: &dyn Fn(&mut GpuFacts), severity, part: &str| {
            let mut gpu = h100();
            change(&mut gpu);
            let all = driver(&gpu);
            assert_eq!(super::super::worst(&all), severity, "{all:?}");
            assert!(all.iter().any(|one| one.symptom.contains(part)), "{all:?}");
        };
        check(&|_| {}, Severity::Pass, "1 × NVIDIA H100, driver 550.54.14");
        check(&|gpu| *gpu = GpuFacts::default(), Severity::Info, "no NVIDIA GPU");
        check(
            &|gpu| *gpu = GpuFacts { on_bus: 2, ..GpuFacts::default() },
            Severity::Critical,
            "2 NVIDIA GPUs on the bus and no driver",
        );
        check(&|gpu| gpu.driver_library = Some("570.26".into()), Severity::Critical, "its libraries are 570.26");
        check(&|gpu| gpu.on_bus = 8, Severity::Warning, "8 NVIDIA GPUs on the bus, and the driver lists 1");
        let mismatch = "Failed to initialize NVML: Driver/library version mismatch";
        check(&|gpu| gpu.error = Some(mismatch.into()), Severity::Critical, mismatch);
    }

    #[test]
    fn what_is_installed_must_fit_to_the_driver() {
        let check = |driver: &str, capability: &str, cuda: Option<&str>, severity, part: &str| {
            let mut gpu = h100();
            gpu.driver = Some(driver.into());
            gpu.devices[0].capability = Some(capability.into());
            let all = versions(&gpu, &torch(cuda));
            assert_eq!(super::super::worst(&all), severity, "{all:?}");
            assert!(all.iter().any(|one| one.symptom.contains(part)), "{all:?}");
        };
        check("550.54.14", "9.0", Some("12.4"), Severity::Pass, "fits to driver 550.54.14");
        check(
            "550.54.14",
            "9.0",
            Some("12.8"),
            Severity::Pass,
            "within its family (the driver of that release is 570.26)",
        );
        check("550.54.14", "9.0", Some("13.0"), Severity::Critical, "driver 550.54.14 does not run it");
        check("470.42.01", "7.0", Some("12.1"), Severity::Critical, "driver 470.42.01 does not run it");
        check("580.65.06", "7.0", Some("13.0"), Severity::Critical, "no code for NVIDIA H100 (compute capability 7.0)");
        check("580.65.06", "9.0", Some("14.0"), Severity::Unknown, "knows nothing");
        check("580.65.06", "9.0", None, Severity::Warning, "PyTorch 2.11.0 for CPUs");
        let all = versions(&GpuFacts::default(), &torch(Some("12.8")));
        assert_eq!(super::super::worst(&all), Severity::Pass, "without a GPU nothing has to fit: {all:?}");
        let toolkit = SoftwareFacts { toolkit: Some("13.0.1".into()), ..SoftwareFacts::default() };
        assert_eq!(super::super::worst(&versions(&h100(), &toolkit)), Severity::Critical);
    }

    #[test]
    fn a_sick_gpu_is_found() {
        let check = |change: &dyn Fn(&mut GpuDevice), severity, part: &str| {
            let mut gpu = h100();
            change(&mut gpu.devices[0]);
            let all = devices(&gpu);
            assert_eq!(super::super::worst(&all), severity, "{all:?}");
            assert!(all.iter().any(|one| one.symptom.contains(part)) || part.is_empty(), "{all:?}");
        };
        check(&|_| {}, Severity::Pass, "");
        check(&|gpu| gpu.remap_failed = Some(true), Severity::Critical, "could not be remapped");
        check(&|gpu| gpu.remap_pending = Some(true), Severity::Warning, "wait to be remapped");
        check(&|gpu| gpu.uncorrected = Some(3), Severity::Critical, "3 uncorrectable");
        check(&|gpu| gpu.hardware_slowdown = Some(true), Severity::Warning, "slowed down");
        check(&|gpu| gpu.temperature = Some(91), Severity::Warning, "91 °C");
        check(&|gpu| gpu.lanes = Some((4, 16)), Severity::Warning, "4 of 16 PCIe lanes");
        check(&|gpu| gpu.mig = Some(true), Severity::Info, "MIG");
        check(&|gpu| gpu.memory_used = Bytes(40 << 30), Severity::Info, "50 % of its memory");
    }
}
