//! What a server knows of its requests while it runs, for its statistics.
//!
//! There is one only with the statistics endpoint; without it a connection pays nothing. A model registers each connection that it accepts
//! and gives what it gets to [`Connection::with_tracker`](crate::serve::connection::Connection::with_tracker), which does the rest: from when a request
//! has arrived, by the kernel's time, until its answer was given to the kernel, all is counted at the moments at which it changes. Then
//! an answer is on its way until it has arrived, of which there is no event: that is sampled. And a call that gives an answer to the kernel
//! is over later than the answer has left, since it wakes up a client of this host: of some answers it is found out how much later.

use std::hash::BuildHasher;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kelvin_core::resources::{ListenQueue, ServerStats};
use kelvin_machine::resources::ProcessMonitor;
use kelvin_sys::clock::monotonic;
use kelvin_sys::net::rx_timestamp::{enable, peek};
use kelvin_sys::net::socket_queues::{
    InTransit, LimitedTime, SendTime, accept_queue, in_transit, send_time, unacknowledged_bytes, unread_bytes,
};
use kelvin_sys::net::tx_timestamp;
use kelvin_sys::random::split_mix;
use kelvin_sys::usage::{RunQueueWait, UsageScope, read_usage};

use crate::serve::counter_slot::{
    ConnectionCounters, CounterSlot, CounterTotals, DepartureLead, LEFT_LATER, SlotWord, TimedState,
};
use crate::serve::error::{Error, Result};
use kelvin_sys::lock;

/// Parts that the connections are in: a thread that accepts or ends one waits for a sample of one part at the longest.
const SHARDS: usize = 16;
/// Mean time between two samples.
const SAMPLE_PERIOD: Duration = Duration::from_millis(10);
/// Times its pause after which a sample is so late that a quota may be why: most of the period of one, 100 ms by default, in which others
/// than the server run.
const LATE_FACTOR: u64 = 3;
/// Times that what a sample cost is waited until the next one: with thousands of connections they take at most 2 % of a CPU.
const PAUSE_COST_FACTOR: u32 = 50;

/// Least time between two looks at which of the server's threads are in uninterruptible sleep, and how many times what a look cost is
/// waited until the next one: they take at most 1 % of a CPU. And how many threads are looked at.
const BETWEEN_STATES: Duration = Duration::from_millis(20);
const PATIENCE_FOR_STATES: u32 = 100;
const MOST_STATES: usize = 256;

/// Longest time of reading what connections have counted, in nanoseconds: with thousands of them it takes a tenth. And how often it is
/// read at most until that is so.
const MAX_READ_NANOSECONDS: u64 = 1_000_000;
const MAX_READINGS: u32 = 5;

/// Connections of which a sample has it found out when their next answers leave: each costs who serves it some microseconds.
const DEPARTURES_PER_SAMPLE: usize = 8;
/// Fewest answers from when that is asked for until it is found out. By chance they are up to twice as many: where two clients are served in
/// turn, and only the first answer of each turn wakes up who sends the requests of both, it would always be found out of the same one.
const MIN_ANSWERS_BETWEEN: u64 = 8;
/// Answers in a row that left later than they were given, after which no further one of the connection is sampled.
const MAX_LATER_DEPARTURES: u32 = 5;

/// All connections, and what is known of those that have ended.
#[derive(Debug)]
pub struct InFlightSampler {
    counters: ConnectionCounters,
    /// Slots that nobody has; the one that is taken next is the last.
    free: Mutex<Vec<usize>>,
    shards: [Mutex<Shard>; SHARDS],
    sums: Mutex<SampleSums>,
    /// This process, which quotas may keep from running.
    process: ProcessMonitor,
}

#[derive(Debug, Default)]
struct Shard {
    entries: Vec<Option<TrackedConnection>>,
    ended: SendTime,
}

/// A connection.
#[derive(Debug)]
struct TrackedConnection {
    /// Its socket by a descriptor of its own, so that it is never another's.
    socket: Arc<OwnedFd>,
    slot: CounterSlot,
    /// The request that was last seen to wait to be read.
    unread: Option<UnreadRequest>,
    /// Whether an answer was on its way at the last sample.
    was_in_transit: bool,
    /// What was known of when its answers left at the last sample that could use it.
    lead: DepartureLead,
    /// How often since then an answer left later than it was given.
    later_departures: u32,
}

