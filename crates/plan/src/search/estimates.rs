//! The estimates that a search asks for, of one network: what of them does not depend on the batch is counted once.

use std::collections::BTreeMap;

use super::subject::Subject;
use super::ways::Estimator;
use crate::estimate::memory::{Key, Profile, Savings};
use crate::estimate::{Coefficients, Setup, seconds};

/// Estimates of one network.
#[derive(Debug)]
pub struct Estimates<'a> {
    subject: &'a Subject,
    coefficients: &'a Coefficients,
    profiles: BTreeMap<Key, Profile>,
}

impl<'a> Estimates<'a> {
    pub fn new(subject: &'a Subject, coefficients: &'a Coefficients) -> Estimates<'a> {
        Estimates { subject, coefficients, profiles: BTreeMap::new() }
    }
}

impl Estimator for Estimates<'_> {
    /// What a monitor of the GPU would show; some runs get by with less, and some take more.
    fn needed(&mut self, setup: &Setup) -> f64 {
        let model = &self.subject.model;
        let profile =
            self.profiles.entry(Profile::key(setup)).or_insert_with(|| Profile::new(model, setup, &Savings::default()));
        profile.memory(setup).middle
    }

    fn seconds(&mut self, setup: &Setup) -> f64 {
        seconds(&self.subject.work, setup, self.coefficients)
    }
}
