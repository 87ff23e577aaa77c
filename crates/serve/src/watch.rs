//! What a server knows of its requests while it runs, for whoever may ask.
//!
//! There is one only where looks are answered; without it a connection pays nothing. A model registers each connection that it accepts
//! and gives what it gets to [`Connection::watched`](crate::connection::Connection::watched), which does the rest: from when a request
//! has arrived, by the kernel's time, until its answer was given to the kernel, all is counted at the moments at which it changes. Then
//! an answer is on its way until it has arrived, of which nobody is told: that is sampled. And a call that gives an answer to the kernel
//! is over later than the answer has left, since it wakes up a client of this host: of some answers it is found out how much later.

use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kelvin_model::resources::{Queue, Served};
use kelvin_resources::Watched;
use kelvin_sys::clock::monotonic;
use kelvin_sys::net::arrival::{keep, peek};
use kelvin_sys::net::departure;
use kelvin_sys::net::waiting::{Limited, OnTheWay, Sending, on_the_way, queue, sending, unacknowledged, unread};
use kelvin_sys::random::split_mix;
use kelvin_sys::usage::{RunQueueWait, Who, usage};

use crate::counters::{Ahead, Counters, LATER, Slot, Span, Totals};
use crate::error::{Error, Result};
use crate::registered::Registered;

/// Parts that the connections are in: a thread that accepts or ends one waits for a sample of one part at the longest.
const PARTS: usize = 16;
/// Mean time between two samples.
const BETWEEN: Duration = Duration::from_millis(10);
/// Times its pause after which a sample is so late that a quota may be why: most of the period of one, 100 ms by default, in which others
/// than the server run.
const LATE: u64 = 3;
/// Times that what a sample cost is waited until the next one: with thousands of connections they take at most 2 % of a CPU.
const PATIENCE: u32 = 50;

/// Least time between two looks at which of the server's threads are in uninterruptible sleep, and how many times what a look cost is
/// waited until the next one: they take at most 1 % of a CPU. And how many threads are looked at.
const BETWEEN_STATES: Duration = Duration::from_millis(20);
const PATIENCE_FOR_STATES: u32 = 100;
const MOST_STATES: usize = 256;

/// Longest time of reading what connections have counted, in nanoseconds: with thousands of them it takes a tenth. And how often it is
/// read at most until that is so.
const PROMPT: u64 = 1_000_000;
const READINGS: u32 = 5;

/// Connections of which a sample has it found out when their next answers leave: each costs who serves it some microseconds.
const WANTED: usize = 8;
/// Fewest answers from when that is asked for until it is found out. By chance they are up to twice as many: where two clients are served in
/// turn, and only the first answer of each turn wakes up who sends the requests of both, it would always be found out of the same one.
const APART: u64 = 8;
/// Answers in turn that left later than they were given, after which no further one of the connection is asked for.
const MOST_LATER: u32 = 5;

/// All connections, and what is known of those that have ended.
#[derive(Debug)]
pub struct Watch {
    counters: Counters,
    free: Mutex<Free>,
    parts: [Mutex<Part>; PARTS],
    sums: Mutex<Sums>,
    /// This process, which quotas may keep from running.
    own: Watched,
}

/// Slots that nobody has: those from the first that nobody has had, and some of those before it.
#[derive(Debug, Default)]
struct Free {
    next: usize,
    left: Vec<usize>,
}

#[derive(Debug, Default)]
struct Part {
    entries: Vec<Option<Entry>>,
    ended: Sending,
}

/// A connection.
#[derive(Debug)]
struct Entry {
    /// Its socket by a descriptor of its own, so that it is never another's.
    socket: Arc<OwnedFd>,
    slot: Slot,
    /// The request that was last seen to wait to be read.
    unread: Option<Unread>,
    /// Whether an answer was on its way at the last sample.
    was_on_its_way: bool,
    /// What was known of when its answers left at the last sample that could use it.
    ahead: Ahead,
    /// How often since then an answer left later than it was given.
    later: u32,
}

