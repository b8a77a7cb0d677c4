//! NVIDIA's management library (NVML), opened at run time: its driver brings it along, and no other machine has it.
//!
//! The one place of this module that needs `unsafe`: functions of a C library, looked up by name. One that a driver lacks, or
//! that refuses, leaves its figure out.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_ulonglong, c_void};

use domain::rank::DeviceUse;

/// What every function returns where it did what it says.
const SUCCESS: c_int = 0;
/// `NVML_TEMPERATURE_GPU`.
const ON_DIE: c_int = 0;
/// `NVML_DEVICE_NAME_V2_BUFFER_SIZE`.
const NAME_BYTES: usize = 96;

/// A device, as the library hands it out.
type Handle = *mut c_void;

#[repr(C)]
#[derive(Default)]
struct Utilization {
    gpu: c_uint,
    memory: c_uint,
}

#[repr(C)]
#[derive(Default)]
struct Memory {
    total: c_ulonglong,
    free: c_ulonglong,
    used: c_ulonglong,
}

/// The library, open for good.
pub struct Nvml {
    library: *mut c_void,
}

// SAFETY: a handle of `dlopen` is the process's, and every function that is called is documented as safe for threads.
unsafe impl Send for Nvml {}

impl Nvml {
    /// Opens and initialises the library of this name; none where there is none, or no driver.
    pub fn open(name: &str) -> Option<Nvml> {
        let name = CString::new(name).ok()?;
        // SAFETY: the name ends with a zero byte; the library's initialisers start no threads.
        let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if library.is_null() {
            return None;
        }
        let opened = Nvml { library };
        let begin: unsafe extern "C" fn() -> c_int = opened.function(c"nvmlInit_v2")?;
        // SAFETY: `nvml.h` declares it so; it may be called more than once.
        (unsafe { begin() } == SUCCESS).then_some(opened)
    }

    /// What every device does: the MIG instances of one that is divided, or the whole.
    pub fn devices(&self) -> Vec<DeviceUse> {
        let mut all = Vec::new();
        for gpu in 0..self.count().unwrap_or(0) {
            let Some(device) = self.device(gpu) else { continue };
            let instances = self.instances(device);
            if instances.is_empty() {
                all.extend(self.describe(device, gpu, None));
            }
            for (mig, instance) in instances {
                // A part has no power and no temperature of its own.
                let whole = self.describe(device, gpu, Some(mig));
                let part = self.describe(instance, gpu, Some(mig));
                all.extend(part.zip(whole).map(|(part, whole)| DeviceUse {
                    watts: part.watts.or(whole.watts),
                    celsius: part.celsius.or(whole.celsius),
                    ..part
                }));
            }
        }
        all
    }

    fn count(&self) -> Option<u32> {
        let get: unsafe extern "C" fn(*mut c_uint) -> c_int = self.function(c"nvmlDeviceGetCount_v2")?;
        let mut count = 0;
        // SAFETY: writes one number.
        (unsafe { get(&raw mut count) } == SUCCESS).then_some(count)
    }

    fn device(&self, place: u32) -> Option<Handle> {
        let get: unsafe extern "C" fn(c_uint, *mut Handle) -> c_int =
            self.function(c"nvmlDeviceGetHandleByIndex_v2")?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: writes one handle.
        (unsafe { get(place, &raw mut handle) } == SUCCESS).then_some(handle)
    }

    /// The MIG instances of a device, with the number of each; none where it is not divided.
    fn instances(&self, device: Handle) -> Vec<(u32, Handle)> {
        let most: Option<unsafe extern "C" fn(Handle, *mut c_uint) -> c_int> =
            self.function(c"nvmlDeviceGetMaxMigDeviceCount");
        let get: Option<unsafe extern "C" fn(Handle, c_uint, *mut Handle) -> c_int> =
            self.function(c"nvmlDeviceGetMigDeviceHandleByIndex");
        let (Some(most), Some(get)) = (most, get) else { return Vec::new() };
        let mut count = 0;
        // SAFETY: the handle is the library's own; writes one number.
        if unsafe { most(device, &raw mut count) } != SUCCESS {
            return Vec::new();
        }
        let instance = |place: u32| {
            let mut handle = std::ptr::null_mut();
            // SAFETY: the handle is the library's own; writes one handle, or says that there is none at this place.
            (unsafe { get(device, place, &raw mut handle) } == SUCCESS).then_some((place, handle))
        };
        (0..count).filter_map(instance).collect()
    }

    /// What one device or MIG instance does; none where not even its memory is known.
    fn describe(&self, device: Handle, gpu: u32, mig: Option<u32>) -> Option<DeviceUse> {
        let memory: unsafe extern "C" fn(Handle, *mut Memory) -> c_int = self.function(c"nvmlDeviceGetMemoryInfo")?;
        let mut found = Memory::default();
        // SAFETY: the handle is the library's own; writes three numbers.
        if unsafe { memory(device, &raw mut found) } != SUCCESS {
            return None;
        }
        Some(DeviceUse {
            gpu,
            mig,
            name: self.name(device).unwrap_or_else(|| "GPU".to_owned()),
            busy_percent: self.busy(device),
            used_bytes: found.used,
            memory_bytes: found.total,
            watts: self.milliwatts(device).map(|milliwatts| f64::from(milliwatts) / 1e3),
            celsius: self.celsius(device),
        })
    }

