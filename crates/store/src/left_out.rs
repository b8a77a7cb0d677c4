//! Stubs for an executable built without clients of object stores: each transfer is refused with a hint.

use std::convert::Infallible;
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use data::cache::CacheCounts;
use domain::joining::ServerTrust;

use crate::{Access, Checked, Error, Limits, Location, Meter, Options, PartedUpload, Places, Pulled, Pushed, Staged};

/// An opened location, of which there is none.
#[derive(Debug)]
pub enum NoRemote {}

impl NoRemote {
    /// Host and port that requests go to.
    pub fn host(&self) -> Option<String> {
        match *self {}
    }

    /// Where it is.
    pub fn location(&self) -> &Location {
        match *self {}
    }

    /// Stores an object only if none has its name.
    ///
    /// # Errors
    /// None: no location is ever open.
    pub fn create_object(&self, _name: &str, _bytes: Vec<u8>, _within: Duration) -> Result<bool, Error> {
        match *self {}
    }

    /// Requires that the store heeds that condition.
    ///
    /// # Errors
    /// None: no location is ever open.
    pub fn require_conditions(&self, _name: &str, _bytes: Vec<u8>, _within: Duration) -> Result<(), Error> {
        match *self {}
    }

    /// Stores an object.
    ///
    /// # Errors
    /// None: no location is ever open.
    pub fn put_object(&self, _name: &str, _bytes: Vec<u8>, _within: Duration) -> Result<(), Error> {
        match *self {}
    }

    /// Reads an object.
    ///
    /// # Errors
    /// None: no location is ever open.
    pub fn read_object(&self, _name: &str, _most: u64, _within: Duration) -> Result<Option<Vec<u8>>, Error> {
        match *self {}
    }

    /// Reads bytes of an object.
    ///
    /// # Errors
    /// None: no location is ever open.
    pub fn read_range(&self, _name: &str, _range: Range<u64>, _within: Duration) -> Result<Vec<u8>, Error> {
        match *self {}
    }

    /// The names of all objects.
    ///
    /// # Errors
    /// None: no location is ever open.
    pub fn object_names(&self, _within: Duration) -> Result<Vec<String>, Error> {
        match *self {}
    }

    /// Removes an object.
    ///
    /// # Errors
    /// None: no location is ever open.
    pub fn remove_object(&self, _name: &str, _within: Duration) -> Result<(), Error> {
        match *self {}
    }

    /// Whether objects can be sent in parts.
    pub fn takes_parts(&self) -> bool {
        match *self {}
    }

    /// Begins to send an object in parts.
    ///
    /// # Errors
    /// None: no location is ever open.
    pub fn begin_parts(&self, _name: &str, _within: Duration) -> Result<PartedUpload, Error> {
        match *self {}
    }

    /// Sends the next part.
    ///
    /// # Errors
    /// None: no location is ever open.
    pub fn send_part(&self, _upload: &mut PartedUpload, _bytes: Vec<u8>, _within: Duration) -> Result<(), Error> {
        match *self {}
    }

    /// Makes the object of its parts.
    ///
    /// # Errors
    /// None: no location is ever open.
    pub fn finish_parts(&self, _upload: &PartedUpload, _within: Duration) -> Result<(), Error> {
        match *self {}
    }

    /// Abandons an upload.
    pub fn abandon_parts(&self, _upload: &PartedUpload, _within: Duration) {
        match *self {}
    }
}

/// Data from elsewhere that is being served, of which there is none.
#[derive(Debug)]
pub struct NothingServed {
    /// The file or folder to open.
    pub path: PathBuf,
    /// Keys of objects that were left out.
    pub unreadable: Vec<String>,
    never: Infallible,
}

impl NothingServed {
    /// Reads served from the cache, and from the remote location.
    pub fn counts(&self) -> CacheCounts {
        match self.never {}
    }

    /// For how long the origin has sent nothing while a rank waits for bytes.
    pub fn silence(&self) -> Option<Duration> {
        match self.never {}
    }
}

/// A client for single requests, of which there is none.
#[derive(Debug, Clone)]
pub enum NoWebClient {}

