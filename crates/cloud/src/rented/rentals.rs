//! What was asked of a cloud for each instance: `instances/INSTANCE/CLOUD.json` in the home.
//!
//! It is on disk before the request is sent, so that a request in doubt is made again word for word, whatever was set
//! differently since. `CLOUD/regions` lists the regions in which anything was ever asked for.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use domain::rental::LaunchRequest;
use domain::run::Usage;
use domain::{InstanceId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::aws::wire::query::Params;
use crate::provider::ProviderAnswer;
use crate::rented::refused;
use crate::ssh::NodeReach;

/// A stored request, and its state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rental {
    /// The loop's request, with which the agent is started.
    pub request: LaunchRequest,
    pub region: String,
    /// The account in which it is asked for: one with other credentials neither lists nor ends it. None in a file of a version
    /// that did not write it down, and for a cloud that does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// The key with which it was asked for last, unless keys end by themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// How its agent reaches the loop. A file of a version that did not write it down means a tunnel.
    #[serde(default, skip_serializing_if = "NodeReach::is_default")]
    pub reach: NodeReach,
    /// What is sent.
    pub params: Params,
    /// Requests that were sent without a conclusive answer: each may have rented. A file of a version that did not
    /// count them means one.
    #[serde(default = "one")]
    pub unanswered: u32,
    /// The cloud's name of the machine, once it was told.
    #[serde(default)]
    pub handle: Option<String>,
    /// What was used of it, once it was said to be gone: clouds themselves forget.
    #[serde(default)]
    pub gone: Option<Usage>,
    /// When its rent began, for a cloud that does not say so later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rented: Option<Timestamp>,
    /// Whether the cloud has listed it, and one that was started again as on: then it is gone when it is not listed any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_seen: bool,
    /// Since when the cloud, which has listed it, does not list it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missed: Option<Timestamp>,
    /// Whether the cloud has agreed to end it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_ending: bool,
    /// Whether its run gave up a machine that it had started, or was starting: it is not started any more under this name.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_given_up: bool,
}

/// A machine that its cloud does not list.
#[derive(Debug)]
pub enum Absence {
    /// It never did.
    Unseen,
    /// It did, a moment ago.
    Missed,
    /// It has ended: its handle, and what was used.
    Gone(String, Option<Usage>),
}

impl Rental {
    /// What will be asked for.
    pub fn new(request: LaunchRequest, region: String, params: Params) -> Rental {
        Rental {
            request,
            region,
            account: None,
            key: None,
            reach: NodeReach::default(),
            params,
            unanswered: 0,
            handle: None,
            gone: None,
            rented: None,
            is_seen: false,
            missed: None,
            is_ending: false,
            is_given_up: false,
        }
    }

    /// Whether anything may have been rented by it.
    pub fn may_have_rented(&self) -> bool {
        self.handle.is_some() || self.unanswered > 0
    }
}

fn one() -> u32 {
    1
}

/// The rentals of a home.
#[derive(Debug, Clone)]
pub struct Rentals {
    home: PathBuf,
    /// Of which cloud.
    cloud: &'static str,
    /// Held while one is changed.
    changing: Arc<Mutex<()>>,
}

impl Rentals {
    /// What the home at `home` has asked of a cloud.
    pub fn new(home: &Path, cloud: &'static str) -> Rentals {
        Rentals { home: home.to_owned(), cloud, changing: Arc::default() }
    }

    /// The folder of an instance.
    pub fn folder(&self, instance: &InstanceId) -> PathBuf {
        self.home.join("instances").join(instance.as_str())
    }

    /// The folder of what concerns the cloud as a whole.
    pub fn shared(&self) -> PathBuf {
        self.home.join(self.cloud)
    }

