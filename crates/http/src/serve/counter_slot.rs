//! Counters of connections in memory that processes share: each connection at a time has a slot of words, which one thread writes.

use crate::serve::error::{Error, Result};
use kelvin_sys::shared_memory::SharedWords;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Words of a slot: two cache lines, since processors fetch lines in pairs, so that nobody else writes where one connection counts.
const WORDS_PER_SLOT: usize = 16;

/// The words of a slot besides those of its states. What they count is never set back: who has the slot next counts on.
#[derive(Clone, Copy, Debug)]
pub enum SlotWord {
    /// Requests whose answers are with the kernel.
    Requests,
    /// Bytes of bodies that are.
    Bytes,
    /// When the last byte of the last answer was given to the kernel.
    SubmittedAt,
    /// When the request arrived that was answered last.
    RequestArrivedAt,
    /// How often all was with the kernel.
    Submissions = 10,
    /// From after how many answers on it is to be found out how much earlier one leaves than it was given, or not any more (0), or it
    /// could not be ([`DEPARTED_AFTER_CALL`]). Of all words this one alone is written by the sampler and by the thread that serves.
    SampleAfter,
    /// How often it was found out, and the nanoseconds together.
    Samples,
    Lead,
    /// How long those answers took, and as many others right after them.
    Sampled,
    Control,
}

/// Time that a slot adds up, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub enum TimedState {
    /// A request has arrived, at least its first bytes, and its answer is not all with the kernel.
    Arrived,
    /// One is whole, and its answer is not.
    InService,
    /// Somebody serves the connection.
    WithWorker,
}

/// Where in a slot the states are: of each when it began, nothing while it is not so, and the sum.
const STATES_WORD: usize = 4;

/// How much earlier answers left than the call was over that gave them to the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DepartureLead {
    /// How often all answers were with the kernel.
    pub submissions: u64,
    /// How often it was found out, and the nanoseconds together.
    pub samples: u64,
    pub nanoseconds: u64,
    /// How long those answers took, and as many others: finding out makes an answer take longer.
    pub sampled_nanoseconds: u64,
    pub control_nanoseconds: u64,
}

impl DepartureLead {
    /// Nanoseconds of all answers since an earlier look, by those of which it was found out; none without any.
    pub fn nanoseconds_since(self, before: Self) -> Option<i64> {
        let growth = |counter: fn(Self) -> u64| counter(self).wrapping_sub(counter(before)).cast_signed();
        let lead = growth(|sums| sums.nanoseconds)
            - (growth(|sums| sums.sampled_nanoseconds) - growth(|sums| sums.control_nanoseconds));
        let (submissions, samples) = (growth(|sums| sums.submissions), growth(|sums| sums.samples));
        (samples > 0).then(|| (lead as f64 / samples as f64 * submissions as f64) as i64)
    }
}

/// Marks an answer that left after its call had ended.
pub const DEPARTED_AFTER_CALL: u64 = u64::MAX;

/// The words of all connections.
#[derive(Clone, Debug)]
pub struct ConnectionCounters(Arc<SharedWords>);

/// The words of one connection at a time. Who serves it writes them, and nobody else.
#[derive(Clone, Debug)]
pub struct CounterSlot {
    counters: ConnectionCounters,
    pub number: usize,
}

/// What slots have counted in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CounterTotals {
    pub requests: u64,
    pub bytes: u64,
    pub arrived_time: u64,
    pub service_time: u64,
    pub worker_time: u64,
}

impl ConnectionCounters {
    /// For this many connections at one time.
    ///
    /// # Errors
    /// Those of mmap.
    pub fn new(connections: usize) -> Result<Self> {
        let words =
            SharedWords::new((connections + 1) * WORDS_PER_SLOT).map_err(Error::call("share memory with children"))?;
        Ok(Self(Arc::new(words)))
    }

