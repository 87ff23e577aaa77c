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
    ConnectionCounters, CounterSlot, CounterTotals, DEPARTED_AFTER_CALL, DepartureLead, SlotWord, TimedState,
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
const STATE_PAUSE_COST_FACTOR: u32 = 100;
const MAX_STATES: usize = 256;

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
    free_slots: Mutex<Vec<usize>>,
    shards: [Mutex<Shard>; SHARDS],
    sums: Mutex<SampleSums>,
    /// This process, which quotas may keep from running.
    process: ProcessMonitor,
}

#[derive(Debug, Default)]
struct Shard {
    entries: Vec<Option<TrackedConnection>>,
    ended_send_time: SendTime,
}

/// A connection.
#[derive(Debug)]
struct TrackedConnection {
    /// Its socket by a descriptor of its own, so that it is never another's.
    socket: Arc<OwnedFd>,
    slot: CounterSlot,
    /// The request that was last seen to wait to be read.
    unread_request: Option<UnreadRequest>,
    /// Whether an answer was on its way at the last sample.
    was_in_transit: bool,
    /// What was known of when its answers left at the last sample that could use it.
    lead: DepartureLead,
    /// How often since then an answer left later than it was given.
    late_departures: u32,
}

/// A request that waits to be read.
#[derive(Clone, Copy, Debug)]
struct UnreadRequest {
    since: u64,
    /// When the answer before it was given to the kernel, by which it is known from another one.
    last_submission: u64,
}

impl TrackedConnection {
    /// Whether it has a request in flight, and for how many nanoseconds of a time until now an answer of it was on its way.
    fn sample(&mut self, interval: SampleInterval) -> (bool, u64) {
        let is_counted = self.slot.span_start(TimedState::Arrived) != 0 || self.read_delay(interval.end) > 0;
        let since = interval.end.saturating_sub(self.slot.get(SlotWord::SubmittedAt));
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
    /// this was known.
    fn take_lead(&mut self) -> i64 {
        let current = self.slot.lead();
        let Some(lead_time) = current.nanoseconds_since(self.lead) else { return 0 };
        (self.lead, self.late_departures) = (current, 0);
        lead_time
    }

    /// Has it found out when an answer leaves, after this many. Of one that left later than it was given, what the kernel kept is taken away: it
    /// would be an event of its socket for ever. Where that happens again and again, behind a shaper, nobody asks any more.
    fn request_departure(&mut self, after: u64) {
        match self.slot.get(SlotWord::SampleAfter) {
            0 => self.slot.set(SlotWord::SampleAfter, after),
            DEPARTED_AFTER_CALL => {
                let has_departed =
                    tx_timestamp::last_departure(&*self.socket).is_ok_and(|departure| departure.is_some());
                self.late_departures += u32::from(has_departed);
                if has_departed && self.late_departures < MAX_LATER_DEPARTURES {
                    self.slot.set(SlotWord::SampleAfter, 0);
                }
            }
            _ => {}
        }
    }

    /// For how long its answers were on their way by what is known of the last one, and of the one before if that was on its way at the
    /// last sample.
    fn in_transit_by_kernel(&self, interval: SampleInterval, is_in_transit: bool) -> u64 {
        let submission = self.slot.get(SlotWord::SubmittedAt);
        let departure = if is_in_transit { Some(interval.end) } else { self.departure_time(interval) };
        let last_transit = departure.map_or(0, |end| interval.overlap(submission, end));
        // Its client has asked again, and so had it.
        let previous_end = if self.was_in_transit && submission > interval.start {
            self.slot.get(SlotWord::RequestArrivedAt)
        } else {
            0
        };
        last_transit + interval.overlap(0, previous_end)
    }

    /// When the last byte of its last answer left, by the kernel's account; none where another one has begun to leave, or none has.
    fn departure_time(&self, interval: SampleInterval) -> Option<u64> {
        if self.slot.get(SlotWord::SubmittedAt) == 0 || self.slot.span_start(TimedState::InService) != 0 {
            return None;
        }
        let transit = in_transit(&self.socket).ok()?;
        Some(if transit.unsent_bytes > 0 { interval.end } else { interval.end.saturating_sub(transit.since_sent) })
    }

    /// For how long a request has waited to be read, in nanoseconds; 0 where none does. What was not answered yet counts as its wait.
    fn read_delay(&mut self, now: u64) -> u64 {
        let after = self.slot.get(SlotWord::SubmittedAt);
        let is_waiting = self.slot.span_start(TimedState::Arrived) == 0 && unread_bytes(&self.socket).unwrap_or(0) > 0;
        let previous = self.unread_request.filter(|request| request.last_submission == after);
        self.unread_request = is_waiting.then(|| {
            previous.unwrap_or_else(|| {
                let delay = peek(&self.socket).map_or(0, |timed_read| timed_read.delay());
                UnreadRequest { since: monotonic().saturating_sub(delay).max(after), last_submission: after }
            })
        });
        self.unread_request.map_or(0, |request| now.saturating_sub(request.since).max(1))
    }
}

/// Whether an answer that was given to the kernel this many nanoseconds ago has not arrived in full.
///
/// What is not acknowledged need not be on its way: a receiver may wait 40 ms (TCP_DELACK_MIN) to acknowledge its last bytes along
/// with its next request, though it must acknowledge every second full segment at once (RFC 9293, 3.8.6.3). So two segments and less
/// are on their way for half a round trip.
fn is_undelivered(transit: InTransit, since: u64) -> bool {
    let is_last = transit.unsent_bytes == 0 && transit.segments <= 2 && !transit.is_recovering;
    !is_last || (transit.segments > 0 && since < transit.min_round_trip / 2)
}

/// The time from one sample to the next, in nanoseconds of the monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SampleInterval {
    start: u64,
    end: u64,
    /// Whether a quota kept the sampler from running meanwhile, and so the server: it is not at a random moment that they go on, and what
    /// is found then means little for the time before it.
    was_throttled: bool,
}

