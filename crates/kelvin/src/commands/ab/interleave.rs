//! Blocks of four measurements of each thing, two of either side in the order ABBA or BAAB, until the time is over or all is known.

use std::time::{Duration, Instant};

use kelvin_analysis::{InterleavedCase, InterleavedSettings, compare_interleaved};
use kelvin_core::units::seconds;
use kelvin_core::{Comparison, FactDifference, Round};
use kelvin_probes::causes::EarlyEnd;
use kelvin_stats::{MIN_INTERVAL_ROUNDS, Random};

use crate::cli_error::CliError;
use crate::output;
use crate::progress::StatusLine;

/// The blocks of a comparison may take this many times as long as by the first time of each thing.
const BLOCK_TIME_SLACK: f64 = 1.1;

/// Things that can be measured on either side.
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
    fn measure(&mut self, thing: usize, side: usize, index: u32) -> Result<Result<Round, EarlyEnd>, CliError>;
    /// Seconds since then.
    fn seconds_since(&self, began: Instant) -> f64 {
        began.elapsed().as_secs_f64()
    }
}

/// When it ends.
#[derive(Clone, Copy, Debug)]
pub struct InterleaveLimits {
    /// When it was asked for: all that is done from then on counts.
    pub began: Instant,
    /// Seconds of all of it.
    pub seconds: f64,
    /// The time as it was asked for, if it was: then nothing exceeds it.
    pub budget: Option<Duration>,
    /// Blocks that are made in any case while there is time.
    pub blocks: u32,
    /// Whether this many are made even if there is no time.
    pub blocks_are_required: bool,
    /// The precision of a ratio at which it ends before, as a share.
    pub until: Option<f64>,
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
        self.budget.is_none() || sides.seconds_since(self.began) + seconds <= self.seconds
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

/// Measures in turn.
///
/// # Errors
/// What makes it impossible, or an interruption before there was anything to compare.
pub fn interleave(sides: &mut dyn Arms, limits: &InterleaveLimits) -> Result<InterleaveResult, CliError> {
    let line = StatusLine::new();
    let mut state = InterleaveState::warm_up(sides, limits)?;
    let mut random = Random::new(limits.seed ^ 0x6162_6261);
    let first = sides.seconds_since(limits.began);
    let (mut made, mut ends) = (0, None);
    while ends.is_none() && !state.is_finished(sides, limits, made) {
        line.show(format_args!("block {}, {:.0} s", made + 1, sides.seconds_since(limits.began)));
        ends = state.run_block(sides, limits, (made, &mut random))?;
        made += u32::from(ends.is_none());
    }
    drop(line);
    let is_complete = ends != Some(EarlyEnd::Interrupted);
    if is_complete && made < limits.min_blocks() {
        let needed = first + f64::from(limits.min_blocks()) * state.block_seconds();
        bail!(
            "--budget {:?}: {made} of the {} blocks of a comparison fit: all take about {}; give so much, or `minimum`",
            limits.budget.unwrap_or_default(),
            limits.min_blocks(),
            seconds(needed)
        );
    }
    let comparison = state.compare(sides, limits.threshold, sides.seconds_since(limits.began) - first);
    if comparison.figures.is_empty() && !is_complete {
        bail!("interrupted before there was a whole block");
    }
    let is_precise = limits.until.is_none_or(|until| are_ratios_within(&comparison, until));
    Ok(InterleaveResult { comparison, is_complete, is_precise })
}

/// One case, and what was measured of it.
struct Subject {
    /// Its place among those of the sides.
    index: usize,
    measured: InterleavedCase,
    /// Seconds of its last block.
    block: f64,
}

/// What was measured so far.
struct InterleaveState {
    subjects: Vec<Subject>,
}

impl InterleaveState {
    /// One of each on either side that does not count: it shows what cannot be done, warms what a first time would find cold, and how long it
    /// takes. What leaves no time for the blocks of those before it is left out, and said.
    fn warm_up(sides: &mut dyn Arms, limits: &InterleaveLimits) -> Result<Self, CliError> {
        let (mut subjects, mut left_out): (Vec<Subject>, Vec<String>) = Default::default();
        let blocks = BLOCK_TIME_SLACK * f64::from(limits.min_blocks());
        // Seconds of a block of all subjects.
        let mut total = 0.0;
        for (index, measured) in sides.cases().into_iter().enumerate() {
            let name = format!("{} {}", measured.sides[0].planned.probe, measured.case).trim_end().to_owned();
            // It is expected to be like those before it.
            let next = total / subjects.len().max(1) as f64;
            if !limits.has_time(sides, next / 2.0 + blocks * (total + next)) {
                left_out.push(name);
                continue;
            }
            let begun = sides.seconds_since(limits.began);
            for side in 0..2 {
                match sides.measure(index, side, 0)? {
                    Ok(_) => {}
                    Err(EarlyEnd::Interrupted) => bail!("interrupted before anything was measured"),
                    Err(EarlyEnd::TimedOut) => break,
                }
            }
            let block = 2.0 * (sides.seconds_since(limits.began) - begun);
            if !subjects.is_empty() && !limits.has_time(sides, blocks * (total + block)) {
                left_out.push(name);
                continue;
            }
            subjects.push(Subject { index, measured, block });
            total += block;
        }
        let time = limits.budget.unwrap_or_default();
        output::eprint_names(format_args!("kelvin: {time:?} is too short for these, which are left out:"), &left_out);
        Ok(Self { subjects })
    }

