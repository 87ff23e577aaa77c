//! How many streams a sender goes on with. Twice as many as are in use are tried for a moment, and kept where the receiver has taken at
//! least 5 % more by them.
//!
//! What counts is what the receiver has written, by its clock: what fits into the buffers of sockets would make more of them look
//! faster. Few streams and many are timed interleaved (few, many, many, few), so that what changes slowly meets both alike. They are timed again
//! where not each moment of the first turn shows half as much more. A transfer of about a second is over before anything is asked.

use std::time::{Duration, Instant};

use crate::message::{ArrivedBytes, JoinInvitation, StreamChoice};
use crate::session_streams::MAX_STREAMS;
use crate::{Error, Result};

/// How long the moments are in which numbers of streams are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TuningWindow {
    /// How long a file is sent over as many streams as were chosen so far before more are tried, at least.
    pub settle: Duration,
    /// How long each moment of a comparison is, at least: some round trips of any network.
    pub sample: Duration,
    /// How long the rest of the file would take, at least.
    pub min_remaining: Duration,
}

impl TuningWindow {
    /// What a user waits for without noticing.
    pub const DEFAULT: Self = Self {
        settle: Duration::from_millis(250),
        sample: Duration::from_millis(250),
        min_remaining: Duration::from_secs(1),
    };

    /// Those of a network with this round trip.
    pub(super) fn for_round_trip(self, trip: Duration) -> Self {
        Self { sample: self.sample.max(trip.saturating_mul(ROUND_TRIPS_PER_MOMENT).min(MAX_MOMENT)), ..self }
    }
}

/// How much faster more streams must be, to be kept.
const MIN_SPEEDUP: f64 = 1.05;
/// How much faster they must be in each moment, to be kept without another turn.
const CLEAR_SPEEDUP: f64 = 1.5;
/// A moment is at least this many round trips. By each a new stream doubles what it has in flight, and as long as a moment it is at work
/// before one begins. No longer than a second, whatever round trip is reported.
const ROUND_TRIPS_PER_MOMENT: u32 = 5;
const MAX_MOMENT: Duration = Duration::from_secs(1);
/// So often a moment is looked at whether it is over.
const CHECKS_PER_MOMENT: u32 = 4;
/// What goes at once before a rate is known.
const INITIAL_BYTES: u64 = 1 << 20;
/// Whether the larger number is in use, moment by moment of a turn.
const MOMENT_ORDER: [bool; 4] = [false, true, true, false];
/// A limit of which this share is used leaves nothing to be won.
const LIMIT_USED_SHARE: f64 = 0.9;

/// What is to be done now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TunerAction {
    /// Nothing but sending.
    Nothing,
    /// Ask whether others may join.
    QueryJoin,
    /// Ask how much has arrived.
    QueryArrived,
    /// Use this many streams.
    UseStreams(u32),
}

/// How far the sending of a file is.
#[derive(Clone, Copy, Debug)]
pub(super) struct TunerInput {
    /// When that is.
    pub time: Instant,
    /// Streams that are in use.
    pub active_streams: u32,
    /// For how long these have been at work, and no others.
    pub stable_time: Duration,
    /// Bytes that were sent.
    pub settled_bytes: u64,
    /// Bytes that can be sent over any stream.
    pub remaining_bytes: u64,
}

/// Chooses the number of streams.
#[derive(Debug)]
pub(super) struct StreamTuner {
    window: TuningWindow,
    limit: Option<u64>,
    /// By what others can join, once that is known.
    pub(super) invitation: Option<JoinInvitation>,
    stage: TunerStage,
    choice: StreamChoice,
    is_compared: bool,
    /// When the sending of this file began, and what was sent before it; and its bytes a second so far.
    file: Option<(Instant, u64)>,
    rate: Option<f64>,
    /// Questions how much has arrived that have no answer.
    pending_queries: u32,
}

