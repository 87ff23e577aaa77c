//! A server of tests that speaks HTTP/2: answers that the test writes, by the server's side of h2, or bytes without a protocol.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use h2::server::{Builder, SendResponse};
use h2::{Reason, RecvStream};
use http::{Request, Response};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;

/// What becomes of a request.
#[derive(Clone, Debug)]
pub enum Reply {
    /// An answer with this status and body.
    Answer(u16, Vec<u8>),
    /// The request's body, after this time.
    Echo(Duration),
    /// An answer with a header of so many bytes.
    LargeHeader(usize),
    /// An answer whose head states so many bytes more than come.
    Short(u64),
    /// An answer, and the announcement that the connection ends.
    GoAway,
    /// No answer, and the end of the connection in order, without one.
    RefuseAll,
    /// No answer.
    Nothing,
    Reset(Reason),
    /// No answer, and the end of the connection.
    Close,
}

/// What the server has seen.
#[derive(Debug, Default)]
pub struct Seen {
    pub requests: AtomicU64,
    pub connections: AtomicU64,
    /// The most requests at once on any connection.
    pub most_at_once: AtomicU64,
}

pub struct Http2Server {
    pub address: SocketAddr,
    pub seen: Arc<Seen>,
}

type Script = dyn Fn(u64) -> Reply + Send + Sync;

impl Http2Server {
    /// Answers each request, by its number, so.
    pub fn start(script: impl Fn(u64) -> Reply + Send + Sync + 'static) -> Self {
        Self::start_with(Builder::new(), None, script)
    }

    /// With these settings, and by TLS if there is a configuration for it.
    pub fn start_with(
        builder: Builder,
        tls: Option<TlsAcceptor>,
        script: impl Fn(u64) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, seen) = (listener.local_addr().unwrap(), Arc::<Seen>::default());
        let (shared, script): (_, Arc<Script>) = (Arc::clone(&seen), Arc::new(script));
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(accept(listener, builder, tls, script, shared));
        });
        Self { address, seen }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub fn request_count(&self) -> u64 {
        self.seen.requests.load(Ordering::Relaxed)
    }
}

async fn accept(
    listener: TcpListener,
    builder: Builder,
    tls: Option<TlsAcceptor>,
    script: Arc<Script>,
    seen: Arc<Seen>,
) {
    listener.set_nonblocking(true).unwrap();
    let listener = tokio::net::TcpListener::from_std(listener).unwrap();
    while let Ok((socket, _)) = listener.accept().await {
        let (builder, tls, script, seen) = (builder.clone(), tls.clone(), Arc::clone(&script), Arc::clone(&seen));
        tokio::spawn(async move {
            let _ = socket.set_nodelay(true);
            match tls {
                None => serve(socket, builder, script, seen).await,
                Some(tls) => match tls.accept(socket).await {
                    Ok(stream) => serve(stream, builder, script, seen).await,
                    Err(_) => None,
                },
            }
        });
    }
}

/// Answers the requests of one connection until either end closes it.
async fn serve(
    socket: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    builder: Builder,
    script: Arc<Script>,
    seen: Arc<Seen>,
) -> Option<()> {
    let mut connection = builder.handshake::<_, Bytes>(socket).await.ok()?;
    seen.connections.fetch_add(1, Ordering::Relaxed);
    let at_once = Arc::<AtomicU64>::default();
    while let Some(request) = connection.accept().await {
        let (request, response) = request.ok()?;
        let number = seen.requests.fetch_add(1, Ordering::Relaxed);
        let count = at_once.fetch_add(1, Ordering::Relaxed) + 1;
        seen.most_at_once.fetch_max(count, Ordering::Relaxed);
        let reply = script(number);
        match reply {
            Reply::Close => return None,
            Reply::GoAway => connection.graceful_shutdown(),
            Reply::RefuseAll => connection.abrupt_shutdown(Reason::NO_ERROR),
            _ => {}
        }
        let at_once = Arc::clone(&at_once);
        tokio::spawn(async move {
            let _ = answer(request, response, reply, &at_once).await;
        });
    }
    Some(())
}

async fn answer(
    request: Request<RecvStream>,
    mut response: SendResponse<Bytes>,
    reply: Reply,
    at_once: &AtomicU64,
) -> Result<(), h2::Error> {
    let mut head = Response::new(());
    let body = match reply {
        Reply::Answer(status, body) => {
            *head.status_mut() = status.try_into().unwrap();
            body
        }
        Reply::Echo(time) => {
            tokio::time::sleep(time).await;
            let (mut body, mut stream) = (Vec::new(), request.into_body());
            while let Some(bytes) = stream.data().await {
                body.extend_from_slice(&bytes?);
                stream.flow_control().release_capacity(body.len().min(1))?;
            }
            body
        }
        Reply::LargeHeader(length) => {
            head.headers_mut().insert("x-large", "x".repeat(length).try_into().unwrap());
            Vec::new()
        }
        Reply::Short(missing) => {
            head.headers_mut().insert("content-length", (missing + 5).into());
            b"short".to_vec()
        }
        Reply::GoAway => b"last".to_vec(),
        Reply::Reset(reason) => {
            at_once.fetch_sub(1, Ordering::Relaxed);
            response.send_reset(reason);
            return Ok(());
        }
        Reply::Nothing | Reply::RefuseAll | Reply::Close => {
            std::future::pending::<()>().await;
            Vec::new()
        }
    };
    // Before it is written: the client may send its next request before this task goes on.
    at_once.fetch_sub(1, Ordering::Relaxed);
    let mut stream = response.send_response(head, body.is_empty())?;
    if !body.is_empty() {
        stream.send_data(body.into(), true)?;
    }
    Ok(())
}

/// A server that writes these bytes as soon as it is connected to, and then does as `then` says.
pub fn start_raw(bytes: Vec<u8>, then: impl Fn(&mut TcpStream) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, then) = (listener.local_addr().unwrap(), Arc::new(then));
    std::thread::spawn(move || {
        for mut socket in listener.incoming().flatten() {
            let (bytes, then) = (bytes.clone(), Arc::clone(&then));
            std::thread::spawn(move || {
                let _ = socket.write_all(&bytes);
                then(&mut socket);
            });
        }
    });
    address
}

/// Reads until the other end closes.
pub fn read_all(socket: &mut TcpStream) {
    let _ = socket.read_to_end(&mut Vec::new());
}

/// A frame (RFC 9113 4.1).
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The settings that a server begins with: one identifier and value each.
pub fn settings(values: &[(u16, u32)]) -> Vec<u8> {
    let payload: Vec<u8> =
        values.iter().flat_map(|(id, value)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat()).collect();
    frame(4, 0, 0, &payload)
}
