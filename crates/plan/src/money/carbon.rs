//! Emissions of a run: the power of its machines, times the time, times the carbon intensity of the region's grid.

use serde::Serialize;

/// What is assumed about power. Recalled and unverified; the order of size is that of public measurements.
pub mod assumed {
    /// Share of its thermal design power that a training GPU draws.
    pub const DRAWN: f64 = 0.8;
    /// Watts of the host for each GPU: processors, memory, fans, losses.
    pub const HOST_WATTS: f64 = 120.0;
    /// Power of the building over that of its computers, in a large cloud.
    pub const BUILDING: f64 = 1.15;
}

/// Energy and its emissions.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Emissions {
    pub kilowatt_hours: f64,
    /// Kilograms of CO₂ equivalent.
    pub kilograms: f64,
}

/// What `gpus` GPUs of `watts` each emit in `seconds` on a grid of `grams_per_kwh`.
pub fn carbon(gpus: u32, watts: f64, seconds: f64, grams_per_kwh: f64) -> Emissions {
    let watts = f64::from(gpus) * (watts * assumed::DRAWN + assumed::HOST_WATTS) * assumed::BUILDING;
    let kilowatt_hours = watts * seconds / 3.6e6;
    Emissions { kilowatt_hours, kilograms: kilowatt_hours * grams_per_kwh / 1000.0 }
}
