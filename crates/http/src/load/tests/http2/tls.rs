//! HTTP/2 by TLS, which both ends choose by ALPN.

use rustls::ServerConfig;
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::load::tls;
use crate::load::trust::Trust;

/// A server that offers these protocols by TLS.
fn start_tls(protocols: &[&[u8]]) -> Http2Server {
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
    let key = key.serialize_der().try_into().unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let mut config = config.with_no_client_auth().with_single_cert(vec![certificate.der().clone()], key).unwrap();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    Http2Server::start_with(Builder::new(), Some(TlsAcceptor::from(Arc::new(config))), |number| match number % 2 {
        0 => hello(number),
        _ => Reply::Answer(200, vec![b'x'; 100_000]),
    })
}

fn tls_setup(server: &Http2Server, trust: Trust<'_>) -> LoadSetup {
    let mut setup = http2_setup(&format!("https://localhost:{}/", server.address.port()), users(6), 3);
    setup.tls = Some(tls::client_config(trust).unwrap().for_http2());
    setup
}

#[test]
fn http2_is_chosen_by_tls() {
    let server = start_tls(&[b"http/1.1", b"h2"]);
    let mut setup = tls_setup(&server, Trust::Anybody);
    setup.limit_requests(40, None).unwrap();
    let load = measure(&setup);
    assert_eq!((load.requests, load.bytes, load.connections), (40, 20 * 100_005, 2), "{load:?}");
}

#[test]
fn server_without_http2_is_refused_before_the_load() {
    for protocols in [&[][..], &[&b"http/1.1"[..]]] {
        let server = start_tls(protocols);
        let error = ServerEndpoint::connect_first(&tls_setup(&server, Trust::Anybody)).unwrap_err().to_string();
        assert!(error.starts_with("--http2: https://localhost:") && error.contains("leave out --http2"), "{error}");
    }
    let server = start_tls(&[b"h2"]);
    let key = rcgen::KeyPair::generate().unwrap();
    let other = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), other.pem()).unwrap();
    let error = ServerEndpoint::connect_first(&tls_setup(&server, Trust::File(file.path()))).unwrap_err().to_string();
    assert!(error.contains("certificate"), "{error}");
}
