//! Blocks of four measurements of each case, two of either side in the order ABBA or BAAB, until the time or the precision ends it.

use std::time::{Duration, Instant};

use kelvin_analysis::{InterleavedCase, InterleavedSettings, compare_interleaved};
use kelvin_core::units::seconds;
use kelvin_core::{Comparison, FactDifference, Round};
use kelvin_harness::EarlyEnd;
use kelvin_stats::{MIN_INTERVAL_ROUNDS, Random};

use crate::cli_error::CliError;
use crate::output;
use crate::progress::StatusLine;

/// The blocks of a comparison may take this many times as long as by the first time of each thing.
const BLOCK_TIME_SLACK: f64 = 1.1;

/// Cases that can be measured on either side.
pub trait Arms {
    /// The names of A and B.
    fn names(&self) -> [String; 2];
    /// What differs between them.
    fn differences(&self) -> Vec<FactDifference>;
    /// What is measured: each case of a probe or command.
    fn cases(&self) -> Vec<InterleavedCase>;
    /// Measures one of them on a side once.
    ///
    /// # Errors
    /// What makes the whole comparison impossible.
    fn measure(&mut self, subject: usize, side: usize, index: u32) -> Result<Result<Round, EarlyEnd>, CliError>;
    /// Seconds since then.
    fn seconds_since(&self, start: Instant) -> f64 {
        start.elapsed().as_secs_f64()
    }
}

/// When it ends.
#[derive(Clone, Copy, Debug)]
pub struct InterleaveLimits {
    /// When it was asked for: all that is done from then on counts.
    pub start: Instant,
    /// Seconds of all of it.
    pub seconds: f64,
    /// Seconds that it usually takes.
    pub default_seconds: f64,
    /// The time as it was asked for, if it was: then nothing exceeds it.
    pub budget: Option<Duration>,
    /// Blocks that are made in any case while there is time.
    pub blocks: u32,
    /// Whether this many are made even if there is no time.
    pub blocks_are_required: bool,
    /// The precision of a ratio at which it ends before, as a share.
    pub precision: Option<f64>,
    /// Share by which a figure must differ to be better or worse.
    pub threshold: f64,
    /// Seed of the orders.
    pub seed: u64,
}

impl InterleaveLimits {
    /// Blocks without which there is no comparison: fewer give no interval.
    pub fn min_blocks(&self) -> u32 {
        if self.blocks_are_required { self.blocks } else { MIN_INTERVAL_ROUNDS as u32 }
    }

    /// Whether this many seconds are left of the time that was asked for.
    fn has_time(&self, sides: &dyn Arms, seconds: f64) -> bool {
        self.budget.is_none() || sides.seconds_since(self.start) + seconds <= self.seconds
    }
}

/// What came out.
pub struct InterleaveResult {
    /// The comparison.
    pub comparison: Comparison,
    /// Whether it was not interrupted.
    pub is_complete: bool,
    /// Whether every ratio is known to within what was asked for.
    pub is_precise: bool,
}

/// Measures interleaved.
///
/// # Errors
/// What makes it impossible, or an interruption before there was anything to compare.
pub fn interleave(sides: &mut dyn Arms, limits: &InterleaveLimits) -> Result<InterleaveResult, CliError> {
    let line = StatusLine::new();
    let mut state = InterleaveState::warm_up(sides, limits)?;
    let mut random = Random::new(limits.seed ^ 0x6162_6261);
    let first = sides.seconds_since(limits.start);
    let (mut block_count, mut early_end) = (0, None);
    while early_end.is_none() && !state.is_finished(sides, limits, block_count) {
        line.show(format_args!("block {}, {:.0} s", block_count + 1, sides.seconds_since(limits.start)));
        early_end = state.run_block(sides, limits, (block_count, &mut random))?;
        block_count += u32::from(early_end.is_none());
    }
    drop(line);
    let is_complete = early_end != Some(EarlyEnd::Interrupted);
    if is_complete && block_count < limits.min_blocks() {
        let needed_seconds = first + f64::from(limits.min_blocks()) * state.block_seconds();
        let budget_text = match limits.budget {
            Some(budget) => format!("--budget {budget:?}"),
            None => format!("after {}", seconds(sides.seconds_since(limits.start))),
        };
        bail!(
            "{budget_text}: {block_count} of the {} blocks of a comparison fit: all take about {}; give that time by --budget",
            limits.min_blocks(),
            seconds(needed_seconds)
        );
    }
    let comparison = state.compare(sides, limits.threshold, sides.seconds_since(limits.start) - first);
    if comparison.figures.is_empty() && !is_complete {
        bail!("interrupted before there was a whole block");
    }
    let is_precise = limits.precision.is_none_or(|precision| are_ratios_within(&comparison, precision));
    Ok(InterleaveResult { comparison, is_complete, is_precise })
}

