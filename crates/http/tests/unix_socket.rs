//! Every model at a path instead of an address.

mod test_server;

use std::fs;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kelvin_http::serve::access_log::{AccessLog, LogFormat, LogTarget};
use kelvin_http::serve::listener::UnixSocket;
use kelvin_http::serve::{Server, ServerAccess, ServerModel};
use test_server::{all_setups, files, setup_name};

/// All that comes for this, sent in pieces of this size.
fn exchange(path: &Path, request: &str, piece: usize) -> Vec<u8> {
    let mut stream = UnixStream::connect(path).unwrap();
    request.as_bytes().chunks(piece).for_each(|piece| stream.write_all(piece).unwrap());
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    answer
}

#[test]
fn clients_of_a_path_get_files_under_any_name() {
    let (root, large) = files();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let log = directory.path().join("log");
    let socket = UnixSocket { path: path.clone(), mode: 0o600 };
    // One that forks needs a process of one thread.
    for setup in all_setups().filter(|setup| setup.model != ServerModel::Fork) {
        let name = setup_name(&setup);
        let access_log = AccessLog::new(LogTarget::File(log.clone()), LogFormat::Common);
        let access = ServerAccess { access_log: Some(Arc::new(access_log)), ..ServerAccess::default() };
        let server = Server::listen_unix(&socket, root.path(), setup, access).unwrap();
        let shutdown = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&shutdown);
        let thread = std::thread::spawn(move || server.serve(|| is_over.load(Ordering::Relaxed)).unwrap());
        let get =
            |file: &str, piece| exchange(&path, &format!("GET {file} HTTP/1.1\r\nHost: any.example\r\n\r\n"), piece);
        assert!(get("/small", 1).ends_with(b"\r\n\r\nsmall"), "{name}");
        assert!(get("/large", 4096).ends_with(&large), "{name}");
        assert!(exchange(&path, "GET\r\n\r\n", 1).starts_with(b"HTTP/1.1 400 "), "{name}");
        // One that says nothing keeps nobody waiting.
        let _silent = UnixStream::connect(&path).unwrap();
        assert!(get("/small", 4096).ends_with(b"small"), "{name}");
        shutdown.store(true, Ordering::Relaxed);
        assert_eq!(thread.join().unwrap().requests, 3, "{name}");
        assert!(!path.exists(), "{name}");
        let lines = fs::read_to_string(&log).unwrap();
        assert_eq!((lines.lines().count(), lines.starts_with("unix: - - [")), (4, true), "{name}: {lines}");
        fs::remove_file(&log).unwrap();
    }
}
