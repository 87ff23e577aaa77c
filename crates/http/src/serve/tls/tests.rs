//! Certificates and keys that are loaded or not, and what clients send instead of TLS.

use std::fs;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use proptest::prelude::*;
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use super::*;
use crate::serve::connection::Connection;
use crate::serve::server::{Server, ServerAccess, ServerSetup};
use crate::serve::transport::ClientTransport;
use crate::serve::worker_context::{ClientState, WorkerContext};

/// A directory with `cert.pem` and `key.pem`, which only this user may read.
fn identity_files() -> tempfile::TempDir {
    let top = tempfile::tempdir().unwrap();
    let rcgen::CertifiedKey { cert, signing_key } = rcgen::generate_simple_self_signed(["localhost".into()]).unwrap();
    fs::write(top.path().join("cert.pem"), cert.pem()).unwrap();
    write_key(top.path(), &signing_key.serialize_pem(), 0o600);
    top
}

fn write_key(top: &Path, text: &str, mode: u32) {
    let key = top.join("key.pem");
    fs::write(&key, text).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(mode)).unwrap();
}

fn load(top: &Path) -> Result<TlsIdentity> {
    TlsIdentity::load(&top.join("cert.pem"), &top.join("key.pem"))
}

#[test]
fn unusable_files_are_refused_in_words() {
    let files = identity_files();
    let top = files.path();
    assert!(load(top).is_ok());
    let refusal = || load(top).unwrap_err().to_string().replace(&format!("{}/", top.display()), "");
    let key = fs::read_to_string(top.join("key.pem")).unwrap();
    for mode in [0o640, 0o604, 0o620, 0o644] {
        write_key(top, &key, mode);
        assert_eq!(refusal(), format!("key.pem: is accessible to others (mode {mode:03o}): chmod 600 it"));
    }
    let encrypted = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
    for text in ["", "key", encrypted] {
        write_key(top, text, 0o600);
        assert_eq!(refusal(), "key.pem: it holds no private key without a passphrase (PEM)", "{text}");
    }
    write_key(top, &rcgen::KeyPair::generate().unwrap().serialize_pem(), 0o600);
    assert!(refusal().starts_with("key.pem: is not the key of "), "{}", refusal());
    write_key(top, &key, 0o600);
    fs::write(top.join("cert.pem"), &key).unwrap();
    assert_eq!(refusal(), "cert.pem: it holds no certificate (PEM)");
    fs::remove_file(top.join("cert.pem")).unwrap();
    assert!(refusal().starts_with("cert.pem: No such file"));
}

#[test]
fn replaced_files_are_used_once_reloaded() {
    let (files, others) = (identity_files(), identity_files());
    let identity = load(files.path()).unwrap();
    let config = || Arc::as_ptr(&lock(&identity.config));
    let before = config();
    for file in ["cert.pem", "key.pem"] {
        fs::copy(others.path().join(file), files.path().join(file)).unwrap();
    }
    identity.reload().unwrap();
    assert_ne!(config(), before);
    let reloaded = config();
    fs::write(files.path().join("cert.pem"), "").unwrap();
    assert!(identity.reload().is_err());
    assert_eq!(config(), reloaded);
}

/// What serves a client, without a thread.
struct Bench {
    _files: tempfile::TempDir,
    certificate: Vec<u8>,
    context: WorkerContext,
}

impl Bench {
    fn new() -> Self {
        let files = identity_files();
        let certificate = fs::read(files.path().join("cert.pem")).unwrap();
        let access = ServerAccess { tls: Some(Arc::new(load(files.path()).unwrap())), ..ServerAccess::default() };
        let any = "127.0.0.1:0".parse().unwrap();
        let server = Server::listen(any, files.path(), ServerSetup::with_threads(1), access).unwrap();
        Self { _files: files, certificate, context: WorkerContext::new(&server.service) }
    }

    /// A client that has sent nothing, with both ends of its connection.
    fn client(&self) -> (ClientState<TlsTransport>, OwnedFd, UnixStream) {
        let (near, far) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        far.set_nonblocking(true).unwrap();
        let state = self.context.new_client(near.as_fd(), None, Instant::now());
        (state, near.into(), far)
    }

