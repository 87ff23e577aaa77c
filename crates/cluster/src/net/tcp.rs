//! A pair over a TCP connection of kelvin's own: round trips of small messages, then the rate of payload in each direction.
//!
//! Both ends wait in blocking calls, as programs do that do not poll: a round trip contains two wake-ups.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use super::round_trips::{LAST, MESSAGE_BYTES, time_round_trips};
use super::task::{PairFigures, PairPlan, PairTask};
use crate::network;
use crate::protocol::TOKEN_BYTES;

/// Bytes of a write or a read, as iperf3 has them.
const BLOCK_BYTES: usize = 128 << 10;
/// The part of the time of a rate that does not count: slow start, and the burst that a token bucket lets pass.
const WARM_UP_SHARE: f64 = 0.25;
/// The rest must be at least this part of the time; if the sender was held up for longer, all bytes count.
const MIN_COUNTED_SHARE: f64 = 0.25;
/// At least so many blocks are sent: a rate of fewer is none.
const MIN_BLOCKS: u64 = 8;
/// An end that does not come, or is silent, is given up after this time. The heartbeat names a dead rank before.
const PATIENCE: Duration = Duration::from_secs(8);

/// Where this rank accepts the connections of others.
#[derive(Debug)]
pub struct TcpEnd {
    listener: TcpListener,
    address: SocketAddr,
    token: [u8; TOKEN_BYTES],
}

impl TcpEnd {
    /// At a port of this address.
    ///
    /// # Errors
    /// Those of bind and listen.
    pub fn bind(address: IpAddr, token: [u8; TOKEN_BYTES]) -> io::Result<Self> {
        let listener = TcpListener::bind((address, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address, token })
    }

    /// Where others connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Measures with a peer that does the same as the other part of the pair. The figures are those of the one that began.
    ///
    /// # Errors
    /// Those of the connection, with what was tried.
    pub fn measure(&self, task: &PairTask) -> Result<Option<PairFigures>, String> {
        let peer = task.peer_address.ip();
        if task.is_initiator {
            let stream = self
                .connect(task.peer_address)
                .map_err(|error| format!("no TCP connection to {}: {error}", task.peer_address))?;
            initiate(stream, &task.plan).map(Some).map_err(|error| format!("TCP to {peer}: {error}"))
        } else {
            let stream = self.accept().map_err(|error| format!("no TCP connection from {peer}: {error}"))?;
            respond(stream, &task.plan).map(|()| None).map_err(|error| format!("TCP from {peer}: {error}"))
        }
    }

    fn connect(&self, address: SocketAddr) -> io::Result<TcpStream> {
        let mut stream = prepared(TcpStream::connect_timeout(&address, PATIENCE)?)?;
        stream.write_all(&self.token)?;
        Ok(stream)
    }

    /// The next connection of another rank; others are closed.
    fn accept(&self) -> io::Result<TcpStream> {
        let start = Instant::now();
        while let Some(left) = PATIENCE.checked_sub(start.elapsed()) {
            kelvin_sys::poll::wait_readable(self.listener.as_fd(), left)?;
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
                Err(error) => return Err(error),
            };
            stream.set_nonblocking(false)?;
            let mut stream = prepared(stream)?;
            let mut token = [0; TOKEN_BYTES];
            if stream.read_exact(&mut token).is_ok() && token == self.token {
                return Ok(stream);
            }
        }
        Err(ErrorKind::TimedOut.into())
    }
}

fn prepared(stream: TcpStream) -> io::Result<TcpStream> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// The part of the end that connected: times round trips, sends, learns at which rate that came, and receives.
fn initiate(mut stream: TcpStream, plan: &PairPlan) -> io::Result<PairFigures> {
    let round_trip = if plan.round_trip_seconds > 0.0 {
        let mut answer = [0; MESSAGE_BYTES];
        Some(time_round_trips(plan.round_trip_seconds, |message| {
            stream.write_all(&message)?;
            stream.read_exact(&mut answer)
        })?)
    } else {
        None
    };
    let before = network::sent_bytes()?;
    let sent_bytes = send_for(&mut stream, plan.rate_seconds)?;
    stream.shutdown(Shutdown::Write)?;
    let mut rate = [0; 8];
    stream.read_exact(&mut rate)?;
    let interface_bytes = network::sent_bytes()?.saturating_sub(before);
    let backward = receive_rate(&mut stream, plan.rate_seconds)?;
    Ok(PairFigures {
        round_trip,
        bytes_per_second: [f64::from_be_bytes(rate), backward],
        sent_bytes,
        interface_bytes,
        cpu_wait: 0.0,
    })
}

/// The part of the other end.
fn respond(mut stream: TcpStream, plan: &PairPlan) -> io::Result<()> {
    if plan.round_trip_seconds > 0.0 {
        let mut message = [0; MESSAGE_BYTES];
        while message != LAST {
            stream.read_exact(&mut message)?;
            stream.write_all(&message)?;
        }
    }
    let forward = receive_rate(&mut stream, plan.rate_seconds)?;
    stream.write_all(&forward.to_be_bytes())?;
    send_for(&mut stream, plan.rate_seconds)?;
    Ok(())
}

/// Sends for a time; returns how many bytes.
fn send_for(stream: &mut TcpStream, seconds: f64) -> io::Result<u64> {
    // Not zeros: something on the way may compress.
    let block: Vec<u8> = (0..BLOCK_BYTES as u32).map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    let mut sent = 0;
    while sent < MIN_BLOCKS * BLOCK_BYTES as u64 || Instant::now() < end {
        stream.write_all(&block)?;
        sent += BLOCK_BYTES as u64;
    }
    Ok(sent)
}

