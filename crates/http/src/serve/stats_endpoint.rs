//! Looks at what host and server have used, answered on a socket of their own.
//!
//! It is not the server's socket, so that whoever holds all its connections, workers or places in its queue keeps nobody from looking at
//! it, and so that no look is among what is looked at.

use std::collections::VecDeque;
use std::fmt::{self, Write as _};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kelvin_machine::resources::ProcessMonitor;

use crate::serve::error::{Error, Result};
use crate::serve::fd_passing::FdReceiver;
use crate::serve::in_flight_sampler::InFlightSampler;
use crate::serve::limits::ServerLimits;
use crate::serve::request::{HttpMethod, HttpRequest, ParseOutcome, downgrade_to_1_1, parse_request};
use crate::serve::server::SHUTDOWN_POLL_INTERVAL;
use crate::serve::status::Status;
use kelvin_sys::thread_spawn::ThreadBuilder;

/// Where a look is.
pub const STATS_PATH: &str = "/.kelvin/resources";
/// The first name of it, below which nothing of the root is served.
pub const RESERVED_NAME: &[u8] = b".kelvin";
/// Most clients at one time. One more takes the place of the first: a look takes milliseconds, so that one is not about to get any.
const MAX_CLIENTS: usize = 16;
/// Time for a request to come, and for a client to take anything of the answer.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(2);
/// Bytes of a thread's stack: a look needs some KiB.
const STACK_BYTES: usize = 512 << 10;

/// Whether a client that presents this token may look.
pub type TokenCheck = Box<dyn Fn(&str) -> bool + Send + Sync>;

/// Who may look at a server, and where.
pub struct StatsAccess {
    /// The address for looks.
    pub address: SocketAddr,
    /// The directory that is served.
    pub directory: PathBuf,
    /// Who may.
    pub check_token: TokenCheck,
}

/// The socket for looks.
pub(crate) struct StatsServer {
    listener: TcpListener,
    directory: PathBuf,
    check_token: TokenCheck,
}

impl fmt::Debug for StatsServer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Looks").field("listener", &self.listener).finish_non_exhaustive()
    }
}

/// What is looked at.
pub(crate) struct StatsSources {
    /// What the server knows of its requests.
    pub(crate) sampler: Option<Arc<InFlightSampler>>,
    /// Where it is told of connections that another process serves.
    pub(crate) fd_receiver: Option<FdReceiver>,
    /// The socket that it listens on.
    pub(crate) listener: Arc<TcpListener>,
    /// Connections that it serves at one time, if that is bounded.
    pub(crate) workers: Option<u32>,
}

impl StatsServer {
    /// Listens.
    pub(crate) fn listen(exposure: StatsAccess) -> Result<Self> {
        let StatsAccess { address, directory, check_token: allows } = exposure;
        let listener = TcpListener::bind(address).map_err(Error::ListenStats)?;
        listener.set_nonblocking(true).map_err(Error::ListenStats)?;
        Ok(Self { listener, directory, check_token: allows })
    }

    pub(crate) fn address(&self) -> Result<SocketAddr> {
        self.listener.local_addr().map_err(Error::ListenStats)
    }

    /// Answers, and has samples taken, until what is returned is dropped.
    pub(crate) fn start(self, mut subject: StatsSources) -> Result<StatsThreads> {
        let is_over = Arc::new(AtomicBool::new(false));
        let mut threads = StatsThreads { shutdown: Arc::clone(&is_over), threads: Vec::new() };
        if let Some(watch) = subject.sampler.clone() {
            if let Some(told) = subject.fd_receiver.take() {
                let (watch, is_over) = (Arc::clone(&watch), Arc::clone(&is_over));
                threads.add("watch", move || told.run(&watch, &is_over))?;
            }
            let is_over = Arc::clone(&is_over);
            threads.add("sample", move || watch.run(&is_over))?;
        }
        let watched = Mutex::new(ProcessMonitor::current(Some(&self.directory)));
        let desk = Arc::new(StatsState {
            sources: subject,
            process: watched,
            check_token: self.check_token,
            clients: Mutex::default(),
        });
        threads.add("looks", move || desk.accept_loop(&self.listener, &is_over))?;
        Ok(threads)
    }
}

