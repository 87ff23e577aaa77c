//! How many streams a sender goes on with: twice as many as are in use are tried for a moment, and kept where the receiver has taken at
//! least 5 % more by them.
//!
//! What counts is what the receiver has written, by its clock: what fits into the buffers of sockets would make more of them look
//! faster. Few streams and many are timed in turn (few, many, many, few), so that what changes slowly meets both alike, and again
//! where not each moment of the first turn shows half as much more. A transfer of about a second is over before anything is asked.

use std::time::{Duration, Instant};

use crate::chosen::Chosen;
use crate::joined::STREAMS;
use crate::message::{Arrived, Invitation};
use crate::{Error, Result};

/// How long the moments are in which numbers of streams are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moments {
    /// How long a file is sent over as many streams as were chosen so far before more are tried, at least.
    pub before: Duration,
    /// How long each moment of a comparison is, at least: some round trips of any network.
    pub each: Duration,
    /// How long the rest of the file would take, at least.
    pub rest: Duration,
}

impl Moments {
    /// What a user waits for without noticing.
    pub const USUAL: Self =
        Self { before: Duration::from_millis(250), each: Duration::from_millis(250), rest: Duration::from_secs(1) };
}

impl Moments {
    /// Those of a network with this round trip.
    pub(super) fn over(self, trip: Duration) -> Self {
        Self { each: self.each.max(trip.saturating_mul(TRIPS).min(LONGEST)), ..self }
    }
}

/// How much faster more streams must be, to be kept.
const FASTER: f64 = 1.05;
/// How much faster they must be in each moment, to be kept without another turn.
const CLEAR: f64 = 1.5;
/// A moment is at least so many round trips: by each a new stream doubles what it has in flight, and as long as a moment it is at work
/// before one begins. No longer than a second, whatever is said of a round trip.
const TRIPS: u32 = 5;
const LONGEST: Duration = Duration::from_secs(1);
/// So often a moment is looked at whether it is over.
const PARTS: u32 = 4;
/// What goes at once before a rate is known.
const FIRST: u64 = 1 << 20;
/// Whether the larger number is in use, moment by moment of a turn.
const TURN: [bool; 4] = [false, true, true, false];
/// A limit that so much of is used leaves nothing to be won.
const USED: f64 = 0.9;

/// What is to be done now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// Nothing but sending.
    Nothing,
    /// Ask whether others may join.
    AskForOthers,
    /// Ask how much has arrived.
    AskHowMuch,
    /// Use so many streams.
    Use(u32),
}

/// How far the sending of a file is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Progress {
    /// When that is.
    pub at: Instant,
    /// Streams that are in use.
    pub in_use: u32,
    /// For how long these have been at work, and no others.
    pub settled: Duration,
    /// Bytes that were sent.
    pub passed: u64,
    /// Bytes that can be sent over any stream.
    pub left: u64,
}

/// Chooses the number of streams.
#[derive(Debug)]
pub(super) struct Choosing {
    moments: Moments,
    limit: Option<u64>,
    invitation: Option<Invitation>,
    stage: Stage,
    chosen: Chosen,
    is_compared: bool,
    /// When the sending of this file began, and what was sent before it; and its bytes a second so far.
    file: Option<(Instant, u64)>,
    rate: Option<f64>,
    /// Questions how much has arrived that have no answer.
    unanswered: u32,
}

#[derive(Debug)]
enum Stage {
    /// Before more are tried: since when, and after how many bytes.
    Before(Option<(Instant, u64)>),
    /// It was asked whether others may join.
    Asked,
    /// As many are to be at work as the next moment wants.
    Settling(Comparison),
    /// A moment: what had arrived when it began, and when that was heard; and whether its end was asked for.
    Moment(Comparison, Option<(Arrived, Instant)>, bool),
    /// Nothing more is tried.
    Over,
}

impl Choosing {
    /// For a transfer of at most so many bytes a second.
    pub(super) fn new(moments: Moments, limit: Option<u64>) -> Self {
        let (stage, chosen) = (Stage::Before(None), Chosen { streams: 1, thousandths: 1000, no_faster: None });
        let (invitation, is_compared, file, rate, unanswered) = (None, false, None, None, 0);
        Self { moments, limit, invitation, stage, chosen, is_compared, file, rate, unanswered }
    }

    /// What was chosen, if anything was compared.
    pub(super) fn chosen(&self) -> Option<Chosen> {
        self.is_compared.then_some(self.chosen)
    }

