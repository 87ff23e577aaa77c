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

use kelvin_resources::Watched;

use crate::error::{Error, Result};
use crate::limits::Limits;
use crate::passing::Told;
use crate::request::{Method, Received, Request, read, to_known_version};
use crate::server::LOOK;
use crate::status::Status;
use crate::watch::Watch;
use kelvin_sys::spawn::Thread;

/// Where a look is.
pub const PATH: &str = "/.kelvin/resources";
/// The first name of it, below which nothing of the root is served.
pub const RESERVED: &[u8] = b".kelvin";
/// Most clients at one time. One more takes the place of the first: a look takes milliseconds, so that one is not about to get any.
const CLIENTS: usize = 16;
/// Time for a request to come, and for a client to take anything of the answer.
const TIME: Duration = Duration::from_secs(2);
/// Bytes of a thread's stack: a look needs some KiB.
const STACK: usize = 512 << 10;

/// Whether a client that presents this token may look.
pub type Allows = Box<dyn Fn(&str) -> bool + Send + Sync>;

/// Who may look at a server, and where.
pub struct Exposure {
    /// The address for looks.
    pub address: SocketAddr,
    /// The directory that is served.
    pub directory: PathBuf,
    /// Who may.
    pub allows: Allows,
}

/// The socket for looks.
pub(crate) struct Looks {
    listener: TcpListener,
    directory: PathBuf,
    allows: Allows,
}

impl fmt::Debug for Looks {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Looks").field("listener", &self.listener).finish_non_exhaustive()
    }
}

/// What is looked at.
pub(crate) struct Subject {
    /// What the server knows of its requests.
    pub(crate) watch: Option<Arc<Watch>>,
    /// Where it is told of connections that another process serves.
    pub(crate) told: Option<Told>,
    /// The socket that it listens on.
    pub(crate) listener: Arc<TcpListener>,
    /// Connections that it serves at one time, if that is bounded.
    pub(crate) workers: Option<u32>,
}

impl Looks {
    /// Listens.
    pub(crate) fn listen(exposure: Exposure) -> Result<Self> {
        let Exposure { address, directory, allows } = exposure;
        let listener = TcpListener::bind(address).map_err(Error::ListenForLooks)?;
        listener.set_nonblocking(true).map_err(Error::ListenForLooks)?;
        Ok(Self { listener, directory, allows })
    }

    pub(crate) fn address(&self) -> Result<SocketAddr> {
        self.listener.local_addr().map_err(Error::ListenForLooks)
    }

    /// Answers, and has samples taken, until what is returned is dropped.
    pub(crate) fn start(self, mut subject: Subject) -> Result<Threads> {
        let is_over = Arc::new(AtomicBool::new(false));
        let mut threads = Threads { is_over: Arc::clone(&is_over), threads: Vec::new() };
        if let Some(watch) = subject.watch.clone() {
            if let Some(told) = subject.told.take() {
                let (watch, is_over) = (Arc::clone(&watch), Arc::clone(&is_over));
                threads.add("watch", move || told.go_on(&watch, &is_over))?;
            }
            let is_over = Arc::clone(&is_over);
            threads.add("sample", move || watch.go_on(&is_over))?;
        }
        let watched = Mutex::new(Watched::own(Some(&self.directory)));
        let desk = Arc::new(Desk { subject, watched, allows: self.allows, clients: Mutex::default() });
        threads.add("looks", move || desk.serve(&self.listener, &is_over))?;
        Ok(threads)
    }
}