    /// Seconds of a block of all things.
    fn block_seconds(&self) -> f64 {
        self.subjects.iter().map(|subject| subject.block).sum()
    }

    /// Whether it is over after this many blocks: precision is not looked at after each, since looking often finds it by chance.
    fn is_finished(&self, sides: &dyn Arms, limits: &InterleaveLimits, made: u32) -> bool {
        if made < limits.min_blocks() {
            return !limits.has_time(sides, 0.0);
        }
        let elapsed = sides.seconds_since(limits.began);
        let is_precise = |until| are_ratios_within(&self.compare(sides, limits.threshold, elapsed), until);
        elapsed + self.block_seconds() >= limits.seconds
            || made >= limits.blocks && made.is_power_of_two() && limits.until.is_some_and(is_precise)
    }

    /// Makes one block of each thing, in a random order; what ended it if that was not whole.
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
            if !limits.has_time(sides, subject.block) {
                return Ok(Some(EarlyEnd::TimedOut));
            }
            let (first, begun) = (random.index_below(2), sides.seconds_since(limits.began));
            let mut turns = [0; 2];
            for side in [first, 1 - first, 1 - first, first] {
                let round = match sides.measure(subject.index, side, 2 * block + turns[side])? {
                    Ok(round) => round,
                    Err(end) => return Ok(Some(end)),
                };
                turns[side] += 1;
                subject.measured.sides[side].rounds.push(round);
            }
            subject.block = sides.seconds_since(limits.began) - begun;
        }
        Ok(None)
    }

    fn compare(&self, sides: &dyn Arms, threshold: f64, seconds: f64) -> Comparison {
        let cases: Vec<&InterleavedCase> = self.subjects.iter().map(|subject| &subject.measured).collect();
        let (names, differences) = (sides.names(), sides.differences());
        compare_interleaved(&InterleavedSettings { names, differences, threshold, seconds, cases: &cases })
    }
}