    fn session(&self) -> ClientConnection {
        let mut roots = RootCertStore::empty();
        CertificateDer::pem_slice_iter(&self.certificate).for_each(|cert| roots.add(cert.unwrap()).unwrap());
        let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()));
        let builder = builder.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots);
        let config = Arc::new(builder.with_no_client_auth());
        ClientConnection::new(config, "localhost".try_into().unwrap()).unwrap()
    }

    /// Receives until nothing is there any more, and sends what is to be sent of the handshake: the content, and whether it goes on.
    fn receive_all(&mut self, state: &mut ClientState<TlsTransport>, near: &OwnedFd) -> bool {
        use rustix::io::Errno;
        loop {
            if state.transport.has_unsent() {
                match state.transport.send_some(&mut Connection::default(), near, &mut self.context) {
                    Ok(_) => continue,
                    Err(Errno::AGAIN) => return true,
                    Err(_) => return false,
                }
            }
            match state.transport.receive(&mut state.connection, near, &mut self.context) {
                Ok(0) => return false,
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return true,
                Err(_) => return false,
            }
        }
    }

    /// What a session wants to send.
    fn output(session: &mut ClientConnection) -> Vec<u8> {
        let mut bytes = Vec::new();
        while session.wants_write() {
            session.write_tls(&mut bytes).unwrap();
        }
        bytes
    }

    /// A client whose handshake is done.
    fn connected(&mut self) -> (ClientState<TlsTransport>, OwnedFd, UnixStream, ClientConnection) {
        let ((mut state, near, mut far), mut session) = (self.client(), self.session());
        while session.is_handshaking() || state.transport.is_handshaking() {
            far.write_all(&Self::output(&mut session)).unwrap();
            assert!(self.receive_all(&mut state, &near));
            while session.read_tls(&mut far).is_ok() {
                session.process_new_packets().unwrap();
            }
        }
        (state, near, far, session)
    }
}

#[test]
fn client_that_sends_records_without_content_is_dropped() {
    let mut bench = Bench::new();
    let (mut state, near, mut far, mut session) = bench.connected();
    session.writer().write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    far.write_all(&Bench::output(&mut session)).unwrap();
    assert!(bench.receive_all(&mut state, &near) && state.connection.has_partial_request());
    // New keys, again and again, are no request.
    let mut sent = 0;
    let goes_on = loop {
        session.refresh_traffic_keys().unwrap();
        let bytes = Bench::output(&mut session);
        sent += bytes.len();
        far.write_all(&bytes).unwrap();
        let goes_on = bench.receive_all(&mut state, &near);
        while std::io::Read::read(&mut far, &mut [0; 4096]).is_ok_and(|length| length > 0) {}
        if !goes_on || sent > 1 << 20 {
            break goes_on;
        }
    };
    assert!(!goes_on && sent < 300 << 10, "{goes_on} {sent}");
    assert_eq!((bench.context.stats.tls.handshakes, bench.context.stats.tls.failures), (1, 1));
}

#[test]
fn handshake_is_no_activity() {
    let mut bench = Bench::new();
    let (mut state, near, mut far) = bench.client();
    let begin = state.last_active;
    let hello = Bench::output(&mut bench.session());
    far.write_all(&hello[..hello.len() - 1]).unwrap();
    assert!(bench.receive_all(&mut state, &near));
    state.mark_active(begin + std::time::Duration::from_secs(5));
    assert_eq!((state.last_active, state.transport.is_handshaking()), (begin, true));
    far.write_all(&hello[hello.len() - 1..]).unwrap();
    assert!(bench.receive_all(&mut state, &near) && state.transport.is_handshaking());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever a client sends, in whatever pieces, before or after a handshake, is refused or waited on: nothing panics, nothing of it
    /// reaches the parser of requests, and no more is held than was sent.
    #[test]
    fn no_bytes_pass_without_keys(
        noise in proptest::collection::vec(any::<u8>(), 1..600),
        edits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        piece in 1_usize..300,
        kind in 0..3,
    ) {
        let mut bench = Bench::new();
        let (mut state, near, mut far, bytes) = match kind {
            0 => {
                let (state, near, far) = bench.client();
                (state, near, far, noise)
            }
            1 => {
                let (state, near, far) = bench.client();
                let mut hello = Bench::output(&mut bench.session());
                let length = hello.len();
                edits.iter().for_each(|(index, byte)| hello[index.index(length)] = *byte);
                (state, near, far, hello)
            }
            _ => {
                let (state, near, far, mut session) = bench.connected();
                session.writer().write_all(&noise).unwrap();
                let mut record = Bench::output(&mut session);
                // Its length stays, so that it is whole.
                let (index, byte) = edits[0];
                let body = &mut record[5..];
                let index = index.index(body.len());
                body[index] ^= byte | 1;
                (state, near, far, record)
            }
        };
        for piece in bytes.chunks(piece) {
            if far.write_all(piece).is_err() || !bench.receive_all(&mut state, &near) {
                break;
            }
        }
        prop_assert!(!state.connection.has_partial_request());
        prop_assert!(bench.context.stats.tls.handshakes <= u64::from(kind == 2));
    }
}
