//! Every model that encrypts: whole answers, versions, slow handshakes, and what is no TLS.
#![cfg(feature = "tls")]

mod test_server;

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kelvin_http::serve::send_strategy::SendStrategy;
use kelvin_http::serve::tls::TlsIdentity;
use kelvin_http::serve::{Error, Server, ServerAccess, ServerModel, ServerSetup};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, ProtocolVersion, RootCertStore, StreamOwned, SupportedProtocolVersion};
use test_server::{SMALL, TestServer, all_models, files, random_bytes, read_to_end};

/// A server's certificate, and what clients trust.
struct Identity {
    directory: tempfile::TempDir,
    roots: RootCertStore,
}

impl Identity {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let rcgen::CertifiedKey { cert, signing_key } =
            rcgen::generate_simple_self_signed(["localhost".into()]).unwrap();
        let pem = cert.pem();
        fs::write(directory.path().join("cert.pem"), &pem).unwrap();
        let key = directory.path().join("key.pem");
        fs::write(&key, signing_key.serialize_pem()).unwrap();
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()).unwrap();
        Self { directory, roots }
    }

    fn access(&self) -> ServerAccess {
        let file = |name| self.directory.path().join(name);
        let identity = TlsIdentity::load(&file("cert.pem"), &file("key.pem")).unwrap();
        ServerAccess { tls: Some(Arc::new(identity)), ..ServerAccess::default() }
    }

    fn serve(&self, root: &Path, setup: ServerSetup) -> TestServer {
        TestServer::start_with(root, setup, || self.access())
    }

    /// A client that offers these protocols and versions.
    fn client(&self, protocols: &[&[u8]], versions: &[&'static SupportedProtocolVersion]) -> Arc<ClientConfig> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(versions).unwrap();
        let mut config = builder.with_root_certificates(self.roots.clone()).with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        Arc::new(config)
    }
}

type Client = StreamOwned<ClientConnection, TcpStream>;

fn connect(server: &TestServer, config: &Arc<ClientConfig>) -> Client {
    let name = ServerName::try_from("localhost").unwrap();
    StreamOwned::new(ClientConnection::new(Arc::clone(config), name).unwrap(), server.connect())
}

/// All that comes for this until the server closes, with a notice; the client sends no more after it.
fn exchange(mut client: Client, request: &[u8]) -> Vec<u8> {
    client.write_all(request).unwrap();
    client.conn.send_close_notify();
    client.flush().unwrap();
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).unwrap();
    answer
}

/// `GET` of this file, after which the connection is closed.
fn last_request(file: &str) -> Vec<u8> {
    format!("GET {file} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").into_bytes()
}

fn encrypting_models() -> impl Iterator<Item = ServerSetup> {
    all_models().filter(|setup| setup.model != ServerModel::Uring)
}

#[test]
fn answers_are_whole_by_every_model() {
    let (identity, (root, _)) = (Identity::new(), files());
    let medium = random_bytes(3_000_000);
    fs::write(root.path().join("medium"), &medium).unwrap();
    let config = identity.client(&[b"http/1.1"], rustls::ALL_VERSIONS);
    for setup in encrypting_models() {
        let (server, model) = (identity.serve(root.path(), setup), setup.model);
        // Several in one record, then one whose answer fills the socket.
        let mut client = connect(&server, &config);
        let mut requests = SMALL.repeat(3);
        requests.extend_from_slice(b"GET /medium HTTP/1.1\r\nHost: localhost\r\n\r\n");
        requests.extend_from_slice(&last_request("https://localhost/small"));
        client.write_all(&requests).unwrap();
        let mut answers = Vec::new();
        // The end has a notice, without which this fails.
        client.read_to_end(&mut answers).unwrap();
        assert!(answers.ends_with(b"\r\n\r\nsmall"), "{model}");
        assert!(memchr::memmem::find(&answers, &medium).is_some(), "{model}");
        assert_eq!(client.conn.alpn_protocol(), Some(&b"http/1.1"[..]), "{model}");
        // One that stays is waited for at the end.
        drop(client);
        // A client that has sent its end is answered.
        assert!(exchange(connect(&server, &config), &last_request("/small")).ends_with(b"small"), "{model}");
        let answer = exchange(connect(&server, &config), &last_request("http://localhost/small"));
        assert!(answer.starts_with(b"HTTP/1.1 421 "), "{model}");
        let totals = server.end();
        // What is refused is no request.
        assert_eq!((totals.requests, totals.connections), (6, 3), "{model}");
        assert_eq!((totals.tls.handshakes, totals.tls.failures), (3, 0), "{model}");
        assert!(totals.bytes > medium.len() as u64, "{model}");
    }
}