impl NoWebClient {
    /// Refuses to make one.
    ///
    /// # Errors
    /// [`Error::LeftOut`].
    pub fn new() -> Result<NoWebClient, Error> {
        Err(Error::LeftOut)
    }

    /// Refuses to make one for a server.
    ///
    /// # Errors
    /// [`Error::LeftOut`].
    pub fn of_server(_authorities: Option<&str>, _near: bool) -> Result<NoWebClient, Error> {
        Err(Error::LeftOut)
    }

    /// Refuses to make one for a server that is recognised so.
    ///
    /// # Errors
    /// [`Error::LeftOut`].
    pub fn of_trusted(_trust: &ServerTrust, _near: bool) -> Result<NoWebClient, Error> {
        Err(Error::LeftOut)
    }

    /// Sends a request that may take so long.
    ///
    /// # Errors
    /// None: there is no client.
    pub fn send_within(
        &self,
        _asked: (&str, &str),
        _headers: &[(String, String)],
        _body: Vec<u8>,
        _within: Duration,
    ) -> Result<(u16, Vec<u8>), String> {
        match *self {}
    }

    /// Sends a request whose reply is streamed.
    ///
    /// # Errors
    /// None: there is no client.
    pub fn open(
        &self,
        _method: &str,
        _url: &str,
        _headers: &[(String, String)],
        _body: Vec<u8>,
    ) -> Result<(u16, Box<dyn Read + Send>), String> {
        match *self {}
    }

    /// Sends a request whose reply is streamed, and says when to ask again.
    ///
    /// # Errors
    /// None: there is no client.
    pub fn open_paced(
        &self,
        _method: &str,
        _url: &str,
        _headers: &[(String, String)],
        _body: Vec<u8>,
    ) -> Result<(u16, String, Box<dyn Read + Send>), String> {
        match *self {}
    }

    /// Sends a request, and keeps the headers of its reply.
    ///
    /// # Errors
    /// None: there is no client.
    pub fn send_whole(
        &self,
        _method: &str,
        _url: &str,
        _headers: &[(String, String)],
        _body: Vec<u8>,
    ) -> Result<crate::WholeReply, String> {
        match *self {}
    }

    /// Sends a request.
    ///
    /// # Errors
    /// None: there is no client.
    pub fn send(
        &self,
        _method: &str,
        _url: &str,
        _headers: &[(String, String)],
        _body: Vec<u8>,
    ) -> Result<(u16, Vec<u8>), String> {
        match *self {}
    }
}

/// Refuses to open a location.
///
/// # Errors
/// [`Error::LeftOut`].
pub fn open(_location: &Location, _access: &Access, _limits: Limits) -> Result<NoRemote, Error> {
    Err(Error::LeftOut)
}

/// Sends data to a location.
///
/// # Errors
/// None: no location is ever open.
pub fn push(_source: &Path, remote: &NoRemote, _options: &Options, _meter: &Meter) -> Result<Pushed, Error> {
    match *remote {}
}

/// Fetches data from a location.
///
/// # Errors
/// None: no location is ever open.
pub fn pull(remote: &NoRemote, _target: &Path, _options: &Options, _meter: &Meter) -> Result<Pulled, Error> {
    match *remote {}
}

/// Checks data at a location.
///
/// # Errors
/// None: no location is ever open.
pub fn check(remote: &NoRemote, _verify: bool, _meter: &Meter) -> Result<Checked, Error> {
    match *remote {}
}

/// Refuses to serve what lies at `uri`.
///
/// # Errors
/// [`Error::LeftOut`], or that `uri` names no place.
pub fn serve(
    uri: &str,
    _budget: u64,
    _places: Places<'_>,
    _access: &Access,
    _limits: Limits,
) -> Result<NothingServed, Error> {
    uri.parse::<Location>()?;
    Err(Error::LeftOut)
}

/// A local path stays where it is; anything else is refused.
///
/// # Errors
/// [`Error::LeftOut`], or that `uri` names no place.
pub fn stage(uri: &str, _cache: &Path, _access: &Access, _limits: Limits, _meter: &Meter) -> Result<Staged, Error> {
    match uri.parse::<Location>()?.local() {
        Some(path) => Ok(Staged { path: path.to_owned(), pulled: Pulled::default() }),
        None => Err(Error::LeftOut),
    }
}