/// A request that waits to be read.
#[derive(Clone, Copy, Debug)]
struct Unread {
    since: u64,
    /// When the answer before it was given to the kernel, by which it is known from another one.
    after: u64,
}

impl Entry {
    /// Whether it has a request in flight, and for how many nanoseconds of a time until now an answer of it was on its way.
    fn sample(&mut self, interval: Interval) -> (bool, u64) {
        let is_counted = self.slot.since(Span::Arrived) != 0 || self.waited(interval.to) > 0;
        let is_on_its_way = !is_counted && self.is_on_its_way(interval.to);
        let time = match (interval.was_throttled, is_on_its_way) {
            (false, true) => interval.length(),
            (false, false) => 0,
            (true, _) => self.by_the_kernel(interval, is_on_its_way),
        };
        self.was_on_its_way = is_on_its_way;
        (is_counted || is_on_its_way, time)
    }

    /// For how many nanoseconds its answers had left before the calls were over that gave them to the kernel, since the last time that
    /// this could be told.
    fn ahead(&mut self) -> i64 {
        let now = self.slot.ahead();
        let ahead = now.since(self.ahead);
        if ahead.is_some() {
            (self.ahead, self.later) = (now, 0);
        }
        ahead.unwrap_or(0)
    }

    /// Has it found out when an answer leaves, after so many. Of one that left later than it was given, what the kernel kept is taken away: it
    /// would be an event of its socket for ever. Where that happens again and again, behind a shaper, nobody asks any more.
    fn want(&mut self, after: u64) {
        match self.slot.wanted() {
            0 => self.slot.want(after),
            LATER => {
                let has_left = departure::last(&*self.socket).is_ok_and(|left| left.is_some());
                self.later += u32::from(has_left);
                if has_left && self.later < MOST_LATER {
                    self.slot.want(0);
                }
            }
            _ => {}
        }
    }

    /// For how long its answers were on their way by what is known of the last one, and of the one before if that was on its way at the
    /// last sample.
    fn by_the_kernel(&self, interval: Interval, is_on_its_way: bool) -> u64 {
        let given = self.slot.given();
        let last = if is_on_its_way { Some(interval.to) } else { self.left_at(interval) };
        let of_last = last.map_or(0, |left| interval.part(given, left));
        // Its client has asked again, and so had it.
        let before = if self.was_on_its_way && given > interval.from { self.slot.asked() } else { 0 };
        of_last + interval.part(0, before)
    }

    /// When the last byte of its last answer left, by the kernel's account; none where another one has begun to leave, or none has.
    fn left_at(&self, interval: Interval) -> Option<u64> {
        if self.slot.given() == 0 || self.slot.since(Span::InService) != 0 {
            return None;
        }
        let way = on_the_way(&self.socket).ok()?;
        Some(if way.not_sent > 0 { interval.to } else { interval.to.saturating_sub(way.since_sent) })
    }

    /// For how long a request has waited to be read, in nanoseconds; 0 where none does. What was not answered yet counts as its wait.
    fn waited(&mut self, now: u64) -> u64 {
        let after = self.slot.given();
        let is_waiting = self.slot.since(Span::Arrived) == 0 && unread(&self.socket).unwrap_or(0) > 0;
        let known = self.unread.filter(|unread| unread.after == after);
        self.unread = is_waiting.then(|| known.unwrap_or_else(|| self.arrived(after)));
        self.unread.map_or(0, |unread| now.saturating_sub(unread.since).max(1))
    }

    fn arrived(&self, after: u64) -> Unread {
        let waited = peek(&self.socket).map_or(0, |arrived| arrived.waited());
        Unread { since: monotonic().saturating_sub(waited).max(after), after }
    }

