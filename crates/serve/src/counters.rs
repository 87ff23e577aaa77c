//! What connections do, in words that the processes share which serve them and which tell of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kelvin_sys::shared::Words;

use crate::error::{Error, Result};

/// Words of a slot: two cache lines, since processors fetch lines in pairs, so that nobody else writes where one connection counts.
const WORDS: usize = 16;

/// What a slot counts. It is never set back: who has the slot next counts on.
#[derive(Clone, Copy, Debug)]
pub enum Count {
    /// Requests whose answers are with the kernel.
    Requests,
    /// Bytes of bodies that are.
    Bytes,
}

/// Time that a slot adds up, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub enum Span {
    /// A request has arrived, at least its first bytes, and its answer is not all with the kernel.
    Arrived,
    /// One is whole, and its answer is not.
    InService,
    /// Somebody serves the connection.
    Attended,
}

/// Where in a slot they are: of each span when it began, nothing while there is none, and its sum.
const COUNTS: usize = 0;
const GIVEN: usize = 2;
const ASKED: usize = 3;
const SPANS: usize = 4;
/// Behind the spans: how often all was with the kernel, whether it is to be found out how much earlier it left, and what was found.
const GIVES: usize = 10;
const WANTED: usize = 11;
const FOUND: usize = 12;
const AHEAD: usize = 13;
/// ... and how long answers took of which it was found out, and as many others right after them.
const TIMED: usize = 14;
const OTHERS: usize = 15;

/// How much earlier answers left than the call was over that gave them to the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ahead {
    /// How often all answers were with the kernel.
    pub gives: u64,
    /// How often it was found out, and the nanoseconds together.
    pub found: u64,
    pub nanoseconds: u64,
    /// How long those answers took, and as many others: finding out makes an answer take longer.
    pub timed: u64,
    pub others: u64,
}

impl Ahead {
    /// Nanoseconds of all answers since an earlier look, by those of which it was found out; none without any.
    pub fn since(self, before: Self) -> Option<i64> {
        let of = |part: fn(Self) -> u64| part(self).wrapping_sub(part(before)).cast_signed();
        let all = of(|ahead| ahead.nanoseconds) - (of(|ahead| ahead.timed) - of(|ahead| ahead.others));
        let (gives, found) = (of(|ahead| ahead.gives), of(|ahead| ahead.found));
        (found > 0).then(|| (all as f64 / found as f64 * gives as f64) as i64)
    }
}

/// It was to be found out of an answer that leaves after the call is over.
pub const LATER: u64 = u64::MAX;

/// The words of all connections.
#[derive(Clone, Debug)]
pub struct Counters(Arc<Words>);

/// The words of one connection at a time. Who serves it writes them, and nobody else.
#[derive(Clone, Debug)]
pub struct Slot {
    counters: Counters,
    number: usize,
}

/// What slots have counted in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub requests: u64,
    pub bytes: u64,
    pub arrived: u64,
    pub in_service: u64,
    pub attended: u64,
}

impl Counters {
    /// For so many connections at one time.
    ///
    /// # Errors
    /// Those of mmap.
    pub fn new(connections: usize) -> Result<Self> {
        let words = Words::new((connections + 1) * WORDS).map_err(Error::call("share memory with children"))?;
        Ok(Self(Arc::new(words)))
    }

    /// Connections that there are slots for.
    pub fn slots(&self) -> usize {
        self.0.len() / WORDS - 1
    }

    /// A slot.
    ///
    /// # Panics
    /// If there is none of this number.
    pub fn slot(&self, number: usize) -> Slot {
        assert!(number < self.slots(), "it is one of these");
        self.used().fetch_max(number as u64 + 1, Ordering::Relaxed);
        Slot { counters: self.clone(), number }
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
    pub fn totals(&self, now: u64) -> Totals {
        let used = self.used().load(Ordering::Relaxed) as usize;
        let slots = (0..used).map(|number| Slot { counters: self.clone(), number });
        slots.fold(Totals::default(), |sum, slot| Totals {
            requests: sum.requests + slot.count(Count::Requests),
            bytes: sum.bytes + slot.count(Count::Bytes),
            arrived: sum.arrived + slot.spent(Span::Arrived, now),
            in_service: sum.in_service + slot.spent(Span::InService, now),
            attended: sum.attended + slot.spent(Span::Attended, now),
        })
    }
}

impl Slot {
    /// Its number.
    pub fn number(&self) -> usize {
        self.number
    }

    fn word(&self, word: usize) -> &AtomicU64 {
        &self.counters.0[(self.number + 1) * WORDS + word]
    }

    fn get(&self, word: usize) -> u64 {
        self.word(word).load(Ordering::Relaxed)
    }

    fn set(&self, word: usize, value: u64) {
        self.word(word).store(value, Ordering::Relaxed);
    }

    fn count(&self, count: Count) -> u64 {
        self.get(COUNTS + count as usize)
    }

    /// Counts so many more.
    pub fn add(&self, count: Count, more: u64) {
        self.set(COUNTS + count as usize, self.count(count) + more);
    }

    /// When the request arrived that was answered last.
    pub fn asked(&self) -> u64 {
        self.get(ASKED)
    }

