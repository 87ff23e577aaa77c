//! Blocks of four measurements of each thing, two of either side in the order ABBA or BAAB, until the time is over or all is known.

use std::time::Instant;

use kelvin_analysis::{MeasuredInTurn, Turns, compare_in_turn};
use kelvin_model::{Case, Comparison, FactDiffers, Measurement, Metric, Name, Planned, Round};
use kelvin_stats::{LEAST_ROUNDS, Random};

use crate::fault::Fault;
use crate::output::Line;

/// Things that can be measured on either side.
pub trait Sides {
    /// The names of A and B.
    fn names(&self) -> [String; 2];
    /// What differs between them.
    fn differences(&self) -> Vec<FactDiffers>;
    /// What is measured: a probe or command, its metrics and a case.
    fn things(&self) -> Vec<Thing>;
    /// Measures one of them on a side once; `None` if this process was asked to stop meanwhile.
    ///
    /// # Errors
    /// What makes the whole comparison impossible.
    fn measure(&mut self, thing: usize, side: usize, index: u32) -> Result<Option<Round>, Fault>;
}

/// What is measured on both sides.
#[derive(Clone, Debug)]
pub struct Thing {
    /// Its probe, or what stands for one.
    pub probe: Name,
    /// Its metrics.
    pub metrics: Vec<Metric>,
    /// Its case.
    pub case: Case,
}

/// When it ends.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Seconds.
    pub seconds: f64,
    /// Blocks that are made in any case while there is time.
    pub blocks: u32,
    /// Whether so many are made even if there is no time.
    pub is_asked: bool,
    /// The precision of a ratio at which it ends before, as a share.
    pub until: Option<f64>,
    /// Share by which a figure must differ to be better or worse.
    pub threshold: f64,
    /// Seed of the orders.
    pub seed: u64,
}

impl Limits {
    /// Blocks that are made whatever the time: fewer give no interval.
    fn least(&self) -> u32 {
        if self.is_asked { self.blocks } else { LEAST_ROUNDS as u32 }
    }

    /// Whether it is over after so many blocks: precision is not looked at after each, since looking often finds it by chance.
    fn is_over(&self, made: u32, began: Instant, is_precise: impl FnOnce() -> bool) -> bool {
        if made < self.least() {
            return false;
        }
        let is_late = began.elapsed().as_secs_f64() >= self.seconds;
        is_late || made >= self.blocks && self.until.is_some() && made.is_power_of_two() && is_precise()
    }
}

/// What came out.
pub struct Outcome {
    /// The comparison.
    pub comparison: Comparison,
    /// Whether it was not interrupted.
    pub is_whole: bool,
    /// Whether every ratio is known to within what was asked for.
    pub is_precise: bool,
}

/// Measures in turn.
///
/// # Errors
/// What makes it impossible, or an interruption before there was anything to compare.
pub fn alternate(sides: &mut dyn Sides, limits: &Limits) -> Result<Outcome, Fault> {
    let things = sides.things();
    let mut found = Found::of(sides, &things);
    let mut random = Random::new(limits.seed ^ 0x6162_6261);
    let line = Line::new();
    // One of each that does not count: it shows what cannot be done, and warms what a first time would find cold.
    for thing in 0..things.len() {
        for side in 0..2 {
            if sides.measure(thing, side, 0)?.is_none() {
                return Err(Fault::because("interrupted before anything was measured"));
            }
        }
    }
    let began = Instant::now();
    let (mut made, mut is_whole) = (0, true);
    while is_whole && !limits.is_over(made, began, || found.is_precise(limits, began)) {
        line.show(format_args!("block {}, {:.0} s", made + 1, began.elapsed().as_secs_f64()));
        is_whole = found.block(sides, made, &mut random)?;
        made += 1;
    }
    drop(line);
    let comparison = found.compare(limits.threshold, began);
    if comparison.figures.is_empty() && !is_whole {
        return Err(Fault::because("interrupted before there was a whole block"));
    }
    let is_precise = limits.until.is_none_or(|until| is_within(&comparison, until));
    Ok(Outcome { comparison, is_whole, is_precise })
}

/// What was measured so far.
struct Found<'t> {
    things: &'t [Thing],
    names: [String; 2],
    differences: Vec<FactDiffers>,
    rounds: Vec<[Measurement; 2]>,
}

impl<'t> Found<'t> {
    fn of(sides: &dyn Sides, things: &'t [Thing]) -> Self {
        let empty = |thing: &Thing| {
            let metrics = thing.metrics.iter().map(|metric| metric.id).collect();
            let planned = Planned { probe: thing.probe, metrics, case: thing.case.clone(), only_input: false };
            Measurement { planned, rounds: Vec::new(), skipped: None }
        };
        let rounds = things.iter().map(|thing| [empty(thing), empty(thing)]).collect();
        Self { things, names: sides.names(), differences: sides.differences(), rounds }
    }