    /// Whether an answer is that was given to the kernel.
    fn is_on_its_way(&self, now: u64) -> bool {
        let since = now.saturating_sub(self.slot.given());
        unacknowledged(&self.socket).unwrap_or(0) > 0
            && on_the_way(&self.socket).is_ok_and(|way| has_not_arrived(way, since))
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

/// The time from one sample to the next, in nanoseconds of the monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Interval {
    from: u64,
    to: u64,
    /// Whether a quota kept the sampler from running meanwhile, and so the server: it is not at a random moment that they go on, and what
    /// is found then tells little of the time before it.
    was_throttled: bool,
}

impl Interval {
    fn length(self) -> u64 {
        self.to - self.from
    }

    /// How much of it lies between two times.
    fn part(self, begin: u64, end: u64) -> u64 {
        end.min(self.to).saturating_sub(begin.max(self.from))
    }
}

/// Samples so far.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    /// When the last one was, and for how long the next one was to wait.
    last: Option<u64>,
    pause: Duration,
    /// Nanoseconds for which quotas had kept the server from running at the last one that was late.
    throttled: f64,
    /// Connections with a request in flight at the last one.
    in_flight: u32,
    /// Nanoseconds for which answers were on their way, of all connections.
    on_the_way: u64,
    /// Nanoseconds for which they had left and the calls that gave them to the kernel were not over.
    ahead: i64,
    /// The connection of which it is found out next when its answers leave.
    next: usize,
    sampled: u64,
    /// Thread-nanoseconds in uninterruptible sleep.
    blocked: u64,
    /// Nanoseconds for which the thread that takes samples had no CPU.
    without_cpu: Option<u64>,
    /// The generator of what is left to chance.
    random: u64,
}

