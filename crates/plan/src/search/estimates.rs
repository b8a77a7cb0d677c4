//! The estimates that a search asks for, of one network: what of them does not depend on the batch is counted once.

use std::collections::BTreeMap;

use super::lessons::Lessons;
use super::subject::Subject;
use super::ways::{Estimator, Needed};
use crate::estimate::memory::{Key, Profile, Savings};
use crate::estimate::{Coefficients, Setup, seconds};

/// Estimates of one network.
#[derive(Debug)]
pub struct Estimates<'a> {
    subject: &'a Subject,
    coefficients: &'a Coefficients,
    profiles: BTreeMap<Key, Profile>,
    /// Measured steps of the network.
    lessons: Lessons,
    /// By what they correct estimates on a GPU.
    factors: BTreeMap<String, f64>,
}

impl<'a> Estimates<'a> {
    pub fn new(subject: &'a Subject, coefficients: &'a Coefficients) -> Estimates<'a> {
        Estimates::taught(subject, coefficients, Lessons::default())
    }

    /// Estimates that measured steps correct.
    pub fn taught(subject: &'a Subject, coefficients: &'a Coefficients, lessons: Lessons) -> Estimates<'a> {
        Estimates { subject, coefficients, profiles: BTreeMap::new(), lessons, factors: BTreeMap::new() }
    }
}

impl Estimator for Estimates<'_> {
    fn needed(&mut self, setup: &Setup) -> Needed {
        let model = &self.subject.model;
        let figures = &self.coefficients.memory;
        let profile = self
            .profiles
            .entry(Profile::key(setup))
            .or_insert_with(|| Profile::new(model, setup, &Savings::default(), figures));
        let memory = profile.memory(setup);
        Needed { low: memory.low, middle: memory.must, high: memory.high }
    }

    fn seconds(&mut self, setup: &Setup) -> f64 {
        let estimated = seconds(&self.subject.work, setup, self.coefficients);
        if self.lessons.steps.is_empty() {
            return estimated;
        }
        let gpu = &setup.device.gpu.name;
        let factor = match self.factors.get(gpu) {
            Some(factor) => *factor,
            None => {
                let factor = self.lessons.on(gpu).map_or(1.0, |calibration| calibration.factor);
                self.factors.insert(gpu.clone(), factor);
                factor
            }
        };
        estimated * factor
    }
}