/// One case, and what was measured of it.
struct Subject {
    /// Its place among those of the sides.
    index: usize,
    case: InterleavedCase,
    /// Seconds of its last block.
    block_seconds: f64,
}

/// What was measured so far.
struct InterleaveState {
    subjects: Vec<Subject>,
}

impl InterleaveState {
    /// One of each on either side that does not count: it shows what cannot be done, warms what a first time would find cold, and how long it
    /// takes. What leaves no time for the blocks of those before it is left out, and reported.
    fn warm_up(sides: &mut dyn Arms, limits: &InterleaveLimits) -> Result<Self, CliError> {
        let (mut subjects, mut omitted_cases): (Vec<Subject>, Vec<String>) = Default::default();
        let blocks = BLOCK_TIME_SLACK * f64::from(limits.min_blocks());
        // Seconds of a block of all subjects.
        let mut total = 0.0;
        for (index, case) in sides.cases().into_iter().enumerate() {
            let name = format!("{} {}", case.sides[0].planned.probe, case.case).trim_end().to_owned();
            // It is expected to be like those before it.
            let expected_seconds = total / subjects.len().max(1) as f64;
            if !limits.has_time(sides, expected_seconds / 2.0 + blocks * (total + expected_seconds)) {
                omitted_cases.push(name);
                continue;
            }
            let start = sides.seconds_since(limits.start);
            for side in 0..2 {
                match sides.measure(index, side, 0)? {
                    Ok(_) => {}
                    Err(EarlyEnd::Interrupted) => bail!("interrupted before anything was measured"),
                    Err(EarlyEnd::TimedOut) => break,
                }
            }
            let block_seconds = 2.0 * (sides.seconds_since(limits.start) - start);
            if !subjects.is_empty() && !limits.has_time(sides, blocks * (total + block_seconds)) {
                omitted_cases.push(name);
                continue;
            }
            subjects.push(Subject { index, case, block_seconds });
            total += block_seconds;
        }
        let time = limits.budget.unwrap_or_default();
        output::eprint_names(
            format_args!("kelvin: {time:?} is too short for these, which are left out:"),
            &omitted_cases,
        );
        Ok(Self { subjects })
    }

    /// Seconds of a block of all subjects.
    fn block_seconds(&self) -> f64 {
        self.subjects.iter().map(|subject| subject.block_seconds).sum()
    }

    /// Whether it is over after this many blocks: precision is not looked at after each, since looking often finds it by chance.
    fn is_finished(&self, sides: &dyn Arms, limits: &InterleaveLimits, block_count: u32) -> bool {
        if block_count < limits.min_blocks() {
            return !limits.has_time(sides, 0.0);
        }
        let elapsed = sides.seconds_since(limits.start);
        let is_precise = |precision| are_ratios_within(&self.compare(sides, limits.threshold, elapsed), precision);
        elapsed + self.block_seconds() >= limits.seconds
            || block_count >= limits.blocks && block_count.is_power_of_two() && limits.precision.is_some_and(is_precise)
    }

    /// Makes one block of each subject, in a random order; returns what ended it before the end.
    fn run_block(
        &mut self,
        sides: &mut dyn Arms,
        limits: &InterleaveLimits,
        (block, random): (u32, &mut Random),
    ) -> Result<Option<EarlyEnd>, CliError> {
        let mut order: Vec<usize> = (0..self.subjects.len()).collect();
        random.shuffle(&mut order);
        for index in order {
            let subject = &mut self.subjects[index];
            if !limits.has_time(sides, subject.block_seconds) {
                return Ok(Some(EarlyEnd::TimedOut));
            }
            let (first, start) = (random.index_below(2), sides.seconds_since(limits.start));
            let mut turns = [0; 2];
            for side in [first, 1 - first, 1 - first, first] {
                let round = match sides.measure(subject.index, side, 2 * block + turns[side])? {
                    Ok(round) => round,
                    Err(end) => return Ok(Some(end)),
                };
                turns[side] += 1;
                subject.case.sides[side].rounds.push(round);
            }
            subject.block_seconds = sides.seconds_since(limits.start) - start;
        }
        Ok(None)
    }

