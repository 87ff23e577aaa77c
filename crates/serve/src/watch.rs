//! What a server knows of its requests while it runs, for whoever may ask: counted by connection, and sampled.
//!
//! There is one only where looks are answered; without it a connection pays nothing. A model registers each connection that it accepts
//! and gives what it gets to [`Connection::watched`](crate::connection::Connection::watched), which does the rest.

use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kelvin_model::resources::{Queue, Served};
use kelvin_sys::clock::monotonic;
use kelvin_sys::net::waiting::{Limited, OnTheWay, limited, on_the_way, queue, unacknowledged, unread};

/// Parts that the connections are in: a thread that accepts or ends one waits for a sample of one part at the longest.
const PARTS: usize = 16;
/// Mean time between two samples.
const BETWEEN: Duration = Duration::from_millis(10);
/// Times that what a sample cost is waited until the next one: with thousands of connections they take at most 2 % of a CPU.
const PATIENCE: u32 = 50;

/// All connections, and what is known of those that have ended.
#[derive(Debug, Default)]
pub struct Watch {
    parts: [Mutex<Part>; PARTS],
    connections: AtomicUsize,
    refused: AtomicU64,
    sums: Mutex<Sums>,
}

#[derive(Debug, Default)]
struct Part {
    entries: Vec<Option<Entry>>,
    free: Vec<usize>,
    ended: Totals,
}

/// A connection.
#[derive(Debug)]
struct Entry {
    /// Its socket by a descriptor of its own, so that it is never another's.
    socket: OwnedFd,
    counts: Arc<Counts>,
}

/// What the thread that serves a connection writes, and nobody else: on a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Counts {
    is_attended: AtomicBool,
    is_in_service: AtomicBool,
    requests: AtomicU64,
    bytes: AtomicU64,
    /// When the last byte of the last answer was given to the kernel, in nanoseconds of the monotonic clock.
    given: AtomicU64,
}

/// What connections have done.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    requests: u64,
    bytes: u64,
    limited: Limited,
}

impl Totals {
    fn add(&mut self, other: Self) {
        self.requests += other.requests;
        self.bytes += other.bytes;
        self.limited.by_window += other.limited.by_window;
        self.limited.by_buffer += other.limited.by_buffer;
    }
}

impl Entry {
    fn totals(&self) -> Totals {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let limited = limited(&self.socket).unwrap_or_default();
        Totals { requests: of(&self.counts.requests), bytes: of(&self.counts.bytes), limited }
    }

    /// Whether bytes of a request wait to be read, or of an answer are on their way.
    fn is_in_flight(&self) -> bool {
        let is_on_the_way = || {
            let given = self.counts.given.load(Ordering::Relaxed);
            on_the_way(&self.socket).is_ok_and(|way| has_not_arrived(way, monotonic().saturating_sub(given)))
        };
        unread(&self.socket).unwrap_or(0) > 0 || (unacknowledged(&self.socket).unwrap_or(0) > 0 && is_on_the_way())
    }
}

/// Whether an answer that was given to the kernel so long ago has not arrived in full.
///
/// What is not acknowledged need not be on its way: a receiver may wait 40 ms (TCP_DELACK_MIN) to acknowledge its last bytes along
/// with its next request, though it must acknowledge every second full segment at once (RFC 9293, 3.8.6.3). So two segments and less
/// are on their way for half a round trip.
fn has_not_arrived(way: OnTheWay, since: u64) -> bool {
    let is_last = way.not_sent == 0 && way.segments <= 2 && !way.is_recovering;
    !is_last || (way.segments > 0 && since < way.least_round_trip / 2)
}

/// Connections at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sample {
    in_flight: u32,
    in_service: u32,
    attended: u32,
}

impl Sample {
    fn add(&mut self, entry: &Entry) {
        let is_in_service = entry.counts.is_in_service.load(Ordering::Relaxed);
        self.in_flight += u32::from(is_in_service || entry.is_in_flight());
        self.in_service += u32::from(is_in_service);
        self.attended += u32::from(entry.counts.is_attended.load(Ordering::Relaxed));
    }
}

/// Samples integrated over time, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    last: Option<Instant>,
    now: Sample,
    in_flight: f64,
    in_service: f64,
    attended: f64,
    sampled: u64,
}