    /// When the last byte of the last answer was given to the kernel.
    pub fn given(&self) -> u64 {
        self.get(GIVEN)
    }

    /// It was given then, and nothing is in service any more.
    pub fn give(&self, at: u64) {
        self.set(ASKED, self.since(Span::Arrived));
        self.set(GIVEN, at);
        self.set(GIVES, self.get(GIVES) + 1);
        self.end(Span::InService, at);
        self.end(Span::Arrived, at);
    }

    /// From now on it is to be found out how much earlier an answer leaves than it was given, or not any more (0), or it could not be
    /// ([`LATER`]). Whoever watches writes it, and whoever serves: of all words this one alone.
    pub fn want(&self, wanted: u64) {
        self.set(WANTED, wanted);
    }

    /// Whether it is to be found out.
    pub fn wanted(&self) -> u64 {
        self.get(WANTED)
    }

    /// It was found out of an answer that took so long, and the one after it so long.
    pub fn found(&self, ahead: u64, took: u64, other: u64) {
        for (word, more) in [(FOUND, 1), (AHEAD, ahead), (TIMED, took), (OTHERS, other)] {
            self.set(word, self.get(word) + more);
        }
    }

    /// What is known of it.
    pub fn ahead(&self) -> Ahead {
        let [gives, found, nanoseconds, timed, others] =
            [GIVES, FOUND, AHEAD, TIMED, OTHERS].map(|word| self.get(word));
        Ahead { gives, found, nanoseconds, timed, others }
    }

    /// Since when it has been so; not at all if 0.
    pub fn since(&self, span: Span) -> u64 {
        self.get(SPANS + 2 * span as usize)
    }

    /// It is so from then on, if it is not already.
    pub fn begin(&self, span: Span, at: u64) {
        if self.since(span) == 0 {
            self.set(SPANS + 2 * span as usize, at);
        }
    }

    /// It was so until then, if it was.
    pub fn end(&self, span: Span, at: u64) {
        let since = self.since(span);
        if since != 0 {
            let sum = SPANS + 2 * span as usize + 1;
            self.set(SPANS + 2 * span as usize, 0);
            self.set(sum, self.get(sum) + at.saturating_sub(since));
        }
    }

    /// How long it has been so until now.
    fn spent(&self, span: Span, now: u64) -> u64 {
        let since = self.since(span);
        let open = if since == 0 { 0 } else { now.saturating_sub(since) };
        self.get(SPANS + 2 * span as usize + 1) + open
    }

    /// Nobody has it any more, whatever was going on.
    pub fn leave(&self, at: u64) {
        [Span::Arrived, Span::InService, Span::Attended].into_iter().for_each(|span| self.end(span, at));
        [GIVEN, ASKED, WANTED].into_iter().for_each(|word| self.set(word, 0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_added_up_from_begin_to_end_and_what_goes_on_counts_until_now() {
        let counters = Counters::new(3).unwrap();
        let [first, second] = [0, 2].map(|number| counters.slot(number));
        first.begin(Span::Arrived, 100);
        first.begin(Span::Arrived, 150);
        first.begin(Span::InService, 170);
        second.begin(Span::Attended, 10);
        let totals = |now| counters.totals(now);
        assert_eq!((totals(200).arrived, totals(200).in_service, totals(200).attended), (100, 30, 190));
        first.end(Span::Arrived, 210);
        first.end(Span::Arrived, 260);
        assert_eq!((totals(300).arrived, totals(300).in_service), (110, 130));
        first.add(Count::Requests, 2);
        second.add(Count::Bytes, 7);
        first.leave(310);
        assert_eq!(totals(999), Totals { requests: 2, bytes: 7, arrived: 110, in_service: 140, attended: 989 });
        first.begin(Span::Arrived, 1000);
        assert_eq!(totals(1001).arrived, 111, "who has it next counts on");
    }

    #[test]
    fn how_much_earlier_answers_left_is_told_by_some_less_what_finding_out_takes() {
        let slot = Counters::new(1).unwrap().slot(0);
        slot.want(7);
        slot.give(20);
        assert_eq!((slot.wanted(), slot.ahead().since(Ahead::default())), (7, None));
        slot.found(5, 30, 28);
        slot.give(50);
        let first = slot.ahead();
        assert_eq!(first.since(Ahead::default()), Some(2 * (5 - 2)));
        slot.found(1, 40, 30);
        slot.found(3, 10, 10);
        (0..6).for_each(|_| slot.give(60));
        assert_eq!(slot.ahead().since(first), Some(-6 * 3), "by chance less than nothing");
        slot.leave(70);
        assert_eq!((slot.wanted(), slot.ahead().found), (0, 3));
    }

    #[test]
    fn no_slot_has_words_of_another() {
        let counters = Counters::new(2).unwrap();
        counters.accepted().store(u64::MAX, Ordering::Relaxed);
        counters.refused().store(u64::MAX, Ordering::Relaxed);
        for number in 0..counters.slots() {
            let slot = counters.slot(number);
            (0..WORDS).for_each(|word| assert_eq!(slot.get(word), 0));
            (0..WORDS).for_each(|word| slot.set(word, u64::MAX));
        }
        assert_eq!(counters.slots(), 2);
    }
}