    fn name(&self, device: Handle) -> Option<String> {
        let get: unsafe extern "C" fn(Handle, *mut c_char, c_uint) -> c_int = self.function(c"nvmlDeviceGetName")?;
        let mut name = [0 as c_char; NAME_BYTES];
        // SAFETY: writes at most as many bytes as it is told.
        if unsafe { get(device, name.as_mut_ptr(), NAME_BYTES as c_uint) } != SUCCESS {
            return None;
        }
        let bytes = name.iter().take_while(|byte| **byte != 0).map(|byte| *byte as u8).collect();
        String::from_utf8(bytes).ok()
    }

    fn busy(&self, device: Handle) -> Option<u32> {
        let get: unsafe extern "C" fn(Handle, *mut Utilization) -> c_int =
            self.function(c"nvmlDeviceGetUtilizationRates")?;
        let mut rates = Utilization::default();
        // SAFETY: writes two numbers.
        (unsafe { get(device, &raw mut rates) } == SUCCESS).then_some(rates.gpu)
    }

    fn milliwatts(&self, device: Handle) -> Option<u32> {
        let get: unsafe extern "C" fn(Handle, *mut c_uint) -> c_int = self.function(c"nvmlDeviceGetPowerUsage")?;
        let mut power = 0;
        // SAFETY: writes one number.
        (unsafe { get(device, &raw mut power) } == SUCCESS).then_some(power)
    }

    fn celsius(&self, device: Handle) -> Option<u32> {
        let get: unsafe extern "C" fn(Handle, c_int, *mut c_uint) -> c_int =
            self.function(c"nvmlDeviceGetTemperature")?;
        let mut celsius = 0;
        // SAFETY: writes one number.
        (unsafe { get(device, ON_DIE, &raw mut celsius) } == SUCCESS).then_some(celsius)
    }

    /// A function by its name, with the type that `nvml.h` gives it; none where this driver lacks it.
    fn function<F: Copy>(&self, name: &CStr) -> Option<F> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        // SAFETY: looks a name up in an open library; the name ends with a zero byte.
        let symbol = unsafe { libc::dlsym(self.library, name.as_ptr()) };
        // SAFETY: callers name the type of this function; a function pointer has the size of a pointer.
        (!symbol.is_null()).then(|| unsafe { std::mem::transmute_copy::<*mut c_void, F>(&symbol) })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};
    use std::process::Command;

    use super::*;

    /// Compiles the stand-in with these options into `folder`; its state is in the file `state` beside it.
    fn stand_in(folder: &Path, options: &[&str]) -> PathBuf {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/nvml/standin.c");
        let library = folder.join("libnvidia-ml.so.1");
        let state = format!("-DSTATE=\"{}\"", folder.join("state").display());
        let mut compiler = Command::new("c++");
        compiler.args(["-xc", "-shared", "-fPIC", "-O1", &state]).args(options).arg(&source).arg("-o").arg(&library);
        assert!(compiler.status().unwrap().success());
        library
    }

    fn opened(library: &Path) -> Option<Nvml> {
        Nvml::open(library.to_str().unwrap())
    }

    #[test]
    fn devices_are_described_as_the_driver_states_them() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("state"), "0 busy 97\n0 used 1048576\n0 milliwatts 643000\n1 celsius 81\n")
            .unwrap();
        let library = opened(&stand_in(folder.path(), &[])).unwrap();
        let devices = library.devices();
        assert_eq!(devices.len(), 2);
        let first = DeviceUse {
            gpu: 0,
            mig: None,
            name: "Stand-in GPU".to_owned(),
            busy_percent: Some(97),
            used_bytes: 1_048_576,
            memory_bytes: 80 << 30,
            watts: Some(643.0),
            celsius: Some(40),
        };
        assert_eq!(devices[0], first);
        assert_eq!((devices[1].busy_percent, devices[1].celsius), (Some(0), Some(81)));
        // They are asked anew each time.
        fs::write(folder.path().join("state"), "0 busy 3\n").unwrap();
        assert_eq!(library.devices()[0].busy_percent, Some(3));
    }

    #[test]
    fn a_divided_device_is_described_by_its_parts() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("state"), "1 mig 2\n1 milliwatts 300000\n").unwrap();
        let devices = opened(&stand_in(folder.path(), &[])).unwrap().devices();
        let places: Vec<_> = devices.iter().map(|device| (device.gpu, device.mig, device.memory_bytes >> 30)).collect();
        assert_eq!(places, [(0, None, 80), (1, Some(0), 10), (1, Some(1), 10)]);
        // A part does not say how busy it is, and shares the power of the whole.
        assert_eq!((devices[1].busy_percent, devices[1].watts), (None, Some(300.0)));
    }

    #[test]
    fn what_a_driver_lacks_is_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let devices = opened(&stand_in(folder.path(), &["-DOLD"])).unwrap().devices();
        assert_eq!((devices.len(), devices[0].watts, devices[0].celsius), (2, None, Some(40)));
        // The library is there and the driver is not.
        let folder = tempfile::tempdir().unwrap();
        assert!(opened(&stand_in(folder.path(), &["-DNO_DRIVER"])).is_none());
        assert!(opened(Path::new("/nowhere/libnvidia-ml.so.1")).is_none());
    }
}
