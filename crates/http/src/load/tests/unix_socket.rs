//! Loads on a server that listens at a path of this host.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use super::*;

/// Answers each request at a path, until the test program ends.
fn start_server(path: &Path) {
    let listener = UnixListener::bind(path).unwrap();
    std::thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            std::thread::spawn(move || respond(&connection));
        }
    });
}

fn respond(mut connection: &UnixStream) -> Option<()> {
    for line in BufReader::new(connection).lines() {
        if line.ok()?.is_empty() {
            connection.write_all(&ok(b"hello")).ok()?;
        }
    }
    Some(())
}

#[test]
fn server_at_path_is_loaded_like_any_other() {
    let (dir, tcp_server) = (tempfile::tempdir().unwrap(), ScriptedServer::start(|_| (ok(b""), AfterAnswer::Stop)));
    let path = dir.path().join("socket");
    start_server(&path);
    let users = Demand::Users { users: 7, think: ZERO_THINK_TIME };
    let rate = Demand::Rate { rate: 1000.0, arrivals: TimeDistribution::Exponential, connections: 10 };
    for (demand, threads) in [(users, 3), (rate, 1)] {
        let mut setup = LoadSetup {
            demand,
            unix_socket: Some(path.clone()),
            threads: GeneratorThreads::Unpinned(threads),
            ..two_user_setup(&tcp_server)
        };
        setup.limit_requests(100, None).unwrap();
        assert!(ServerEndpoint::connect_first(&setup).unwrap().is_local());
        let load = measure(&setup);
        assert_eq!((load.requests, load.bytes, load.errors.count()), (100, 500, 0), "{load:?}");
        assert!(load.connections <= 10 && load.target.ends_with("/socket"), "{load:?}");
    }
}

#[test]
fn path_without_server_is_one_error() {
    let (dir, tcp_server) = (tempfile::tempdir().unwrap(), ScriptedServer::start(|_| (ok(b""), AfterAnswer::Stay)));
    let connect_error = |path: &Path| {
        let setup = LoadSetup { unix_socket: Some(path.to_owned()), ..two_user_setup(&tcp_server) };
        ServerEndpoint::connect_first(&setup).unwrap_err().to_string()
    };
    let path = dir.path().join("socket");
    assert!(connect_error(&path).ends_with("/socket: No such file or directory (os error 2)"));
    drop(UnixListener::bind(&path).unwrap());
    assert!(connect_error(&path).contains("/socket: Connection refused"));
    assert!(connect_error(Path::new(&"x".repeat(200))).contains("File name too long"));
}