impl Sums {
    /// Each sample stands for the time since the one before it, whose length does not depend on what it found.
    fn add(&mut self, sample: Sample, now: Instant) {
        let since = self.last.replace(now).map_or(0.0, |last| now.saturating_duration_since(last).as_nanos() as f64);
        self.in_flight += f64::from(sample.in_flight) * since;
        self.in_service += f64::from(sample.in_service) * since;
        self.attended += f64::from(sample.attended) * since;
        (self.now, self.sampled) = (sample, self.sampled + 1);
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watch {
    /// Counts a connection that was accepted, and watches it until what is returned is dropped; none if there is no descriptor for that.
    pub fn register(self: &Arc<Self>, socket: impl AsFd) -> Option<Registered> {
        let part = self.connections.fetch_add(1, Ordering::Relaxed) % PARTS;
        let socket = rustix::io::fcntl_dupfd_cloexec(socket, 0).ok()?;
        let counts = Arc::new(Counts::default());
        let entry = Entry { socket, counts: Arc::clone(&counts) };
        let number = locked(&self.parts[part]).enter(entry);
        Some(Registered { watch: Arc::clone(self), place: (part, number), counts, answered: 0, head: 0 })
    }

    /// Counts a connection that was turned away.
    pub fn refuse(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes a sample.
    pub fn sample(&self) {
        let mut sums = locked(&self.sums);
        let mut sample = Sample::default();
        for part in &self.parts {
            locked(part).entries.iter().flatten().for_each(|entry| sample.add(entry));
        }
        sums.add(sample, Instant::now());
    }

    /// Takes samples at random moments until it is over. A fixed period could keep step with what it samples.
    pub fn go_on(&self, is_over: &AtomicBool) {
        let random = std::hash::RandomState::new();
        while !is_over.load(Ordering::Acquire) {
            let begun = Instant::now();
            self.sample();
            std::thread::park_timeout(pause(begun.elapsed(), std::hash::BuildHasher::hash_one(&random, begun)));
        }
    }

    /// What all connections have done.
    fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for part in &self.parts {
            let part = locked(part);
            totals.add(part.ended);
            part.entries.iter().flatten().for_each(|entry| totals.add(entry.totals()));
        }
        totals
    }

    /// What is known now, of a server that listens here.
    pub fn served(&self, listener: &TcpListener) -> Served {
        self.sample();
        let totals = self.totals();
        let sums = *locked(&self.sums);
        let queue = queue(listener).unwrap_or_default();
        Served {
            requests: totals.requests,
            bytes: totals.bytes,
            connections: self.connections.load(Ordering::Relaxed) as u64,
            refused: self.refused.load(Ordering::Relaxed),
            in_flight: sums.in_flight,
            in_flight_now: sums.now.in_flight,
            worked: sums.in_service,
            workers: None,
            held: sums.attended,
            window_limited: totals.limited.by_window as f64,
            send_buffer_limited: totals.limited.by_buffer as f64,
            accept_queue: Queue { now: queue.now, max: queue.most },
            sampled: sums.sampled,
        }
    }
}

/// How long to wait after a sample that cost so much: evenly from half to one and a half of the mean.
fn pause(cost: Duration, random: u64) -> Duration {
    let mean = BETWEEN.max(cost.saturating_mul(PATIENCE));
    mean / 2 + mean.mul_f64((random >> 40) as f64 / (1u64 << 24) as f64)
}

impl Part {
    fn enter(&mut self, entry: Entry) -> usize {
        let number = self.free.pop().unwrap_or_else(|| {
            self.entries.push(None);
            self.entries.len() - 1
        });
        self.entries[number] = Some(entry);
        number
    }

    fn leave(&mut self, number: usize) {
        if let Some(entry) = self.entries[number].take() {
            self.ended.add(entry.totals());
            self.free.push(number);
        }
    }
}

/// A connection that is watched. The thread that serves it says what it does.
#[derive(Debug)]
pub struct Registered {
    watch: Arc<Watch>,
    place: (usize, usize),
    counts: Arc<Counts>,
    /// Requests that were answered, and whose answers are not all with the kernel.
    answered: u64,
    /// Bytes of heads that are still to be sent.
    head: u64,
}

impl Registered {
    /// A thread serves it from now on.
    pub fn attend(&self) {
        self.counts.is_attended.store(true, Ordering::Relaxed);
    }

    /// A request has come, and is going to be answered.
    pub fn begin(&mut self) {
        self.counts.is_in_service.store(true, Ordering::Relaxed);
        self.answered += 1;
    }

    /// This is its answer as far as it is in memory, from the first byte of its head on.
    pub fn answer(&mut self, bytes: &[u8]) {
        let head = memchr::memmem::find(bytes, b"\r\n\r\n").map_or(bytes.len(), |end| end + 4);
        self.head += head as u64;
    }

    /// So many bytes were given to the kernel. Of several answers the heads count first; in the end it is the same.
    pub fn sent(&mut self, bytes: usize) {
        let of_heads = self.head.min(bytes as u64);
        self.head -= of_heads;
        let counter = &self.counts.bytes;
        counter.store(counter.load(Ordering::Relaxed) + (bytes as u64 - of_heads), Ordering::Relaxed);
    }

    /// All answers are with the kernel.
    pub fn end(&mut self) {
        let counter = &self.counts.requests;
        counter.store(counter.load(Ordering::Relaxed) + std::mem::take(&mut self.answered), Ordering::Relaxed);
        self.counts.given.store(monotonic(), Ordering::Relaxed);
        self.counts.is_in_service.store(false, Ordering::Relaxed);
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let (part, number) = self.place;
        locked(&self.watch.parts[part]).leave(number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpStream;

    const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\n\r\nbody";

    fn connection(listener: &TcpListener) -> (TcpStream, TcpStream) {
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    }

    fn sample(watch: &Watch) -> Sample {
        watch.sample();
        locked(&watch.sums).now
    }

    #[test]
    fn a_request_is_in_flight_from_its_arrival_until_the_client_has_its_answer() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (watch, (mut client, mut server)) = (Arc::new(Watch::default()), connection(&listener));
        let mut registered = watch.register(&server).unwrap();
        assert_eq!(sample(&watch), Sample::default());
        client.write_all(b"GET").unwrap();
        server.peek(&mut [0]).unwrap();
        assert_eq!(sample(&watch), Sample { in_flight: 1, ..Sample::default() });
        registered.attend();
        server.read_exact(&mut [0; 3]).unwrap();
        assert_eq!(sample(&watch), Sample { attended: 1, ..Sample::default() });
        registered.begin();
        registered.answer(ANSWER);
        assert_eq!(sample(&watch), Sample { in_flight: 1, in_service: 1, attended: 1 });
        server.set_nonblocking(true).unwrap();
        while server.write(&[0; 1 << 16]).is_ok() {}
        registered.sent(ANSWER.len());
        registered.end();
        // With the kernel, and not with the client.
        assert_eq!(sample(&watch), Sample { in_flight: 1, in_service: 0, attended: 1 });
        assert_eq!(watch.served(&listener).in_flight_now, 1);
        client.set_nonblocking(true).unwrap();
        while sample(&watch).in_flight > 0 {
            let _ = client.read(&mut [0; 1 << 16]);
        }
    }

    #[test]
    fn an_acknowledgement_that_is_put_off_is_nothing_on_its_way() {
        let way = OnTheWay { not_sent: 0, segments: 2, is_recovering: false, least_round_trip: 1000 };
        assert!(has_not_arrived(way, 499) && !has_not_arrived(way, 500));
        assert!(!has_not_arrived(OnTheWay { segments: 0, ..way }, 0));
        for other in
            [OnTheWay { not_sent: 1, ..way }, OnTheWay { segments: 3, ..way }, OnTheWay { is_recovering: true, ..way }]
        {
            assert!(has_not_arrived(other, 1 << 40), "{other:?}");
        }
    }

    #[test]
    fn what_a_connection_did_is_kept_when_it_ends() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let watch = Arc::new(Watch::default());
        for number in 1..=40 {
            let (_client, server) = connection(&listener);
            let mut registered = watch.register(&server).unwrap();
            // Two requests in one piece, sent in pieces.
            for _ in 0..2 {
                registered.begin();
                registered.answer(ANSWER);
            }
            [1, 20, 2 * ANSWER.len() - 21].iter().for_each(|bytes| registered.sent(*bytes));
            assert_eq!(watch.served(&listener).requests, 2 * (number - 1));
            registered.end();
            let served = watch.served(&listener);
            assert_eq!((served.requests, served.bytes, served.connections), (2 * number, 8 * number, number));
        }
        watch.refuse();
        let served = watch.served(&listener);
        assert_eq!((served.requests, served.bytes, served.refused), (80, 320, 1));
        assert!(watch.parts.iter().all(|part| locked(part).entries.len() <= 1), "places are used again");
    }

    #[test]
    fn samples_are_integrated_over_time() {
        let (mut sums, begun) = (Sums::default(), Instant::now());
        let sample = |in_flight| Sample { in_flight, in_service: 1, attended: 2 };
        sums.add(sample(9), begun);
        sums.add(sample(1), begun + Duration::from_nanos(100));
        sums.add(sample(3), begun + Duration::from_nanos(110));
        assert_eq!((sums.in_flight, sums.in_service, sums.attended, sums.sampled), (130.0, 110.0, 220.0, 3));
    }

    #[test]
    fn samples_come_at_random_and_never_cost_more_than_their_share() {
        let pauses = [0, u64::MAX / 2, u64::MAX].map(|random| pause(Duration::from_micros(10), random).as_millis());
        assert_eq!(pauses, [5, 9, 14]);
        assert_eq!(pause(Duration::from_millis(4), 0), Duration::from_millis(100));
    }
}