/// A request that waits to be read.
#[derive(Clone, Copy, Debug)]
struct UnreadRequest {
    since: u64,
    /// When the answer before it was given to the kernel, by which it is known from another one.
    answer_submitted_at: u64,
}

impl TrackedConnection {
    /// Whether it has a request in flight, and for how many nanoseconds of a time until now an answer of it was on its way.
    fn sample(&mut self, interval: SampleInterval) -> (bool, u64) {
        let is_counted = self.slot.span_start(TimedState::Arrived) != 0 || self.read_delay(interval.to) > 0;
        let since = interval.to.saturating_sub(self.slot.get(SlotWord::SubmittedAt));
        // An answer that was given to the kernel.
        let is_on_its_way = !is_counted
            && unacknowledged_bytes(&self.socket).unwrap_or(0) > 0
            && in_transit(&self.socket).is_ok_and(|transit| is_undelivered(transit, since));
        let time = match (interval.was_throttled, is_on_its_way) {
            (false, true) => interval.length(),
            (false, false) => 0,
            (true, _) => self.in_transit_by_kernel(interval, is_on_its_way),
        };
        self.was_in_transit = is_on_its_way;
        (is_counted || is_on_its_way, time)
    }

    /// For how many nanoseconds its answers had left before the calls were over that gave them to the kernel, since the last time that
    /// this could be told.
    fn take_lead(&mut self) -> i64 {
        let now = self.slot.lead();
        let Some(ahead) = now.nanoseconds_since(self.lead) else { return 0 };
        (self.lead, self.later_departures) = (now, 0);
        ahead
    }

    /// Has it found out when an answer leaves, after this many. Of one that left later than it was given, what the kernel kept is taken away: it
    /// would be an event of its socket for ever. Where that happens again and again, behind a shaper, nobody asks any more.
    fn request_departure(&mut self, after: u64) {
        match self.slot.get(SlotWord::SampleAfter) {
            0 => self.slot.set(SlotWord::SampleAfter, after),
            LEFT_LATER => {
                let has_left = tx_timestamp::last_departure(&*self.socket).is_ok_and(|left| left.is_some());
                self.later_departures += u32::from(has_left);
                if has_left && self.later_departures < MAX_LATER_DEPARTURES {
                    self.slot.set(SlotWord::SampleAfter, 0);
                }
            }
            _ => {}
        }
    }

    /// For how long its answers were on their way by what is known of the last one, and of the one before if that was on its way at the
    /// last sample.
    fn in_transit_by_kernel(&self, interval: SampleInterval, is_on_its_way: bool) -> u64 {
        let given = self.slot.get(SlotWord::SubmittedAt);
        let last = if is_on_its_way { Some(interval.to) } else { self.departed_at(interval) };
        let of_last = last.map_or(0, |left| interval.overlap(given, left));
        // Its client has asked again, and so had it.
        let before =
            if self.was_in_transit && given > interval.from { self.slot.get(SlotWord::RequestArrivedAt) } else { 0 };
        of_last + interval.overlap(0, before)
    }

    /// When the last byte of its last answer left, by the kernel's account; none where another one has begun to leave, or none has.
    fn departed_at(&self, interval: SampleInterval) -> Option<u64> {
        if self.slot.get(SlotWord::SubmittedAt) == 0 || self.slot.span_start(TimedState::InService) != 0 {
            return None;
        }
        let transit = in_transit(&self.socket).ok()?;
        Some(if transit.not_sent > 0 { interval.to } else { interval.to.saturating_sub(transit.since_sent) })
    }