/// Receives to the end of the stream. The rate, in bytes per second, is that from the end of the warm-up to the last byte: what the sender's
/// buffers held when it stopped arrives at the rate of the link.
fn receive_rate(stream: &mut TcpStream, seconds: f64) -> io::Result<f64> {
    let mut block = vec![0; BLOCK_BYTES];
    let mut meter: Option<RateMeter> = None;
    loop {
        let received = match stream.read(&mut block) {
            Ok(0) => break,
            Ok(received) => received as u64,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let now = Instant::now();
        match &mut meter {
            Some(meter) => meter.count(now, received),
            None => meter = Some(RateMeter::new(now, seconds)),
        }
    }
    let rate = meter.and_then(|meter| meter.bytes_per_second());
    rate.ok_or_else(|| io::Error::other("too few bytes came for a rate"))
}

/// Counts what arrives, and of it what arrives after the warm-up.
#[derive(Debug)]
struct RateMeter {
    all: Arrivals,
    /// From the first arrival after the warm-up on.
    counted: Option<Arrivals>,
    warm_up_end: Instant,
    least_counted: Duration,
}

/// Bytes after a first arrival, and when the last of them came.
#[derive(Clone, Copy, Debug)]
struct Arrivals {
    first: Instant,
    last: Instant,
    bytes: u64,
}

impl Arrivals {
    fn new(now: Instant) -> Self {
        Self { first: now, last: now, bytes: 0 }
    }

    fn count(&mut self, now: Instant, bytes: u64) {
        self.last = now;
        self.bytes += bytes;
    }

    fn duration(&self) -> Duration {
        self.last - self.first
    }
}

impl RateMeter {
    /// Of a stream whose first bytes came now.
    fn new(now: Instant, seconds: f64) -> Self {
        Self {
            all: Arrivals::new(now),
            counted: None,
            warm_up_end: now + Duration::from_secs_f64(seconds * WARM_UP_SHARE),
            least_counted: Duration::from_secs_f64(seconds * MIN_COUNTED_SHARE),
        }
    }

    fn count(&mut self, now: Instant, bytes: u64) {
        self.all.count(now, bytes);
        match &mut self.counted {
            Some(counted) => counted.count(now, bytes),
            None if now >= self.warm_up_end => self.counted = Some(Arrivals::new(now)),
            None => {}
        }
    }

    fn bytes_per_second(&self) -> Option<f64> {
        let arrivals = self.counted.filter(|counted| counted.duration() >= self.least_counted).unwrap_or(self.all);
        let seconds = arrivals.duration().as_secs_f64();
        (seconds > 0.0).then(|| arrivals.bytes as f64 / seconds)
    }
}

#[cfg(test)]
mod tests {
    use kelvin_core::cluster::Transport;

    use super::*;

    #[test]
    fn meter_counts_from_first_arrival_after_warm_up() {
        let start = Instant::now();
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        let mut meter = RateMeter::new(start, 0.4);
        for (milliseconds, bytes) in [(99, 9_000), (100, 9_000), (200, 1_000), (350, 1_500)] {
            meter.count(at(milliseconds), bytes);
        }
        assert_eq!(meter.bytes_per_second(), Some(10_000.0));
    }

    #[test]
    fn meter_counts_all_if_little_is_left() {
        let start = Instant::now();
        let mut held_up = RateMeter::new(start, 0.4);
        assert_eq!(held_up.bytes_per_second(), None);
        for (milliseconds, bytes) in [(90, 900), (110, 200), (150, 400)] {
            held_up.count(start + Duration::from_millis(milliseconds), bytes);
        }
        assert_eq!(held_up.bytes_per_second(), Some(10_000.0));
    }

    /// Both ends of a pair over loopback.
    fn measure_pair(
        tokens: [[u8; TOKEN_BYTES]; 2],
        round_trip_seconds: f64,
    ) -> [Result<Option<PairFigures>, String>; 2] {
        let ends = tokens.map(|token| TcpEnd::bind("127.0.0.1".parse().unwrap(), token).unwrap());
        let plan = PairPlan { transport: Transport::Tcp, round_trip_seconds, rate_seconds: 0.05, message_bytes: 1 };
        let task = |peer: usize| PairTask {
            peer,
            peer_address: ends[peer].address(),
            is_initiator: peer == 1,
            cpu: None,
            plan,
        };
        std::thread::scope(|scope| {
            let other = scope.spawn(|| ends[1].measure(&task(0)));
            [ends[0].measure(&task(1)), other.join().unwrap()]
        })
    }

    #[test]
    fn pair_has_round_trip_and_both_rates() {
        let [figures, other] = measure_pair([[7; TOKEN_BYTES]; 2], 0.01);
        let figures = figures.unwrap().unwrap();
        assert_eq!(other, Ok(None));
        assert!(figures.round_trip.unwrap().count >= 20);
        assert!(figures.bytes_per_second.iter().all(|rate| *rate > 0.0) && figures.sent_bytes > 0);
        let [without, _] = measure_pair([[7; TOKEN_BYTES]; 2], 0.0);
        assert_eq!(without.unwrap().unwrap().round_trip, None);
    }

    #[test]
    fn connection_without_the_token_is_closed() {
        let end = TcpEnd::bind("127.0.0.1".parse().unwrap(), [1; TOKEN_BYTES]).unwrap();
        let mut other = TcpStream::connect(end.address()).unwrap();
        other.write_all(&[2; TOKEN_BYTES]).unwrap();
        let right = end.connect(end.address()).unwrap();
        let accepted = end.accept().unwrap();
        assert_eq!(accepted.peer_addr().unwrap(), right.local_addr().unwrap());
        assert_eq!(other.read(&mut [0; 1]).unwrap(), 0);
    }
}