    /// Most streams that are of use from now on.
    pub(super) fn most(&self) -> u32 {
        if matches!(self.stage, Stage::Over) { self.chosen.streams } else { self.allowed() }
    }

    /// Most streams that the receiver allows, as far as is known.
    fn allowed(&self) -> u32 {
        self.invitation.map_or(STREAMS, |invitation| invitation.most.clamp(1, STREAMS))
    }

    /// By what others can join, once that is known.
    pub(super) fn invitation(&self) -> Option<Invitation> {
        self.invitation
    }

    /// How much goes by the first stream until this is to be asked again what is to be done: nothing beyond that once all is chosen.
    pub(super) fn bytes_at_once(&self) -> Option<u64> {
        let part = |rate: f64| (rate * self.moments.each.as_secs_f64() / f64::from(PARTS)) as u64;
        (!matches!(self.stage, Stage::Over)).then(|| self.rate.map_or(FIRST, part))
    }

    /// What is to be done now.
    pub(super) fn next(&mut self, now: &Progress) -> Act {
        let (begun, passed) = *self.file.get_or_insert((now.at, now.passed));
        let time = now.at - begun;
        self.rate = (!time.is_zero()).then(|| now.passed.saturating_sub(passed) as f64 / time.as_secs_f64());
        let Moments { each, .. } = self.moments;
        match &mut self.stage {
            Stage::Settling(comparison) if now.in_use != comparison.streams() => Act::Use(comparison.streams()),
            Stage::Settling(_) if now.settled < each => Act::Nothing,
            Stage::Settling(_) => self.begin_moment(),
            Stage::Moment(_, Some((_, heard)), is_ending @ false) if now.at - *heard >= each => {
                *is_ending = true;
                self.ask_how_much()
            }
            Stage::Moment(..) => Act::Nothing,
            _ if now.in_use != self.chosen.streams => Act::Use(self.chosen.streams),
            Stage::Before(since) => {
                let (begun, passed) = *since.get_or_insert((now.at, now.passed));
                self.begin_if_worth_it(now, (now.at - begun, now.passed.saturating_sub(passed)))
            }
            Stage::Asked | Stage::Over => Act::Nothing,
        }
    }

    fn ask_how_much(&mut self) -> Act {
        self.unanswered += 1;
        Act::AskHowMuch
    }

    fn begin_moment(&mut self) -> Act {
        let Stage::Settling(comparison) = std::mem::replace(&mut self.stage, Stage::Over) else { return Act::Nothing };
        self.stage = Stage::Moment(comparison, None, false);
        self.ask_how_much()
    }

    /// Begins to try more, if enough of the file is left at the rate of the time before.
    fn begin_if_worth_it(&mut self, now: &Progress, (time, bytes): (Duration, u64)) -> Act {
        if time < self.moments.before {
            return Act::Nothing;
        }
        let rate = bytes as f64 / time.as_secs_f64().max(1e-9);
        let is_limited = self.limit.is_some_and(|limit| rate >= USED * limit as f64);
        if is_limited || rate * self.moments.rest.as_secs_f64() > now.left as f64 {
            return Act::Nothing;
        }
        if self.invitation.is_none() {
            self.stage = Stage::Asked;
            return Act::AskForOthers;
        }
        self.try_more();
        Act::Nothing
    }

    /// Tries twice as many, if so many can be had.
    fn try_more(&mut self) {
        let few = self.chosen.streams;
        let many = (2 * few).min(self.allowed());
        self.stage = if many > few { Stage::Settling(Comparison::new(few, many)) } else { Stage::Over };
    }

    /// By what others can join, if they can.
    ///
    /// # Errors
    /// An answer to no question.
    pub(super) fn invited(&mut self, invitation: Option<Invitation>) -> Result<()> {
        if !matches!(self.stage, Stage::Asked) {
            return Err(Error::Nonsense(UNASKED));
        }
        self.invitation = invitation;
        match (invitation, self.file) {
            (None, _) => self.stage = Stage::Over,
            (Some(_), Some(_)) => self.try_more(),
            // The next file may be short.
            (Some(_), None) => self.stage = Stage::Before(None),
        }
        Ok(())
    }

    /// No others can be had.
    pub(super) fn give_up(&mut self) {
        self.stage = Stage::Over;
    }

    /// A file has ended, and with it what was being compared.
    pub(super) fn end_file(&mut self) {
        self.file = None;
        if !matches!(self.stage, Stage::Asked | Stage::Over) {
            self.stage = Stage::Before(None);
        }
    }

