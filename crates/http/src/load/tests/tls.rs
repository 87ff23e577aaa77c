//! Loads on a server that speaks TLS.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::*;
use crate::load::tls;
use crate::load::trust::Trust;

/// What follows the head of each answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TestBody {
    /// 40 kB, of several records.
    Whole,
    /// Bytes without end.
    Endless,
}

/// What a certificate is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// A server.
    Server,
    /// Any use, which an authority signed for itself, as openssl makes it.
    Authority,
    /// Like `Authority`, but no longer valid.
    Expired,
}

fn certificate(name: &str, purpose: Purpose) -> (rcgen::Certificate, rcgen::KeyPair) {
    let mut parameters = rcgen::CertificateParams::new([name.to_owned()]).unwrap();
    if purpose != Purpose::Server {
        parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    }
    if purpose == Purpose::Expired {
        parameters.not_after = rcgen::date_time_ymd(2001, 1, 1);
    }
    let key = rcgen::KeyPair::generate().unwrap();
    (parameters.self_signed(&key).unwrap(), key)
}

/// A server whose certificate is for this name, and that certificate (PEM).
fn start(name: &str, body: TestBody, purpose: Purpose) -> (SocketAddr, String) {
    let (cert, key) = certificate(name, purpose);
    let key = key.serialize_der().try_into().unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_no_client_auth().with_single_cert(vec![cert.der().clone()], key).unwrap();
    let (config, listener) = (Arc::new(config), TcpListener::bind("127.0.0.1:0").unwrap());
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            let session = ServerConnection::new(Arc::clone(&config)).unwrap();
            std::thread::spawn(move || answer(StreamOwned::new(session, socket), body));
        }
    });
    (address, cert.pem())
}

fn answer(mut stream: StreamOwned<ServerConnection, TcpStream>, body: TestBody) -> std::io::Result<()> {
    let answer = server::ok(&vec![b'x'; 40_000]);
    let mut request = Vec::new();
    let mut byte = [0];
    loop {
        stream.read_exact(&mut byte)?;
        request.push(byte[0]);
        if request.ends_with(b"\r\n\r\n") {
            if body == TestBody::Endless {
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551615\r\n\r\n")?;
                loop {
                    stream.write_all(&answer)?;
                }
            }
            stream.write_all(&answer)?;
            request.clear();
        }
    }
}

/// A load on this server by the name `localhost`, believing this certificate.
fn secure_load(name: &str, body: TestBody) -> LoadResult {
    let (address, certificate) = start(name, body, Purpose::Server);
    load_trusting(address, &certificate, body)
}

/// Like `secure_load`, on a server that runs.
fn load_trusting(address: SocketAddr, certificate: &str, body: TestBody) -> LoadResult {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("ca.pem");
    std::fs::write(&file, certificate).unwrap();
    load_with_trust(address, Trust::File(&file), body)
}

fn load_with_trust(address: SocketAddr, trust: Trust<'_>, body: TestBody) -> LoadResult {
    let server = ScriptedServer::start(|_| (ok(b""), AfterAnswer::Stay));
    let mut setup = two_user_setup(&server);
    setup.target = format!("https://localhost:{}/", address.port()).parse().unwrap();
    setup.tls = Some(tls::client_config(trust).unwrap());
    setup.duration = Duration::from_secs(1);
    setup.timeout = Duration::from_millis(if body == TestBody::Endless { 100 } else { 30_000 });
    measure(&setup)
}

#[test]
fn trusted_certificate_is_accepted() {
    let load = secure_load("localhost", TestBody::Whole);
    assert!(load.requests > 0 && load.connections == 2, "{load:?}");
    assert_eq!((load.bytes, load.errors.count()), (40_000 * load.requests, 0));
}

#[test]
fn certificate_of_other_name_is_refused() {
    let load = secure_load("elsewhere", TestBody::Whole);
    assert!(load.requests == 0 && load.errors.connect > 0, "{load:?}");
    assert!(load.errors.first.as_ref().unwrap().contains("certificate"), "{load:?}");
}

#[test]
fn named_ca_certificate_is_accepted_for_server() {
    let (address, certificate) = start("localhost", TestBody::Whole, Purpose::Authority);
    let load = load_trusting(address, &certificate, TestBody::Whole);
    assert!(load.requests > 0 && load.errors.count() == 0, "{load:?}");
    // Named by nobody, it is refused in words.
    let (_, other) = start("localhost", TestBody::Whole, Purpose::Server);
    let error = load_trusting(address, &other, TestBody::Whole).errors.first.unwrap();
    assert_eq!(error, "TLS: the server's certificate is that of an authority, not of a server");
    // Another one of the same name is not believed, nor is it for another name or another time.
    let (_, other) = start("localhost", TestBody::Whole, Purpose::Authority);
    let (other_server, other_certificate) = start("elsewhere", TestBody::Whole, Purpose::Authority);
    let (expired_server, expired_certificate) = start("localhost", TestBody::Whole, Purpose::Expired);
    for (address, certificate) in
        [(address, other), (other_server, other_certificate), (expired_server, expired_certificate)]
    {
        let load = load_trusting(address, &certificate, TestBody::Whole);
        assert!(load.requests == 0 && load.errors.first.as_ref().unwrap().contains("certificate"), "{load:?}");
    }
}

#[test]
fn trust_anybody_accepts_any_certificate() {
    for purpose in [Purpose::Server, Purpose::Authority, Purpose::Expired] {
        let (address, _) = start("elsewhere", TestBody::Whole, purpose);
        let load = load_with_trust(address, Trust::Anybody, TestBody::Whole);
        assert!(load.requests > 0 && load.errors.count() == 0, "{load:?}");
    }
}

#[test]
fn endless_body_times_out() {
    let load = secure_load("localhost", TestBody::Endless);
    assert!(load.errors.timed_out > 0 && load.requests == 0, "{load:?}");
}

#[test]
fn file_without_certificates_is_refused() {
    let file = tempfile::NamedTempFile::new().unwrap();
    assert!(tls::client_config(Trust::File(file.path())).unwrap_err().to_string().contains("it holds no certificate"));
    assert!(tls::client_config(Trust::File(std::path::Path::new("/none"))).is_err());
}
