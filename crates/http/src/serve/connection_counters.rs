//! What connections do, in words that the processes share which serve them and which tell of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kelvin_sys::shared_memory::SharedWords;

use crate::serve::error::{Error, Result};

/// Words of a slot: two cache lines, since processors fetch lines in pairs, so that nobody else writes where one connection counts.
const WORDS_PER_SLOT: usize = 16;

/// What a slot counts. It is never set back: who has the slot next counts on.
#[derive(Clone, Copy, Debug)]
pub enum SlotCounter {
    /// Requests whose answers are with the kernel.
    Requests,
    /// Bytes of bodies that are.
    Bytes,
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

/// Where in a slot they are: of each span when it began, nothing while there is none, and its sum.
const COUNTS_WORD: usize = 0;
const SUBMITTED_WORD: usize = 2;
const ARRIVED_WORD: usize = 3;
const SPANS_WORD: usize = 4;
/// Behind the spans: how often all was with the kernel, whether it is to be found out how much earlier it left, and what was found.
const SUBMISSIONS_WORD: usize = 10;
const SAMPLE_AFTER_WORD: usize = 11;
const SAMPLES_WORD: usize = 12;
const LEAD_WORD: usize = 13;
/// ... and how long answers took of which it was found out, and as many others right after them.
const SAMPLED_WORD: usize = 14;
const CONTROL_WORD: usize = 15;

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
        let of = |part: fn(Self) -> u64| part(self).wrapping_sub(part(before)).cast_signed();
        let all = of(|ahead| ahead.nanoseconds)
            - (of(|ahead| ahead.sampled_nanoseconds) - of(|ahead| ahead.control_nanoseconds));
        let (gives, found) = (of(|ahead| ahead.submissions), of(|ahead| ahead.samples));
        (found > 0).then(|| (all as f64 / found as f64 * gives as f64) as i64)
    }
}

/// It was to be found out of an answer that leaves after the call is over.
pub const LEFT_LATER: u64 = u64::MAX;

/// The words of all connections.
#[derive(Clone, Debug)]
pub struct ConnectionCounters(Arc<SharedWords>);

/// The words of one connection at a time. Who serves it writes them, and nobody else.
#[derive(Clone, Debug)]
pub struct CounterSlot {
    counters: ConnectionCounters,
    number: usize,
}

/// What slots have counted in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CounterTotals {
    pub requests: u64,
    pub bytes: u64,
    pub arrived: u64,
    pub in_service: u64,
    pub with_worker: u64,
}

impl ConnectionCounters {
    /// For so many connections at one time.
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
        self.used().fetch_max(number as u64 + 1, Ordering::Relaxed);
        CounterSlot { counters: self.clone(), number }
    }

    /// How many of the first slots have been in use.
    fn used(&self) -> &AtomicU64 {
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
        for number in 0..self.used().load(Ordering::Relaxed) as usize {
            let slot = CounterSlot { counters: self.clone(), number };
            sum.requests += slot.count(SlotCounter::Requests);
            sum.bytes += slot.count(SlotCounter::Bytes);
            sum.arrived += slot.span_total(TimedState::Arrived, now);
            sum.in_service += slot.span_total(TimedState::InService, now);
            sum.with_worker += slot.span_total(TimedState::WithWorker, now);
        }
        sum
    }
}

impl CounterSlot {
    /// Its number.
    pub fn number(&self) -> usize {
        self.number
    }

    fn word(&self, word: usize) -> &AtomicU64 {
        &self.counters.0[(self.number + 1) * WORDS_PER_SLOT + word]
    }

    fn get(&self, word: usize) -> u64 {
        self.word(word).load(Ordering::Relaxed)
    }

    fn set(&self, word: usize, value: u64) {
        self.word(word).store(value, Ordering::Relaxed);
    }

    fn count(&self, count: SlotCounter) -> u64 {
        self.get(COUNTS_WORD + count as usize)
    }

    /// Counts so many more.
    pub fn add(&self, count: SlotCounter, more: u64) {
        self.set(COUNTS_WORD + count as usize, self.count(count) + more);
    }

    /// When the request arrived that was answered last.
    pub fn request_arrived_at(&self) -> u64 {
        self.get(ARRIVED_WORD)
    }

    /// When the last byte of the last answer was given to the kernel.
    pub fn submitted_at(&self) -> u64 {
        self.get(SUBMITTED_WORD)
    }

    /// It was given then, and nothing is in service any more.
    pub fn submit(&self, at: u64) {
        self.set(ARRIVED_WORD, self.span_start(TimedState::Arrived));
        self.set(SUBMITTED_WORD, at);
        self.set(SUBMISSIONS_WORD, self.get(SUBMISSIONS_WORD) + 1);
        self.end(TimedState::InService, at);
        self.end(TimedState::Arrived, at);
    }

