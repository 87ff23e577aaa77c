//! What connections do, counted by the thread that serves them, in words that the serving and the reporting process share.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use kelvin_sys::clock::monotonic;
use kelvin_sys::net::socket_queues::in_transit;
use kelvin_sys::net::tx_timestamp;

use crate::serve::counter_slot::{CounterSlot, LEFT_LATER, SlotWord, TimedState};
use crate::serve::in_flight_sampler::InFlightSampler;

/// Time after which a send that was the last of an answer is not taken to have ended when its caller went on: nanoseconds. Sending
/// takes less, and the caller may have lost its CPU before it could look at the clock.
const PROMPT_SEND_NANOSECONDS: u64 = 1_000_000;

/// A connection that is watched.
#[derive(Debug)]
pub struct RequestTracker {
    slot: CounterSlot,
    socket: Arc<OwnedFd>,
    /// What tracks it until its end; none where another process finds out.
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
    /// After this many answers more: who asks has just had the CPU, which those feel that come next.
    After(u64),
    /// Of this answer the kernel keeps when it leaves.
    Armed,
    /// It left this much earlier, and took this long; the next one shows how much of that the sampling took.
    Left { ahead: u64, took: u64 },
}

impl RequestTracker {
    /// Counts a connection that was accepted, and has the sampler watch it until this is dropped; none if there is no descriptor for that.
    pub fn register(sampler: &Arc<InFlightSampler>, socket: impl AsFd) -> Option<Self> {
        let slot = sampler.take_slot()?;
        let Ok(socket) = rustix::io::fcntl_dupfd_cloexec(socket, 0).map(Arc::new) else {
            sampler.free_slot(slot.number);
            return None;
        };
        sampler.track(slot.number, Arc::clone(&socket));
        Some(Self::new(slot, socket, Some(Arc::clone(sampler))))
    }

    /// One whose words are in this slot.
    pub fn new(slot: CounterSlot, socket: Arc<OwnedFd>, sampler: Option<Arc<InFlightSampler>>) -> Self {
        Self {
            slot,
            socket,
            sampler,
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

    /// The first bytes of a request were read, which had waited this many nanoseconds. What came while an answer was still to be given
    /// is in flight after it: from when the call began that gave it. That is over later than the answer has left, by more than a client
    /// needs to ask again where the thread lost its CPU meanwhile, and that time is taken off the answer.
    pub fn request_arrived(&self, waited: u64) {
        let arrived_at = monotonic().saturating_sub(waited).max(self.send_started);
        self.slot.begin(TimedState::Arrived, arrived_at);
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

    /// This many bytes were given to the kernel, and perhaps with them all answers. Of several answers the heads count first; in the end
    /// it is the same.
    pub fn mark_sent(&mut self, bytes: usize, is_all: bool) {
        let of_heads = self.head_bytes_left.min(bytes as u64);
        self.head_bytes_left -= of_heads;
        self.slot.add(SlotWord::Bytes, bytes as u64 - of_heads);
        let now = monotonic();
        let begun = self.answer_started.take();
        if !matches!(self.slot.get(SlotWord::SampleAfter), 0 | LEFT_LATER) {
            self.departure_probe = self.advance_probe(begun.filter(|_| is_all), now);
        }
        if is_all {
            self.send_started = self.last_activity;
            let is_prompt = now.saturating_sub(self.last_activity) <= PROMPT_SEND_NANOSECONDS;
            // When the last byte left, by the kernel's account, if all have arrived meanwhile.
            let transit = if is_prompt { None } else { in_transit(&*self.socket).ok() };
            let transit = transit.filter(|transit| transit.not_sent == 0 && transit.segments == 0);
            let submitted_at =
                transit.map_or(now, |transit| now.saturating_sub(transit.since_sent).max(self.last_activity));
            self.slot.add(SlotWord::Requests, std::mem::take(&mut self.pending_answers));
            self.slot.submit(submitted_at);
        }
        self.last_activity = now;
    }

    /// Goes on with finding out when answers leave, after one that was given to the kernel by one call, the only ones of which it is
    /// found out: of one that took several, each of which wakes its reader, the last one's is little.
    fn advance_probe(&self, begun: Option<u64>, now: u64) -> DepartureProbe {
        match (self.departure_probe, begun) {
            (DepartureProbe::Idle, _) => return DepartureProbe::After(self.slot.get(SlotWord::SampleAfter)),
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
                        self.slot.set(SlotWord::SampleAfter, LEFT_LATER);
                        return DepartureProbe::Idle;
                    }
                    _ => {}
                }
            }
            (DepartureProbe::Left { ahead, took }, Some(begun)) => self.slot.record_lead(ahead, took, now - begun),
            _ => {}
        }
        self.slot.set(SlotWord::SampleAfter, 0);
        DepartureProbe::Idle
    }
}

impl Drop for RequestTracker {
    fn drop(&mut self) {
        self.slot.release(monotonic());
        if let Some(sampler) = &self.sampler {
            sampler.untrack(self.slot.number);
            sampler.free_slot(self.slot.number);
        }
    }
}