/// Threads that end when this is dropped.
pub(crate) struct StatsThreads {
    shutdown: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl StatsThreads {
    fn add(&mut self, name: &str, work: impl FnOnce() + Send + 'static) -> Result<()> {
        let started = ThreadBuilder::named(name).stack_bytes(STACK_BYTES).start(work);
        self.threads.push(started.map_err(Error::SpawnThread)?);
        Ok(())
    }
}

impl Drop for StatsThreads {
    fn drop(&mut self) {
        self.shutdown.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

/// What all clients get their answers from.
struct StatsState {
    sources: StatsSources,
    process: Mutex<ProcessMonitor>,
    check_token: TokenCheck,
    clients: Mutex<StatsClients>,
}

#[derive(Default)]
struct StatsClients {
    next: u64,
    open: VecDeque<(u64, Arc<TcpStream>)>,
}

impl StatsState {
    fn accept_loop(self: &Arc<Self>, listener: &TcpListener, is_over: &AtomicBool) {
        while !is_over.load(Ordering::Acquire) {
            match kelvin_sys::poll::wait_readable(listener.as_fd(), SHUTDOWN_POLL_INTERVAL) {
                Ok(false) => {}
                Ok(true) => match listener.accept() {
                    Ok((client, _)) => self.serve_in_thread(Arc::new(client)),
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                    // Descriptors may be lacking, and this thread does not spin meanwhile.
                    Err(_) => std::thread::sleep(SHUTDOWN_POLL_INTERVAL),
                },
                Err(_) => std::thread::sleep(SHUTDOWN_POLL_INTERVAL),
            }
        }
        self.with_clients(|clients| clients.open.drain(..).for_each(|(_, client)| linger(&client)));
    }

    fn with_clients<T>(&self, with: impl FnOnce(&mut StatsClients) -> T) -> T {
        with(&mut self.clients.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Serves a client by a thread of its own.
    fn serve_in_thread(self: &Arc<Self>, client: Arc<TcpStream>) {
        let number = self.with_clients(|clients| {
            if clients.open.len() >= MAX_CLIENTS {
                clients.open.pop_front().iter().for_each(|(_, first)| linger(first));
            }
            clients.next += 1;
            clients.open.push_back((clients.next, Arc::clone(&client)));
            clients.next
        });
        let desk = Arc::clone(self);
        let work = move || {
            // Whatever went wrong, it is the end.
            let _ = desk.serve_request(&client);
            desk.remove_client(number);
        };
        if ThreadBuilder::named("look").stack_bytes(STACK_BYTES).start(work).is_err() {
            self.remove_client(number);
        }
    }

    fn remove_client(&self, number: u64) {
        self.with_clients(|clients| clients.open.retain(|(one, _)| *one != number));
    }

    /// Answers one request, and ends the connection.
    fn serve_request(&self, mut client: &TcpStream) -> std::io::Result<()> {
        let until = Instant::now() + CLIENT_TIMEOUT;
        let mut received = Vec::new();
        let answer = loop {
            downgrade_to_1_1(&mut received);
            match self.respond(parse_request(&received, &ServerLimits::default())) {
                Some(answer) => break answer,
                None => receive(client, &mut received, until)?,
            }
        };
        client.set_write_timeout(Some(CLIENT_TIMEOUT))?;
        client.write_all(&answer)?;
        client.shutdown(Shutdown::Write)?;
        // What still comes is taken, so that the end is no reset, which would drop the answer.
        while receive(client, &mut Vec::new(), until).is_ok() {}
        Ok(())
    }

    /// The answer to what was received; `None` if that is not all.
    fn respond(&self, received: ParseOutcome<'_>) -> Option<Vec<u8>> {
        let refused = |status: Status| Some(status_response(HttpMethod::Get, status));
        match received {
            ParseOutcome::Partial => None,
            ParseOutcome::Refused(status) => refused(status),
            ParseOutcome::Complete(request, _) => {
                Some(self.snapshot(&request).unwrap_or_else(|status| status_response(request.method, status)))
            }
        }
    }

    fn snapshot(&self, request: &HttpRequest<'_>) -> std::result::Result<Vec<u8>, Status> {
        if request.path != STATS_PATH {
            return Err(Status::NotFound);
        }
        if !request.fields.authorization.and_then(bearer_token).is_some_and(|token| (self.check_token)(token)) {
            return Err(Status::Unauthorized);
        }
        let look = self.process.lock().unwrap_or_else(PoisonError::into_inner).sample();
        let mut look = look.map_err(|_| Status::InternalServerError)?;
        look.served = self.sources.sampler.as_ref().map(|watch| watch.snapshot(&self.sources.listener));
        look.served.iter_mut().for_each(|served| served.workers = self.sources.workers);
        let json = kelvin_core::json::to_string(&look).map_err(|_| Status::InternalServerError)?;
        Ok(full_response(request.method, Status::Ok, ("application/json", &(json + "\n"))))
    }
}

fn linger(client: &TcpStream) {
    // It has ended already if this fails.
    let _ = client.shutdown(Shutdown::Both);
}

/// Receives what comes until then; its end is an error.
fn receive(mut client: &TcpStream, received: &mut Vec<u8>, until: Instant) -> std::io::Result<()> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(std::io::ErrorKind::TimedOut.into());
    }
    client.set_read_timeout(Some(left))?;
    let mut piece = [0; 4096];
    match client.read(&mut piece)? {
        0 => Err(std::io::ErrorKind::UnexpectedEof.into()),
        length => {
            received.extend_from_slice(&piece[..length]);
            Ok(())
        }
    }
}

/// The token of a field `Authorization` (RFC 6750, section 2.1).
fn bearer_token(field: &str) -> Option<&str> {
    let (scheme, token) = field.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim_ascii())
}

/// An answer whose content is its own status.
fn status_response(method: HttpMethod, status: Status) -> Vec<u8> {
    full_response(method, status, ("text/plain; charset=utf-8", &format!("{}\n", status.line())))
}

/// An answer.
fn full_response(method: HttpMethod, status: Status, (media_type, content): (&str, &str)) -> Vec<u8> {
    let field = match status {
        Status::Unauthorized => "WWW-Authenticate: Bearer realm=\"kelvin\"\r\n",
        Status::MethodNotAllowed => "Allow: GET, HEAD\r\n",
        _ => "",
    };
    let mut answer = String::new();
    // Writing into a string cannot fail.
    let _ = write!(
        answer,
        "HTTP/1.1 {}\r\nServer: kelvin\r\nCache-Control: no-store\r\nConnection: close\r\n{field}Content-Type: {media_type}\r\n\
         Content-Length: {}\r\n\r\n",
        status.line(),
        content.len()
    );
    if method == HttpMethod::Get {
        answer += content;
    }
    answer.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_requires_bearer_scheme() {
        assert_eq!(bearer_token("Bearer abc="), Some("abc="));
        assert_eq!(bearer_token("bearer  abc "), Some("abc"));
        for other in ["Basic abc", "Bearer", "", "abc", "Bearerabc"] {
            assert_eq!(bearer_token(other), None, "{other}");
        }
    }

    #[test]
    fn responses_are_not_cacheable() {
        for (method, status) in [(HttpMethod::Get, Status::Ok), (HttpMethod::Head, Status::Unauthorized)] {
            let answer = String::from_utf8(status_response(method, status)).unwrap();
            assert!(answer.contains("\r\nCache-Control: no-store\r\n"), "{answer}");
            assert_eq!(answer.ends_with("\r\n\r\n"), method == HttpMethod::Head);
            assert_eq!(answer.contains("WWW-Authenticate: Bearer"), status == Status::Unauthorized);
        }
    }
}
