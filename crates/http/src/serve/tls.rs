//! TLS of a server: with which certificate and key it proves who it is, and how both may be replaced while it serves.

mod transport;

use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use kelvin_sys::lock;
use rustix::process::geteuid;
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::{Ticketer, default_provider};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::NoServerSessionStorage;
use rustls::{ServerConfig, ServerConnection};

pub(crate) use transport::TlsTransport;

use crate::serve::error::{Error, Result};

/// A key of RSA with 16,384 bits has 13 KiB.
const MAX_KEY_FILE_BYTES: u64 = 64 << 10;

/// A certificate with its key, as they were read last.
#[derive(Debug)]
pub struct TlsIdentity {
    certificate: PathBuf,
    key: PathBuf,
    config: Mutex<Arc<ServerConfig>>,
}

impl TlsIdentity {
    /// From these files (PEM).
    ///
    /// # Errors
    /// [`Error::Certificate`], [`Error::Key`]: a file that cannot be read or holds no such thing; a key of another certificate, or one
    /// that others may read.
    pub fn load(certificate: &Path, key: &Path) -> Result<Self> {
        let config = Mutex::new(Arc::new(load_config(certificate, key)?));
        Ok(Self { certificate: certificate.to_owned(), key: key.to_owned(), config })
    }

    /// Reads both files again, for connections that come from now on.
    ///
    /// # Errors
    /// Those of [`Self::load`]: what was read before is used on.
    pub fn reload(&self) -> Result<()> {
        *lock(&self.config) = Arc::new(load_config(&self.certificate, &self.key)?);
        Ok(())
    }

    /// The server's end of a connection.
    fn session(&self) -> ServerConnection {
        let config = Arc::clone(&lock(&self.config));
        ServerConnection::new(config).expect("one was made of this configuration before")
    }
}

fn load_config(certificate: &Path, key: &Path) -> Result<ServerConfig> {
    let certificate_error = |why: String| Error::Certificate(certificate.to_owned(), why);
    let key_error = |why: String| Error::Key(key.to_owned(), why);
    let text = kelvin_sys::fs::read_named(certificate).map_err(|error| certificate_error(error.to_string()))?;
    let chain: std::result::Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let chain = chain.map_err(|error| certificate_error(error.to_string()))?;
    if chain.is_empty() {
        return Err(certificate_error("it holds no certificate (PEM)".into()));
    }
    let provider = Arc::new(default_provider());
    let private = read_key(key, &provider).map_err(key_error)?;
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| certificate_error(error.to_string()))?.with_no_client_auth();
    let mut config = builder.with_single_cert(chain, private).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => key_error(format!("is not the key of {}", certificate.display())),
        error => certificate_error(error.to_string()),
    })?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    // What a session needs to be resumed is with its client, so that every thread and process can resume it.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.ticketer = Ticketer::new().map_err(|error| certificate_error(error.to_string()))?;
    ServerConnection::new(Arc::new(config.clone())).map_err(|error| certificate_error(error.to_string()))?;
    Ok(config)
}

/// The key in a file. As with those of OpenSSH, one of the user's own must not be accessible to others.
fn read_key(file: &Path, provider: &CryptoProvider) -> std::result::Result<PrivateKeyDer<'static>, String> {
    let text_of = |error: std::io::Error| error.to_string();
    let opened = kelvin_sys::fs::open_to_read(file).map_err(text_of)?;
    let metadata = opened.metadata().map_err(text_of)?;
    let mode = metadata.permissions().mode() & 0o777;
    if metadata.is_file() && metadata.uid() == geteuid().as_raw() && mode & 0o077 != 0 {
        return Err(format!("is accessible to others (mode {mode:03o}): chmod 600 it"));
    }
    let mut text = Vec::new();
    opened.take(MAX_KEY_FILE_BYTES).read_to_end(&mut text).map_err(text_of)?;
    let key = PrivateKeyDer::from_pem_slice(&text)
        .map_err(|_| "it holds no private key without a passphrase (PEM)".to_owned())?;
    provider.key_provider.load_private_key(key.clone_key()).map_err(|error| error.to_string())?;
    Ok(key)
}

#[cfg(test)]
mod tests;