    /// For how long a request has waited to be read, in nanoseconds; 0 where none does. What was not answered yet counts as its wait.
    fn read_delay(&mut self, now: u64) -> u64 {
        let after = self.slot.get(SlotWord::SubmittedAt);
        let is_waiting = self.slot.span_start(TimedState::Arrived) == 0 && unread_bytes(&self.socket).unwrap_or(0) > 0;
        let known = self.unread.filter(|unread| unread.answer_submitted_at == after);
        self.unread = is_waiting.then(|| {
            known.unwrap_or_else(|| {
                let waited = peek(&self.socket).map_or(0, |arrived| arrived.delay());
                UnreadRequest { since: monotonic().saturating_sub(waited).max(after), answer_submitted_at: after }
            })
        });
        self.unread.map_or(0, |unread| now.saturating_sub(unread.since).max(1))
    }
}

/// Whether an answer that was given to the kernel this many nanoseconds ago has not arrived in full.
///
/// What is not acknowledged need not be on its way: a receiver may wait 40 ms (TCP_DELACK_MIN) to acknowledge its last bytes along
/// with its next request, though it must acknowledge every second full segment at once (RFC 9293, 3.8.6.3). So two segments and less
/// are on their way for half a round trip.
fn is_undelivered(transit: InTransit, since: u64) -> bool {
    let is_last = transit.not_sent == 0 && transit.segments <= 2 && !transit.is_recovering;
    !is_last || (transit.segments > 0 && since < transit.min_round_trip / 2)
}

/// The time from one sample to the next, in nanoseconds of the monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SampleInterval {
    from: u64,
    to: u64,
    /// Whether a quota kept the sampler from running meanwhile, and so the server: it is not at a random moment that they go on, and what
    /// is found then says little of the time before it.
    was_throttled: bool,
}

impl SampleInterval {
    fn length(self) -> u64 {
        self.to - self.from
    }

    /// How much of it lies between two times.
    fn overlap(self, begin: u64, end: u64) -> u64 {
        end.min(self.to).saturating_sub(begin.max(self.from))
    }
}

/// Samples so far.
#[derive(Clone, Copy, Debug, Default)]
struct SampleSums {
    /// When the last one was, and for how long the next one was to wait.
    last: Option<u64>,
    pause: Duration,
    /// Nanoseconds for which quotas had kept the server from running at the last one that was late.
    throttled: f64,
    /// Connections with a request in flight at the last one.
    in_flight: u32,
    /// Nanoseconds for which answers were on their way, of all connections.
    in_transit: u64,
    /// Nanoseconds for which they had left and the calls that gave them to the kernel were not over.
    lead: i64,
    /// The connection of which it is found out next when its answers leave.
    next_probed: usize,
    samples: u64,
    /// Thread-nanoseconds in uninterruptible sleep.
    blocked: u64,
    /// Nanoseconds for which the thread that takes samples had no CPU.
    without_cpu: Option<u64>,
    /// The generator of what is left to chance.
    random: u64,
}

impl SampleSums {
    /// The time since the last sample, with how long quotas have kept the server from running in all. Each sample stands for that time,
    /// whose length does not depend on what it finds, unless a quota made it long.
    fn interval(&mut self, now: u64, throttled: impl FnOnce() -> f64) -> SampleInterval {
        let from = self.last.replace(now).unwrap_or(now).min(now);
        let is_late = now - from > LATE_FACTOR * self.pause.max(SAMPLE_PERIOD).as_nanos() as u64;
        if !is_late {
            return SampleInterval { from, to: now, was_throttled: false };
        }
        let throttled = throttled();
        let was_throttled = throttled > std::mem::replace(&mut self.throttled, throttled);
        SampleInterval { from, to: now, was_throttled }
    }
}

impl InFlightSampler {
    /// Of this many connections at one time, which come from a socket that listens: theirs are the times at which their bytes arrive.
    ///
    /// # Errors
    /// Without memory for them, or those of setsockopt.
    pub fn new(listener: &TcpListener, connections: usize) -> Result<Self> {
        enable(listener).map_err(Error::call("have the kernel keep when bytes arrive"))?;
        let (counters, process) = (ConnectionCounters::new(connections)?, ProcessMonitor::current(None));
        let throttled = process.throttled_nanoseconds().unwrap_or(0.0);
        let sums = Mutex::new(SampleSums { throttled, ..SampleSums::default() });
        let free = Mutex::new((0..connections).rev().collect());
        Ok(Self { counters, free, shards: Default::default(), sums, process })
    }

