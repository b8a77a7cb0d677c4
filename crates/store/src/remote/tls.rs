//! The library for TLS.
//!
//! reqwest takes the one that the process has installed, also for a socket of this machine, and panics without.

/// Installs *ring* as the process's TLS library, once; to be called before an HTTP client is built.
pub fn install_tls() {
    // An error means that one is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
}
