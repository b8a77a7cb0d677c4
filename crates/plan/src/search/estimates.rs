//! The estimates of one network for a search: parts that do not depend on the batch are computed once.

use std::collections::BTreeMap;

use super::calibration::CalibrationData;
use super::parallel::{Estimator, RequiredMemory};
use super::workload::ResolvedNetwork;
use crate::estimate::memory::{Key, Profile};
use crate::estimate::{FittedCoefficients, OperatorCosts, Setup, seconds_with};

/// Estimates of one network.
#[derive(Debug)]
pub struct Estimates<'a> {
    network: &'a ResolvedNetwork,
    coefficients: &'a FittedCoefficients,
    profiles: BTreeMap<Key, Profile>,
    costs: OperatorCosts,
    /// Measured steps of the network.
    measured: CalibrationData,
    /// Correction factors of estimates per GPU.
    factors: BTreeMap<String, f64>,
}

impl<'a> Estimates<'a> {
    /// Estimates of a network that no measured step corrects.
    pub fn new(network: &'a ResolvedNetwork, coefficients: &'a FittedCoefficients) -> Estimates<'a> {
        Estimates::calibrated(network, coefficients, CalibrationData::default())
    }

    /// Estimates that measured steps correct.
    pub fn calibrated(
        network: &'a ResolvedNetwork,
        coefficients: &'a FittedCoefficients,
        measured: CalibrationData,
    ) -> Estimates<'a> {
        Estimates {
            network,
            coefficients,
            profiles: BTreeMap::new(),
            costs: OperatorCosts::default(),
            measured,
            factors: BTreeMap::new(),
        }
    }
}

impl Estimator for Estimates<'_> {
    fn needed(&mut self, setup: &Setup) -> RequiredMemory {
        let model = &self.network.model;
        let figures = &self.coefficients.memory;
        let profile = self
            .profiles
            .entry(Profile::key(setup))
            .or_insert_with(|| Profile::new(model, setup, &self.network.savings, figures));
        let memory = profile.memory(setup);
        RequiredMemory { low: memory.low, middle: memory.required, high: memory.high }
    }

    fn seconds(&mut self, setup: &Setup) -> f64 {
        let step = seconds_with(&self.network.ops, setup, self.coefficients, &mut self.costs);
        let estimated = step + self.network.host_seconds(setup, step);
        if self.measured.steps.is_empty() {
            return estimated;
        }
        let gpu = &setup.device.gpu.name;
        let factor = match self.factors.get(gpu) {
            Some(factor) => *factor,
            None => {
                let factor = self.measured.on(gpu).map_or(1.0, |calibration| calibration.factor);
                self.factors.insert(gpu.clone(), factor);
                factor
            }
        };
        estimated * factor
    }
}