impl SampleInterval {
    fn length(self) -> u64 {
        self.end - self.start
    }

    /// How much of it lies between two times.
    fn overlap(self, begin: u64, end: u64) -> u64 {
        end.min(self.end).saturating_sub(begin.max(self.start))
    }
}

/// Samples so far.
#[derive(Clone, Copy, Debug, Default)]
struct SampleSums {
    /// When the last one was, and for how long the next one was to wait.
    last_sample: Option<u64>,
    pause: Duration,
    /// Nanoseconds for which quotas had kept the server from running at the last one that was late.
    throttled_time: f64,
    /// Connections with a request in flight at the last one.
    in_flight: u32,
    /// Nanoseconds for which answers were on their way, of all connections.
    transit_time: u64,
    /// Nanoseconds for which they had left and the calls that gave them to the kernel were not over.
    lead_time: i64,
    /// The connection of which it is found out next when its answers leave.
    next_probe: usize,
    samples: u64,
    /// Thread-nanoseconds in uninterruptible sleep.
    blocked: u64,
    /// Nanoseconds for which the thread that takes samples had no CPU.
    run_queue_wait: Option<u64>,
    /// The generator of what is left to chance.
    random: u64,
}

impl SampleSums {
    /// The time since the last sample, with how long quotas have kept the server from running in all. Each sample stands for that time,
    /// whose length does not depend on what it finds, unless a quota made it long.
    fn interval(&mut self, now: u64, read_throttled_time: impl FnOnce() -> f64) -> SampleInterval {
        let start = self.last_sample.replace(now).unwrap_or(now).min(now);
        let is_late = now - start > LATE_FACTOR * self.pause.max(SAMPLE_PERIOD).as_nanos() as u64;
        if !is_late {
            return SampleInterval { start, end: now, was_throttled: false };
        }
        let throttled_time = read_throttled_time();
        let was_throttled = throttled_time > std::mem::replace(&mut self.throttled_time, throttled_time);
        SampleInterval { start, end: now, was_throttled }
    }
}

impl InFlightSampler {
    /// Of this many connections at one time, which come from a socket that listens: theirs are the times at which their bytes arrive.
    ///
    /// # Errors
    /// Without memory for them, or those of setsockopt.
    pub fn new(listener: &TcpListener, connections: usize) -> Result<Self> {
        enable(listener).map_err(Error::call("have the kernel record when bytes arrive"))?;
        let (counters, process) = (ConnectionCounters::new(connections)?, ProcessMonitor::current(None));
        let throttled_time = process.throttled_nanoseconds().unwrap_or(0.0);
        let sums = Mutex::new(SampleSums { throttled_time, ..SampleSums::default() });
        let free_slots = Mutex::new((0..connections).rev().collect());
        Ok(Self { counters, free_slots, shards: Default::default(), sums, process })
    }

