//! NVIDIA GPUs: what is on the bus, what the kernel's driver is, and what `nvidia-smi` says.

use std::fs;
use std::path::Path;
use std::time::Duration;

use domain::Bytes;
use serde::{Deserialize, Serialize};

use super::ask::ask;

/// NVIDIA GPUs and their driver.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct GpuFacts {
    /// Display and compute devices of NVIDIA on the PCI bus.
    pub on_bus: u64,
    /// Device files `/dev/nvidia0`, `/dev/nvidia1`, ….
    pub device_files: u64,
    /// Version of the driver that the kernel has loaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// Version of the driver's libraries, as `nvidia-smi` says it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver_library: Option<String>,
    /// The newest CUDA that the driver runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cuda: Option<String>,
    /// What `nvidia-smi` lists.
    pub devices: Vec<GpuDevice>,
    /// Why `nvidia-smi` lists nothing; none where there is neither a GPU nor a driver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// One GPU, as `nvidia-smi` shows it. What it does not know is none.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct GpuDevice {
    /// Its number.
    pub index: u64,
    /// Its name, such as `NVIDIA H100 80GB HBM3`.
    pub name: String,
    /// Its own number, which no other GPU has.
    pub uuid: String,
    /// Its place on the bus, such as `00000000:CB:00.0`.
    pub bus: String,
    /// Its memory.
    pub memory: Bytes,
    /// Memory in use.
    pub memory_used: Bytes,
    /// Its compute capability, such as `9.0`.
    pub capability: Option<String>,
    /// Its temperature in °C.
    pub temperature: Option<u64>,
    /// Memory errors since the driver was loaded that ECC could not correct.
    pub uncorrected: Option<u64>,
    /// Whether rows of its memory wait for a reset to be remapped.
    pub remap_pending: Option<bool>,
    /// Whether rows of its memory could not be remapped.
    pub remap_failed: Option<bool>,
    /// Whether MIG divides it.
    pub mig: Option<bool>,
    /// Whether it runs slower because it is too hot, or the power supply has said so.
    pub hardware_slowdown: Option<bool>,
    /// PCIe lanes in use, and the most there can be.
    pub lanes: Option<(u64, u64)>,
}

/// A GPU that does not answer for so long never will.
const PATIENCE: Duration = Duration::from_secs(20);

/// What is asked of `nvidia-smi`, in this order.
const FIELDS: &str = "index,name,uuid,pci.bus_id,memory.total,memory.used,compute_cap,temperature.gpu,\
                      ecc.errors.uncorrected.volatile.total,driver_version,mig.mode.current,\
                      clocks_throttle_reasons.hw_slowdown,pcie.link.width.current,pcie.link.width.max";

pub(super) fn gpus(root: &Path) -> GpuFacts {
    let mut facts = GpuFacts {
        on_bus: on_bus(&root.join("sys/bus/pci/devices")),
        device_files: device_files(&root.join("dev")),
        driver: driver(root),
        ..GpuFacts::default()
    };
    let query = format!("--query-gpu={FIELDS}");
    match ask("nvidia-smi", &[&query, "--format=csv,noheader,nounits"], PATIENCE) {
        Ok(text) => {
            facts.devices = devices(&text);
            facts.driver_library = column(&text, 9);
            facts.cuda = ask("nvidia-smi", &[], PATIENCE).ok().and_then(|text| cuda(&text));
            if let Ok(rows) = ask(
                "nvidia-smi",
                &[
                    "--query-remapped-rows=gpu_uuid,remapped_rows.pending,remapped_rows.failure",
                    "--format=csv,noheader",
                ],
                PATIENCE,
            ) {
                remapped(&rows, &mut facts.devices);
            }
        }
        Err(why) if facts.on_bus + facts.device_files > 0 || facts.driver.is_some() => facts.error = Some(why),
        Err(_) => {}
    }
    facts
}

/// Devices of NVIDIA that display (class 03…), among those that the kernel has found.
fn on_bus(devices: &Path) -> u64 {
    let read = |device: &Path, name: &str| fs::read_to_string(device.join(name)).unwrap_or_default();
    let devices = fs::read_dir(devices).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_gpu = |device: &std::path::PathBuf| {
        read(device, "vendor").trim() == "0x10de" && read(device, "class").trim().starts_with("0x03")
    };
    devices.filter(is_gpu).count() as u64
}

fn device_files(folder: &Path) -> u64 {
    let names = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.file_name());
    let is_gpu = |name: &std::ffi::OsString| {
        let number = name.to_str().and_then(|name| name.strip_prefix("nvidia"));
        number.is_some_and(|number| !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit()))
    };
    names.filter(is_gpu).count() as u64
}

/// The version of the driver that is loaded.
fn driver(root: &Path) -> Option<String> {
    if let Ok(version) = fs::read_to_string(root.join("sys/module/nvidia/version")) {
        return Some(version.trim().to_owned());
    }
    let text = fs::read_to_string(root.join("proc/driver/nvidia/version")).ok()?;
    let is_version =
        |word: &&str| word.split('.').count() >= 2 && word.split('.').all(|part| part.parse::<u32>().is_ok());
    text.lines().next()?.split_whitespace().find(is_version).map(str::to_owned)
}

