//! Stub for TLS in an executable built without it: certificates are not read, so no address is served with one.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use tokio::net::{TcpListener, TcpStream};

use super::visitor::Visitor;
use crate::error::Error;

/// The server's certificate and key, of which there is none.
#[derive(Debug, Clone)]
pub struct NoTlsIdentity(Infallible);

impl NoTlsIdentity {
    /// Refuses to read one.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn read(certificate: &Path, _key: &Path) -> Result<NoTlsIdentity, Error> {
        Err(Error::file("read the certificate in", certificate)(std::io::ErrorKind::Unsupported.into()))
    }

    /// The SHA-256 of the certificate itself.
    pub fn fingerprint(&self) -> &str {
        match self.0 {}
    }
}

/// A listener with TLS, of which there is none.
pub struct NoTlsListener(Infallible);

impl NoTlsListener {
    /// Accepts connections in the runtime that this is called in.
    ///
    /// # Errors
    /// When the address is not known.
    pub fn new(_tcp: TcpListener, identity: &NoTlsIdentity) -> std::io::Result<NoTlsListener> {
        match identity.0 {}
    }
}

impl Listener for NoTlsListener {
    type Io = TcpStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (TcpStream, SocketAddr) {
        match self.0 {}
    }

    fn local_addr(&self) -> std::io::Result<SocketAddr> {
        match self.0 {}
    }
}

impl Connected<IncomingStream<'_, NoTlsListener>> for Visitor {
    fn connect_info(_stream: IncomingStream<'_, NoTlsListener>) -> Visitor {
        Visitor::default()
    }
}