    /// Counts a connection that was accepted, and gives it a slot.
    pub fn take_slot(&self) -> Option<CounterSlot> {
        self.counters.accepted().fetch_add(1, Ordering::Relaxed);
        lock(&self.free).pop().map(|number| self.counters.slot(number))
    }

    /// Gives a slot back.
    pub fn free_slot(&self, number: usize) {
        lock(&self.free).push(number);
    }

    /// Watches the connection that has this slot.
    pub fn track(&self, number: usize, socket: Arc<OwnedFd>) {
        let slot = self.counters.slot(number);
        let lead = slot.lead();
        let entry = TrackedConnection { socket, slot, unread: None, was_in_transit: false, lead, later_departures: 0 };
        let mut shard = lock(&self.shards[number % SHARDS]);
        let index = number / SHARDS;
        if shard.entries.len() <= index {
            shard.entries.resize_with(index + 1, || None);
        }
        shard.entries[index] = Some(entry);
    }

    /// Watches it no longer.
    pub fn untrack(&self, number: usize) {
        let mut shard = lock(&self.shards[number % SHARDS]);
        if let Some(entry) = shard.entries.get_mut(number / SHARDS).and_then(Option::take) {
            shard.ended = add_sending(shard.ended, send_time(&entry.socket).unwrap_or_default());
        }
    }

    /// Counts a connection that was turned away.
    pub fn count_refused(&self) {
        self.counters.refused().fetch_add(1, Ordering::Relaxed);
    }

    /// Takes a sample.
    pub fn sample(&self) {
        let mut sums = lock(&self.sums);
        let interval = sums.interval(monotonic(), || self.process.throttled_nanoseconds().unwrap_or(0.0));
        (sums.in_flight, sums.samples) = (0, sums.samples + 1);
        let (mut seen, from) = (0, sums.next_probed);
        for shard in &self.shards {
            for entry in lock(shard).entries.iter_mut().flatten() {
                let (is_in_flight, on_the_way) = entry.sample(interval);
                sums.in_flight += u32::from(is_in_flight);
                sums.in_transit += on_the_way;
                sums.lead += entry.take_lead();
                if (from..from + DEPARTURES_PER_SAMPLE).contains(&seen) {
                    entry.request_departure(MIN_ANSWERS_BETWEEN + split_mix(&mut sums.random) % MIN_ANSWERS_BETWEEN);
                }
                seen += 1;
            }
        }
        sums.next_probed = if from + DEPARTURES_PER_SAMPLE < seen { from + DEPARTURES_PER_SAMPLE } else { 0 };
    }

    /// Takes samples at random moments until it is over. A fixed period could keep step with what it samples. From time to time it also
    /// looks which of the server's threads are in uninterruptible sleep: each look stands for the time since the last one.
    pub fn run(&self, is_over: &AtomicBool) {
        let random = std::hash::RandomState::new();
        let mut waited = RunQueueWait::of_thread();
        let (mut last_states, mut states_due) = (monotonic(), 0);
        while !is_over.load(Ordering::Acquire) {
            let now = monotonic();
            if now >= states_due {
                let since = now - std::mem::replace(&mut last_states, now);
                let cost = cpu_cost(|| {
                    let blocked = u64::from(self.process.blocked(MOST_STATES));
                    lock(&self.sums).blocked += blocked * since;
                });
                let pause = BETWEEN_STATES.max(cost.saturating_mul(PATIENCE_FOR_STATES));
                states_due = now + pause.as_nanos() as u64;
            }
            let pause = sample_pause(cpu_cost(|| self.sample()), random.hash_one(monotonic()));
            let without_cpu = waited.nanoseconds();
            let mut sums = lock(&self.sums);
            (sums.pause, sums.without_cpu) = (pause, without_cpu);
            drop(sums);
            std::thread::park_timeout(pause);
        }
    }

    /// What all connections have counted, and until when. What ends while they are read counts in full: where that took long, since the
    /// CPU was lost meanwhile, they are read again.
    fn totals(&self) -> (u64, CounterTotals) {
        let read = || {
            let now = monotonic();
            (now, self.counters.totals(now))
        };
        let is_prompt = |(now, _): &(u64, CounterTotals)| monotonic() - now <= MAX_READ_NANOSECONDS;
        (1..MAX_READINGS).map(|_| read()).find(is_prompt).unwrap_or_else(read)
    }