    /// Counts a connection that was accepted, and gives it a slot.
    pub fn take_slot(&self) -> Option<CounterSlot> {
        self.counters.accepted().fetch_add(1, Ordering::Relaxed);
        lock(&self.free_slots).pop().map(|number| self.counters.slot(number))
    }

    /// Gives a slot back.
    pub fn free_slot(&self, number: usize) {
        lock(&self.free_slots).push(number);
    }

    /// Watches the connection that has this slot.
    pub fn track(&self, number: usize, socket: Arc<OwnedFd>) {
        let slot = self.counters.slot(number);
        let lead = slot.lead();
        let entry =
            TrackedConnection { socket, slot, unread_request: None, was_in_transit: false, lead, late_departures: 0 };
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
            shard.ended_send_time = add_sending(shard.ended_send_time, send_time(&entry.socket).unwrap_or_default());
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
        let (mut index, first_probe) = (0, sums.next_probe);
        for shard in &self.shards {
            for entry in lock(shard).entries.iter_mut().flatten() {
                let (is_in_flight, transit_time) = entry.sample(interval);
                sums.in_flight += u32::from(is_in_flight);
                sums.transit_time += transit_time;
                sums.lead_time += entry.take_lead();
                if (first_probe..first_probe + DEPARTURES_PER_SAMPLE).contains(&index) {
                    entry.request_departure(MIN_ANSWERS_BETWEEN + split_mix(&mut sums.random) % MIN_ANSWERS_BETWEEN);
                }
                index += 1;
            }
        }
        sums.next_probe =
            if first_probe + DEPARTURES_PER_SAMPLE < index { first_probe + DEPARTURES_PER_SAMPLE } else { 0 };
    }