    fn compare(&self, sides: &dyn Arms, threshold: f64, seconds: f64) -> Comparison {
        let cases: Vec<&InterleavedCase> = self.subjects.iter().map(|subject| &subject.case).collect();
        let (names, differences) = (sides.names(), sides.differences());
        compare_interleaved(&InterleavedSettings { names, differences, threshold, seconds, cases: &cases })
    }
}

/// Whether every ratio is known to within a share.
fn are_ratios_within(comparison: &Comparison, share: f64) -> bool {
    !comparison.figures.is_empty() && comparison.figures.iter().all(|figure| figure.ratio.is_known_within(share))
}

#[cfg(test)]
mod tests {
    use kelvin_core::catalogue::command::TIME;
    use kelvin_core::{Case, ChangeVerdict, MetricReadings, OverheadReading, Readings, RoundOutcome};

    use super::*;

    /// Two sides whose times are known, with drift and noise; and what they were asked for.
    struct ScriptedArms {
        random: Random,
        ratio: f64,
        measured_sides: Vec<usize>,
        stops_after: usize,
        /// Seconds of a run of each thing.
        durations: Vec<f64>,
        /// Seconds that have passed.
        now: f64,
    }

    impl Arms for ScriptedArms {
        fn names(&self) -> [String; 2] {
            ["a".into(), "b".into()]
        }

        fn differences(&self) -> Vec<FactDifference> {
            Vec::new()
        }

        fn cases(&self) -> Vec<InterleavedCase> {
            let case = |n| InterleavedCase::new(TIME.id, vec![TIME], Case::new().with_number("n", n as u64));
            (0..self.durations.len()).map(case).collect()
        }

        fn seconds_since(&self, _: Instant) -> f64 {
            self.now
        }

        fn measure(&mut self, subject: usize, side: usize, index: u32) -> Result<Result<Round, EarlyEnd>, CliError> {
            self.measured_sides.push(side);
            self.now += self.durations[subject];
            if self.measured_sides.len() > self.stops_after {
                return Ok(Err(EarlyEnd::Interrupted));
            }
            // Each is a thousandth slower than the one before: far more than the difference, over all of them.
            let drift = 0.001 * self.measured_sides.len() as f64;
            let time =
                1e6 * (drift + 0.002 * self.random.normal() + if side == 1 { self.ratio.ln() } else { 0.0 }).exp();
            let reading = MetricReadings {
                metric: TIME.id,
                readings: Readings::Scalars(vec![time]),
                overhead: OverheadReading::default(),
                notes: Vec::new(),
                counted: None,
            };
            let attempt = RoundOutcome::Measured(vec![reading]);
            Ok(Ok(Round { index, start_seconds: 0.0, seconds: 0.0, timing: None, cpu: 0, outcome: attempt }))
        }
    }

    fn scripted_arms(ratio: f64, stops_after: usize) -> ScriptedArms {
        ScriptedArms {
            random: Random::new(7),
            ratio,
            measured_sides: Vec::new(),
            stops_after,
            durations: vec![0.1],
            now: 0.0,
        }
    }

    fn limits(blocks: u32, precision: Option<f64>) -> InterleaveLimits {
        let (start, seconds) = (Instant::now(), if precision.is_some() { 1000.0 } else { 0.0 });
        InterleaveLimits {
            start,
            seconds,
            default_seconds: 60.0,
            budget: None,
            blocks,
            blocks_are_required: true,
            precision,
            threshold: 0.01,
            seed: 3,
        }
    }