    /// Connections that there are slots for.
    pub fn slots(&self) -> usize {
        self.0.len() / WORDS_PER_SLOT - 1
    }

    /// A slot.
    ///
    /// # Panics
    /// If there is none of this number.
    pub fn slot(&self, number: usize) -> CounterSlot {
        assert!(number < self.slots(), "it is one of these");
        self.used_slots().fetch_max(number as u64 + 1, Ordering::Relaxed);
        CounterSlot { counters: self.clone(), number }
    }

    /// How many of the first slots have been in use.
    fn used_slots(&self) -> &AtomicU64 {
        &self.0[0]
    }

    /// Connections that were accepted.
    pub fn accepted(&self) -> &AtomicU64 {
        &self.0[1]
    }

    /// Connections that were turned away.
    pub fn refused(&self) -> &AtomicU64 {
        &self.0[2]
    }

    /// What all have counted until now.
    pub fn totals(&self, now: u64) -> CounterTotals {
        let mut sum = CounterTotals::default();
        for number in 0..self.used_slots().load(Ordering::Relaxed) as usize {
            let slot = CounterSlot { counters: self.clone(), number };
            sum.requests += slot.get(SlotWord::Requests);
            sum.bytes += slot.get(SlotWord::Bytes);
            sum.arrived_time += slot.span_total(TimedState::Arrived, now);
            sum.service_time += slot.span_total(TimedState::InService, now);
            sum.worker_time += slot.span_total(TimedState::WithWorker, now);
        }
        sum
    }
}

impl CounterSlot {
    fn word(&self, word: usize) -> &AtomicU64 {
        &self.counters.0[(self.number + 1) * WORDS_PER_SLOT + word]
    }

    /// What a word holds.
    pub fn get(&self, word: SlotWord) -> u64 {
        self.word(word as usize).load(Ordering::Relaxed)
    }

    /// It holds this from now on.
    pub fn set(&self, word: SlotWord, value: u64) {
        self.word(word as usize).store(value, Ordering::Relaxed);
    }

    /// Counts this many more.
    pub fn add(&self, word: SlotWord, increment: u64) {
        self.set(word, self.get(word) + increment);
    }

    /// It was given then, and nothing is in service any more.
    pub fn submit(&self, time: u64) {
        self.set(SlotWord::RequestArrivedAt, self.span_start(TimedState::Arrived));
        self.set(SlotWord::SubmittedAt, time);
        self.add(SlotWord::Submissions, 1);
        self.end(TimedState::InService, time);
        self.end(TimedState::Arrived, time);
    }

    /// An answer left this much before its call ended, which took this long, and the one after it took as long as `control`.
    pub fn record_lead(&self, lead: u64, duration: u64, control: u64) {
        let words = [
            (SlotWord::Samples, 1),
            (SlotWord::Lead, lead),
            (SlotWord::Sampled, duration),
            (SlotWord::Control, control),
        ];
        words.into_iter().for_each(|(word, amount)| self.add(word, amount));
    }

    /// What is known of it.
    pub fn lead(&self) -> DepartureLead {
        DepartureLead {
            submissions: self.get(SlotWord::Submissions),
            samples: self.get(SlotWord::Samples),
            nanoseconds: self.get(SlotWord::Lead),
            sampled_nanoseconds: self.get(SlotWord::Sampled),
            control_nanoseconds: self.get(SlotWord::Control),
        }
    }

    /// The words of a state: when it began, and its sum.
    fn span(&self, span: TimedState) -> [&AtomicU64; 2] {
        [0, 1].map(|word| self.word(STATES_WORD + 2 * span as usize + word))
    }

    /// Since when it has been so; not at all if 0.
    pub fn span_start(&self, span: TimedState) -> u64 {
        self.span(span)[0].load(Ordering::Relaxed)
    }

    /// It is so from then on, if it is not already.
    pub fn begin(&self, span: TimedState, time: u64) {
        if self.span_start(span) == 0 {
            self.span(span)[0].store(time, Ordering::Relaxed);
        }
    }