    /// Takes samples at random moments until it is over. A fixed period could keep step with what it samples. From time to time it also
    /// looks which of the server's threads are in uninterruptible sleep: each look stands for the time since the last one.
    pub fn run(&self, is_over: &AtomicBool) {
        let random = std::hash::RandomState::new();
        let mut run_queue_wait = RunQueueWait::of_thread();
        let (mut last_scan, mut scan_due) = (monotonic(), 0);
        while !is_over.load(Ordering::Acquire) {
            let now = monotonic();
            if now >= scan_due {
                let elapsed = now - std::mem::replace(&mut last_scan, now);
                let cost = cpu_cost(|| {
                    let blocked = u64::from(self.process.blocked(MAX_STATES));
                    lock(&self.sums).blocked += blocked * elapsed;
                });
                let pause = BETWEEN_STATES.max(cost.saturating_mul(STATE_PAUSE_COST_FACTOR));
                scan_due = now + pause.as_nanos() as u64;
            }
            let pause = sample_pause(cpu_cost(|| self.sample()), random.hash_one(monotonic()));
            let wait = run_queue_wait.nanoseconds();
            let mut sums = lock(&self.sums);
            (sums.pause, sums.run_queue_wait) = (pause, wait);
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
            sending = add_sending(sending, shard.ended_send_time);
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
            in_flight: (totals.arrived_time + read_delay + sums.transit_time).saturating_add_signed(-sums.lead_time)
                as f64,
            in_flight_now: sums.in_flight,
            service_integral: totals.service_time as f64,
            workers: None,
            held_integral: totals.worker_time as f64,
            sending: sending.busy as f64,
            window_limited: sending.limited.by_window as f64,
            send_buffer_limited: sending.limited.by_buffer as f64,
            accept_queue: ListenQueue { now: queue.length, max: queue.capacity },
            samples: sums.samples,
            blocked: sums.blocked as f64,
            sampling_without_cpu: sums.run_queue_wait.map(|time| time as f64),
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
        let sampler = InFlightSampler::new(&listener, 100).unwrap();
        (listener, Arc::new(sampler))
    }

    fn connection(listener: &TcpListener) -> (TcpStream, TcpStream) {
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    }

    /// What the first connection wants to be found out.
    fn first_sample_after(sampler: &InFlightSampler) -> u64 {
        lock(&sampler.shards[0]).entries[0].as_ref().unwrap().slot.get(SlotWord::SampleAfter)
    }

    /// Connections with a request in flight.
    fn sample(sampler: &InFlightSampler) -> u32 {
        sampler.sample();
        lock(&sampler.sums).in_flight
    }

    #[test]
    fn request_is_in_flight_until_delivered() {
        let (listener, sampler) = sampler();
        let (mut client, mut server) = connection(&listener);
        let mut tracker = RequestTracker::register(&sampler, &server).unwrap();
        assert_eq!(sample(&sampler), 0);
        client.write_all(b"GET").unwrap();
        server.peek(&mut [0]).unwrap();
        assert_eq!(sample(&sampler), 1);
        tracker.attach_worker();
        server.read_exact(&mut [0; 3]).unwrap();
        tracker.request_arrived(0);
        assert_eq!(sample(&sampler), 1);
        tracker.begin_answer();
        tracker.add_answer(ANSWER);
        assert_eq!(sample(&sampler), 1);
        server.set_nonblocking(true).unwrap();
        while server.write(&[0; 1 << 16]).is_ok() {}
        tracker.mark_sent(ANSWER.len(), true);
        // With the kernel, and not with the client.
        let stats = sampler.snapshot(&listener);
        assert_eq!((stats.in_flight_now, stats.unacknowledged > 0), (1, true));
        assert!(lock(&sampler.sums).transit_time > 0);
        client.set_nonblocking(true).unwrap();
        while sample(&sampler) > 0 || sampler.snapshot(&listener).unacknowledged != 0 {
            let _ = client.read(&mut [0; 1 << 16]);
        }
    }

    #[test]
    fn time_in_flight_includes_read_delay() {
        let (listener, sampler) = sampler();
        let (mut client, mut server) = connection(&listener);
        let mut tracker = RequestTracker::register(&sampler, &server).unwrap();
        let integrals = || {
            let stats = sampler.snapshot(&listener);
            [stats.in_flight, stats.service_integral, stats.held_integral]
        };
        assert_eq!(integrals(), [0.0; 3]);
        client.write_all(b"GET").unwrap();
        server.peek(&mut [0]).unwrap();
        let waiting_integrals = [integrals(), integrals()];
        assert!(
            waiting_integrals[0][0] > 0.0 && waiting_integrals[1][0] > waiting_integrals[0][0],
            "{waiting_integrals:?}"
        );
        server.read_exact(&mut [0; 3]).unwrap();
        // Longer than this test takes, and less than any machine has been up.
        let delay = 10_000_000_000;
        tracker.request_arrived(delay);
        assert!(integrals()[0] >= delay as f64, "what was read tells how long it has waited");
        tracker.begin_answer();
        tracker.attach_worker();
        tracker.add_answer(ANSWER);
        tracker.mark_sent(ANSWER.len(), true);
        let (before, after) = (integrals(), integrals());
        assert_eq!(before[..2], after[..2], "no answer is on its way, since none was sent");
        assert!(
            before[0] > delay as f64 && (0.0..delay as f64).contains(&before[1]) && after[2] > before[2],
            "{before:?} {after:?}"
        );
        // What was asked for meanwhile is in flight from the end of that answer on.
        tracker.request_arrived(delay);
        assert!(integrals()[0] < 1.5 * delay as f64);
        drop(tracker);
        let final_integrals = integrals();
        assert_eq!(final_integrals, integrals(), "nothing is counted for who has gone");
    }

    #[test]
    fn pipelined_request_is_in_flight_since_arrival() {
        const CALL: Duration = Duration::from_millis(2);
        let (listener, sampler) = sampler();
        let (_client, server) = connection(&listener);
        let mut tracker = RequestTracker::register(&sampler, &server).unwrap();
        tracker.begin_answer();
        tracker.add_answer(ANSWER);
        std::thread::sleep(CALL);
        tracker.mark_sent(ANSWER.len(), true);
        let in_flight = || sampler.snapshot(&listener).in_flight;
        let before = in_flight();
        let delay = CALL.as_nanos() as u64 / 2;
        tracker.request_arrived(delay);
        assert!(in_flight() >= before + delay as f64, "{before} {}", in_flight());
    }

    #[test]
    fn early_departure_ends_time_in_flight() {
        let (listener, sampler) = sampler();
        let (_client, mut server) = connection(&listener);
        // As those have that were accepted: answers leave though the ones before them were not acknowledged.
        server.set_nodelay(true).unwrap();
        let mut tracker = RequestTracker::register(&sampler, &server).unwrap();
        let mut answers = |count: u64, pieces: usize| {
            for _ in 0..count {
                tracker.begin_answer();
                tracker.add_answer(ANSWER);
                for piece in ANSWER.chunks(ANSWER.len().div_ceil(pieces)) {
                    server.write_all(piece).unwrap();
                    // As if the call had taken longer: it would wake a client up.
                    std::thread::sleep(Duration::from_millis(2));
                    let is_last = piece.as_ptr_range().end == ANSWER.as_ptr_range().end;
                    tracker.mark_sent(piece.len(), is_last);
                }
            }
        };
        let read_lead = || {
            sampler.sample();
            (lock(&sampler.shards[0]).entries[0].as_ref().unwrap().slot.lead(), lock(&sampler.sums).lead_time)
        };
        answers(1, 1);
        assert_eq!(read_lead(), (DepartureLead { submissions: 1, ..DepartureLead::default() }, 0), "nobody had asked");
        // Those who have felt the sample, the one of which it is found out, and the one with which that is compared. They are few: of many
        // that nobody acknowledges the last ones would leave later.
        let sample_after = 1;
        lock(&sampler.shards[0]).entries[0].as_ref().unwrap().slot.set(SlotWord::SampleAfter, sample_after);
        let before = 2 + sample_after;
        answers(before + 1, 1);
        assert_eq!(
            read_lead(),
            (DepartureLead { submissions: before + 2, ..DepartureLead::default() }, 0),
            "the other one is still to come"
        );
        answers(1, 1);
        let (lead, lead_time) = read_lead();
        let sleep_time = 2_000_000;
        assert!(
            lead.samples == 1 && Some(lead_time) == lead.nanoseconds_since(DepartureLead::default()),
            "{lead:?} {lead_time}"
        );
        assert!(
            [lead.nanoseconds, lead.sampled_nanoseconds, lead.control_nanoseconds]
                .iter()
                .all(|&time| time >= sleep_time),
            "{lead:?}"
        );
        let added_answers = 4 * MIN_ANSWERS_BETWEEN;
        answers(added_answers, 2);
        assert_eq!(
            read_lead(),
            (DepartureLead { submissions: lead.submissions + added_answers, ..lead }, lead_time),
            "not of one that took two calls"
        );
    }

    #[test]
    fn departure_samples_are_random() {
        let (listener, sampler) = sampler();
        let mut values = std::collections::BTreeSet::new();
        for _ in 0..200 {
            let (_client, server) = connection(&listener);
            let _tracker = RequestTracker::register(&sampler, &server).unwrap();
            sampler.sample();
            values.insert(first_sample_after(&sampler));
        }
        assert!(values.iter().copied().eq(MIN_ANSWERS_BETWEEN..2 * MIN_ANSWERS_BETWEEN), "{values:?}");
    }

    #[test]
    fn late_departures_stop_sampling() {
        let (listener, sampler) = sampler();
        let (_client, server) = connection(&listener);
        let mut tracker = RequestTracker::register(&sampler, &server).unwrap();
        sampler.sample();
        // None was sent that could have left.
        for _ in 0..3 + first_sample_after(&sampler) {
            tracker.begin_answer();
            tracker.mark_sent(1, true);
        }
        let sample_after = || {
            sampler.sample();
            first_sample_after(&sampler)
        };
        assert_eq!([sample_after(), sample_after()], [DEPARTED_AFTER_CALL; 2], "nothing has left");
        drop(tracker);
        let successor = RequestTracker::register(&sampler, &server).unwrap();
        assert_ne!([sample_after()], [DEPARTED_AFTER_CALL], "another one may be asked");
        drop(successor);
    }

    #[test]
    fn delayed_acknowledgement_is_not_in_transit() {
        let transit =
            InTransit { unsent_bytes: 0, segments: 2, is_recovering: false, min_round_trip: 1000, since_sent: 0 };
        assert!(is_undelivered(transit, 499) && !is_undelivered(transit, 500));
        assert!(!is_undelivered(InTransit { segments: 0, ..transit }, 0));
        for undelivered in [
            InTransit { unsent_bytes: 1, ..transit },
            InTransit { segments: 3, ..transit },
            InTransit { is_recovering: true, ..transit },
        ] {
            assert!(is_undelivered(undelivered, 1 << 40), "{undelivered:?}");
        }
    }

    #[test]
    fn ended_connection_stays_in_totals() {
        let (listener, sampler) = sampler();
        for number in 1..=40 {
            let (_client, server) = connection(&listener);
            let mut tracker = RequestTracker::register(&sampler, &server).unwrap();
            // Two requests in one piece, sent in pieces.
            for _ in 0..2 {
                tracker.begin_answer();
                tracker.add_answer(ANSWER);
            }
            let last = 2 * ANSWER.len() - 21;
            [1, 20].iter().for_each(|bytes| tracker.mark_sent(*bytes, false));
            assert_eq!(sampler.snapshot(&listener).requests, 2 * (number - 1));
            tracker.mark_sent(last, true);
            let stats = sampler.snapshot(&listener);
            assert_eq!((stats.requests, stats.bytes, stats.connections), (2 * number, 8 * number, number));
        }
        sampler.count_refused();
        let stats = sampler.snapshot(&listener);
        assert_eq!((stats.requests, stats.bytes, stats.refused), (80, 320, 1));
        assert_eq!(lock(&sampler.free_slots).len(), 100, "slots are used again");
    }

    #[test]
    fn connection_without_slot_is_untracked() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let sampler = Arc::new(InFlightSampler::new(&listener, 1).unwrap());
        let (_client, server) = connection(&listener);
        let first = RequestTracker::register(&sampler, &server);
        assert!(
            first.is_some()
                && RequestTracker::register(&sampler, &server).is_none()
                && RequestTracker::register(&sampler, &server).is_none()
        );
        drop(first);
        assert!(RequestTracker::register(&sampler, &server).is_some());
        assert_eq!(sampler.snapshot(&listener).connections, 4);
    }