    /// So much has arrived, heard now.
    ///
    /// # Errors
    /// An answer to no question.
    pub(super) fn arrived(&mut self, arrived: Arrived, at: Instant) -> Result<()> {
        self.unanswered = self.unanswered.checked_sub(1).ok_or(Error::Nonsense(UNASKED))?;
        // What was asked before a file ended means nothing in the next one.
        if self.unanswered > 0 || !matches!(self.stage, Stage::Moment(..)) {
            return Ok(());
        }
        self.stage = match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Moment(comparison, None, _) => Stage::Moment(comparison, Some((arrived, at)), false),
            Stage::Moment(comparison, Some((first, _)), _) => {
                self.end_moment(comparison, Passed::between(first, arrived), (arrived, at))
            }
            other => other,
        };
        Ok(())
    }

    fn end_moment(&mut self, mut comparison: Comparison, moment: Passed, end: (Arrived, Instant)) -> Stage {
        let before = comparison.streams();
        match comparison.add(moment) {
            None if comparison.streams() == before => Stage::Moment(comparison, Some(end), false),
            None => Stage::Settling(comparison),
            Some(times) => self.conclude(comparison.many, times),
        }
    }

    /// So many streams are so much faster.
    fn conclude(&mut self, many: u32, times: f64) -> Stage {
        self.is_compared = true;
        if times < FASTER {
            self.chosen.no_faster = Some(many);
            return Stage::Over;
        }
        let thousandths = (self.chosen.thousandths as f64 * times) as u64;
        self.chosen = Chosen { streams: many, thousandths, no_faster: None };
        if many < self.allowed() { Stage::Before(None) } else { Stage::Over }
    }
}

/// What a receiver did wrong.
const UNASKED: &str = "it answers what it was not asked";

/// What arrived in how long.
#[derive(Clone, Copy, Debug, Default)]
struct Passed {
    bytes: u64,
    nanoseconds: u64,
}

impl Passed {
    fn between(first: Arrived, last: Arrived) -> Self {
        let bytes = last.bytes.saturating_sub(first.bytes);
        Self { bytes, nanoseconds: last.nanoseconds.saturating_sub(first.nanoseconds) }
    }

    fn add(&mut self, other: Self) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.nanoseconds = self.nanoseconds.saturating_add(other.nanoseconds);
    }

    fn rate(&self) -> f64 {
        self.bytes as f64 / self.nanoseconds.max(1) as f64
    }
}

/// Two numbers of streams, and what arrived by them.
#[derive(Debug)]
struct Comparison {
    few: u32,
    many: u32,
    /// The moments of this turn.
    moments: Vec<Passed>,
    /// How much faster many were in the turn before.
    before: Option<f64>,
}

impl Comparison {
    fn new(few: u32, many: u32) -> Self {
        Self { few, many, moments: Vec::new(), before: None }
    }

    /// How many are in use in the next moment.
    fn streams(&self) -> u32 {
        if TURN[self.moments.len()] { self.many } else { self.few }
    }

    /// A moment has passed; how much faster many are, once that is clear: at least so much in each turn.
    fn add(&mut self, moment: Passed) -> Option<f64> {
        self.moments.push(moment);
        if self.moments.len() < TURN.len() {
            return None;
        }
        let turn = Turn::of(&std::mem::take(&mut self.moments));
        if turn.times < FASTER || turn.at_least >= CLEAR || self.before.is_some() {
            return Some(self.before.map_or(turn.times, |before| before.min(turn.times)));
        }
        self.before = Some(turn.times);
        None
    }
}

/// How much faster many were in a turn.
struct Turn {
    /// In all; not at all where a moment of theirs was slower than one of few: that is noise.
    times: f64,
    /// In their slowest moment against the fastest one of few.
    at_least: f64,
}

