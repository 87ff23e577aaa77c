//! Which ranks live: a TCP connection of each rank to rank 0, beside MPI, on which both ends send a byte each second.
//!
//! MPI cannot tell. A call that waits for a dead or stopped rank does not return, and an implementation that notices a death ends the job
//! without saying what was measured or whose fault it was. The kernel closes a dead process's connection at once; a stopped process, and one
//! that no route leads to, are silent.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use kelvin_sys::poll::{wait_any_readable, wait_readable};

use crate::protocol::{Contact, TOKEN_BYTES};

/// How often each end sends.
pub const INTERVAL: Duration = Duration::from_secs(1);
/// A rank is given up after so long without a byte. Five are missing by then, and it is named well within 10 s.
pub const MAX_SILENCE: Duration = Duration::from_secs(5);
/// A rank whose connection has not come after this time cannot reach rank 0.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(8);
/// An address that does not answer a connection after this time is not the right one: the next is tried.
const ADDRESS_TIMEOUT: Duration = Duration::from_secs(2);

/// What the bytes say.
const ALIVE: u8 = 1;
/// The job is complete, so that the end of the connection is no failure.
const OVER: u8 = 2;
/// The job ends early, and rank 0 has said why.
const ABORTED: u8 = 3;
/// The rank is alive, and has gone on with its task since it said so last.
const PROGRESS: u8 = 4;
/// The job ends before it has measured, as what was asked for cannot be done, and rank 0 has said why.
const REFUSED: u8 = 5;

/// Counts what a rank has done of its task, for tasks whose time nobody can plan.
#[derive(Clone, Debug, Default)]
pub struct Progress(Arc<AtomicU64>);

impl Progress {
    /// Another piece is done.
    pub fn advance(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Pieces so far.
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Why a rank is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Its connection was closed: the process is dead.
    Closed,
    /// Nothing was heard for [`MAX_SILENCE`].
    Silent,
}

impl Loss {
    /// As a sentence about the rank.
    pub fn describe(self) -> String {
        match self {
            Self::Closed => "has died".into(),
            Self::Silent => {
                format!("has been silent for {} s: it is stopped, or cut off from the network", MAX_SILENCE.as_secs())
            }
        }
    }
}

/// Where rank 0 accepts heartbeats: of both families where the system has IPv6.
///
/// # Errors
/// Those of bind.
pub fn listen() -> io::Result<TcpListener> {
    TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0)).or_else(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)))
}

/// Connects a rank to rank 0, at the first of its addresses that answers.
///
/// # Errors
/// Of the last address that was tried.
pub fn connect(contact: &Contact, rank: usize) -> io::Result<TcpStream> {
    let mut result =
        Err(io::Error::new(ErrorKind::AddrNotAvailable, "rank 0 has no address that other hosts can reach"));
    for &address in &contact.addresses {
        let address = SocketAddr::new(address, contact.port);
        result = TcpStream::connect_timeout(&address, ADDRESS_TIMEOUT)
            .and_then(|mut stream| {
                stream.set_nodelay(true)?;
                stream.write_all(&contact.token)?;
                stream.write_all(&(rank as u64).to_be_bytes())?;
                Ok(stream)
            })
            .map_err(|error| io::Error::new(error.kind(), format!("{address}: {error}")));
        if result.is_ok() {
            break;
        }
    }
    result
}

/// The heartbeats that rank 0 hears.
#[derive(Debug)]
pub struct Heartbeats {
    peers: Vec<Peer>,
    last_beat: Instant,
}

#[derive(Debug)]
struct Peer {
    rank: usize,
    stream: TcpStream,
    last_heard: Instant,
    has_progressed: bool,
}

