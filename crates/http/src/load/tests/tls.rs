//! Loads on a server that speaks TLS.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

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

/// The server's end of a connection.
type ServerStream = StreamOwned<ServerConnection, TcpStream>;

/// A server whose certificate is for this name, and that certificate (PEM).
fn start(name: &str, body: TestBody, purpose: Purpose) -> (SocketAddr, String) {
    start_serving(name, purpose, move |stream| answer(stream, body))
}

/// A server whose connections are served so.
fn start_serving(
    name: &str,
    purpose: Purpose,
    serve: impl Fn(ServerStream) -> std::io::Result<()> + Send + Sync + 'static,
) -> (SocketAddr, String) {
    let (cert, key) = certificate(name, purpose);
    let key = key.serialize_der().try_into().unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_no_client_auth().with_single_cert(vec![cert.der().clone()], key).unwrap();
    let (config, listener) = (Arc::new(config), TcpListener::bind("127.0.0.1:0").unwrap());
    let (address, serve) = (listener.local_addr().unwrap(), Arc::new(serve));
    std::thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            let session = ServerConnection::new(Arc::clone(&config)).unwrap();
            let serve = Arc::clone(&serve);
            std::thread::spawn(move || serve(StreamOwned::new(session, socket)));
        }
    });
    (address, cert.pem())
}

const BODY_BYTES: u64 = 40_000;

fn whole_answer() -> Vec<u8> {
    server::ok(&vec![b'x'; BODY_BYTES as usize])
}

fn answer(mut stream: ServerStream, body: TestBody) -> std::io::Result<()> {
    let answer = whole_answer();
    loop {
        read_request(&mut stream)?;
        if body == TestBody::Endless {
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551615\r\n\r\n")?;
            loop {
                stream.write_all(&answer)?;
            }
        }
        stream.write_all(&answer)?;
    }
}

fn read_request(stream: &mut ServerStream) -> std::io::Result<()> {
    let (mut request, mut byte) = (Vec::new(), [0]);
    while !request.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte)?;
        request.push(byte[0]);
    }
    Ok(())
}

/// A load on three threads of a server that closes each connection after this many answers, and how many requests that has read.
fn load_on_three_threads(answers_per_connection: u64, demand: Demand) -> (LoadResult, u64) {
    let count = Arc::<AtomicU64>::default();
    let counter = Arc::clone(&count);
    let (address, certificate) = start_serving("localhost", Purpose::Server, move |mut stream| {
        for _ in 0..answers_per_connection {
            read_request(&mut stream)?;
            // Before it is answered: the client may have counted it before this thread goes on.
            counter.fetch_add(1, Ordering::Relaxed);
            stream.write_all(&whole_answer())?;
        }
        stream.conn.send_close_notify();
        stream.flush()
    });
    let setup = with_certificate(&certificate, |trust| secure_setup(address, trust));
    let threads = GeneratorThreads::Unpinned(3);
    let load = measure(&LoadSetup { demand, threads, duration: Duration::from_millis(200), ..setup });
    assert_eq!((load.generator.threads.len(), load.errors.count()), (3, 0), "{load:?}");
    assert_eq!((load.bytes, load.response.count), (BODY_BYTES * load.requests, load.requests), "{load:?}");
    (load, count.load(Ordering::Relaxed))
}

/// A load on this server by the name `localhost`, believing this certificate.
fn secure_load(name: &str, body: TestBody) -> LoadResult {
    let (address, certificate) = start(name, body, Purpose::Server);
    load_trusting(address, &certificate, body)
}

/// Like `secure_load`, on a server that runs.
fn load_trusting(address: SocketAddr, certificate: &str, body: TestBody) -> LoadResult {
    with_certificate(certificate, |trust| load_with_trust(address, trust, body))
}

/// What is done while this certificate is believed.
fn with_certificate<T>(certificate: &str, work: impl FnOnce(Trust<'_>) -> T) -> T {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("ca.pem");
    std::fs::write(&file, certificate).unwrap();
    work(Trust::File(&file))
}

fn load_with_trust(address: SocketAddr, trust: Trust<'_>, body: TestBody) -> LoadResult {
    let mut setup = secure_setup(address, trust);
    setup.timeout = Duration::from_millis(if body == TestBody::Endless { 100 } else { 30_000 });
    measure(&setup)
}

/// A load of two users for a second.
fn secure_setup(address: SocketAddr, trust: Trust<'_>) -> LoadSetup {
    let server = ScriptedServer::start(|_| (ok(b""), AfterAnswer::Stay));
    let mut setup = two_user_setup(&server);
    setup.target = format!("https://localhost:{}/", address.port()).parse().unwrap();
    setup.tls = Some(tls::client_config(trust).unwrap());
    setup.duration = Duration::from_secs(1);
    setup
}

/// At 0, 2, ... 198 ms.
#[test]
fn threads_send_each_request_by_tls_once() {
    let demand = Demand::Rate { rate: 500.0, arrivals: TimeDistribution::Constant, connections: 7 };
    let (load, received) = load_on_three_threads(u64::MAX, demand);
    assert_eq!((load.requests, received), (100, 100), "{load:?}");
    assert!((3..=7).contains(&load.connections), "{load:?}");
}

#[test]
fn tls_connections_of_users_are_divided_over_threads() {
    let (load, received) = load_on_three_threads(u64::MAX, Demand::Users { users: 7, think: ZERO_THINK_TIME });
    // One of each user may be under way at the end.
    assert!(load.connections == 7 && load.requests > 0, "{load:?}");
    assert!((load.requests..=load.requests + 7).contains(&received), "{load:?}: {received}");
}

/// A request that goes out on a connection that is being closed was read by nobody, and is sent again.
#[test]
fn threads_replace_connections_that_a_tls_server_closes() {
    let demand = Demand::Rate { rate: 100.0, arrivals: TimeDistribution::Constant, connections: 7 };
    let (load, received) = load_on_three_threads(1, demand);
    assert_eq!((load.requests, received), (20, 20), "{load:?}");
    assert!(load.connections >= 20, "{load:?}");
    let (load, received) = load_on_three_threads(2, Demand::Users { users: 7, think: ZERO_THINK_TIME });
    assert!(load.requests > 0 && 2 * load.connections >= received, "{load:?}: {received}");
    assert!((load.requests..=load.requests + 7).contains(&received), "{load:?}: {received}");
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