impl Sums {
    /// The time since the last sample, with how long quotas have kept the server from running in all. Each sample stands for that time,
    /// whose length does not depend on what it finds, unless a quota made it long.
    fn interval(&mut self, now: u64, throttled: impl FnOnce() -> f64) -> Interval {
        let from = self.last.replace(now).unwrap_or(now).min(now);
        let is_late = now - from > LATE * self.pause.max(BETWEEN).as_nanos() as u64;
        if !is_late {
            return Interval { from, to: now, was_throttled: false };
        }
        let throttled = throttled();
        let was_throttled = throttled > std::mem::replace(&mut self.throttled, throttled);
        Interval { from, to: now, was_throttled }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watch {
    /// Of so many connections at one time, which come from a socket that listens: theirs are the times at which their bytes arrive.
    ///
    /// # Errors
    /// Without memory for them, or those of setsockopt.
    pub fn over(listener: &TcpListener, connections: usize) -> Result<Self> {
        keep(listener).map_err(Error::call("have the kernel keep when bytes arrive"))?;
        let (free, parts, own) = (Mutex::default(), Default::default(), Watched::own(None));
        let sums = Mutex::new(Sums { throttled: own.throttled().unwrap_or(0.0), ..Sums::default() });
        Ok(Self { counters: Counters::new(connections)?, free, parts, sums, own })
    }

    /// Counts a connection that was accepted, and watches it until what is returned is dropped; none if there is no descriptor for that.
    pub fn register(self: &Arc<Self>, socket: impl AsFd) -> Option<Registered> {
        let slot = self.take_slot()?;
        let Ok(socket) = rustix::io::fcntl_dupfd_cloexec(socket, 0).map(Arc::new) else {
            self.free_slot(slot.number());
            return None;
        };
        self.enter(slot.number(), Arc::clone(&socket));
        Some(Registered::new(slot, socket, Some(Arc::clone(self))))
    }

    /// Counts a connection that was accepted, and gives it a slot.
    pub fn take_slot(&self) -> Option<Slot> {
        self.counters.accepted().fetch_add(1, Ordering::Relaxed);
        let mut free = locked(&self.free);
        let number = free.left.pop().or_else(|| {
            free.next += 1;
            (free.next <= self.counters.slots()).then(|| free.next - 1)
        })?;
        Some(self.counters.slot(number))
    }

    /// Gives a slot back.
    pub fn free_slot(&self, number: usize) {
        locked(&self.free).left.push(number);
    }

    /// Watches the connection that has this slot.
    pub fn enter(&self, number: usize, socket: Arc<OwnedFd>) {
        let slot = self.counters.slot(number);
        let ahead = slot.ahead();
        let entry = Entry { socket, slot, unread: None, was_on_its_way: false, ahead, later: 0 };
        let mut part = locked(&self.parts[number % PARTS]);
        let at = number / PARTS;
        if part.entries.len() <= at {
            part.entries.resize_with(at + 1, || None);
        }
        part.entries[at] = Some(entry);
    }

    /// Watches it no longer.
    pub fn leave(&self, number: usize) {
        let mut part = locked(&self.parts[number % PARTS]);
        if let Some(entry) = part.entries.get_mut(number / PARTS).and_then(Option::take) {
            part.ended = sum(part.ended, sending(&entry.socket).unwrap_or_default());
        }
    }

    /// The same, and gives its slot back.
    pub fn end(&self, number: usize) {
        self.leave(number);
        self.free_slot(number);
    }

    /// Counts a connection that was turned away.
    pub fn refuse(&self) {
        self.counters.refused().fetch_add(1, Ordering::Relaxed);
    }

    /// Takes a sample.
    pub fn sample(&self) {
        let mut sums = locked(&self.sums);
        let interval = sums.interval(monotonic(), || self.own.throttled().unwrap_or(0.0));
        (sums.in_flight, sums.sampled) = (0, sums.sampled + 1);
        let (mut seen, from) = (0, sums.next);
        for part in &self.parts {
            for entry in locked(part).entries.iter_mut().flatten() {
                let (is_in_flight, on_the_way) = entry.sample(interval);
                sums.in_flight += u32::from(is_in_flight);
                sums.on_the_way += on_the_way;
                sums.ahead += entry.ahead();
                if (from..from + WANTED).contains(&seen) {
                    entry.want(APART + split_mix(&mut sums.random) % APART);
                }
                seen += 1;
            }
        }
        sums.next = if from + WANTED < seen { from + WANTED } else { 0 };
    }

    /// Takes samples at random moments until it is over. A fixed period could keep step with what it samples.
    pub fn go_on(&self, is_over: &AtomicBool) {
        let random = std::hash::RandomState::new();
        let mut waited = RunQueueWait::of_thread();
        let mut states = States { last: monotonic(), due: 0 };
        while !is_over.load(Ordering::Acquire) {
            states.sample(self);
            // Of CPU time: a sample that had to wait for a CPU has cost no more.
            let before = usage(Who::Thread);
            self.sample();
            let used = usage(Who::Thread).since(before);
            let cost = Duration::from_nanos(used.user + used.system);
            let pause = pause(cost, std::hash::BuildHasher::hash_one(&random, monotonic()));
            let without_cpu = waited.nanoseconds();
            let mut sums = locked(&self.sums);
            (sums.pause, sums.without_cpu) = (pause, without_cpu);
            drop(sums);
            std::thread::park_timeout(pause);
        }
    }

    /// What all connections have counted, and until when. What ends while they are read counts in full: where that took long, since the
    /// CPU was lost meanwhile, they are read again.
    fn totals(&self) -> (u64, Totals) {
        let read = || {
            let now = monotonic();
            (now, self.counters.totals(now))
        };
        let is_prompt = |(now, _): &(u64, Totals)| monotonic() - now <= PROMPT;
        (1..READINGS).map(|_| read()).find(is_prompt).unwrap_or_else(read)
    }

    /// What their sockets tell of all connections.
    fn of_sockets(&self, now: u64) -> OfSockets {
        let mut all = OfSockets::default();
        for part in &self.parts {
            let mut part = locked(part);
            all.sending = sum(all.sending, part.ended);
            for entry in part.entries.iter_mut().flatten() {
                all.sending = sum(all.sending, sending(&entry.socket).unwrap_or_default());
                all.unacknowledged += u64::from(unacknowledged(&entry.socket).unwrap_or(0));
                all.waited += entry.waited(now);
            }
        }
        all
    }

    /// What is known now, of a server that listens here.
    pub fn served(&self, listener: &TcpListener) -> Served {
        self.sample();
        let (now, totals) = self.totals();
        let OfSockets { sending: Sending { busy, limited }, waited, unacknowledged } = self.of_sockets(now);
        let sums = *locked(&self.sums);
        let queue = queue(listener).unwrap_or_default();
        Served {
            at: Some(now as f64),
            requests: totals.requests,
            bytes: totals.bytes,
            unacknowledged: Some(unacknowledged),
            connections: self.counters.accepted().load(Ordering::Relaxed),
            refused: self.counters.refused().load(Ordering::Relaxed),
            in_flight: (totals.arrived + waited + sums.on_the_way).saturating_add_signed(-sums.ahead) as f64,
            in_flight_now: sums.in_flight,
            worked: totals.in_service as f64,
            workers: None,
            held: totals.attended as f64,
            sending: Some(busy as f64),
            window_limited: limited.by_window as f64,
            send_buffer_limited: limited.by_buffer as f64,
            accept_queue: Queue { now: queue.now, max: queue.most },
            sampled: sums.sampled,
            blocked: Some(sums.blocked as f64),
            sampling_without_cpu: sums.without_cpu.map(|time| time as f64),
            congestion_control: kelvin_sys::net::congestion_control(listener).ok(),
        }
    }
}

/// When threads were last looked at for their states, and are to be looked at again.
struct States {
    last: u64,
    due: u64,
}

impl States {
    /// Looks at them if it is time to: each look stands for the time since the last one.
    fn sample(&mut self, watch: &Watch) {
        let now = monotonic();
        if now < self.due {
            return;
        }
        let before = usage(Who::Thread);
        let blocked = u64::from(watch.own.blocked(MOST_STATES));
        let used = usage(Who::Thread).since(before);
        locked(&watch.sums).blocked += blocked * (now - std::mem::replace(&mut self.last, now));
        let cost = Duration::from_nanos(used.user + used.system);
        self.due = now + BETWEEN_STATES.max(cost.saturating_mul(PATIENCE_FOR_STATES)).as_nanos() as u64;
    }
}

/// What sockets tell.
#[derive(Clone, Copy, Debug, Default)]
struct OfSockets {
    /// For how long connections had something to send, and what kept them from it.
    sending: Sending,
    /// Nanoseconds for which requests have waited that wait to be read.
    waited: u64,
    /// Bytes of answers that were given to the kernel and not acknowledged.
    unacknowledged: u64,
}

fn sum(one: Sending, other: Sending) -> Sending {
    let (by_window, by_buffer) =
        (one.limited.by_window + other.limited.by_window, one.limited.by_buffer + other.limited.by_buffer);
    Sending { busy: one.busy + other.busy, limited: Limited { by_window, by_buffer } }
}

/// How long to wait after a sample that cost so much: evenly from half to one and a half of the mean.
fn pause(cost: Duration, random: u64) -> Duration {
    let mean = BETWEEN.max(cost.saturating_mul(PATIENCE));
    mean / 2 + mean.mul_f64((random >> 40) as f64 / (1u64 << 24) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpStream;

    const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\n\r\nbody";

    fn watched() -> (TcpListener, Arc<Watch>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let watch = Watch::over(&listener, 100).unwrap();
        (listener, Arc::new(watch))
    }

    fn connection(listener: &TcpListener) -> (TcpStream, TcpStream) {
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    }

    /// What the first connection wants to be found out.
    fn wanted(watch: &Watch) -> u64 {
        locked(&watch.parts[0]).entries[0].as_ref().unwrap().slot.wanted()
    }

    /// Connections with a request in flight.
    fn sample(watch: &Watch) -> u32 {
        watch.sample();
        locked(&watch.sums).in_flight
    }

    #[test]
    fn a_request_is_in_flight_from_its_arrival_until_the_client_has_its_answer() {
        let (listener, watch) = watched();
        let (mut client, mut server) = connection(&listener);
        let mut registered = watch.register(&server).unwrap();
        assert_eq!(sample(&watch), 0);
        client.write_all(b"GET").unwrap();
        server.peek(&mut [0]).unwrap();
        assert_eq!(sample(&watch), 1);
        registered.attend();
        server.read_exact(&mut [0; 3]).unwrap();
        registered.arrive(0);
        assert_eq!(sample(&watch), 1);
        registered.begin();
        registered.answer(ANSWER);
        assert_eq!(sample(&watch), 1);
        server.set_nonblocking(true).unwrap();
        while server.write(&[0; 1 << 16]).is_ok() {}
        registered.sent(ANSWER.len(), true);
        // With the kernel, and not with the client.
        let served = watch.served(&listener);
        assert_eq!((served.in_flight_now, served.unacknowledged > Some(0)), (1, true));
        assert!(locked(&watch.sums).on_the_way > 0);
        client.set_nonblocking(true).unwrap();
        while sample(&watch) > 0 || watch.served(&listener).unacknowledged != Some(0) {
            let _ = client.read(&mut [0; 1 << 16]);
        }
    }

    #[test]
    fn time_in_flight_has_that_in_which_a_request_waited_to_be_read() {
        let (listener, watch) = watched();
        let (mut client, mut server) = connection(&listener);
        let mut registered = watch.register(&server).unwrap();
        let at = || {
            let served = watch.served(&listener);
            [served.in_flight, served.worked, served.held]
        };
        assert_eq!(at(), [0.0; 3]);
        client.write_all(b"GET").unwrap();
        server.peek(&mut [0]).unwrap();
        let waiting = [at(), at()];
        assert!(waiting[0][0] > 0.0 && waiting[1][0] > waiting[0][0], "{waiting:?}");
        server.read_exact(&mut [0; 3]).unwrap();
        // Longer than this test takes, and less than any machine has been up.
        let waited = 10_000_000_000;
        registered.arrive(waited);
        assert!(at()[0] >= waited as f64, "what was read tells how long it has waited");
        registered.begin();
        registered.attend();
        registered.answer(ANSWER);
        registered.sent(ANSWER.len(), true);
        let (ended, later) = (at(), at());
        assert_eq!(ended[..2], later[..2], "no answer is on its way, since none was sent");
        assert!(
            ended[0] > waited as f64 && (0.0..waited as f64).contains(&ended[1]) && later[2] > ended[2],
            "{ended:?} {later:?}"
        );
        // What was asked for meanwhile is in flight from the end of that answer on.
        registered.arrive(waited);
        assert!(at()[0] < 1.5 * waited as f64);
        drop(registered);
        let gone = at();
        assert_eq!(gone, at(), "nothing is counted for who has gone");
    }

    #[test]
    fn a_request_that_came_before_the_call_was_over_that_gave_an_answer_is_in_flight_since() {
        const CALL: Duration = Duration::from_millis(2);
        let (listener, watch) = watched();
        let (_client, server) = connection(&listener);
        let mut registered = watch.register(&server).unwrap();
        registered.begin();
        registered.answer(ANSWER);
        std::thread::sleep(CALL);
        registered.sent(ANSWER.len(), true);
        let in_flight = || watch.served(&listener).in_flight;
        let before = in_flight();
        let waited = CALL.as_nanos() as u64 / 2;
        registered.arrive(waited);
        assert!(in_flight() >= before + waited as f64, "{before} {}", in_flight());
    }

    #[test]
    fn an_answer_that_left_before_its_call_was_over_is_in_flight_no_longer() {
        let (listener, watch) = watched();
        let (_client, mut server) = connection(&listener);
        // As those have that were accepted: answers leave though the ones before them were not acknowledged.
        server.set_nodelay(true).unwrap();
        let mut registered = watch.register(&server).unwrap();
        let mut answers = |count: u64, pieces: usize| {
            for _ in 0..count {
                registered.begin();
                registered.answer(ANSWER);
                for piece in ANSWER.chunks(ANSWER.len().div_ceil(pieces)) {
                    server.write_all(piece).unwrap();
                    // As if the call had taken longer: it would wake a client up.
                    std::thread::sleep(Duration::from_millis(2));
                    let is_last = piece.as_ptr_range().end == ANSWER.as_ptr_range().end;
                    registered.sent(piece.len(), is_last);
                }
            }
        };
        let ahead = || {
            watch.sample();
            (locked(&watch.parts[0]).entries[0].as_ref().unwrap().slot.ahead(), locked(&watch.sums).ahead)
        };
        answers(1, 1);
        assert_eq!(ahead(), (Ahead { gives: 1, ..Ahead::default() }, 0), "nobody had asked");
        // Those who have felt the sample, the one of which it is found out, and the one with which that is compared. They are few: of many
        // that nobody acknowledges the last ones would leave later.
        let few = 1;
        locked(&watch.parts[0]).entries[0].as_ref().unwrap().slot.want(few);
        let before = 2 + few;
        answers(before + 1, 1);
        assert_eq!(ahead(), (Ahead { gives: before + 2, ..Ahead::default() }, 0), "the other one is still to come");
        answers(1, 1);
        let (found, all) = ahead();
        let slept = 2_000_000;
        assert!(found.found == 1 && Some(all) == found.since(Ahead::default()), "{found:?} {all}");
        assert!([found.nanoseconds, found.timed, found.others].iter().all(|&time| time >= slept), "{found:?}");
        let more = 4 * APART;
        answers(more, 2);
        assert_eq!(ahead(), (Ahead { gives: found.gives + more, ..found }, all), "not of one that took two calls");
    }

    #[test]
    fn of_which_answer_it_is_found_out_is_left_to_chance() {
        let (listener, watch) = watched();
        let mut all = std::collections::BTreeSet::new();
        for _ in 0..200 {
            let (_client, server) = connection(&listener);
            let _registered = watch.register(&server).unwrap();
            watch.sample();
            all.insert(wanted(&watch));
        }
        assert!(all.iter().copied().eq(APART..2 * APART), "{all:?}");
    }

    #[test]
    fn of_answers_that_leave_later_nothing_is_asked_again() {
        let (listener, watch) = watched();
        let (_client, server) = connection(&listener);
        let mut registered = watch.register(&server).unwrap();
        watch.sample();
        // None was sent that could have left.
        for _ in 0..3 + wanted(&watch) {
            registered.begin();
            registered.sent(1, true);
        }
        let entry_has = || {
            watch.sample();
            wanted(&watch)
        };
        assert_eq!([entry_has(), entry_has()], [LATER; 2], "nothing has left");
        drop(registered);
        let again = watch.register(&server).unwrap();
        assert_ne!([entry_has()], [LATER], "another one may be asked");
        drop(again);
    }

    #[test]
    fn an_acknowledgement_that_is_put_off_is_nothing_on_its_way() {
        let way = OnTheWay { not_sent: 0, segments: 2, is_recovering: false, least_round_trip: 1000, since_sent: 0 };
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
        let (listener, watch) = watched();
        for number in 1..=40 {
            let (_client, server) = connection(&listener);
            let mut registered = watch.register(&server).unwrap();
            // Two requests in one piece, sent in pieces.
            for _ in 0..2 {
                registered.begin();
                registered.answer(ANSWER);
            }
            let last = 2 * ANSWER.len() - 21;
            [1, 20].iter().for_each(|bytes| registered.sent(*bytes, false));
            assert_eq!(watch.served(&listener).requests, 2 * (number - 1));
            registered.sent(last, true);
            let served = watch.served(&listener);
            assert_eq!((served.requests, served.bytes, served.connections), (2 * number, 8 * number, number));
        }
        watch.refuse();
        let served = watch.served(&listener);
        assert_eq!((served.requests, served.bytes, served.refused), (80, 320, 1));
        assert_eq!(locked(&watch.free).next, 1, "slots are used again");
    }

    #[test]
    fn who_finds_no_slot_is_served_and_not_watched() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let watch = Arc::new(Watch::over(&listener, 1).unwrap());
        let (_client, server) = connection(&listener);
        let first = watch.register(&server);
        assert!(first.is_some() && watch.register(&server).is_none() && watch.register(&server).is_none());
        drop(first);
        assert!(watch.register(&server).is_some());
        assert_eq!(watch.served(&listener).connections, 4);
    }

    #[test]
    fn a_sample_stands_for_the_time_before_it_unless_a_quota_made_it_late() {
        let sums = Sums { last: Some(1000), throttled: 5.0, ..Sums::default() };
        let interval = |mut sums: Sums, now, throttled| sums.interval(now, || throttled);
        assert_eq!(interval(Sums::default(), 70, 9.0).length(), 0);
        let prompt = Interval { from: 1000, to: 30_001_000, was_throttled: false };
        assert_eq!(interval(sums, 30_001_000, 9.0), prompt);
        assert_eq!(interval(sums, 30_001_001, 5.0), Interval { to: 30_001_001, ..prompt }, "no quota was why");
        let late = interval(sums, 30_001_001, 9.0);
        assert!(late.was_throttled && late.length() == 30_000_001);
        assert!(!interval(Sums { pause: 2 * BETWEEN, ..sums }, 30_001_001, 9.0).was_throttled, "it was to be so long");
        let of = |begin, end| late.part(begin, end);
        assert_eq!([of(0, 2000), of(500, 900), of(30_001_000, u64::MAX), of(9, 7)], [1000, 0, 1, 0]);
    }

    #[test]
    fn after_a_quota_it_counts_when_answers_were_given_and_left() {
        let (listener, watch) = watched();
        let (_client, mut server) = connection(&listener);
        let mut registered = watch.register(&server).unwrap();
        registered.begin();
        registered.answer(ANSWER);
        server.write_all(ANSWER).unwrap();
        registered.sent(ANSWER.len(), true);
        let part = locked(&watch.parts[0]);
        let entry = part.entries[0].as_ref().unwrap();
        let (asked, given) = (entry.slot.asked(), entry.slot.given());
        assert!(0 < asked && asked <= given);
        let interval = Interval { from: asked - 1000, to: given + 60_000_000_000, was_throttled: true };
        assert_eq!(entry.by_the_kernel(interval, true), 60_000_000_000, "from when it was given");
        let ended = Interval { to: monotonic(), ..interval };
        assert!(entry.by_the_kernel(ended, false) <= ended.to - given, "until it left");
        let (socket, slot) = (Arc::clone(&entry.socket), entry.slot.clone());
        let before = Entry { socket, slot, unread: None, was_on_its_way: true, ahead: Ahead::default(), later: 0 };
        assert_eq!(before.by_the_kernel(interval, true), 60_000_001_000, "one before it until its client asked again");
    }

    #[test]
    fn samples_come_at_random_and_never_cost_more_than_their_share() {
        let pauses = [0, u64::MAX / 2, u64::MAX].map(|random| pause(Duration::from_micros(10), random).as_millis());
        assert_eq!(pauses, [5, 9, 14]);
        assert_eq!(pause(Duration::from_millis(4), 0), Duration::from_millis(100));
    }
}