    /// What is known now, of a server that listens here.
    pub fn snapshot(&self, listener: &TcpListener) -> ServerStats {
        self.sample();
        let (now, totals) = self.totals();
        let (mut sending, mut unacknowledged, mut read_delay) = (SendTime::default(), 0, 0);
        for shard in &self.shards {
            let mut shard = lock(shard);
            sending = add_sending(sending, shard.ended);
            for entry in shard.entries.iter_mut().flatten() {
                sending = add_sending(sending, send_time(&entry.socket).unwrap_or_default());
                unacknowledged += u64::from(unacknowledged_bytes(&entry.socket).unwrap_or(0));
                read_delay += entry.read_delay(now);
            }
        }
        let sums = *lock(&self.sums);
        let queue = accept_queue(listener).unwrap_or_default();
        ServerStats {
            at: now as f64,
            requests: totals.requests,
            bytes: totals.bytes,
            unacknowledged,
            connections: self.counters.accepted().load(Ordering::Relaxed),
            refused: self.counters.refused().load(Ordering::Relaxed),
            in_flight: (totals.arrived + read_delay + sums.in_transit).saturating_add_signed(-sums.lead) as f64,
            in_flight_now: sums.in_flight,
            service_integral: totals.in_service as f64,
            workers: None,
            held_integral: totals.with_worker as f64,
            sending: sending.busy as f64,
            window_limited: sending.limited.by_window as f64,
            send_buffer_limited: sending.limited.by_buffer as f64,
            accept_queue: ListenQueue { now: queue.length, max: queue.capacity },
            samples: sums.samples,
            blocked: sums.blocked as f64,
            sampling_without_cpu: sums.without_cpu.map(|time| time as f64),
            congestion_control: kelvin_sys::net::congestion_control(listener).ok(),
        }
    }
}

/// CPU time that work takes: one that had to wait for a CPU has cost no more.
fn cpu_cost(work: impl FnOnce()) -> Duration {
    let before = read_usage(UsageScope::Thread);
    work();
    Duration::from_nanos(read_usage(UsageScope::Thread).since(before).cpu())
}

fn add_sending(first: SendTime, second: SendTime) -> SendTime {
    let (by_window, by_buffer) =
        (first.limited.by_window + second.limited.by_window, first.limited.by_buffer + second.limited.by_buffer);
    SendTime { busy: first.busy + second.busy, limited: LimitedTime { by_window, by_buffer } }
}