    /// Of which cloud they are.
    pub fn cloud(&self) -> &'static str {
        self.cloud
    }

    fn file(&self) -> String {
        format!("{}.json", self.cloud)
    }

    /// Reads a request; `None` if there is none.
    ///
    /// # Errors
    /// If the file cannot be read, which must not be mistaken for no request.
    pub fn read(&self, instance: &InstanceId) -> io::Result<Option<Rental>> {
        match fs::read(self.folder(instance).join(self.file())) {
            Ok(text) => Ok(Some(serde_json::from_slice(&text)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// What was asked for before under this name, with the same token; none if nothing was.
    ///
    /// # Errors
    /// The answer where it was another token, or where that cannot be read.
    pub fn asked(&self, instance: &InstanceId, token: &str) -> Result<Option<Rental>, ProviderAnswer> {
        match self.read(instance) {
            Ok(Some(rental)) if rental.request.token != token => {
                let before = &rental.request.token;
                Err(refused(format!("`{instance}` was asked for with token `{before}` before")))
            }
            Ok(known) => Ok(known),
            Err(error) => Err(ProviderAnswer::Doubt(format!("cannot read what was asked for: {error}"))),
        }
    }

    /// Stores it durably.
    ///
    /// # Errors
    /// If it cannot be written: then the request must not be sent.
    pub fn write(&self, instance: &InstanceId, rental: &Rental) -> io::Result<()> {
        replace(&self.folder(instance), &self.file(), &serde_json::to_vec(rental)?)
    }

    /// Updates a request, if `change` returns true; returns the result, or `None` if there is none.
    ///
    /// # Errors
    /// If it cannot be read or written.
    pub fn change(
        &self,
        instance: &InstanceId,
        change: impl FnOnce(&mut Rental) -> bool,
    ) -> io::Result<Option<Rental>> {
        let _one_at_a_time = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(mut rental) = self.read(instance)? else { return Ok(None) };
        if change(&mut rental) {
            self.write(instance, &rental)?;
        }
        Ok(Some(rental))
    }

    /// The regions in which anything was ever requested.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn regions(&self) -> io::Result<BTreeSet<String>> {
        match fs::read_to_string(self.shared().join("regions")) {
            Ok(text) => Ok(text.lines().map(str::to_owned).filter(|line| !line.is_empty()).collect()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(BTreeSet::new()),
            Err(error) => Err(error),
        }
    }

    /// Records a region, before the first request there.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn note_region(&self, region: &str) -> io::Result<()> {
        // Of two launches at once, neither may lose the region of the other: its machines would not be seen.
        let _one_at_a_time = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut regions = self.regions()?;
        if !regions.insert(region.to_owned()) {
            return Ok(());
        }
        let text: String = regions.iter().map(|region| format!("{region}\n")).collect();
        replace(&self.shared(), "regions", text.as_bytes())
    }
}

/// Writes a file of a folder, which is made on first use.
pub fn replace(folder: &Path, name: &str, contents: &[u8]) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    node::durable::replace(&folder.join(name), contents)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_and_rentals_outlive_the_process() {
        let home = tempfile::tempdir().unwrap();
        let rentals = Rentals::new(home.path(), "aws");
        assert!(rentals.regions().unwrap().is_empty());
        for region in ["us-east-1", "eu-west-1", "us-east-1"] {
            rentals.note_region(region).unwrap();
        }
        let regions: Vec<String> = Rentals::new(home.path(), "aws").regions().unwrap().into_iter().collect();
        assert_eq!(regions, ["eu-west-1", "us-east-1"]);
        let instance = InstanceId::new("r-i1");
        assert!(rentals.read(&instance).unwrap().is_none());
        fs::create_dir_all(rentals.folder(&instance)).unwrap();
        fs::write(rentals.folder(&instance).join("aws.json"), "{").unwrap();
        assert!(rentals.read(&instance).is_err(), "what cannot be read is not nothing");
        assert!(matches!(rentals.asked(&instance, "token"), Err(ProviderAnswer::Doubt(_))));
    }
}
