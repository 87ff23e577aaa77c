//! Whose certificate of a server is believed, by the modes of libpq.

use std::path::Path;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

use super::address::{TlsMode, TlsSettings};

/// How TLS is spoken in this mode.
///
/// # Errors
/// Certificates that cannot be read, in words.
pub(crate) fn client_config(tls: &TlsSettings) -> Result<ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| error.to_string())?;
    let verifier = CertificateVerifier::new(tls, &provider)?;
    Ok(builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier)).with_no_client_auth())
}

/// Whom to believe. Signatures are always checked: whoever answers has the key of the certificate that is shown.
#[derive(Debug)]
struct CertificateVerifier {
    provider: Arc<CryptoProvider>,
    /// Checks the chain and the name; none believes anybody, as libpq does unless a mode asks for verification.
    verifier: Option<Arc<WebPkiServerVerifier>>,
    /// Whether the certificate must be for the name of the host.
    checks_name: bool,
}

impl CertificateVerifier {
    fn new(tls: &TlsSettings, provider: &Arc<CryptoProvider>) -> Result<Self, String> {
        // As in libpq, a file of authorities that is named is used wherever TLS is required.
        let must_verify = match tls.mode {
            TlsMode::VerifyCa | TlsMode::VerifyFull => true,
            TlsMode::Require => tls.authorities.is_some(),
            TlsMode::Disable | TlsMode::Allow | TlsMode::Prefer => false,
        };
        let roots = || tls.authorities.as_deref().map_or_else(system_roots, roots_from_file);
        let verifier = |roots: RootCertStore| {
            let builder = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone());
            builder.build().map_err(|error| error.to_string())
        };
        let verifier = must_verify.then(|| roots().and_then(verifier)).transpose()?;
        Ok(Self { provider: provider.clone(), verifier, checks_name: tls.mode == TlsMode::VerifyFull })
    }
}

fn roots_from_file(file: &Path) -> Result<RootCertStore, String> {
    let root_error = |reason: &dyn std::fmt::Display| format!("sslrootcert {}: {reason}", file.display());
    let mut roots = RootCertStore::empty();
    // One that waits for a writer would wait for ever.
    if !file.metadata().map_err(|error| root_error(&error))?.is_file() {
        return Err(root_error(&"it is not a regular file"));
    }
    for certificate in CertificateDer::pem_file_iter(file).map_err(|error| root_error(&error))? {
        let certificate = certificate.map_err(|error| root_error(&error))?;
        roots.add(certificate).map_err(|error| root_error(&error))?;
    }
    if roots.is_empty() { Err(root_error(&"it holds no certificate (PEM)")) } else { Ok(roots) }
}

fn system_roots() -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    // A certificate of the system that this library does not read is believed by nobody here.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    match roots.is_empty() {
        true => Err("this system has no certificate authorities: name a file of them (PEM) with sslrootcert".into()),
        false => Ok(roots),
    }
}

impl ServerCertVerifier for CertificateVerifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(verifier) = &self.verifier else { return Ok(ServerCertVerified::assertion()) };
        match verifier.verify_server_cert(certificate, intermediates, name, ocsp_response, now) {
            // The name is looked at last, when all else has been found right.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if !self.checks_name => Ok(ServerCertVerified::assertion()),
            result => result,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