/// How long to wait after a sample of this cost: evenly from half to one and a half of the mean.
fn sample_pause(cost: Duration, random: u64) -> Duration {
    let mean = SAMPLE_PERIOD.max(cost.saturating_mul(PAUSE_COST_FACTOR));
    mean / 2 + mean.mul_f64((random >> 40) as f64 / (1u64 << 24) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::request_tracker::RequestTracker;
    use std::io::{Read, Write};
    use std::net::TcpStream;

    const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\n\r\nbody";

    fn sampler() -> (TcpListener, Arc<InFlightSampler>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let watch = InFlightSampler::new(&listener, 100).unwrap();
        (listener, Arc::new(watch))
    }

    fn connection(listener: &TcpListener) -> (TcpStream, TcpStream) {
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    }

    /// What the first connection wants to be found out.
    fn first_sample_after(watch: &InFlightSampler) -> u64 {
        lock(&watch.shards[0]).entries[0].as_ref().unwrap().slot.get(SlotWord::SampleAfter)
    }

    /// Connections with a request in flight.
    fn sample(watch: &InFlightSampler) -> u32 {
        watch.sample();
        lock(&watch.sums).in_flight
    }

    #[test]
    fn request_is_in_flight_until_delivered() {
        let (listener, watch) = sampler();
        let (mut client, mut server) = connection(&listener);
        let mut registered = RequestTracker::register(&watch, &server).unwrap();
        assert_eq!(sample(&watch), 0);
        client.write_all(b"GET").unwrap();
        server.peek(&mut [0]).unwrap();
        assert_eq!(sample(&watch), 1);
        registered.attach_worker();
        server.read_exact(&mut [0; 3]).unwrap();
        registered.request_arrived(0);
        assert_eq!(sample(&watch), 1);
        registered.begin_answer();
        registered.add_answer(ANSWER);
        assert_eq!(sample(&watch), 1);
        server.set_nonblocking(true).unwrap();
        while server.write(&[0; 1 << 16]).is_ok() {}
        registered.mark_sent(ANSWER.len(), true);
        // With the kernel, and not with the client.
        let served = watch.snapshot(&listener);
        assert_eq!((served.in_flight_now, served.unacknowledged > 0), (1, true));
        assert!(lock(&watch.sums).in_transit > 0);
        client.set_nonblocking(true).unwrap();
        while sample(&watch) > 0 || watch.snapshot(&listener).unacknowledged != 0 {
            let _ = client.read(&mut [0; 1 << 16]);
        }
    }

    #[test]
    fn time_in_flight_includes_read_delay() {
        let (listener, watch) = sampler();
        let (mut client, mut server) = connection(&listener);
        let mut registered = RequestTracker::register(&watch, &server).unwrap();
        let at = || {
            let served = watch.snapshot(&listener);
            [served.in_flight, served.service_integral, served.held_integral]
        };
        assert_eq!(at(), [0.0; 3]);
        client.write_all(b"GET").unwrap();
        server.peek(&mut [0]).unwrap();
        let waiting = [at(), at()];
        assert!(waiting[0][0] > 0.0 && waiting[1][0] > waiting[0][0], "{waiting:?}");
        server.read_exact(&mut [0; 3]).unwrap();
        // Longer than this test takes, and less than any machine has been up.
        let waited = 10_000_000_000;
        registered.request_arrived(waited);
        assert!(at()[0] >= waited as f64, "what was read tells how long it has waited");
        registered.begin_answer();
        registered.attach_worker();
        registered.add_answer(ANSWER);
        registered.mark_sent(ANSWER.len(), true);
        let (ended, later) = (at(), at());
        assert_eq!(ended[..2], later[..2], "no answer is on its way, since none was sent");
        assert!(
            ended[0] > waited as f64 && (0.0..waited as f64).contains(&ended[1]) && later[2] > ended[2],
            "{ended:?} {later:?}"
        );
        // What was asked for meanwhile is in flight from the end of that answer on.
        registered.request_arrived(waited);
        assert!(at()[0] < 1.5 * waited as f64);
        drop(registered);
        let gone = at();
        assert_eq!(gone, at(), "nothing is counted for who has gone");
    }

    #[test]
    fn pipelined_request_is_in_flight_since_arrival() {
        const CALL: Duration = Duration::from_millis(2);
        let (listener, watch) = sampler();
        let (_client, server) = connection(&listener);
        let mut registered = RequestTracker::register(&watch, &server).unwrap();
        registered.begin_answer();
        registered.add_answer(ANSWER);
        std::thread::sleep(CALL);
        registered.mark_sent(ANSWER.len(), true);
        let in_flight = || watch.snapshot(&listener).in_flight;
        let before = in_flight();
        let waited = CALL.as_nanos() as u64 / 2;
        registered.request_arrived(waited);
        assert!(in_flight() >= before + waited as f64, "{before} {}", in_flight());
    }

    #[test]
    fn early_departure_ends_time_in_flight() {
        let (listener, watch) = sampler();
        let (_client, mut server) = connection(&listener);
        // As those have that were accepted: answers leave though the ones before them were not acknowledged.
        server.set_nodelay(true).unwrap();
        let mut registered = RequestTracker::register(&watch, &server).unwrap();
        let mut answers = |count: u64, pieces: usize| {
            for _ in 0..count {
                registered.begin_answer();
                registered.add_answer(ANSWER);
                for piece in ANSWER.chunks(ANSWER.len().div_ceil(pieces)) {
                    server.write_all(piece).unwrap();
                    // As if the call had taken longer: it would wake a client up.
                    std::thread::sleep(Duration::from_millis(2));
                    let is_last = piece.as_ptr_range().end == ANSWER.as_ptr_range().end;
                    registered.mark_sent(piece.len(), is_last);
                }
            }
        };
        let ahead = || {
            watch.sample();
            (lock(&watch.shards[0]).entries[0].as_ref().unwrap().slot.lead(), lock(&watch.sums).lead)
        };
        answers(1, 1);
        assert_eq!(ahead(), (DepartureLead { submissions: 1, ..DepartureLead::default() }, 0), "nobody had asked");
        // Those who have felt the sample, the one of which it is found out, and the one with which that is compared. They are few: of many
        // that nobody acknowledges the last ones would leave later.
        let few = 1;
        lock(&watch.shards[0]).entries[0].as_ref().unwrap().slot.set(SlotWord::SampleAfter, few);
        let before = 2 + few;
        answers(before + 1, 1);
        assert_eq!(
            ahead(),
            (DepartureLead { submissions: before + 2, ..DepartureLead::default() }, 0),
            "the other one is still to come"
        );
        answers(1, 1);
        let (found, all) = ahead();
        let slept = 2_000_000;
        assert!(
            found.samples == 1 && Some(all) == found.nanoseconds_since(DepartureLead::default()),
            "{found:?} {all}"
        );
        assert!(
            [found.nanoseconds, found.sampled_nanoseconds, found.control_nanoseconds].iter().all(|&time| time >= slept),
            "{found:?}"
        );
        let more = 4 * MIN_ANSWERS_BETWEEN;
        answers(more, 2);
        assert_eq!(
            ahead(),
            (DepartureLead { submissions: found.submissions + more, ..found }, all),
            "not of one that took two calls"
        );
    }

    #[test]
    fn departure_samples_are_random() {
        let (listener, watch) = sampler();
        let mut all = std::collections::BTreeSet::new();
        for _ in 0..200 {
            let (_client, server) = connection(&listener);
            let _registered = RequestTracker::register(&watch, &server).unwrap();
            watch.sample();
            all.insert(first_sample_after(&watch));
        }
        assert!(all.iter().copied().eq(MIN_ANSWERS_BETWEEN..2 * MIN_ANSWERS_BETWEEN), "{all:?}");
    }

    #[test]
    fn late_departures_stop_sampling() {
        let (listener, watch) = sampler();
        let (_client, server) = connection(&listener);
        let mut registered = RequestTracker::register(&watch, &server).unwrap();
        watch.sample();
        // None was sent that could have left.
        for _ in 0..3 + first_sample_after(&watch) {
            registered.begin_answer();
            registered.mark_sent(1, true);
        }
        let entry_has = || {
            watch.sample();
            first_sample_after(&watch)
        };
        assert_eq!([entry_has(), entry_has()], [LEFT_LATER; 2], "nothing has left");
        drop(registered);
        let again = RequestTracker::register(&watch, &server).unwrap();
        assert_ne!([entry_has()], [LEFT_LATER], "another one may be asked");
        drop(again);
    }

    #[test]
    fn delayed_acknowledgement_is_not_in_transit() {
        let way = InTransit { not_sent: 0, segments: 2, is_recovering: false, min_round_trip: 1000, since_sent: 0 };
        assert!(is_undelivered(way, 499) && !is_undelivered(way, 500));
        assert!(!is_undelivered(InTransit { segments: 0, ..way }, 0));
        for other in [
            InTransit { not_sent: 1, ..way },
            InTransit { segments: 3, ..way },
            InTransit { is_recovering: true, ..way },
        ] {
            assert!(is_undelivered(other, 1 << 40), "{other:?}");
        }
    }

    #[test]
    fn ended_connection_stays_in_totals() {
        let (listener, watch) = sampler();
        for number in 1..=40 {
            let (_client, server) = connection(&listener);
            let mut registered = RequestTracker::register(&watch, &server).unwrap();
            // Two requests in one piece, sent in pieces.
            for _ in 0..2 {
                registered.begin_answer();
                registered.add_answer(ANSWER);
            }
            let last = 2 * ANSWER.len() - 21;
            [1, 20].iter().for_each(|bytes| registered.mark_sent(*bytes, false));
            assert_eq!(watch.snapshot(&listener).requests, 2 * (number - 1));
            registered.mark_sent(last, true);
            let served = watch.snapshot(&listener);
            assert_eq!((served.requests, served.bytes, served.connections), (2 * number, 8 * number, number));
        }
        watch.count_refused();
        let served = watch.snapshot(&listener);
        assert_eq!((served.requests, served.bytes, served.refused), (80, 320, 1));
        assert_eq!(lock(&watch.free).len(), 100, "slots are used again");
    }

    #[test]
    fn connection_without_slot_is_untracked() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let watch = Arc::new(InFlightSampler::new(&listener, 1).unwrap());
        let (_client, server) = connection(&listener);
        let first = RequestTracker::register(&watch, &server);
        assert!(
            first.is_some()
                && RequestTracker::register(&watch, &server).is_none()
                && RequestTracker::register(&watch, &server).is_none()
        );
        drop(first);
        assert!(RequestTracker::register(&watch, &server).is_some());
        assert_eq!(watch.snapshot(&listener).connections, 4);
    }

    #[test]
    fn throttled_sample_is_not_extrapolated() {
        let sums = SampleSums { last: Some(1000), throttled: 5.0, ..SampleSums::default() };
        let interval = |mut sums: SampleSums, now, throttled| sums.interval(now, || throttled);
        assert_eq!(interval(SampleSums::default(), 70, 9.0).length(), 0);
        let prompt = SampleInterval { from: 1000, to: 30_001_000, was_throttled: false };
        assert_eq!(interval(sums, 30_001_000, 9.0), prompt);
        assert_eq!(interval(sums, 30_001_001, 5.0), SampleInterval { to: 30_001_001, ..prompt }, "no quota was why");
        let late = interval(sums, 30_001_001, 9.0);
        assert!(late.was_throttled && late.length() == 30_000_001);
        assert!(
            !interval(SampleSums { pause: 2 * SAMPLE_PERIOD, ..sums }, 30_001_001, 9.0).was_throttled,
            "it was to be so long"
        );
        let of = |begin, end| late.overlap(begin, end);
        assert_eq!([of(0, 2000), of(500, 900), of(30_001_000, u64::MAX), of(9, 7)], [1000, 0, 1, 0]);
    }

    #[test]
    fn throttled_interval_uses_recorded_times() {
        let (listener, watch) = sampler();
        let (_client, mut server) = connection(&listener);
        let mut registered = RequestTracker::register(&watch, &server).unwrap();
        registered.begin_answer();
        registered.add_answer(ANSWER);
        server.write_all(ANSWER).unwrap();
        registered.mark_sent(ANSWER.len(), true);
        let part = lock(&watch.shards[0]);
        let entry = part.entries[0].as_ref().unwrap();
        let (asked, given) = (entry.slot.get(SlotWord::RequestArrivedAt), entry.slot.get(SlotWord::SubmittedAt));
        assert!(0 < asked && asked <= given);
        let interval = SampleInterval { from: asked - 1000, to: given + 60_000_000_000, was_throttled: true };
        assert_eq!(entry.in_transit_by_kernel(interval, true), 60_000_000_000, "from when it was given");
        let ended = SampleInterval { to: monotonic(), ..interval };
        assert!(entry.in_transit_by_kernel(ended, false) <= ended.to - given, "until it left");
        let (socket, slot) = (Arc::clone(&entry.socket), entry.slot.clone());
        let before = TrackedConnection {
            socket,
            slot,
            unread: None,
            was_in_transit: true,
            lead: DepartureLead::default(),
            later_departures: 0,
        };
        assert_eq!(
            before.in_transit_by_kernel(interval, true),
            60_000_001_000,
            "one before it until its client asked again"
        );
    }

    #[test]
    fn sample_pause_is_random_and_bounds_cost() {
        let pauses =
            [0, u64::MAX / 2, u64::MAX].map(|random| sample_pause(Duration::from_micros(10), random).as_millis());
        assert_eq!(pauses, [5, 9, 14]);
        assert_eq!(sample_pause(Duration::from_millis(4), 0), Duration::from_millis(100));
    }
}
