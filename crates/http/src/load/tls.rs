//! TLS with a server: whose certificates are believed, and a session on a socket that never waits.

use std::io::{self, ErrorKind, Read, Write};
use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    AlertDescription, CertificateError, ClientConfig, ClientConnection, CommonState, DigitallySignedStruct,
    RootCertStore, SignatureScheme,
};

use crate::load::error::{Error, Result};
use crate::load::stream_socket::StreamSocket;
use crate::load::tls_session::{HTTP2_PROTOCOL, TlsSession, accepted_bytes};
use crate::load::trust::Trust;

/// Packets of TLS that one call takes: a server may send any number of them that hold no bytes.
const MAX_TLS_RECORDS: usize = 64;

/// How TLS is spoken to a server, and the name that its certificate must have.
#[derive(Clone, Debug)]
pub(crate) struct TlsServer {
    config: TlsConfig,
    name: ServerName<'static>,
}

impl TlsServer {
    /// # Errors
    /// A host that no certificate can name.
    pub(crate) fn new(config: &TlsConfig, host: &str) -> Result<Self> {
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| Error::Tls(format!("{host}: no certificate can have this name")))?;
        Ok(Self { config: config.clone(), name })
    }

    pub(crate) fn session(&self) -> io::Result<Box<dyn TlsSession>> {
        let session = ClientConnection::new(Arc::clone(&self.config.0), self.name.clone()).map_err(io::Error::other)?;
        Ok(Box::new(session))
    }
}

impl TlsSession for ClientConnection {
    fn write(&mut self, socket: &StreamSocket, bytes: &[u8]) -> io::Result<usize> {
        let length = self.writer().write(bytes)?;
        self.flush(socket)?;
        Ok(length)
    }

    fn flush(&mut self, mut socket: &StreamSocket) -> io::Result<()> {
        while CommonState::wants_write(self) {
            if accepted_bytes(self.write_tls(&mut socket))? == 0 {
                break;
            }
        }
        Ok(())
    }

    fn wants_write(&self) -> bool {
        CommonState::wants_write(self)
    }

    fn is_handshaking(&self) -> bool {
        CommonState::is_handshaking(self)
    }

    fn protocol(&self) -> Option<&[u8]> {
        self.alpn_protocol()
    }

    fn read(&mut self, mut socket: &StreamSocket, buffer: &mut [u8], may_take: bool) -> io::Result<usize> {
        let mut packets = if may_take { MAX_TLS_RECORDS } else { 0 };
        loop {
            match self.reader().read(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock && packets > 0 => packets -= 1,
                done => return done,
            }
            if self.read_tls(&mut socket)? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            if let Err(error) = self.process_new_packets() {
                // The alert has the reason; whether it arrives changes nothing.
                let _ = self.flush(socket);
                return Err(io::Error::new(ErrorKind::InvalidData, error_text(&error)));
            }
            self.flush(socket)?;
        }
    }
}

/// Why TLS ends, in words: for some of what is wrong with a certificate the library has names of its own only.
fn error_text(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "TLS: the server's certificate is signed by no trusted authority".into()
        }
        rustls::Error::InvalidCertificate(CertificateError::Other(why)) if why.to_string() == "CaUsedAsEndEntity" => {
            "TLS: the server's certificate is that of an authority, not of a server".into()
        }
        rustls::Error::AlertReceived(AlertDescription::NoApplicationProtocol) => {
            "TLS: the server speaks no protocol that was offered: leave out --http2, or enable it there".into()
        }
        rustls::Error::InvalidMessage(_) => {
            "TLS: the server's answer is not TLS: it may serve plain HTTP (http://) on this port".into()
        }
        error => format!("TLS: {error}"),
    }
}

/// Whose certificates a client believes.
#[derive(Clone, Debug)]
pub struct TlsConfig(Arc<ClientConfig>);

impl TlsConfig {
    /// The same, with HTTP/2 as the protocol that is offered.
    #[must_use]
    pub fn for_http2(&self) -> Self {
        let mut config = ClientConfig::clone(&self.0);
        config.alpn_protocols = vec![HTTP2_PROTOCOL.to_vec()];
        Self(Arc::new(config))
    }
}

/// Speaks TLS to servers whose certificates are believed.
///
/// # Errors
/// A file that cannot be read or holds no certificate; a system that has no authorities.
pub fn client_config(trust: Trust<'_>) -> Result<TlsConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let (mut roots, mut pinned) = (RootCertStore::empty(), Vec::new());
    match trust {
        Trust::Anybody => {}
        Trust::System => {
            // A certificate of the system that this library does not read is believed by nobody here.
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if roots.is_empty() {
                return Err(Error::Tls("this system has no certificate authorities: name a file of them (PEM)".into()));
            }
        }
        Trust::File(file) => {
            let text = kelvin_sys::fs::read_named(file).map_err(|error| file_error(file, &error))?;
            let certificates: std::result::Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
            pinned = certificates.map_err(|error| file_error(file, &error))?;
            if pinned.is_empty() {
                return Err(file_error(file, &"it holds no certificate (PEM)"));
            }
            for certificate in &pinned {
                roots.add(certificate.clone()).map_err(|error| file_error(file, &error))?;
            }
        }
    }
    let authorities = (trust != Trust::Anybody).then(|| {
        let builder = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
        builder.build().map_err(|error| Error::Tls(error.to_string()))
    });
    let verifier = Verifier { pinned, authorities: authorities.transpose()?, provider: Arc::clone(&provider) };
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| Error::Tls(error.to_string()))?;
    let mut config = builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier)).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsConfig(Arc::new(config)))
}

/// Believes certificates of the authorities, or every one without them; and that the server has its key. It also believes each certificate
/// that is pinned, when a server shows that very one. A certificate that `openssl req -x509` makes for a server is one of an authority,
/// which may sign others and by the rule (RFC 5280) does not stand for a server itself.
#[derive(Debug)]
struct Verifier {
    pinned: Vec<CertificateDer<'static>>,
    authorities: Option<Arc<WebPkiServerVerifier>>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        let Some(authorities) = &self.authorities else { return Ok(ServerCertVerified::assertion()) };
        match authorities.verify_server_cert(certificate, intermediates, name, ocsp, now) {
            // The rule has no error of its own. The time is checked before it, and has one.
            Err(rustls::Error::InvalidCertificate(CertificateError::Other(_))) if self.pinned.contains(certificate) => {
                verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
                Ok(ServerCertVerified::assertion())
            }
            done => done,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

fn file_error(file: &Path, error: &dyn std::fmt::Display) -> Error {
    Error::Tls(format!("{}: {error}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terse_errors_are_explained() {
        let certificate = |error| error_text(&rustls::Error::InvalidCertificate(error));
        assert!(certificate(CertificateError::UnknownIssuer).contains("no trusted authority"));
        let expired = certificate(CertificateError::Expired);
        assert!(expired.contains("certificate") && expired.contains("xpired"));
        let invalid_message = rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType);
        assert!(error_text(&invalid_message).contains("plain HTTP"));
    }
}
