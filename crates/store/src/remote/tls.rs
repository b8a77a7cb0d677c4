//! The library for TLS, and a server that is recognised by its very certificate.
//!
//! reqwest takes the library that the process has installed, also for a socket of this machine, and panics without.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use sha2::{Digest, Sha256};

/// Installs *ring* as the process's TLS library, once; to be called before an HTTP client is built.
pub fn install_tls() {
    // An error means that one is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// Settings of a client for a server whose certificate has this SHA-256, in lower-case hexadecimal digits.
///
/// # Errors
/// When the library cannot be set up.
pub(super) fn pinned(fingerprint: &str) -> Result<ClientConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = PinnedCertificate { fingerprint: fingerprint.to_owned(), provider: provider.clone() };
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    // What is replaced is the check by authorities and names; the server must still prove that it has the key.
    let config = config.dangerous().with_custom_certificate_verifier(Arc::new(verifier));
    let mut config = config.with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// Accepts one certificate and no other. As with the key of an SSH host, its name and dates do not matter.
#[derive(Debug)]
struct PinnedCertificate {
    fingerprint: String,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for PinnedCertificate {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let found: String = Sha256::digest(&end_entity[..]).iter().map(|byte| format!("{byte:02x}")).collect();
        if found == self.fingerprint {
            return Ok(ServerCertVerified::assertion());
        }
        let expected = &self.fingerprint;
        Err(rustls::Error::General(format!("the certificate has the SHA-256 {found}, and not {expected}")))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