/// Threads that end when this is dropped.
pub(crate) struct Threads {
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Threads {
    fn add(&mut self, name: &str, work: impl FnOnce() + Send + 'static) -> Result<()> {
        let started = Thread::named(name).stack_bytes(STACK).start(work);
        self.threads.push(started.map_err(Error::Thread)?);
        Ok(())
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

/// What all clients get their answers from.
struct Desk {
    subject: Subject,
    watched: Mutex<Watched>,
    allows: Allows,
    clients: Mutex<Clients>,
}

#[derive(Default)]
struct Clients {
    next: u64,
    here: VecDeque<(u64, Arc<TcpStream>)>,
}

impl Desk {
    fn serve(self: &Arc<Self>, listener: &TcpListener, is_over: &AtomicBool) {
        while !is_over.load(Ordering::Acquire) {
            match kelvin_sys::ready::readable(listener.as_fd(), LOOK) {
                Ok(false) => {}
                Ok(true) => match listener.accept() {
                    Ok((client, _)) => self.admit(Arc::new(client)),
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                    // Descriptors may be lacking, and this thread does not spin meanwhile.
                    Err(_) => std::thread::sleep(LOOK),
                },
                Err(_) => std::thread::sleep(LOOK),
            }
        }
        self.clients(|clients| clients.here.drain(..).for_each(|(_, client)| end(&client)));
    }

    fn clients<T>(&self, with: impl FnOnce(&mut Clients) -> T) -> T {
        with(&mut self.clients.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Serves a client by a thread of its own.
    fn admit(self: &Arc<Self>, client: Arc<TcpStream>) {
        let number = self.clients(|clients| {
            if clients.here.len() >= CLIENTS {
                clients.here.pop_front().iter().for_each(|(_, first)| end(first));
            }
            clients.next += 1;
            clients.here.push_back((clients.next, Arc::clone(&client)));
            clients.next
        });
        let desk = Arc::clone(self);
        let work = move || {
            // Whatever went wrong, it is the end.
            let _ = desk.attend(&client);
            desk.leave(number);
        };
        if Thread::named("look").stack_bytes(STACK).start(work).is_err() {
            self.leave(number);
        }
    }

    fn leave(&self, number: u64) {
        self.clients(|clients| clients.here.retain(|(one, _)| *one != number));
    }

    /// Answers one request, and ends the connection.
    fn attend(&self, mut client: &TcpStream) -> std::io::Result<()> {
        let until = Instant::now() + TIME;
        let mut received = Vec::new();
        let answer = loop {
            to_known_version(&mut received);
            match self.answer(read(&received, &Limits::default())) {
                Some(answer) => break answer,
                None => receive(client, &mut received, until)?,
            }
        };
        client.set_write_timeout(Some(TIME))?;
        client.write_all(&answer)?;
        client.shutdown(Shutdown::Write)?;
        // What still comes is taken, so that the end is no reset, which would drop the answer.
        while receive(client, &mut Vec::new(), until).is_ok() {}
        Ok(())
    }

    /// The answer to what was received; `None` if that is not all.
    fn answer(&self, received: Received<'_>) -> Option<Vec<u8>> {
        let refused = |status: Status| Some(text(Method::Get, status));
        match received {
            Received::Part => None,
            Received::Refused(status) => refused(status),
            Received::Whole(request, _) => {
                Some(self.look(&request).unwrap_or_else(|status| text(request.method, status)))
            }
        }
    }

    fn look(&self, request: &Request<'_>) -> std::result::Result<Vec<u8>, Status> {
        if request.path != PATH {
            return Err(Status::NotFound);
        }
        if !request.fields.authorization.and_then(token).is_some_and(|token| (self.allows)(token)) {
            return Err(Status::Unauthorized);
        }
        let look = self.watched.lock().unwrap_or_else(PoisonError::into_inner).look();
        let mut look = look.map_err(|_| Status::InternalServerError)?;
        look.served = self.subject.watch.as_ref().map(|watch| watch.served(&self.subject.listener));
        look.served.iter_mut().for_each(|served| served.workers = self.subject.workers);
        let json = kelvin_model::json::plain(&look).map_err(|_| Status::InternalServerError)?;
        Ok(whole(request.method, Status::Ok, ("application/json", &(json + "\n"))))
    }
}

fn end(client: &TcpStream) {
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
fn token(field: &str) -> Option<&str> {
    let (scheme, token) = field.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim_ascii())
}

/// An answer whose content is its own status.
fn text(method: Method, status: Status) -> Vec<u8> {
    whole(method, status, ("text/plain; charset=utf-8", &format!("{}\n", status.line())))
}

/// An answer.
fn whole(method: Method, status: Status, (media_type, content): (&str, &str)) -> Vec<u8> {
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
    if method == Method::Get {
        answer += content;
    }
    answer.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_that_of_the_scheme_for_tokens() {
        assert_eq!(token("Bearer abc="), Some("abc="));
        assert_eq!(token("bearer  abc "), Some("abc"));
        for other in ["Basic abc", "Bearer", "", "abc", "Bearerabc"] {
            assert_eq!(token(other), None, "{other}");
        }
    }

    #[test]
    fn no_answer_is_kept_by_anybody() {
        for (method, status) in [(Method::Get, Status::Ok), (Method::Head, Status::Unauthorized)] {
            let answer = String::from_utf8(text(method, status)).unwrap();
            assert!(answer.contains("\r\nCache-Control: no-store\r\n"), "{answer}");
            assert_eq!(answer.ends_with("\r\n\r\n"), method == Method::Head);
            assert_eq!(answer.contains("WWW-Authenticate: Bearer"), status == Status::Unauthorized);
        }
    }
}