    #[test]
    fn throttled_sample_is_not_extrapolated() {
        let sums = SampleSums { last_sample: Some(1000), throttled_time: 5.0, ..SampleSums::default() };
        let interval = |mut sums: SampleSums, now, throttled_time| sums.interval(now, || throttled_time);
        assert_eq!(interval(SampleSums::default(), 70, 9.0).length(), 0);
        let expected = SampleInterval { start: 1000, end: 30_001_000, was_throttled: false };
        assert_eq!(interval(sums, 30_001_000, 9.0), expected);
        assert_eq!(interval(sums, 30_001_001, 5.0), SampleInterval { end: 30_001_001, ..expected }, "no quota was why");
        let late_interval = interval(sums, 30_001_001, 9.0);
        assert!(late_interval.was_throttled && late_interval.length() == 30_000_001);
        assert!(
            !interval(SampleSums { pause: 2 * SAMPLE_PERIOD, ..sums }, 30_001_001, 9.0).was_throttled,
            "it was to be so long"
        );
        let overlap = |begin, end| late_interval.overlap(begin, end);
        assert_eq!(
            [overlap(0, 2000), overlap(500, 900), overlap(30_001_000, u64::MAX), overlap(9, 7)],
            [1000, 0, 1, 0]
        );
    }

    #[test]
    fn throttled_interval_uses_recorded_times() {
        let (listener, sampler) = sampler();
        let (_client, mut server) = connection(&listener);
        let mut tracker = RequestTracker::register(&sampler, &server).unwrap();
        tracker.begin_answer();
        tracker.add_answer(ANSWER);
        server.write_all(ANSWER).unwrap();
        tracker.mark_sent(ANSWER.len(), true);
        let shard = lock(&sampler.shards[0]);
        let entry = shard.entries[0].as_ref().unwrap();
        let (arrival, submission) = (entry.slot.get(SlotWord::RequestArrivedAt), entry.slot.get(SlotWord::SubmittedAt));
        assert!(0 < arrival && arrival <= submission);
        let interval = SampleInterval { start: arrival - 1000, end: submission + 60_000_000_000, was_throttled: true };
        assert_eq!(entry.in_transit_by_kernel(interval, true), 60_000_000_000, "from when it was given");
        let past_interval = SampleInterval { end: monotonic(), ..interval };
        assert!(entry.in_transit_by_kernel(past_interval, false) <= past_interval.end - submission, "until it left");
        let (socket, slot) = (Arc::clone(&entry.socket), entry.slot.clone());
        let previous = TrackedConnection {
            socket,
            slot,
            unread_request: None,
            was_in_transit: true,
            lead: DepartureLead::default(),
            late_departures: 0,
        };
        assert_eq!(
            previous.in_transit_by_kernel(interval, true),
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
