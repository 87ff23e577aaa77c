//! A server of tests that answers each request as the test says.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

/// Starts a server whose answer to a path is this status and body; it ends with the test program.
pub fn start_server(answer: impl Fn(&str) -> (&'static str, String) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let answer = Arc::new(answer);
    std::thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            let answer = Arc::clone(&answer);
            std::thread::spawn(move || respond(&connection, &*answer));
        }
    });
    address
}

/// Answers all requests of a connection, each of which is its first line and others that do not matter.
fn respond(connection: &TcpStream, answer: &impl Fn(&str) -> (&'static str, String)) -> std::io::Result<()> {
    let mut reader = BufReader::new(connection);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head)? == 0 {
                return Ok(());
            }
        }
        let (status, body) = answer(head.split(' ').nth(1).unwrap_or_default());
        let text = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        let mut writer = connection;
        writer.write_all(text.as_bytes())?;
    }
}
