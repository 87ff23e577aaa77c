//! A connection that is watched: who serves it says what it does.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use kelvin_sys::clock::monotonic;
use kelvin_sys::net::socket_queues::in_transit;
use kelvin_sys::net::tx_timestamp;

use crate::serve::connection_counters::{CounterSlot, LEFT_LATER, SlotCounter, TimedState};
use crate::serve::in_flight_sampler::InFlightSampler;

/// Time after which a send that was the last of an answer is not taken to have ended when its caller went on: nanoseconds. Sending
/// takes less, and the caller may have lost its CPU before it could look at the clock.
const PROMPT_SEND_NANOSECONDS: u64 = 1_000_000;

/// A connection that is watched.
#[derive(Debug)]
pub struct RequestTracker {
    slot: CounterSlot,
    socket: Arc<OwnedFd>,
    /// Who is told of its end; nobody where another process finds out.
    sampler: Option<Arc<InFlightSampler>>,
    /// Requests that were answered, and whose answers are not all with the kernel.
    pending_answers: u64,
    /// Bytes of heads that are still to be sent.
    head_bytes_left: u64,
    /// When it last did anything.
    last_activity: u64,
    /// When the call began that gave the end of the last answer to the kernel.
    send_started: u64,
    /// When the answer that is being sent began, if nothing of it was given to the kernel.
    answer_started: Option<u64>,
    departure_probe: DepartureProbe,
}

/// Finding out how much earlier than its call is over an answer leaves.
#[derive(Clone, Copy, Debug)]
enum DepartureProbe {
    /// Not now.
    Idle,
    /// After so many answers more: who asks has just had the CPU, which those feel that come next.
    After(u64),
    /// Of this answer the kernel keeps when it leaves.
    Armed,
    /// It left so much earlier, and took so long; the next one shows what the finding out took of that.
    Left { ahead: u64, took: u64 },
}

impl RequestTracker {
    /// One whose words are in this slot.
    pub fn new(slot: CounterSlot, socket: Arc<OwnedFd>, watch: Option<Arc<InFlightSampler>>) -> Self {
        Self {
            slot,
            socket,
            sampler: watch,
            pending_answers: 0,
            head_bytes_left: 0,
            last_activity: 0,
            send_started: 0,
            answer_started: None,
            departure_probe: DepartureProbe::Idle,
        }
    }

    /// A thread serves it from now on.
    pub fn attach_worker(&self) {
        self.slot.begin(TimedState::WithWorker, monotonic());
    }

    /// The first bytes of a request were read, which had waited so many nanoseconds. What came while an answer was still to be given
    /// is in flight after it: from when the call began that gave it. That is over later than the answer has left, by more than a client
    /// needs to ask again where the thread lost its CPU meanwhile, and that time is taken off the answer.
    pub fn request_arrived(&self, waited: u64) {
        let at = monotonic().saturating_sub(waited).max(self.send_started);
        self.slot.begin(TimedState::Arrived, at);
    }

    /// A request has come, and is going to be answered.
    pub fn begin_answer(&mut self) {
        let now = monotonic();
        self.slot.begin(TimedState::Arrived, now);
        self.slot.begin(TimedState::InService, now);
        if self.pending_answers == 0 {
            self.answer_started = Some(now);
        }
        self.pending_answers += 1;
        self.last_activity = now;
    }

    /// This is its answer as far as it is in memory, from the first byte of its head on.
    pub fn add_answer(&mut self, bytes: &[u8]) {
        let head = memchr::memmem::find(bytes, b"\r\n\r\n").map_or(bytes.len(), |end| end + 4);
        self.head_bytes_left += head as u64;
    }

    /// So many bytes were given to the kernel, and perhaps with them all answers. Of several answers the heads count first; in the end
    /// it is the same.
    pub fn mark_sent(&mut self, bytes: usize, is_all: bool) {
        let of_heads = self.head_bytes_left.min(bytes as u64);
        self.head_bytes_left -= of_heads;
        self.slot.add(SlotCounter::Bytes, bytes as u64 - of_heads);
        let now = monotonic();
        let begun = self.answer_started.take();
        if !matches!(self.slot.sample_after(), 0 | LEFT_LATER) {
            self.departure_probe = self.advance_probe(begun.filter(|_| is_all), now);
        }
        if is_all {
            self.send_started = self.last_activity;
            self.end_answers(now);
        }
        self.last_activity = now;
    }

    /// Goes on with finding out when answers leave, after one that was given to the kernel by one call, the only ones of which it is
    /// found out: of one that took several, each of which wakes its reader, the last one's is little.
    fn advance_probe(&self, begun: Option<u64>, now: u64) -> DepartureProbe {
        match (self.departure_probe, begun) {
            (DepartureProbe::Idle, _) => return DepartureProbe::After(self.slot.sample_after()),
            (DepartureProbe::After(0), _) if tx_timestamp::enable(&*self.socket).is_ok() => {
                return DepartureProbe::Armed;
            }
            (DepartureProbe::After(more @ 1..), _) => return DepartureProbe::After(more - 1),
            (DepartureProbe::Armed, begun) => {
                let left =
                    tx_timestamp::last_departure(&*self.socket).ok().flatten().and_then(tx_timestamp::time_since);
                match (left.map(|ago| ago.saturating_sub(monotonic() - now)), begun) {
                    (Some(ahead), Some(begun)) if ahead <= now - begun => {
                        return DepartureProbe::Left { ahead, took: now - begun };
                    }
                    (None, Some(_)) => {
                        self.slot.set_sample_after(LEFT_LATER);
                        return DepartureProbe::Idle;
                    }
                    _ => {}
                }
            }
            (DepartureProbe::Left { ahead, took }, Some(begun)) => self.slot.record_lead(ahead, took, now - begun),
            _ => {}
        }
        self.slot.set_sample_after(0);
        DepartureProbe::Idle
    }

    fn end_answers(&mut self, now: u64) {
        let at =
            if now.saturating_sub(self.last_activity) > PROMPT_SEND_NANOSECONDS { self.departed_at(now) } else { now };
        self.slot.add(SlotCounter::Requests, std::mem::take(&mut self.pending_answers));
        self.slot.submit(at);
    }

    /// When the last byte left, by the kernel's account, if all have arrived meanwhile.
    fn departed_at(&self, now: u64) -> u64 {
        let way = in_transit(&*self.socket).ok().filter(|way| way.not_sent == 0 && way.segments == 0);
        way.map_or(now, |way| now.saturating_sub(way.since_sent).max(self.last_activity))
    }
}

impl Drop for RequestTracker {
    fn drop(&mut self) {
        self.slot.release(monotonic());
        self.sampler.iter().for_each(|watch| watch.release(self.slot.number()));
    }
}