    /// It was so until then, if it was.
    pub fn end(&self, span: TimedState, time: u64) {
        if self.span_start(span) != 0 {
            let total = self.span_total(span, time);
            let [start, sum] = self.span(span);
            start.store(0, Ordering::Relaxed);
            sum.store(total, Ordering::Relaxed);
        }
    }

    /// How long it has been so until now.
    fn span_total(&self, span: TimedState, now: u64) -> u64 {
        let [start, sum] = self.span(span).map(|word| word.load(Ordering::Relaxed));
        sum + if start == 0 { 0 } else { now.saturating_sub(start) }
    }

    /// Nobody has it any more: all that was going on ends.
    pub fn release(&self, time: u64) {
        [TimedState::Arrived, TimedState::InService, TimedState::WithWorker]
            .into_iter()
            .for_each(|span| self.end(span, time));
        [SlotWord::SubmittedAt, SlotWord::RequestArrivedAt, SlotWord::SampleAfter]
            .into_iter()
            .for_each(|word| self.set(word, 0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_span_counts_until_now() {
        let counters = ConnectionCounters::new(3).unwrap();
        let [first, second] = [0, 2].map(|number| counters.slot(number));
        first.begin(TimedState::Arrived, 100);
        first.begin(TimedState::Arrived, 150);
        first.begin(TimedState::InService, 170);
        second.begin(TimedState::WithWorker, 10);
        let totals = |now| counters.totals(now);
        assert_eq!((totals(200).arrived_time, totals(200).service_time, totals(200).worker_time), (100, 30, 190));
        first.end(TimedState::Arrived, 210);
        first.end(TimedState::Arrived, 260);
        assert_eq!((totals(300).arrived_time, totals(300).service_time), (110, 130));
        first.add(SlotWord::Requests, 2);
        second.add(SlotWord::Bytes, 7);
        first.release(310);
        assert_eq!(
            totals(999),
            CounterTotals { requests: 2, bytes: 7, arrived_time: 110, service_time: 140, worker_time: 989 }
        );
        first.begin(TimedState::Arrived, 1000);
        assert_eq!(totals(1001).arrived_time, 111, "who has it next counts on");
    }

    #[test]
    fn lead_is_sampled_minus_control() {
        let slot = ConnectionCounters::new(1).unwrap().slot(0);
        slot.set(SlotWord::SampleAfter, 7);
        slot.submit(20);
        assert_eq!(
            (slot.get(SlotWord::SampleAfter), slot.lead().nanoseconds_since(DepartureLead::default())),
            (7, None)
        );
        slot.record_lead(5, 30, 28);
        slot.submit(50);
        let first = slot.lead();
        assert_eq!(first.nanoseconds_since(DepartureLead::default()), Some(2 * (5 - 2)));
        slot.record_lead(1, 40, 30);
        slot.record_lead(3, 10, 10);
        (0..6).for_each(|_| slot.submit(60));
        assert_eq!(slot.lead().nanoseconds_since(first), Some(-6 * 3), "by chance less than nothing");
        slot.release(70);
        assert_eq!((slot.get(SlotWord::SampleAfter), slot.lead().samples), (0, 3));
    }

    #[test]
    fn slots_do_not_overlap() {
        let counters = ConnectionCounters::new(2).unwrap();
        counters.accepted().store(u64::MAX, Ordering::Relaxed);
        counters.refused().store(u64::MAX, Ordering::Relaxed);
        for number in 0..counters.slots() {
            let slot = counters.slot(number);
            (0..WORDS_PER_SLOT).for_each(|word| assert_eq!(slot.word(word).load(Ordering::Relaxed), 0));
            (0..WORDS_PER_SLOT).for_each(|word| slot.word(word).store(u64::MAX, Ordering::Relaxed));
        }
        assert_eq!(counters.slots(), 2);
    }
}
