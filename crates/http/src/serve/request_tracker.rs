//! What connections do, counted by the thread that serves them, in words that the serving and the reporting process share.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use kelvin_sys::clock::monotonic;
use kelvin_sys::net::socket_queues::in_transit;
use kelvin_sys::net::tx_timestamp;

use crate::serve::counter_slot::{CounterSlot, DEPARTED_AFTER_CALL, SlotWord, TimedState};
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
    unsent_head_bytes: u64,
    /// When it last did anything.
    last_activity: u64,
    /// When the call began that gave the end of the last answer to the kernel.
    send_start: u64,
    /// When the answer that is being sent began, if nothing of it was given to the kernel.
    answer_start: Option<u64>,
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
    Left { lead: u64, duration: u64 },
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
            unsent_head_bytes: 0,
            last_activity: 0,
            send_start: 0,
            answer_start: None,
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
    pub fn request_arrived(&self, delay: u64) {
        let arrival = monotonic().saturating_sub(delay).max(self.send_start);
        self.slot.begin(TimedState::Arrived, arrival);
    }

    /// A request has come, and is going to be answered.
    pub fn begin_answer(&mut self) {
        let now = monotonic();
        self.slot.begin(TimedState::Arrived, now);
        self.slot.begin(TimedState::InService, now);
        if self.pending_answers == 0 {
            self.answer_start = Some(now);
        }
        self.pending_answers += 1;
        self.last_activity = now;
    }

    /// This is its answer as far as it is in memory, from the first byte of its head on.
    pub fn add_answer(&mut self, bytes: &[u8]) {
        let head = memchr::memmem::find(bytes, b"\r\n\r\n").map_or(bytes.len(), |end| end + 4);
        self.unsent_head_bytes += head as u64;
    }

    /// This many bytes were given to the kernel, and perhaps with them all answers. Of several answers the heads count first; in the end
    /// it is the same.
    pub fn mark_sent(&mut self, bytes: usize, is_all: bool) {
        let head_bytes = self.unsent_head_bytes.min(bytes as u64);
        self.unsent_head_bytes -= head_bytes;
        self.slot.add(SlotWord::Bytes, bytes as u64 - head_bytes);
        let now = monotonic();
        let start = self.answer_start.take();
        if !matches!(self.slot.get(SlotWord::SampleAfter), 0 | DEPARTED_AFTER_CALL) {
            self.departure_probe = self.advance_probe(start.filter(|_| is_all), now);
        }
        if is_all {
            self.send_start = self.last_activity;
            let is_prompt = now.saturating_sub(self.last_activity) <= PROMPT_SEND_NANOSECONDS;
            // When the last byte left, by the kernel's account, if all have arrived meanwhile.
            let transit = if is_prompt { None } else { in_transit(&*self.socket).ok() };
            let transit = transit.filter(|transit| transit.unsent_bytes == 0 && transit.segments == 0);
            let submission =
                transit.map_or(now, |transit| now.saturating_sub(transit.since_sent).max(self.last_activity));
            self.slot.add(SlotWord::Requests, std::mem::take(&mut self.pending_answers));
            self.slot.submit(submission);
        }
        self.last_activity = now;
    }

    /// Goes on with finding out when answers leave, after one that was given to the kernel by one call, the only ones of which it is
    /// found out: of one that took several, each of which wakes its reader, the last one's is little.
    fn advance_probe(&self, start: Option<u64>, now: u64) -> DepartureProbe {
        match (self.departure_probe, start) {
            (DepartureProbe::Idle, _) => return DepartureProbe::After(self.slot.get(SlotWord::SampleAfter)),
            (DepartureProbe::After(0), _) if tx_timestamp::enable(&*self.socket).is_ok() => {
                return DepartureProbe::Armed;
            }
            (DepartureProbe::After(remaining @ 1..), _) => return DepartureProbe::After(remaining - 1),
            (DepartureProbe::Armed, start) => {
                let since_departure =
                    tx_timestamp::last_departure(&*self.socket).ok().flatten().and_then(tx_timestamp::time_since);
                match (since_departure.map(|elapsed| elapsed.saturating_sub(monotonic() - now)), start) {
                    (Some(lead), Some(start)) if lead <= now - start => {
                        return DepartureProbe::Left { lead, duration: now - start };
                    }
                    (None, Some(_)) => {
                        self.slot.set(SlotWord::SampleAfter, DEPARTED_AFTER_CALL);
                        return DepartureProbe::Idle;
                    }
                    _ => {}
                }
            }
            (DepartureProbe::Left { lead, duration }, Some(start)) => {
                self.slot.record_lead(lead, duration, now - start)
            }
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
