//! The library for TLS.
//!
//! reqwest takes the one that the process has installed, also for a socket of this machine, and panics without.

/// Makes *ring* the process's library for TLS, once; whoever builds an HTTP client calls this before.
pub fn install_tls() {
    // An error means that one is installed, which is all that is wanted.
    let _ = rustls::crypto::ring::default_provider().install_default();
}