#[derive(Clone, Copy, Debug)]
enum TunerStage {
    /// Before more are tried: since when, and after how many bytes.
    Before(Option<(Instant, u64)>),
    /// It was asked whether others may join.
    Asked,
    /// As many are to be at work as the next moment wants.
    Settling(StreamCountComparison),
    /// A moment: what had arrived when it began, and when that was reported; and whether its end was asked for.
    Moment(StreamCountComparison, Option<(ArrivedBytes, Instant)>, bool),
    /// Nothing more is tried.
    Over,
}

impl StreamTuner {
    /// For a transfer of at most this many bytes a second.
    pub(super) fn new(window: TuningWindow, limit: Option<u64>) -> Self {
        Self {
            window,
            limit,
            invitation: None,
            stage: TunerStage::Before(None),
            choice: StreamChoice { streams: 1, thousandths: 1000, no_faster: None },
            is_compared: false,
            file: None,
            rate: None,
            pending_queries: 0,
        }
    }

    /// What was chosen, if anything was compared.
    pub(super) fn choice(&self) -> Option<StreamChoice> {
        self.is_compared.then_some(self.choice)
    }

    /// Most streams that are of use from now on.
    pub(super) fn max_useful(&self) -> u32 {
        if matches!(self.stage, TunerStage::Over) { self.choice.streams } else { self.max_allowed() }
    }

    /// Most streams that the receiver allows, as far as is known.
    fn max_allowed(&self) -> u32 {
        self.invitation.map_or(MAX_STREAMS, |invitation| invitation.max_streams.clamp(1, MAX_STREAMS))
    }

    /// How much goes by the first stream until this is to be asked again what is to be done. Nothing beyond that once all is chosen.
    pub(super) fn max_piece_bytes(&self) -> Option<u64> {
        let part = |rate: f64| (rate * self.window.sample.as_secs_f64() / f64::from(CHECKS_PER_MOMENT)) as u64;
        (!matches!(self.stage, TunerStage::Over)).then(|| self.rate.map_or(INITIAL_BYTES, part))
    }

    /// What is to be done now.
    pub(super) fn next_action(&mut self, input: &TunerInput) -> TunerAction {
        let (start, start_bytes) = *self.file.get_or_insert((input.time, input.settled_bytes));
        let time = input.time - start;
        self.rate =
            (!time.is_zero()).then(|| input.settled_bytes.saturating_sub(start_bytes) as f64 / time.as_secs_f64());
        let sample = self.window.sample;
        match self.stage {
            TunerStage::Settling(comparison) if input.active_streams != comparison.streams() => {
                TunerAction::UseStreams(comparison.streams())
            }
            TunerStage::Settling(comparison) if input.stable_time >= sample => {
                self.query_arrived(TunerStage::Moment(comparison, None, false))
            }
            TunerStage::Moment(comparison, Some(first), false) if input.time - first.1 >= sample => {
                self.query_arrived(TunerStage::Moment(comparison, Some(first), true))
            }
            TunerStage::Settling(_) | TunerStage::Moment(..) => TunerAction::Nothing,
            _ if input.active_streams != self.choice.streams => TunerAction::UseStreams(self.choice.streams),
            TunerStage::Before(since) => {
                let (start, start_bytes) = since.unwrap_or((input.time, input.settled_bytes));
                self.stage = TunerStage::Before(Some((start, start_bytes)));
                self.comparison_action(input, (input.time - start, input.settled_bytes.saturating_sub(start_bytes)))
            }
            TunerStage::Asked | TunerStage::Over => TunerAction::Nothing,
        }
    }

    fn query_arrived(&mut self, stage: TunerStage) -> TunerAction {
        self.stage = stage;
        self.pending_queries += 1;
        TunerAction::QueryArrived
    }