    /// What comes of things that take so long, in 100 s: how many are compared, or why none is, and when it ended.
    fn compare_within(durations: &[f64], has_budget: bool, rounds: Option<u32>) -> (Result<usize, String>, f64) {
        let mut sides = ScriptedArms { durations: durations.to_vec(), ..scripted_arms(1.0, usize::MAX) };
        let limits = InterleaveLimits {
            seconds: 100.0,
            budget: has_budget.then_some(Duration::from_secs(100)),
            blocks: rounds.unwrap_or(8),
            blocks_are_required: rounds.is_some(),
            ..limits(8, None)
        };
        let outcome = interleave(&mut sides, &limits).map(|outcome| outcome.comparison.figures.len());
        (outcome.map_err(|fault| fault.to_string()), sides.now)
    }

    #[test]
    fn comparison_and_warm_up_keep_the_budget() {
        let compare_in_budget = |durations: &[f64], rounds| {
            let (outcome, end) = compare_within(durations, true, rounds);
            assert!(end <= 100.0, "{durations:?} {rounds:?}: {end} s");
            outcome
        };
        assert_eq!(compare_in_budget(&[1.0], None), Ok(1));
        assert_eq!(compare_in_budget(&[5.0], None), Ok(1), "2 and 4 x 4 of 5 s are 90 s");
        // What does not fit is left out, and what comes after it is not.
        assert_eq!(compare_in_budget(&[2.0, 9.0, 1.0], None), Ok(2));
        assert_eq!(compare_in_budget(&[0.1; 300], None).map(|figures| (40..60).contains(&figures)), Ok(true));
        let error = compare_in_budget(&[6.0], None).unwrap_err();
        assert!(
            error.starts_with("--budget 100s: 3 of the 4 blocks of a comparison fit: all take about 1 min 48 s;"),
            "{error}"
        );
        assert!(compare_in_budget(&[3.0], Some(8)).unwrap_err().contains("of the 8 blocks"));
        // What nobody asked for yields to the minimum of blocks, and to no more.
        assert_eq!(compare_within(&[6.0], false, None), (Ok(1), 6.0 * 18.0));
        assert_eq!(compare_within(&[3.0], false, Some(20)), (Ok(1), 3.0 * 82.0));
        assert!(compare_within(&[3.0], false, None).1 <= 100.0);
    }

    #[test]
    fn difference_below_drift_is_detected() {
        for (ratio, verdict) in
            [(1.05, ChangeVerdict::Worse), (0.95, ChangeVerdict::Better), (1.0, ChangeVerdict::Same)]
        {
            let mut sides = scripted_arms(ratio, usize::MAX);
            let outcome = interleave(&mut sides, &limits(25, None)).unwrap();
            let [figure] = &outcome.comparison.figures[..] else { panic!("{:?}", outcome.comparison) };
            assert_eq!(figure.verdict, verdict, "{figure:?}");
            assert!((figure.ratio.low..=figure.ratio.high).contains(&ratio), "{figure:?}");
            assert_eq!(figure.rounds, [50, 50]);
            // The first of each does not count; then in each block the first and the last are of one side.
            let blocks = sides.measured_sides[2..].as_chunks::<4>().0;
            assert!(
                blocks.iter().all(|[first, second, third, last]| first == last && second == third && first != second)
            );
            assert!(blocks.iter().any(|block| block[0] == 0) && blocks.iter().any(|block| block[0] == 1));
        }
    }

    #[test]
    fn ends_at_requested_precision() {
        let mut sides = scripted_arms(1.03, usize::MAX);
        let outcome = interleave(&mut sides, &limits(4, Some(0.002))).unwrap();
        assert!(outcome.is_precise && outcome.is_complete);
        let figure = &outcome.comparison.figures[0];
        assert!((figure.ratio.high / figure.ratio.low).ln() <= 2.0 * 0.002 && figure.rounds[0] < 500, "{figure:?}");
    }

    #[test]
    fn interruption_keeps_whole_blocks_or_fails() {
        let outcome = interleave(&mut scripted_arms(1.05, 2 + 4 * 6 + 3), &limits(25, None)).unwrap();
        assert!(!outcome.is_complete);
        assert_eq!(outcome.comparison.figures[0].rounds, [12, 12]);
        assert_eq!(outcome.comparison.interleaving.unwrap().blocks, 6);
        for stops_after in [0, 1, 2, 5] {
            assert!(interleave(&mut scripted_arms(1.05, stops_after), &limits(25, None)).is_err(), "{stops_after}");
        }
    }
}
