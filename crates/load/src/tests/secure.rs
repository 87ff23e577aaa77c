//! Loads on a server that speaks TLS.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::*;
use crate::tls::{self, Trust};

/// What follows the head of each answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Body {
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
    /// The same, of a time that is over.
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
fn start(name: &str, body: Body, purpose: Purpose) -> (SocketAddr, String) {
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

fn answer(mut stream: StreamOwned<ServerConnection, TcpStream>, body: Body) -> std::io::Result<()> {
    let answer = server::ok(&vec![b'x'; 40_000]);
    let mut request = Vec::new();
    let mut byte = [0];
    loop {
        stream.read_exact(&mut byte)?;
        request.push(byte[0]);
        if request.ends_with(b"\r\n\r\n") {
            if body == Body::Endless {
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
fn secure_load(name: &str, body: Body) -> Load {
    let (address, certificate) = start(name, body, Purpose::Server);
    believing(address, &certificate, body)
}

/// The same on a server that runs.
fn believing(address: SocketAddr, certificate: &str, body: Body) -> Load {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("ca.pem");
    std::fs::write(&file, certificate).unwrap();
    by(address, Trust::File(&file), body)
}

fn by(address: SocketAddr, trust: Trust<'_>, body: Body) -> Load {
    let plain = Server::start(|_| (ok(b""), Then::Stay));
    let mut setup = setup(&plain);
    setup.target = format!("https://localhost:{}/", address.port()).parse().unwrap();
    setup.tls = Some(tls::config(trust).unwrap());
    setup.duration = Duration::from_secs(1);
    setup.timeout = Duration::from_millis(if body == Body::Endless { 100 } else { 30_000 });
    measured(&setup)
}

#[test]
fn a_server_with_a_believed_certificate_is_asked() {
    let load = secure_load("localhost", Body::Whole);
    assert!(load.requests > 0 && load.connections == 2, "{load:?}");
    assert_eq!((load.bytes, load.errors.count()), (40_000 * load.requests, 0));
}

#[test]
fn a_certificate_of_another_name_is_not_believed() {
    let load = secure_load("elsewhere", Body::Whole);
    assert!(load.requests == 0 && load.errors.connect > 0, "{load:?}");
    assert!(load.errors.first.as_ref().unwrap().contains("certificate"), "{load:?}");
}

#[test]
fn the_certificate_of_an_authority_stands_for_a_server_where_it_is_named_itself() {
    let (address, certificate) = start("localhost", Body::Whole, Purpose::Authority);
    let load = believing(address, &certificate, Body::Whole);
    assert!(load.requests > 0 && load.errors.count() == 0, "{load:?}");
    // Named by nobody, it is refused in words.
    let (_, other) = start("localhost", Body::Whole, Purpose::Server);
    let said = believing(address, &other, Body::Whole).errors.first.unwrap();
    assert_eq!(said, "TLS: the server's certificate is one of an authority, which stands for no server");
    // Another one of the same name is not believed, nor is it for another name or another time.
    let (_, other) = start("localhost", Body::Whole, Purpose::Authority);
    let (elsewhere, of_elsewhere) = start("elsewhere", Body::Whole, Purpose::Authority);
    let (expired, of_expired) = start("localhost", Body::Whole, Purpose::Expired);
    for (address, certificate) in [(address, other), (elsewhere, of_elsewhere), (expired, of_expired)] {
        let load = believing(address, &certificate, Body::Whole);
        assert!(load.requests == 0 && load.errors.first.as_ref().unwrap().contains("certificate"), "{load:?}");
    }
}

#[test]
fn any_certificate_is_believed_where_that_is_asked_for() {
    for purpose in [Purpose::Server, Purpose::Authority, Purpose::Expired] {
        let (address, _) = start("elsewhere", Body::Whole, purpose);
        let load = by(address, Trust::Anybody, Body::Whole);
        assert!(load.requests > 0 && load.errors.count() == 0, "{load:?}");
    }
}

#[test]
fn a_body_without_end_keeps_nobody_from_the_time_out() {
    let load = secure_load("localhost", Body::Endless);
    assert!(load.errors.timed_out > 0 && load.requests == 0, "{load:?}");
}

#[test]
fn a_file_without_certificates_is_refused() {
    let file = tempfile::NamedTempFile::new().unwrap();
    assert!(tls::config(Trust::File(file.path())).unwrap_err().to_string().contains("it holds no certificate"));
    assert!(tls::config(Trust::File(std::path::Path::new("/none"))).is_err());
}
