//! Every model at a socket that it was passed, which goes on listening after it.

mod test_server;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kelvin_http::serve::{Server, ServerAccess, ServerModel};
use test_server::{all_models, files};

#[test]
fn clients_who_are_not_accepted_wait_for_the_next_server() {
    let (root, _) = files();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let ask = || {
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client.write_all(b"GET /small HTTP/1.0\r\n\r\n").unwrap();
        client
    };
    let mut waiting = ask();
    // One that forks needs a process of one thread.
    for setup in all_models().filter(|setup| setup.model != ServerModel::Fork) {
        let socket = listener.as_fd().try_clone_to_owned().unwrap();
        let server = Server::listen_passed(socket, root.path(), setup, ServerAccess::default()).unwrap();
        let shutdown = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&shutdown);
        let thread = std::thread::spawn(move || server.serve(|| is_over.load(Ordering::Relaxed)).unwrap());
        let mut answer = Vec::new();
        waiting.read_to_end(&mut answer).unwrap();
        assert!(answer.ends_with(b"\r\n\r\nsmall"), "{}", setup.model);
        shutdown.store(true, Ordering::Relaxed);
        assert_eq!(thread.join().unwrap().requests, 1, "{}", setup.model);
        waiting = ask();
    }
}