#[test]
fn versions_and_protocols_are_agreed_on() {
    let (identity, (root, _)) = (Identity::new(), files());
    let server = identity.serve(root.path(), ServerSetup::with_threads(1));
    for (version, expected) in
        [(&rustls::version::TLS12, ProtocolVersion::TLSv1_2), (&rustls::version::TLS13, ProtocolVersion::TLSv1_3)]
    {
        let config = identity.client(&[], &[version]);
        // The second one resumes the session of the first.
        for _ in 0..2 {
            let mut client = connect(&server, &config);
            client.write_all(&last_request("/small")).unwrap();
            let mut answer = Vec::new();
            client.read_to_end(&mut answer).unwrap();
            assert!(answer.ends_with(b"small"));
            assert_eq!(client.conn.protocol_version(), Some(expected));
        }
        let mut resumed = connect(&server, &config);
        resumed.write_all(&last_request("/small")).unwrap();
        assert_eq!(resumed.conn.handshake_kind(), Some(rustls::HandshakeKind::Resumed), "{expected:?}");
    }
    let mut client = connect(&server, &identity.client(&[b"h2"], rustls::ALL_VERSIONS));
    let error = client.write_all(SMALL).unwrap_err().to_string();
    assert!(error.contains("NoApplicationProtocol"), "{error}");
    drop(client);
    assert_eq!(server.end().tls.failures, 1);
}

/// Of a server whose requests must come in 0.3 seconds.
#[test]
fn slow_handshake_is_ended_and_keeps_nobody_waiting() {
    let (identity, (root, _)) = (Identity::new(), files());
    let config = identity.client(&[], rustls::ALL_VERSIONS);
    for setup in [(ServerModel::Epoll, 1), (ServerModel::Thread, 1)] {
        let mut setup = ServerSetup { model: setup.0, ..ServerSetup::with_threads(setup.1) };
        setup.limits.request_timeout = Duration::from_millis(300);
        let server = identity.serve(root.path(), setup);
        let mut hello = Vec::new();
        connect(&server, &config).conn.write_tls(&mut hello).unwrap();
        let start = Instant::now();
        let silent = server.connect();
        let mut slow = server.connect();
        // One byte after the other is no progress.
        let mut trickling = server.connect();
        let sender = {
            let (mut trickling, hello) = (trickling.try_clone().unwrap(), hello.clone());
            std::thread::spawn(move || {
                hello.iter().all(|byte| {
                    std::thread::sleep(Duration::from_millis(50));
                    trickling.write_all(&[*byte]).is_ok()
                })
            })
        };
        slow.write_all(&hello[..hello.len() / 2]).unwrap();
        assert!(exchange(connect(&server, &config), &last_request("/small")).ends_with(b"small"));
        for mut client in [silent, slow] {
            assert_eq!(client.read(&mut [0]).unwrap_or(0), 0, "{}", setup.model);
        }
        let _ = trickling.read(&mut [0]);
        assert!(!sender.join().unwrap(), "{}", setup.model);
        // It would take as many times 50 ms as it has bytes.
        assert!(start.elapsed() < Duration::from_millis(50) * hello.len() as u32, "{}", setup.model);
        assert_eq!(server.end().requests, 1);
    }
}

#[test]
fn what_is_no_tls_gets_an_alert() {
    let (identity, (root, _)) = (Identity::new(), files());
    for setup in encrypting_models() {
        let server = identity.serve(root.path(), setup);
        let mut stream = server.connect();
        stream.write_all(SMALL).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let answer = read_to_end(&mut stream);
        // An alert (21) of TLS 1.2 (3, 3) or the like that is fatal (2).
        assert!(matches!(answer[..], [21, 3, _, 0, 2, 2, _]), "{} {answer:?}", setup.model);
        let totals = server.end();
        assert_eq!((totals.requests, totals.tls.handshakes, totals.tls.failures), (0, 0, 1), "{}", setup.model);
    }
}

#[test]
fn what_cannot_encrypt_is_refused() {
    let (identity, (root, _)) = (Identity::new(), files());
    let refusal = |setup| {
        let any = "127.0.0.1:0".parse().unwrap();
        Server::listen(any, root.path(), setup, identity.access()).map(drop).unwrap_err()
    };
    let setup = ServerSetup::with_threads(1);
    assert!(matches!(refusal(ServerSetup { model: ServerModel::Uring, ..setup }), Error::UnsupportedTls(_)));
    for send_strategy in [SendStrategy::Mmap, SendStrategy::SendFile, SendStrategy::Splice] {
        assert!(matches!(refusal(ServerSetup { send_strategy, ..setup }), Error::UnencryptedStrategy));
    }
}