impl Heartbeats {
    /// Accepts those of all ranks but 0, until a time has passed.
    ///
    /// # Errors
    /// Those of the listening socket.
    pub fn accept(
        listener: &TcpListener,
        token: [u8; TOKEN_BYTES],
        ranks: usize,
        timeout: Duration,
    ) -> io::Result<Self> {
        let start = Instant::now();
        let mut peers: Vec<Peer> = Vec::new();
        listener.set_nonblocking(true)?;
        while peers.len() + 1 < ranks {
            let Some(left) = timeout.checked_sub(start.elapsed()) else { break };
            wait_readable(listener.as_fd(), left)?;
            let stream = match listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
                Err(error) => return Err(error),
            };
            if let Some((rank, stream)) = introduction(stream, token)
                && (1..ranks).contains(&rank)
                && peers.iter().all(|peer| peer.rank != rank)
            {
                peers.push(Peer { rank, stream, last_heard: Instant::now(), has_progressed: false });
            }
        }
        Ok(Self { peers, last_beat: Instant::now() })
    }

    /// The ranks that are connected, and the addresses by which they reached rank 0.
    pub fn connected(&self) -> Vec<(usize, IpAddr)> {
        let own_address =
            |peer: &Peer| peer.stream.local_addr().map(|address| (peer.rank, address.ip().to_canonical()));
        self.peers.iter().filter_map(|peer| own_address(peer).ok()).collect()
    }

    /// Waits at most this long for heartbeats, sends one where it is due, and returns the ranks that are lost.
    ///
    /// # Errors
    /// Those of poll.
    pub fn watch(&mut self, timeout: Duration) -> io::Result<Vec<(usize, Loss)>> {
        let descriptors: Vec<_> = self.peers.iter().map(|peer| peer.stream.as_fd()).collect();
        let readable = wait_any_readable(&descriptors, timeout)?;
        let now = Instant::now();
        let is_beat_due = now - self.last_beat >= INTERVAL;
        if is_beat_due {
            self.last_beat = now;
        }
        let mut losses = Vec::new();
        for (peer, is_readable) in self.peers.iter_mut().zip(readable) {
            let mut is_closed = false;
            if is_readable {
                let mut bytes = [0; 64];
                match peer.stream.read(&mut bytes) {
                    Ok(0) => is_closed = true,
                    Ok(count) => {
                        peer.last_heard = now;
                        peer.has_progressed |= bytes[..count].contains(&PROGRESS);
                    }
                    Err(error) => is_closed = !is_temporary(&error),
                }
            }
            if is_beat_due && let Err(error) = peer.stream.write(&[ALIVE]) {
                is_closed |= !is_temporary(&error);
            }
            if is_closed {
                losses.push((peer.rank, Loss::Closed));
            } else if now - peer.last_heard > MAX_SILENCE {
                losses.push((peer.rank, Loss::Silent));
            }
        }
        Ok(losses)
    }

    /// The ranks that have gone on with their tasks since this was asked last.
    pub fn take_progressed(&mut self) -> Vec<usize> {
        let progressed =
            self.peers.iter_mut().filter_map(|peer| std::mem::take(&mut peer.has_progressed).then_some(peer.rank));
        progressed.collect()
    }

    /// Tells all ranks that the job is complete.
    pub fn end(&mut self) {
        self.send(OVER);
    }

    /// Tells all ranks that the job ends early.
    pub fn abort(&mut self) {
        self.send(ABORTED);
    }

    /// Tells all ranks that the job ends before it has measured.
    pub fn refuse(&mut self) {
        self.send(REFUSED);
    }

    fn send(&mut self, byte: u8) {
        for peer in &mut self.peers {
            // One that is dead or stopped does not hear it.
            let _ = peer.stream.write(&[byte]);
        }
    }
}

/// The rank that a new connection is of, if it has the secret.
fn introduction(mut stream: TcpStream, token: [u8; TOKEN_BYTES]) -> Option<(usize, TcpStream)> {
    stream.set_nonblocking(false).ok()?;
    stream.set_read_timeout(Some(ADDRESS_TIMEOUT)).ok()?;
    stream.set_nodelay(true).ok()?;
    let mut sent_token = [0; TOKEN_BYTES];
    stream.read_exact(&mut sent_token).ok()?;
    let mut rank = [0; 8];
    stream.read_exact(&mut rank).ok()?;
    stream.set_nonblocking(true).ok()?;
    (sent_token == token).then(|| (u64::from_be_bytes(rank) as usize, stream))
}

/// The end of a rank's connection, as the rank sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobEnd {
    /// Rank 0 has said that the job is complete.
    Over,
    /// Rank 0 has said that the job ends early.
    Aborted,
    /// Rank 0 has said that what was asked for cannot be done.
    Refused,
    /// Rank 0 is lost.
    Lost(Loss),
}

/// Sends the heartbeats of a rank, with its progress, until the job ends.
pub fn beat(mut stream: TcpStream, progress: &Progress) -> JobEnd {
    if stream.set_nonblocking(true).is_err() {
        return JobEnd::Lost(Loss::Closed);
    }
    // Rank 0 begins when all ranks are connected.
    let mut last_heard = Instant::now() + CONNECT_TIMEOUT;
    let mut last_count = 0;
    loop {
        let count = progress.count();
        let byte = if count == last_count { ALIVE } else { PROGRESS };
        last_count = count;
        if stream.write(&[byte]).is_err_and(|error| !is_temporary(&error)) {
            return JobEnd::Lost(Loss::Closed);
        }
        let next_beat = Instant::now() + INTERVAL;
        while let Some(left) = next_beat.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
            // A failed poll is as good as one that heard nothing: silence ends the wait.
            if !wait_readable(stream.as_fd(), left).unwrap_or(false) {
                continue;
            }
            let mut bytes = [0; 64];
            match stream.read(&mut bytes) {
                Ok(0) => return JobEnd::Lost(Loss::Closed),
                Ok(count) if bytes[..count].contains(&OVER) => return JobEnd::Over,
                Ok(count) if bytes[..count].contains(&ABORTED) => return JobEnd::Aborted,
                Ok(count) if bytes[..count].contains(&REFUSED) => return JobEnd::Refused,
                Ok(_) => last_heard = Instant::now(),
                Err(error) if is_temporary(&error) => {}
                Err(_) => return JobEnd::Lost(Loss::Closed),
            }
        }
        if last_heard.elapsed() > MAX_SILENCE {
            return JobEnd::Lost(Loss::Silent);
        }
    }
}

