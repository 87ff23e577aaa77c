//! A server of tests: a thread for each connection, and an answer that the test writes.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// What becomes of a connection after an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterAnswer {
    /// It stays open.
    Stay,
    /// It is closed.
    Close,
    /// It is closed, and so is the server.
    Stop,
}

/// A request as the server sees it.
#[derive(Debug)]
pub struct TestRequest<'s> {
    /// How many were answered before.
    pub number: u64,
    pub head: String,
    pub body: Vec<u8>,
    shared: &'s ServerShared,
}

impl TestRequest<'_> {
    /// How many requests have come so far.
    pub fn request_count(&self) -> u64 {
        self.shared.requests.load(Ordering::Relaxed)
    }

    /// A server that is slow on purpose.
    pub fn wait(&self, time: Duration) {
        std::thread::sleep(time);
    }
}

#[derive(Debug, Default)]
struct ServerShared {
    requests: AtomicU64,
    numbers: AtomicU64,
    is_over: AtomicBool,
    serial_lock: Option<Mutex<()>>,
}

/// A server that runs until it is dropped.
pub struct ScriptedServer {
    address: SocketAddr,
    /// Answers that it has written.
    pub answer_count: Arc<AtomicU64>,
    shared: Arc<ServerShared>,
}

impl ScriptedServer {
    /// With answers to several connections at once.
    pub fn start(answer: impl Fn(&TestRequest<'_>) -> (Vec<u8>, AfterAnswer) + Send + Sync + 'static) -> Self {
        Self::run(answer, ServerShared::default())
    }

    /// With one answer after the other.
    pub fn start_serial(answer: impl Fn(&TestRequest<'_>) -> (Vec<u8>, AfterAnswer) + Send + Sync + 'static) -> Self {
        Self::run(answer, ServerShared { serial_lock: Some(Mutex::default()), ..ServerShared::default() })
    }

    fn run(
        answer: impl Fn(&TestRequest<'_>) -> (Vec<u8>, AfterAnswer) + Send + Sync + 'static,
        shared: ServerShared,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, answer_count, shared) =
            (listener.local_addr().unwrap(), Arc::<AtomicU64>::default(), Arc::new(shared));
        let answer = Arc::new(answer);
        let (counter, state) = (Arc::clone(&answer_count), Arc::clone(&shared));
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                if state.is_over.load(Ordering::Relaxed) {
                    return;
                }
                let Ok(connection) = connection else { return };
                let (answer, counter, state) = (Arc::clone(&answer), Arc::clone(&counter), Arc::clone(&state));
                std::thread::spawn(move || serve(&connection, &*answer, &counter, &state));
            }
        });
        Self { address, answer_count, shared }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}

impl Drop for ScriptedServer {
    fn drop(&mut self) {
        stop(&self.shared, self.address);
    }
}

/// Ends the thread that accepts, and with it the listening socket.
fn stop(shared: &ServerShared, address: SocketAddr) {
    shared.is_over.store(true, Ordering::Relaxed);
    let _ = TcpStream::connect(address);
}

/// Answers the requests of one connection until either end closes it.
fn serve(
    connection: &TcpStream,
    answer: &dyn Fn(&TestRequest<'_>) -> (Vec<u8>, AfterAnswer),
    answer_count: &AtomicU64,
    shared: &ServerShared,
) -> Option<()> {
    connection.set_nodelay(true).ok()?;
    let mut reader = BufReader::new(connection);
    loop {
        let (head, body) = request(&mut reader)?;
        shared.requests.fetch_add(1, Ordering::Relaxed);
        let _guard = shared.serial_lock.as_ref().map(|mutex| mutex.lock().unwrap_or_else(PoisonError::into_inner));
        let number = shared.numbers.fetch_add(1, Ordering::Relaxed);
        let (bytes, action) = answer(&TestRequest { number, head, body, shared });
        // Before it is written: the client may have counted it before this thread goes on.
        answer_count.fetch_add(1, Ordering::Relaxed);
        let mut writer = connection;
        writer.write_all(&bytes).ok()?;
        match action {
            AfterAnswer::Stay => {}
            AfterAnswer::Close => return None,
            AfterAnswer::Stop => {
                stop(shared, connection.local_addr().ok()?);
                return None;
            }
        }
    }
}

fn request(reader: &mut BufReader<&TcpStream>) -> Option<(String, Vec<u8>)> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    reader.read_exact(&mut body).ok()?;
    Some((head, body))
}

/// A whole answer with this body.
pub fn ok(body: &[u8]) -> Vec<u8> {
    [format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()).as_bytes(), body].concat()
}

/// Like `ok`, with the body in chunks of all sizes.
pub fn chunked(body: &[u8]) -> Vec<u8> {
    let mut answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    let (mut rest, mut size) = (body, 1);
    while !rest.is_empty() {
        let (chunk, after) = rest.split_at(size.min(rest.len()));
        answer.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        answer.extend_from_slice(chunk);
        answer.extend_from_slice(b"\r\n");
        (rest, size) = (after, size * 3 % 1_000_003);
    }
    answer.extend_from_slice(b"0\r\n\r\n");
    answer
}