/// A field of the first line.
fn column(text: &str, index: usize) -> Option<String> {
    let field = text.lines().next()?.split(',').nth(index)?.trim();
    (!field.is_empty() && !field.starts_with('[')).then(|| field.to_owned())
}

fn devices(text: &str) -> Vec<GpuDevice> {
    let device = |line: &str| {
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        let [index, name, uuid, bus, memory, used, capability, temperature, uncorrected, _, mig, slowdown, lanes, most] =
            fields[..]
        else {
            return None;
        };
        let number = |text: &str| text.parse::<u64>().ok();
        let mebibytes = |text: &str| Bytes(number(text).unwrap_or(0) << 20);
        Some(GpuDevice {
            index: number(index)?,
            name: name.to_owned(),
            uuid: uuid.to_owned(),
            bus: bus.to_owned(),
            memory: mebibytes(memory),
            memory_used: mebibytes(used),
            capability: capability.contains('.').then(|| capability.to_owned()),
            temperature: number(temperature),
            uncorrected: number(uncorrected),
            remap_pending: None,
            remap_failed: None,
            mig: switched(mig, "Enabled", "Disabled"),
            hardware_slowdown: switched(slowdown, "Active", "Not Active"),
            lanes: number(lanes).zip(number(most)),
        })
    };
    text.lines().filter_map(device).collect()
}

fn switched(text: &str, on: &str, off: &str) -> Option<bool> {
    if text == on { Some(true) } else { (text == off).then_some(false) }
}

/// What the table of `nvidia-smi` says in its head: `CUDA Version: 12.4`.
fn cuda(text: &str) -> Option<String> {
    let rest = text.split_once("CUDA Version:")?.1.trim_start();
    let version: String = rest.chars().take_while(|letter| letter.is_ascii_digit() || *letter == '.').collect();
    version.contains('.').then_some(version)
}

/// Adds what is known of remapped rows.
fn remapped(text: &str, devices: &mut [GpuDevice]) {
    for line in text.lines() {
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        let [uuid, pending, failed] = fields[..] else { continue };
        let flag = |text: &str| match text {
            "0" | "No" => Some(false),
            "1" | "Yes" => Some(true),
            _ => None,
        };
        for device in devices.iter_mut().filter(|device| device.uuid == uuid) {
            (device.remap_pending, device.remap_failed) = (flag(pending), flag(failed));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nvidia_smi_prints_is_read() {
        let text = "0, NVIDIA H100 80GB HBM3, GPU-a, 00000000:CB:00.0, 81559, 12, 9.0, 31, 0, 550.54.14, Disabled, Not Active, 16, 16\n\
                    1, Tesla T4, GPU-b, 00000000:CC:00.0, 15360, 0, 7.5, 80, [N/A], 550.54.14, [N/A], Active, 8, 16\n\
                    a line that is no GPU\n";
        let mut found = devices(text);
        remapped("GPU-a, 0, 0\nGPU-b, [N/A], 1\nGPU-c, 1, 1\n", &mut found);
        let [first, second] = &found[..] else { panic!("{found:?}") };
        assert_eq!(
            (first.name.as_str(), first.memory, first.memory_used),
            ("NVIDIA H100 80GB HBM3", Bytes(81559 << 20), Bytes(12 << 20))
        );
        assert_eq!((first.capability.as_deref(), first.uncorrected, first.mig), (Some("9.0"), Some(0), Some(false)));
        assert_eq!(
            (first.hardware_slowdown, first.lanes, first.remap_pending),
            (Some(false), Some((16, 16)), Some(false))
        );
        assert_eq!((second.uncorrected, second.mig, second.hardware_slowdown), (None, None, Some(true)));
        assert_eq!((second.lanes, second.remap_pending, second.remap_failed), (Some((8, 16)), None, Some(true)));
        assert_eq!(column(text, 9).as_deref(), Some("550.54.14"));
        let head = "| NVIDIA-SMI 550.54.14    Driver Version: 550.54.14    CUDA Version: 12.4     |";
        assert_eq!(cuda(head).as_deref(), Some("12.4"));
        assert_eq!(cuda("CUDA Version: N/A"), None);
    }

    #[test]
    fn a_gpu_is_seen_without_its_driver() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        for (device, vendor, class) in
            [("a", "0x10de", "0x030200"), ("b", "0x10de", "0x040300"), ("c", "0x8086", "0x030000")]
        {
            write(&format!("sys/bus/pci/devices/{device}/vendor"), &format!("{vendor}\n"));
            write(&format!("sys/bus/pci/devices/{device}/class"), &format!("{class}\n"));
        }
        let facts = gpus(root.path());
        assert_eq!((facts.on_bus, facts.device_files, facts.driver), (1, 0, None));
        write("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.223.02  Sat Oct  7\n");
        write("dev/nvidia0", "");
        write("dev/nvidiactl", "");
        let facts = gpus(root.path());
        assert_eq!((facts.device_files, facts.driver.as_deref()), (1, Some("470.223.02")));
        write("sys/module/nvidia/version", "550.54.14\n");
        assert_eq!(driver(root.path()).as_deref(), Some("550.54.14"));
    }
}