/// Whether every ratio is known to within a share.
fn are_ratios_within(comparison: &Comparison, share: f64) -> bool {
    let half_width = |low: f64, high: f64| (high / low).ln() / 2.0;
    let mut ratios = comparison.figures.iter().map(|figure| &figure.ratio);
    !comparison.figures.is_empty()
        && ratios.all(|ratio| !ratio.is_range && half_width(ratio.low, ratio.high) <= share.ln_1p())
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
        asked: Vec<usize>,
        stops_after: usize,
        /// Seconds of a run of each thing.
        takes: Vec<f64>,
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
            (0..self.takes.len()).map(case).collect()
        }

        fn seconds_since(&self, _: Instant) -> f64 {
            self.now
        }

        fn measure(&mut self, thing: usize, side: usize, index: u32) -> Result<Result<Round, EarlyEnd>, CliError> {
            self.asked.push(side);
            self.now += self.takes[thing];
            if self.asked.len() > self.stops_after {
                return Ok(Err(EarlyEnd::Interrupted));
            }
            // Each is a thousandth slower than the one before: far more than the difference, over all of them.
            let drift = 0.001 * self.asked.len() as f64;
            let time =
                1e6 * (drift + 0.002 * self.random.normal() + if side == 1 { self.ratio.ln() } else { 0.0 }).exp();
            let reading = MetricReadings {
                metric: TIME.id,
                readings: Readings::Scalars(vec![time]),
                overhead: OverheadReading::default(),
                notes: Vec::new(),
            };
            let attempt = RoundOutcome::Measured(vec![reading]);
            Ok(Ok(Round { index, start_seconds: 0.0, seconds: 0.0, timing: None, cpu: 0, outcome: attempt }))
        }
    }

    fn scripted(ratio: f64, stops_after: usize) -> ScriptedArms {
        ScriptedArms { random: Random::new(7), ratio, asked: Vec::new(), stops_after, takes: vec![0.1], now: 0.0 }
    }

    fn limits(blocks: u32, until: Option<f64>) -> InterleaveLimits {
        let (began, seconds) = (Instant::now(), if until.is_some() { 1000.0 } else { 0.0 });
        InterleaveLimits {
            began,
            seconds,
            budget: None,
            blocks,
            blocks_are_required: true,
            until,
            threshold: 0.01,
            seed: 3,
        }
    }

    /// What comes of things that take so long, in 100 s: how many are compared, or why none is, and when it ended.
    fn compared_within(takes: &[f64], asked: bool, rounds: Option<u32>) -> (Result<usize, String>, f64) {
        let mut sides = ScriptedArms { takes: takes.to_vec(), ..scripted(1.0, usize::MAX) };
        let limits = InterleaveLimits {
            seconds: 100.0,
            budget: asked.then_some(Duration::from_secs(100)),
            blocks: rounds.unwrap_or(8),
            blocks_are_required: rounds.is_some(),
            ..limits(8, None)
        };
        let outcome = interleave(&mut sides, &limits).map(|outcome| outcome.comparison.figures.len());
        (outcome.map_err(|fault| fault.to_string()), sides.now)
    }

    #[test]
    fn comparison_and_warm_up_keep_the_budget() {
        let kept = |takes: &[f64], rounds| {
            let (outcome, ended) = compared_within(takes, true, rounds);
            assert!(ended <= 100.0, "{takes:?} {rounds:?}: {ended} s");
            outcome
        };
        assert_eq!(kept(&[1.0], None), Ok(1));
        assert_eq!(kept(&[5.0], None), Ok(1), "2 and 4 x 4 of 5 s are 90 s");
        // What does not fit is left out, and what comes after it is not.
        assert_eq!(kept(&[2.0, 9.0, 1.0], None), Ok(2));
        assert_eq!(kept(&[0.1; 300], None).map(|figures| (40..60).contains(&figures)), Ok(true));
        let none = kept(&[6.0], None).unwrap_err();
        assert!(
            none.starts_with("--budget 100s: 3 of the 4 blocks of a comparison fit: all take about 1 min 48 s;"),
            "{none}"
        );
        assert!(kept(&[3.0], Some(8)).unwrap_err().contains("of the 8 blocks"));
        // What nobody asked for yields to the minimum of blocks, and to no more.
        assert_eq!(compared_within(&[6.0], false, None), (Ok(1), 6.0 * 18.0));
        assert_eq!(compared_within(&[3.0], false, Some(20)), (Ok(1), 3.0 * 82.0));
        assert!(compared_within(&[3.0], false, None).1 <= 100.0);
    }

    #[test]
    fn difference_below_drift_is_found() {
        for (ratio, verdict) in
            [(1.05, ChangeVerdict::Worse), (0.95, ChangeVerdict::Better), (1.0, ChangeVerdict::Same)]
        {
            let mut sides = scripted(ratio, usize::MAX);
            let outcome = interleave(&mut sides, &limits(25, None)).unwrap();
            let [figure] = &outcome.comparison.figures[..] else { panic!("{:?}", outcome.comparison) };
            assert_eq!(figure.verdict, verdict, "{figure:?}");
            assert!((figure.ratio.low..=figure.ratio.high).contains(&ratio), "{figure:?}");
            assert_eq!(figure.rounds, [50, 50]);
            // The first of each does not count; then in each block the first and the last are of one side.
            let blocks = sides.asked[2..].as_chunks::<4>().0;
            assert!(
                blocks.iter().all(|[first, second, third, last]| first == last && second == third && first != second)
            );
            assert!(blocks.iter().any(|block| block[0] == 0) && blocks.iter().any(|block| block[0] == 1));
        }
    }

    #[test]
    fn ends_at_requested_precision() {
        let mut sides = scripted(1.03, usize::MAX);
        let outcome = interleave(&mut sides, &limits(4, Some(0.002))).unwrap();
        assert!(outcome.is_precise && outcome.is_complete);
        let figure = &outcome.comparison.figures[0];
        assert!((figure.ratio.high / figure.ratio.low).ln() <= 2.0 * 0.002 && figure.rounds[0] < 500, "{figure:?}");
    }

    #[test]
    fn interruption_keeps_whole_blocks_or_fails() {
        let outcome = interleave(&mut scripted(1.05, 2 + 4 * 6 + 3), &limits(25, None)).unwrap();
        assert!(!outcome.is_complete);
        assert_eq!(outcome.comparison.figures[0].rounds, [12, 12]);
        assert_eq!(outcome.comparison.interleaving.unwrap().blocks, 6);
        for stops_after in [0, 1, 2, 5] {
            assert!(interleave(&mut scripted(1.05, stops_after), &limits(25, None)).is_err(), "{stops_after}");
        }
    }
}