    /// Makes one block of each thing, in a random order; false if this process was asked to stop meanwhile.
    fn block(&mut self, sides: &mut dyn Sides, block: u32, random: &mut Random) -> Result<bool, Fault> {
        let mut order: Vec<usize> = (0..self.things.len()).collect();
        random.shuffle(&mut order);
        for thing in order {
            let first = random.below(2);
            let mut turns = [0; 2];
            for side in [first, 1 - first, 1 - first, first] {
                let Some(round) = sides.measure(thing, side, 2 * block + turns[side])? else { return Ok(false) };
                turns[side] += 1;
                self.rounds[thing][side].rounds.push(round);
            }
        }
        Ok(true)
    }

    fn compare(&self, threshold: f64, began: Instant) -> Comparison {
        let measured: Vec<MeasuredInTurn<'_>> = self
            .things
            .iter()
            .zip(&self.rounds)
            .map(|(thing, [a, b])| MeasuredInTurn { metrics: &thing.metrics, case: &thing.case, sides: [a, b] })
            .collect();
        compare_in_turn(&Turns {
            names: self.names.clone(),
            differences: self.differences.clone(),
            threshold,
            seconds: began.elapsed().as_secs_f64(),
            measured: &measured,
        })
    }

    fn is_precise(&self, limits: &Limits, began: Instant) -> bool {
        limits.until.is_some_and(|until| is_within(&self.compare(limits.threshold, began), until))
    }
}

/// Whether every ratio is known to within a share.
fn is_within(comparison: &Comparison, share: f64) -> bool {
    let half_width = |low: f64, high: f64| (high / low).ln() / 2.0;
    !comparison.figures.is_empty()
        && comparison
            .figures
            .iter()
            .all(|figure| !figure.ratio.is_range && half_width(figure.ratio.low, figure.ratio.high) <= share.ln_1p())
}

#[cfg(test)]
mod tests {
    use kelvin_catalogue::command::TIME;
    use kelvin_model::{Attempt, ChangeVerdict, OverheadReading, Reading, Readings};

    use super::*;

    /// Two sides whose times are known, with drift and noise; and what they were asked for.
    struct Scripted {
        random: Random,
        ratio: f64,
        asked: Vec<usize>,
        stops_after: usize,
    }

    impl Sides for Scripted {
        fn names(&self) -> [String; 2] {
            ["a".into(), "b".into()]
        }

        fn differences(&self) -> Vec<FactDiffers> {
            Vec::new()
        }

        fn things(&self) -> Vec<Thing> {
            vec![Thing { probe: TIME.id, metrics: vec![TIME], case: Case::new() }]
        }

        fn measure(&mut self, _: usize, side: usize, index: u32) -> Result<Option<Round>, Fault> {
            self.asked.push(side);
            if self.asked.len() > self.stops_after {
                return Ok(None);
            }
            // Each is a thousandth slower than the one before: far more than the difference, over all of them.
            let drift = 0.001 * self.asked.len() as f64;
            let time =
                1e6 * (drift + 0.002 * self.random.normal() + if side == 1 { self.ratio.ln() } else { 0.0 }).exp();
            let reading = Reading {
                metric: TIME.id,
                readings: Readings::Scalars(vec![time]),
                overhead: OverheadReading::default(),
                notes: Vec::new(),
            };
            let attempt = Attempt::Measured(vec![reading]);
            Ok(Some(Round { index, at: 0.0, seconds: 0.0, timing: None, cpu: 0, attempt }))
        }
    }

    fn scripted(ratio: f64, stops_after: usize) -> Scripted {
        Scripted { random: Random::new(7), ratio, asked: Vec::new(), stops_after }
    }

    fn limits(blocks: u32, until: Option<f64>) -> Limits {
        let seconds = if until.is_some() { 1000.0 } else { 0.0 };
        Limits { seconds, blocks, is_asked: true, until, threshold: 0.01, seed: 3 }
    }

    #[test]
    fn a_difference_is_found_beneath_a_drift_that_is_larger() {
        for (ratio, verdict) in
            [(1.05, ChangeVerdict::Worse), (0.95, ChangeVerdict::Better), (1.0, ChangeVerdict::Same)]
        {
            let mut sides = scripted(ratio, usize::MAX);
            let outcome = alternate(&mut sides, &limits(25, None)).unwrap();
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
    fn it_ends_when_the_ratio_is_known_so_well() {
        let mut sides = scripted(1.03, usize::MAX);
        let outcome = alternate(&mut sides, &limits(4, Some(0.002))).unwrap();
        assert!(outcome.is_precise && outcome.is_whole);
        let figure = &outcome.comparison.figures[0];
        assert!((figure.ratio.high / figure.ratio.low).ln() <= 2.0 * 0.002 && figure.rounds[0] < 500, "{figure:?}");
    }

    #[test]
    fn an_interruption_keeps_whole_blocks_and_before_there_is_one_it_is_a_fault() {
        let outcome = alternate(&mut scripted(1.05, 2 + 4 * 6 + 3), &limits(25, None)).unwrap();
        assert!(!outcome.is_whole);
        assert_eq!(outcome.comparison.figures[0].rounds, [12, 12]);
        assert_eq!(outcome.comparison.in_turn.unwrap().blocks, 6);
        for stops_after in [0, 1, 2, 5] {
            assert!(alternate(&mut scripted(1.05, stops_after), &limits(25, None)).is_err(), "{stops_after}");
        }
    }
}