    /// From now on it is to be found out how much earlier an answer leaves than it was given, or not any more (0), or it could not be
    /// ([`LEFT_LATER`]). Whoever watches writes it, and whoever serves: of all words this one alone.
    pub fn set_sample_after(&self, wanted: u64) {
        self.set(SAMPLE_AFTER_WORD, wanted);
    }

    /// Whether it is to be found out.
    pub fn sample_after(&self) -> u64 {
        self.get(SAMPLE_AFTER_WORD)
    }

    /// It was found out of an answer that took so long, and the one after it so long.
    pub fn record_lead(&self, ahead: u64, took: u64, other: u64) {
        for (word, more) in [(SAMPLES_WORD, 1), (LEAD_WORD, ahead), (SAMPLED_WORD, took), (CONTROL_WORD, other)] {
            self.set(word, self.get(word) + more);
        }
    }

    /// What is known of it.
    pub fn lead(&self) -> DepartureLead {
        DepartureLead {
            submissions: self.get(SUBMISSIONS_WORD),
            samples: self.get(SAMPLES_WORD),
            nanoseconds: self.get(LEAD_WORD),
            sampled_nanoseconds: self.get(SAMPLED_WORD),
            control_nanoseconds: self.get(CONTROL_WORD),
        }
    }

    /// Since when it has been so; not at all if 0.
    pub fn span_start(&self, span: TimedState) -> u64 {
        self.get(SPANS_WORD + 2 * span as usize)
    }

    /// It is so from then on, if it is not already.
    pub fn begin(&self, span: TimedState, at: u64) {
        if self.span_start(span) == 0 {
            self.set(SPANS_WORD + 2 * span as usize, at);
        }
    }

    /// It was so until then, if it was.
    pub fn end(&self, span: TimedState, at: u64) {
        let since = self.span_start(span);
        if since != 0 {
            let sum = SPANS_WORD + 2 * span as usize + 1;
            self.set(SPANS_WORD + 2 * span as usize, 0);
            self.set(sum, self.get(sum) + at.saturating_sub(since));
        }
    }

    /// How long it has been so until now.
    fn span_total(&self, span: TimedState, now: u64) -> u64 {
        let since = self.span_start(span);
        let open = if since == 0 { 0 } else { now.saturating_sub(since) };
        self.get(SPANS_WORD + 2 * span as usize + 1) + open
    }

    /// Nobody has it any more, whatever was going on.
    pub fn release(&self, at: u64) {
        [TimedState::Arrived, TimedState::InService, TimedState::WithWorker]
            .into_iter()
            .for_each(|span| self.end(span, at));
        [SUBMITTED_WORD, ARRIVED_WORD, SAMPLE_AFTER_WORD].into_iter().for_each(|word| self.set(word, 0));
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
        assert_eq!((totals(200).arrived, totals(200).in_service, totals(200).with_worker), (100, 30, 190));
        first.end(TimedState::Arrived, 210);
        first.end(TimedState::Arrived, 260);
        assert_eq!((totals(300).arrived, totals(300).in_service), (110, 130));
        first.add(SlotCounter::Requests, 2);
        second.add(SlotCounter::Bytes, 7);
        first.release(310);
        assert_eq!(
            totals(999),
            CounterTotals { requests: 2, bytes: 7, arrived: 110, in_service: 140, with_worker: 989 }
        );
        first.begin(TimedState::Arrived, 1000);
        assert_eq!(totals(1001).arrived, 111, "who has it next counts on");
    }

    #[test]
    fn lead_is_sampled_minus_control() {
        let slot = ConnectionCounters::new(1).unwrap().slot(0);
        slot.set_sample_after(7);
        slot.submit(20);
        assert_eq!((slot.sample_after(), slot.lead().nanoseconds_since(DepartureLead::default())), (7, None));
        slot.record_lead(5, 30, 28);
        slot.submit(50);
        let first = slot.lead();
        assert_eq!(first.nanoseconds_since(DepartureLead::default()), Some(2 * (5 - 2)));
        slot.record_lead(1, 40, 30);
        slot.record_lead(3, 10, 10);
        (0..6).for_each(|_| slot.submit(60));
        assert_eq!(slot.lead().nanoseconds_since(first), Some(-6 * 3), "by chance less than nothing");
        slot.release(70);
        assert_eq!((slot.sample_after(), slot.lead().samples), (0, 3));
    }

    #[test]
    fn slots_do_not_overlap() {
        let counters = ConnectionCounters::new(2).unwrap();
        counters.accepted().store(u64::MAX, Ordering::Relaxed);
        counters.refused().store(u64::MAX, Ordering::Relaxed);
        for number in 0..counters.slots() {
            let slot = counters.slot(number);
            (0..WORDS_PER_SLOT).for_each(|word| assert_eq!(slot.get(word), 0));
            (0..WORDS_PER_SLOT).for_each(|word| slot.set(word, u64::MAX));
        }
        assert_eq!(counters.slots(), 2);
    }
}