fn is_temporary(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: [u8; TOKEN_BYTES] = [5; TOKEN_BYTES];

    fn contact(listener: &TcpListener, token: [u8; TOKEN_BYTES]) -> Contact {
        Contact { addresses: vec![Ipv4Addr::LOCALHOST.into()], port: listener.local_addr().unwrap().port(), token }
    }

    #[test]
    fn dead_rank_is_named_and_living_one_is_not() {
        let listener = listen().unwrap();
        let streams = [1, 2].map(|rank| connect(&contact(&listener, TOKEN), rank).unwrap());
        let mut heartbeats = Heartbeats::accept(&listener, TOKEN, 3, CONNECT_TIMEOUT).unwrap();
        let mut connected = heartbeats.connected();
        connected.sort_unstable();
        assert_eq!(connected, [(1, Ipv4Addr::LOCALHOST.into()), (2, Ipv4Addr::LOCALHOST.into())]);
        assert_eq!(heartbeats.watch(Duration::ZERO).unwrap(), []);
        let [first, second] = streams;
        drop(second);
        assert_eq!(heartbeats.watch(Duration::from_secs(5)).unwrap(), [(2, Loss::Closed)]);
        drop(first);
    }

    #[test]
    fn silent_rank_is_named() {
        let listener = listen().unwrap();
        let _stream = connect(&contact(&listener, TOKEN), 1).unwrap();
        let mut heartbeats = Heartbeats::accept(&listener, TOKEN, 2, CONNECT_TIMEOUT).unwrap();
        heartbeats.peers[0].last_heard -= MAX_SILENCE;
        assert_eq!(heartbeats.watch(Duration::ZERO).unwrap(), [(1, Loss::Silent)]);
    }

    #[test]
    fn rank_ends_with_rank_0() {
        let listener = listen().unwrap();
        type EndJob = fn(&mut Heartbeats);
        let ends: [(EndJob, JobEnd); 4] = [
            (Heartbeats::end, JobEnd::Over),
            (Heartbeats::abort, JobEnd::Aborted),
            (Heartbeats::refuse, JobEnd::Refused),
            (|_| {}, JobEnd::Lost(Loss::Closed)),
        ];
        for (end, expected) in ends {
            let stream = connect(&contact(&listener, TOKEN), 1).unwrap();
            let mut heartbeats = Heartbeats::accept(&listener, TOKEN, 2, CONNECT_TIMEOUT).unwrap();
            let rank = std::thread::spawn(move || beat(stream, &Progress::default()));
            assert_eq!(heartbeats.watch(Duration::from_secs(5)).unwrap(), []);
            end(&mut heartbeats);
            drop(heartbeats);
            assert_eq!(rank.join().unwrap(), expected);
        }
    }

    #[test]
    fn progress_of_a_rank_is_heard_once() {
        let listener = listen().unwrap();
        let stream = connect(&contact(&listener, TOKEN), 1).unwrap();
        let mut heartbeats = Heartbeats::accept(&listener, TOKEN, 2, CONNECT_TIMEOUT).unwrap();
        let progress = Progress::default();
        progress.advance();
        let rank = std::thread::spawn(move || beat(stream, &progress));
        assert_eq!(heartbeats.watch(Duration::from_secs(5)).unwrap(), []);
        assert_eq!(heartbeats.take_progressed(), [1]);
        // The next beat says that there is none.
        assert_eq!(heartbeats.watch(Duration::from_secs(5)).unwrap(), []);
        assert_eq!(heartbeats.take_progressed(), [0; 0]);
        heartbeats.end();
        assert_eq!(rank.join().unwrap(), JobEnd::Over);
    }

    #[test]
    fn connection_without_the_token_is_no_rank() {
        let listener = listen().unwrap();
        let _wrong = connect(&contact(&listener, [6; TOKEN_BYTES]), 1).unwrap();
        let _right = connect(&contact(&listener, TOKEN), 2).unwrap();
        let heartbeats = Heartbeats::accept(&listener, TOKEN, 3, Duration::from_millis(300)).unwrap();
        assert_eq!(heartbeats.connected(), [(2, Ipv4Addr::LOCALHOST.into())]);
    }
}