    /// Begins to try more, if enough of the file is left at the rate of the time before.
    fn comparison_action(&mut self, input: &TunerInput, (time, bytes): (Duration, u64)) -> TunerAction {
        if time < self.window.settle {
            return TunerAction::Nothing;
        }
        let rate = bytes as f64 / time.as_secs_f64().max(1e-9);
        let is_limited = self.limit.is_some_and(|limit| rate >= LIMIT_USED_SHARE * limit as f64);
        if is_limited || rate * self.window.min_remaining.as_secs_f64() > input.remaining_bytes as f64 {
            return TunerAction::Nothing;
        }
        if self.invitation.is_none() {
            self.stage = TunerStage::Asked;
            return TunerAction::QueryJoin;
        }
        self.start_comparison();
        TunerAction::Nothing
    }

    /// Tries twice as many, if this many can be had.
    fn start_comparison(&mut self) {
        let base = self.choice.streams;
        let candidate = (2 * base).min(self.max_allowed());
        self.stage = if candidate > base {
            TunerStage::Settling(StreamCountComparison::new(base, candidate))
        } else {
            TunerStage::Over
        };
    }

    /// By what others can join, if they can.
    ///
    /// # Errors
    /// An answer to no question.
    pub(super) fn on_invitation(&mut self, invitation: Option<JoinInvitation>) -> Result<()> {
        Error::ensure(matches!(self.stage, TunerStage::Asked), UNREQUESTED_ANSWER)?;
        self.invitation = invitation;
        match (invitation, self.file) {
            (None, _) => self.stage = TunerStage::Over,
            (Some(_), Some(_)) => self.start_comparison(),
            // The next file may be short.
            (Some(_), None) => self.stage = TunerStage::Before(None),
        }
        Ok(())
    }

    /// No others can be had.
    pub(super) fn stop(&mut self) {
        self.stage = TunerStage::Over;
    }

    /// A file has ended, and with it what was being compared.
    pub(super) fn end_file(&mut self) {
        self.file = None;
        if !matches!(self.stage, TunerStage::Asked | TunerStage::Over) {
            self.stage = TunerStage::Before(None);
        }
    }

    /// These bytes have arrived, as reported now.
    ///
    /// # Errors
    /// An answer to no question.
    pub(super) fn on_arrived(&mut self, arrived: ArrivedBytes, time: Instant) -> Result<()> {
        self.pending_queries =
            self.pending_queries.checked_sub(1).ok_or(Error::ProtocolViolation(UNREQUESTED_ANSWER))?;
        // What was asked before a file ended means nothing in the next one.
        if self.pending_queries > 0 {
            return Ok(());
        }
        self.stage = match self.stage {
            TunerStage::Moment(comparison, None, _) => TunerStage::Moment(comparison, Some((arrived, time)), false),
            TunerStage::Moment(comparison, Some((first, _)), _) => {
                self.end_moment(comparison, arrived.since(&first), (arrived, time))
            }
            stage => stage,
        };
        Ok(())
    }

    /// A moment has ended: as many streams are at work in the next one, or others, or it is known how much faster more are.
    fn end_moment(
        &mut self,
        mut comparison: StreamCountComparison,
        moment: ArrivedBytes,
        end: (ArrivedBytes, Instant),
    ) -> TunerStage {
        let previous_streams = comparison.streams();
        let Some(speedup) = comparison.add(moment) else {
            return match comparison.streams() == previous_streams {
                true => TunerStage::Moment(comparison, Some(end), false),
                false => TunerStage::Settling(comparison),
            };
        };
        self.is_compared = true;
        if speedup < MIN_SPEEDUP {
            self.choice.no_faster = Some(comparison.candidate);
            return TunerStage::Over;
        }
        let thousandths = (self.choice.thousandths as f64 * speedup) as u64;
        self.choice = StreamChoice { streams: comparison.candidate, thousandths, no_faster: None };
        if comparison.candidate < self.max_allowed() { TunerStage::Before(None) } else { TunerStage::Over }
    }
}

/// What a receiver did wrong.
const UNREQUESTED_ANSWER: &str = "it answers what it was not asked";

