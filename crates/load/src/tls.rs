//! How TLS is spoken to a server: whose certificates are believed.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};

use crate::error::{Error, Result};

/// Believes the authorities of the file (PEM), or those that the system believes.
///
/// # Errors
/// A file that cannot be read or holds none; a system that has none.
pub fn config(authorities: Option<&Path>) -> Result<Arc<ClientConfig>> {
    let roots = match authorities {
        Some(file) => of_file(file)?,
        None => of_system()?,
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| Error::Tls(error.to_string()))?;
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn of_file(file: &Path) -> Result<RootCertStore> {
    let wrong = |why: &dyn std::fmt::Display| Error::Tls(format!("{}: {why}", file.display()));
    let certificates = CertificateDer::pem_file_iter(file).map_err(|error| wrong(&error))?;
    let mut roots = RootCertStore::empty();
    for certificate in certificates {
        let certificate = certificate.map_err(|error| wrong(&error))?;
        roots.add(certificate).map_err(|error| wrong(&error))?;
    }
    if roots.is_empty() { Err(wrong(&"it holds no certificate (PEM)")) } else { Ok(roots) }
}

fn of_system() -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    // A certificate of the system that this library does not read is believed by nobody here.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let none = || Error::Tls("this system has no certificate authorities: name a file of them (PEM)".into());
    if roots.is_empty() { Err(none()) } else { Ok(roots) }
}

/// The name that the certificate of a host must have.
///
/// # Errors
/// A host that no certificate can name.
pub(crate) fn name(host: &str) -> Result<ServerName<'static>> {
    let name = ServerName::try_from(host.to_owned());
    name.map_err(|_| Error::Tls(format!("{host}: no certificate can have this name")))
}
