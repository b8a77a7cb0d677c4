//! TLS, for an address that other machines can reach.
//!
//! Handshakes are concurrent and have a time limit, so that a silent client does not block others. Whoever has not shown a
//! right token takes one of few places, and not for long ([`super::visitor`]): others that have one are not kept waiting,
//! and files are left for the log.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use sha2::{Digest, Sha256};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::visitor::Visitor;
use super::watched::WatchedStream;
use crate::error::Error;

/// Time limit of a handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Maximum number of connections whose client has not shown a right token; others wait to be accepted.
const PLACES: usize = 256;

/// After a connection could not be accepted, for want of files perhaps.
const AGAIN: Duration = Duration::from_millis(100);

/// The server's certificate and key.
#[derive(Clone)]
pub struct TlsIdentity {
    config: Arc<ServerConfig>,
    fingerprint: String,
}

impl std::fmt::Debug for TlsIdentity {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("TlsIdentity")
    }
}

impl TlsIdentity {
    /// Reads a certificate, with those that lead to who signed it, and its key, in the format PEM.
    ///
    /// # Errors
    /// [`Error::File`] when one of them cannot be read or they do not belong together.
    pub fn read(certificate: &Path, key: &Path) -> Result<TlsIdentity, Error> {
        let unusable =
            |doing, path: &Path, why: String| Error::file(doing, path)(io::Error::new(io::ErrorKind::InvalidData, why));
        let text = |path: &Path| std::fs::read(path).map_err(Error::file("read", path));
        let (certificates, key_text) = (text(certificate)?, text(key)?);
        let chain: Result<Vec<CertificateDer<'static>>, _> = CertificateDer::pem_slice_iter(&certificates).collect();
        let doing = "read the certificate in";
        let chain = chain.map_err(|error| unusable(doing, certificate, error.to_string()))?;
        if chain.is_empty() {
            return Err(unusable(doing, certificate, "there is none in the format PEM".to_owned()));
        }
        let digest = chain.first().map(|first| Sha256::digest(&first[..]));
        let fingerprint = digest.into_iter().flatten().map(|byte| format!("{byte:02x}")).collect();
        let private = PrivateKeyDer::from_pem_slice(&key_text);
        let private = private.map_err(|error| unusable("read the key in", key, error.to_string()))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|config| config.with_no_client_auth().with_single_cert(chain, private));
        let mut config = config.map_err(|error| unusable("use the key in", key, error.to_string()))?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(TlsIdentity { config: Arc::new(config), fingerprint })
    }

    /// The SHA-256 of the certificate itself, in lower-case hexadecimal digits.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }
}

/// A listener whose connections have completed their handshake.
pub struct TlsListener {
    address: SocketAddr,
    ready: mpsc::Receiver<Accepted>,
}

/// A connection, and from where it is.
type Accepted = (WatchedStream<TlsStream<TcpStream>>, SocketAddr);

impl TlsListener {
    /// Accepts connections in the runtime that this is called in.
    ///
    /// # Errors
    /// When the address is not known.
    pub fn new(tcp: TcpListener, identity: &TlsIdentity) -> io::Result<TlsListener> {
        let address = tcp.local_addr()?;
        let (sender, ready) = mpsc::channel(PLACES);
        let acceptor = TlsAcceptor::from(identity.config.clone());
        tokio::spawn(accept(tcp, acceptor, sender));
        Ok(TlsListener { address, ready })
    }
}

async fn accept(tcp: TcpListener, acceptor: TlsAcceptor, ready: mpsc::Sender<Accepted>) {
    let places = Arc::new(Semaphore::new(PLACES));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        let (stream, from) = match tcp.accept().await {
            Ok(accepted) => accepted,
            Err(_) => {
                tokio::time::sleep(AGAIN).await;
                continue;
            }
        };
        let (acceptor, ready) = (acceptor.clone(), ready.clone());
        tokio::spawn(async move {
            if let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await {
                let _ = ready.send((WatchedStream::new(stream, place), from)).await;
            }
        });
    }
}

impl Listener for TlsListener {
    type Io = WatchedStream<TlsStream<TcpStream>>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        match self.ready.recv().await {
            Some(accepted) => accepted,
            // The task that accepts ends with the runtime only.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }
}

impl Connected<IncomingStream<'_, TlsListener>> for Visitor {
    fn connect_info(stream: IncomingStream<'_, TlsListener>) -> Visitor {
        stream.io().visitor().clone()
    }
}