/// Two numbers of streams, and what arrived by them.
#[derive(Clone, Copy, Debug)]
struct StreamCountComparison {
    base: u32,
    candidate: u32,
    /// The moments of this turn, and how many have passed.
    moments: [ArrivedBytes; MOMENT_ORDER.len()],
    passed_moments: usize,
    /// How much faster many were in the turn before.
    previous_speedup: Option<f64>,
}

impl StreamCountComparison {
    fn new(base: u32, candidate: u32) -> Self {
        Self { base, candidate, moments: Default::default(), passed_moments: 0, previous_speedup: None }
    }

    /// How many are in use in the next moment.
    fn streams(&self) -> u32 {
        if MOMENT_ORDER[self.passed_moments] { self.candidate } else { self.base }
    }

    /// A moment has passed; how much faster many are, once that is clear: at least by this factor in each turn.
    fn add(&mut self, moment: ArrivedBytes) -> Option<f64> {
        self.moments[self.passed_moments] = moment;
        self.passed_moments = (self.passed_moments + 1) % MOMENT_ORDER.len();
        if self.passed_moments > 0 {
            return None;
        }
        let moments_of =
            |is_candidate| MOMENT_ORDER.iter().zip(&self.moments).filter(move |(kind, _)| **kind == is_candidate);
        let [base, candidate] = [false, true].map(|is_candidate| {
            moments_of(is_candidate).fold(ArrivedBytes::default(), |sum, (_, moment)| sum.add(moment))
        });
        let rates = |is_candidate| moments_of(is_candidate).map(|(_, moment)| moment.rate());
        let (fastest_base, slowest_candidate) =
            (rates(false).fold(f64::MIN_POSITIVE, f64::max), rates(true).fold(f64::INFINITY, f64::min));
        // Where a moment of many was slower than one of few, they are not faster at all: that is noise.
        let is_faster = slowest_candidate > fastest_base;
        let speedup = if is_faster { candidate.rate() / base.rate().max(f64::MIN_POSITIVE) } else { 1.0 };
        if speedup < MIN_SPEEDUP || slowest_candidate / fastest_base >= CLEAR_SPEEDUP || self.previous_speedup.is_some()
        {
            return Some(self.previous_speedup.map_or(speedup, |previous| previous.min(speedup)));
        }
        self.previous_speedup = Some(speedup);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INVITATION: JoinInvitation = JoinInvitation { session: [7; 32], max_streams: 8 };
    const MIB: u64 = 1 << 20;

    /// A link that is asked every 10 ms, with bytes a second by the number of streams and the turn of the clock.
    struct SimulatedLink<R> {
        rate: R,
        start: Instant,
        time: Duration,
        in_use: u32,
        sent_bytes: u64,
        remaining_bytes: u64,
        /// All numbers that were in use.
        stream_counts: Vec<u32>,
        query_count: u32,
    }

    impl<R: Fn(u32, Duration) -> u64> SimulatedLink<R> {
        fn new(remaining_bytes: u64, rate: R) -> Self {
            let start = Instant::now();
            Self {
                rate,
                start,
                time: Duration::ZERO,
                in_use: 1,
                sent_bytes: 0,
                remaining_bytes,
                stream_counts: vec![1],
                query_count: 0,
            }
        }

        /// Sends all that is left of a file.
        fn send(&mut self, tuner: &mut StreamTuner) {
            while self.remaining_bytes > 0 {
                self.time += Duration::from_millis(10);
                let bytes = ((self.rate)(self.in_use, self.time) / 100).min(self.remaining_bytes);
                (self.sent_bytes, self.remaining_bytes) = (self.sent_bytes + bytes, self.remaining_bytes - bytes);
                self.act(tuner);
            }
            tuner.end_file();
        }

        fn act(&mut self, tuner: &mut StreamTuner) {
            let time = self.start + self.time;
            let progress = TunerInput {
                time,
                active_streams: self.in_use,
                stable_time: Duration::MAX,
                settled_bytes: self.sent_bytes,
                remaining_bytes: self.remaining_bytes,
            };
            match tuner.next_action(&progress) {
                TunerAction::Nothing => {}
                TunerAction::QueryJoin => {
                    self.query_count += 1;
                    tuner.on_invitation(Some(INVITATION)).unwrap();
                }
                TunerAction::QueryArrived => {
                    let arrived = ArrivedBytes { bytes: self.sent_bytes, nanoseconds: self.time.as_nanos() as u64 };
                    tuner.on_arrived(arrived, time).unwrap();
                }
                TunerAction::UseStreams(streams) => {
                    self.in_use = streams;
                    self.stream_counts.push(streams);
                }
            }
        }
    }

    fn run_tuner(remaining_bytes: u64, rate: impl Fn(u32, Duration) -> u64) -> (Option<StreamChoice>, Vec<u32>) {
        let mut tuner = StreamTuner::new(TuningWindow::DEFAULT, None);
        let mut link = SimulatedLink::new(remaining_bytes, rate);
        link.send(&mut tuner);
        (tuner.choice(), link.stream_counts)
    }

    #[test]
    fn per_stream_limit_uses_max_streams() {
        let (choice, used) = run_tuner(400 * MIB, |streams, _| u64::from(streams) * 5 * MIB);
        let StreamChoice { streams, no_faster, .. } = choice.unwrap();
        assert_eq!((streams, no_faster, *used.last().unwrap()), (8, None, 8), "{used:?}");
        let speedup = choice.unwrap().speedup();
        assert!((7.9..8.1).contains(&speedup), "{speedup}");
    }

    #[test]
    fn tuner_stops_at_four_streams() {
        let (choice, used) = run_tuner(400 * MIB, |streams, _| (u64::from(streams) * 5 * MIB).min(18 * MIB));
        assert_eq!(choice.map(|choice| (choice.streams, choice.no_faster)), Some((4, Some(8))));
        assert_eq!(used, [1, 2, 1, 2, 4, 2, 4, 8, 4], "{used:?}");
    }

    #[test]
    fn saturating_single_stream_is_kept() {
        for gain in [0, 4] {
            let (choice, used) =
                run_tuner(100 * MIB, |streams, _| 10 * MIB + u64::from(streams.min(2) - 1) * MIB * gain / 10);
            assert_eq!(choice.map(|choice| (choice.streams, choice.no_faster)), Some((1, Some(2))));
            assert_eq!(used, [1, 2, 1]);
        }
    }

    #[test]
    fn moment_scales_with_round_trip() {
        let sample = |trip| TuningWindow::DEFAULT.for_round_trip(trip).sample.as_millis();
        let trips = [Duration::ZERO, Duration::from_millis(50), Duration::from_millis(100), Duration::MAX];
        assert_eq!(trips.map(sample), [250, 250, 500, 1000]);
    }

    #[test]
    fn link_speed_drift_does_not_bias_choice() {
        let rising_rate = |_, time: Duration| 10 * MIB + time.as_millis() as u64 * 5000;
        assert_eq!(run_tuner(200 * MIB, rising_rate).0.map(|choice| choice.streams), Some(1));
        // A gain that one turn shows and another does not is none.
        let early_gain =
            |streams, time: Duration| if streams == 2 && time.as_millis() < 1200 { 12 * MIB } else { 10 * MIB };
        assert_eq!(run_tuner(200 * MIB, early_gain).0.map(|choice| choice.streams), Some(1));
    }

    #[test]
    fn short_or_limited_transfer_is_not_tuned() {
        let mut tuner = StreamTuner::new(TuningWindow::DEFAULT, None);
        let mut link = SimulatedLink::new(10 * MIB, |_, _| 9 * MIB);
        link.send(&mut tuner);
        assert_eq!((link.query_count, link.stream_counts, tuner.choice()), (0, vec![1], None));
        let mut tuner = StreamTuner::new(TuningWindow::DEFAULT, Some(9 * MIB));
        let mut link = SimulatedLink::new(100 * MIB, |_, _| 9 * MIB);
        link.send(&mut tuner);
        assert_eq!((link.query_count, tuner.choice()), (0, None));
    }

    #[test]
    fn file_end_resets_comparison() {
        let mut tuner = StreamTuner::new(TuningWindow::DEFAULT, None);
        let mut link = SimulatedLink::new(13 * MIB, |streams, _| u64::from(streams) * 10 * MIB);
        link.send(&mut tuner);
        assert!(link.query_count == 1 && tuner.choice().is_none() && link.in_use == 2, "{:?}", link.stream_counts);
        (link.in_use, link.remaining_bytes) = (1, 300 * MIB);
        link.send(&mut tuner);
        assert_eq!((link.query_count, tuner.choice().unwrap().streams), (1, 8));
        // A third one goes over as many from its beginning.
        (link.in_use, link.remaining_bytes) = (1, MIB);
        link.send(&mut tuner);
        assert_eq!(link.in_use, 8);
    }

    #[test]
    fn refused_or_unrequested_invitation_is_handled() {
        let mut tuner = StreamTuner::new(TuningWindow::DEFAULT, None);
        assert!(
            tuner.on_invitation(None).is_err() && tuner.on_arrived(ArrivedBytes::default(), Instant::now()).is_err()
        );
        tuner.stage = TunerStage::Asked;
        tuner.on_invitation(None).unwrap();
        assert_eq!((tuner.max_useful(), tuner.choice()), (1, None));
        for max_streams in [0, 1, u32::MAX] {
            let mut tuner = StreamTuner::new(TuningWindow::DEFAULT, None);
            (tuner.stage, tuner.file) = (TunerStage::Asked, Some((Instant::now(), 0)));
            tuner.on_invitation(Some(JoinInvitation { max_streams, ..INVITATION })).unwrap();
            assert_eq!(tuner.max_useful(), max_streams.clamp(1, MAX_STREAMS));
            assert_eq!(matches!(tuner.stage, TunerStage::Over), max_streams < 2);
        }
        // After the file for which it was asked, nothing is tried before the next one is seen to be long.
        let mut tuner = StreamTuner::new(TuningWindow::DEFAULT, None);
        tuner.stage = TunerStage::Asked;
        tuner.end_file();
        tuner.on_invitation(Some(INVITATION)).unwrap();
        assert!(matches!(tuner.stage, TunerStage::Before(None)));
    }

    #[test]
    fn inconsistent_moments_are_noise() {
        let speedup = |rates: &[u64]| {
            let mut comparison = StreamCountComparison::new(1, 2);
            rates.iter().find_map(|bytes| comparison.add(ArrivedBytes { bytes: *bytes, nanoseconds: 1 }))
        };
        assert_eq!(speedup(&[10, 20, 20, 10]), Some(2.0));
        // Three times as fast together, and no faster in one of two moments.
        assert_eq!(speedup(&[2, 20, 10, 10]), Some(1.0));
        // Not clear at once: the smaller gain of two turns.
        assert_eq!(speedup(&[8, 11, 11, 8]), None);
        assert_eq!(speedup(&[8, 11, 11, 8, 8, 10, 10, 8]), Some(1.25));
        assert_eq!(speedup(&[8, 11, 11, 8, 8, 10, 7, 8]), Some(1.0));
        assert_eq!(speedup(&[4, 20, 20, 16, 10, 20, 20, 10]), Some(2.0));
    }

    /// Its figures may be anything.
    #[test]
    fn extreme_figures_are_handled() {
        let values = [0, 1, u64::MAX];
        let figures =
            || values.into_iter().flat_map(|bytes| values.map(|nanoseconds| ArrivedBytes { bytes, nanoseconds }));
        for first in figures() {
            for last in figures() {
                let mut comparison = StreamCountComparison::new(1, 2);
                while comparison.add(last.since(&first)).is_none() {}
            }
        }
    }
}