impl Turn {
    fn of(moments: &[Passed]) -> Self {
        let of = |is_many: bool| TURN.into_iter().zip(moments).filter(move |(many, _)| *many == is_many);
        let rate = |is_many| {
            let mut all = Passed::default();
            of(is_many).for_each(|(_, moment)| all.add(*moment));
            all.rate()
        };
        let slowest = of(true).map(|(_, moment)| moment.rate()).fold(f64::INFINITY, f64::min);
        let fastest = of(false).map(|(_, moment)| moment.rate()).fold(f64::MIN_POSITIVE, f64::max);
        let times = if slowest > fastest { rate(true) / rate(false).max(f64::MIN_POSITIVE) } else { 1.0 };
        Self { times, at_least: slowest / fastest }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INVITATION: Invitation = Invitation { session: [7; 32], most: 8 };
    const MIB: u64 = 1 << 20;

    /// A link that is asked every 10 ms, with bytes a second by the number of streams and the turn of the clock.
    struct Link<R> {
        rate: R,
        begun: Instant,
        at: Duration,
        in_use: u32,
        passed: u64,
        left: u64,
        /// All numbers that were in use.
        used: Vec<u32>,
        asked: u32,
    }

    impl<R: Fn(u32, Duration) -> u64> Link<R> {
        fn new(left: u64, rate: R) -> Self {
            let begun = Instant::now();
            Self { rate, begun, at: Duration::ZERO, in_use: 1, passed: 0, left, used: vec![1], asked: 0 }
        }

        /// Sends all that is left of a file.
        fn send(&mut self, choosing: &mut Choosing) {
            while self.left > 0 {
                self.at += Duration::from_millis(10);
                let bytes = ((self.rate)(self.in_use, self.at) / 100).min(self.left);
                (self.passed, self.left) = (self.passed + bytes, self.left - bytes);
                self.act(choosing);
            }
            choosing.end_file();
        }

        fn act(&mut self, choosing: &mut Choosing) {
            let at = self.begun + self.at;
            let progress =
                Progress { at, in_use: self.in_use, settled: Duration::MAX, passed: self.passed, left: self.left };
            match choosing.next(&progress) {
                Act::Nothing => {}
                Act::AskForOthers => {
                    self.asked += 1;
                    choosing.invited(Some(INVITATION)).unwrap();
                }
                Act::AskHowMuch => {
                    let arrived = Arrived { bytes: self.passed, nanoseconds: self.at.as_nanos() as u64 };
                    choosing.arrived(arrived, at).unwrap();
                }
                Act::Use(streams) => {
                    self.in_use = streams;
                    self.used.push(streams);
                }
            }
        }
    }

    fn chosen(left: u64, rate: impl Fn(u32, Duration) -> u64) -> (Option<Chosen>, Vec<u32>) {
        let mut choosing = Choosing::new(Moments::USUAL, None);
        let mut link = Link::new(left, rate);
        link.send(&mut choosing);
        (choosing.chosen(), link.used)
    }

    #[test]
    fn where_each_stream_is_limited_by_itself_there_are_as_many_as_can_be() {
        let (chosen, used) = chosen(400 * MIB, |streams, _| u64::from(streams) * 5 * MIB);
        let Chosen { streams, no_faster, .. } = chosen.unwrap();
        assert_eq!((streams, no_faster, *used.last().unwrap()), (8, None, 8), "{used:?}");
        let times = chosen.unwrap().times_one();
        assert!((7.9..8.1).contains(&times), "{times}");
    }

    #[test]
    fn where_three_do_not_fill_the_link_four_are_kept_and_eight_are_not() {
        let (chosen, used) = chosen(400 * MIB, |streams, _| (u64::from(streams) * 5 * MIB).min(18 * MIB));
        assert_eq!(chosen.map(|chosen| (chosen.streams, chosen.no_faster)), Some((4, Some(8))));
        assert_eq!(used, [1, 2, 1, 2, 4, 2, 4, 8, 4], "{used:?}");
    }

    #[test]
    fn where_one_fills_the_link_or_is_only_a_little_slower_it_stays() {
        for gain in [0, 4] {
            let (chosen, used) =
                chosen(100 * MIB, |streams, _| 10 * MIB + u64::from(streams.min(2) - 1) * MIB * gain / 10);
            assert_eq!(chosen.map(|chosen| (chosen.streams, chosen.no_faster)), Some((1, Some(2))));
            assert_eq!(used, [1, 2, 1]);
        }
    }

    #[test]
    fn moments_last_some_round_trips_and_no_longer_than_a_second() {
        let each = |trip| Moments::USUAL.over(trip).each.as_millis();
        let trips = [Duration::ZERO, Duration::from_millis(50), Duration::from_millis(100), Duration::MAX];
        assert_eq!(trips.map(each), [250, 250, 500, 1000]);
    }

    #[test]
    fn a_link_that_gets_faster_does_not_make_more_streams_look_faster() {
        let grows = |_, at: Duration| 10 * MIB + at.as_millis() as u64 * 5000;
        assert_eq!(chosen(200 * MIB, grows).0.map(|chosen| chosen.streams), Some(1));
        // A gain that one turn shows and another does not is none.
        let once = |streams, at: Duration| if streams == 2 && at.as_millis() < 1200 { 12 * MIB } else { 10 * MIB };
        assert_eq!(chosen(200 * MIB, once).0.map(|chosen| chosen.streams), Some(1));
    }

    #[test]
    fn what_takes_a_second_pays_nothing_and_neither_does_what_keeps_a_limit() {
        let mut choosing = Choosing::new(Moments::USUAL, None);
        let mut link = Link::new(10 * MIB, |_, _| 9 * MIB);
        link.send(&mut choosing);
        assert_eq!((link.asked, link.used, choosing.chosen()), (0, vec![1], None));
        let mut choosing = Choosing::new(Moments::USUAL, Some(9 * MIB));
        let mut link = Link::new(100 * MIB, |_, _| 9 * MIB);
        link.send(&mut choosing);
        assert_eq!((link.asked, choosing.chosen()), (0, None));
    }

    #[test]
    fn a_file_that_ends_ends_its_comparison_and_the_next_one_begins_another() {
        let mut choosing = Choosing::new(Moments::USUAL, None);
        let mut link = Link::new(13 * MIB, |streams, _| u64::from(streams) * 10 * MIB);
        link.send(&mut choosing);
        assert!(link.asked == 1 && choosing.chosen().is_none() && link.in_use == 2, "{:?}", link.used);
        (link.in_use, link.left) = (1, 300 * MIB);
        link.send(&mut choosing);
        assert_eq!((link.asked, choosing.chosen().unwrap().streams), (1, 8));
        // A third one goes over as many from its beginning.
        (link.in_use, link.left) = (1, MIB);
        link.send(&mut choosing);
        assert_eq!(link.in_use, 8);
    }

    #[test]
    fn a_receiver_that_invites_none_or_answers_what_it_was_not_asked() {
        let mut choosing = Choosing::new(Moments::USUAL, None);
        assert!(choosing.invited(None).is_err() && choosing.arrived(Arrived::default(), Instant::now()).is_err());
        choosing.stage = Stage::Asked;
        choosing.invited(None).unwrap();
        assert_eq!((choosing.most(), choosing.chosen()), (1, None));
        for most in [0, 1, u32::MAX] {
            let mut choosing = Choosing::new(Moments::USUAL, None);
            (choosing.stage, choosing.file) = (Stage::Asked, Some((Instant::now(), 0)));
            choosing.invited(Some(Invitation { most, ..INVITATION })).unwrap();
            assert_eq!(choosing.most(), most.clamp(1, STREAMS));
            assert_eq!(matches!(choosing.stage, Stage::Over), most < 2);
        }
        // After the file for which it was asked, nothing is tried before the next one is seen to be long.
        let mut choosing = Choosing::new(Moments::USUAL, None);
        choosing.stage = Stage::Asked;
        choosing.end_file();
        choosing.invited(Some(INVITATION)).unwrap();
        assert!(matches!(choosing.stage, Stage::Before(None)));
    }

    #[test]
    fn what_some_moments_show_and_others_do_not_is_noise() {
        let times = |rates: &[u64]| {
            let mut comparison = Comparison::new(1, 2);
            rates.iter().find_map(|bytes| comparison.add(Passed { bytes: *bytes, nanoseconds: 1 }))
        };
        assert_eq!(times(&[10, 20, 20, 10]), Some(2.0));
        // Three times as fast together, and no faster in one of two moments.
        assert_eq!(times(&[2, 20, 10, 10]), Some(1.0));
        // Not clear at once: the smaller gain of two turns.
        assert_eq!(times(&[8, 11, 11, 8]), None);
        assert_eq!(times(&[8, 11, 11, 8, 8, 10, 10, 8]), Some(1.25));
        assert_eq!(times(&[8, 11, 11, 8, 8, 10, 7, 8]), Some(1.0));
        assert_eq!(times(&[4, 20, 20, 16, 10, 20, 20, 10]), Some(2.0));
    }

    /// Its figures may be anything.
    #[test]
    fn no_figures_break_it() {
        let all = [0, 1, u64::MAX];
        let figures = || all.into_iter().flat_map(|bytes| all.map(|nanoseconds| Arrived { bytes, nanoseconds }));
        for first in figures() {
            for last in figures() {
                let mut comparison = Comparison::new(1, 2);
                while comparison.add(Passed::between(first, last)).is_none() {}
            }
        }
    }
}
