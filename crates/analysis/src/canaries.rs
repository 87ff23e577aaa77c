//! Canaries over a run: the steady state of each, how far from it is disturbed, and which batches were.

use std::collections::BTreeMap;

use kelvin_model::{
    Attempt, Batches, CANARY_CHAIN_MULTIPLIES, Canaries, Canary, CanaryPoint, Case, Measurement, Name, Readings, Round,
    Run,
};
use kelvin_stats::{Samples, Sorted, dominant_mode};

use crate::result::CanaryHistory;

/// Relative width of the window whose fullest place is the steady state: wide enough for the jitter of a reading of a
/// few microseconds, narrow enough to part two steps of a frequency ladder (100 MHz at 4 GHz).
const MODE_WIDTH: f64 = 0.02;
/// Readings further than this from the reference are no part of the dominant mode and say nothing of its spread.
const MODE_REACH: f64 = 0.1;
/// Tolerance in standard deviations of the dominant mode.
const TOLERANCE_STDS: f64 = 3.0;
/// Bounds of the tolerance. Below 1.5 % the clock's grain and single interrupts would tag quiet batches; above 5 % a
/// change of frequency would pass.
const TOLERANCE: (f64, f64) = (0.015, 0.05);
/// The reference is found from at most this many readings, evenly taken: its error is then below 0.1 %.
const READINGS_FOR_REFERENCE: usize = 20_000;
/// Points of a canary's history, at most.
const HISTORY_POINTS: usize = 2000;
/// A chain reading beyond this factor of the reference is an interruption, not a frequency.
const FREQUENCY_RANGE: (f64, f64) = (0.4, 2.5);

/// Steady state and tolerance of one canary.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Reference {
    /// Dominant steady state, in nanoseconds.
    pub nanoseconds: f64,
    /// Relative distance up to which a reading is steady.
    pub tolerance: f64,
}

impl Reference {
    fn of(readings: Vec<f64>) -> Option<Self> {
        let sorted = Samples::new(readings).ok()?.sorted();
        let (nanoseconds, _) = dominant_mode(&sorted, MODE_WIDTH);
        if nanoseconds <= 0.0 {
            return None;
        }
        let tolerance = (TOLERANCE_STDS * mode_std(&sorted, nanoseconds) / nanoseconds).clamp(TOLERANCE.0, TOLERANCE.1);
        Some(Self { nanoseconds, tolerance })
    }

    /// A reading as a multiple of the steady state.
    fn relative(self, reading: f32) -> f64 {
        f64::from(reading) / self.nanoseconds
    }

    fn is_steady(self, relative: f64) -> bool {
        (relative - 1.0).abs() <= self.tolerance
    }
}

/// Spread of the dominant mode: on each side the distance that 68 % of the nearby readings keep to the reference, and of
/// both sides the smaller, since disturbance only ever adds to a side.
fn mode_std(sorted: &Sorted, reference: f64) -> f64 {
    let values = sorted.values();
    let side = |from: f64, to: f64| {
        let inside = &values[values.partition_point(|&v| v < from)..values.partition_point(|&v| v <= to)];
        let mut distances: Vec<f64> = inside.iter().map(|value| (value - reference).abs()).collect();
        distances.sort_unstable_by(f64::total_cmp);
        distances.get((distances.len() * 68 / 100).min(distances.len().saturating_sub(1))).copied()
    };
    let below = side(reference * (1.0 - MODE_REACH), reference);
    let above = side(reference, reference * (1.0 + MODE_REACH));
    match (below, above) {
        (Some(below), Some(above)) => below.min(above),
        (one, other) => one.or(other).unwrap_or(0.0),
    }
}

/// Canaries that see what the measured work itself leaves behind: a fork leaves cold caches, and so does a switch to
/// another process. Their steady state is that beside one case, over all its rounds; the others have one over the run.
const OF_A_CASE: [Canary; 2] = [Canary::Cache, Canary::Kernel];
/// With fewer readings beside a case the steady state over the run stands in.
const LEAST_OF_A_CASE: usize = 12;

/// The references of all canaries of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct References {
    of_run: BTreeMap<Canary, Reference>,
    of_cases: BTreeMap<(Name, Case), BTreeMap<Canary, Reference>>,
}

impl References {
    pub fn of(run: &Run) -> Self {
        let of_case = |measurement: &Measurement| (key(measurement), Self::beside(measurement));
        Self { of_run: Self::over(run), of_cases: run.measurements.iter().map(of_case).collect() }
    }

    /// The references that judge one measurement.
    pub fn at(&self, measurement: &Measurement) -> Self {
        let mut of_run = self.of_run.clone();
        of_run.extend(self.of_cases.get(&key(measurement)).into_iter().flatten());
        Self { of_run, of_cases: BTreeMap::new() }
    }

    /// The steady states beside one case of the canaries that see what it leaves behind.
    fn beside(measurement: &Measurement) -> BTreeMap<Canary, Reference> {
        let mut readings: BTreeMap<Canary, Vec<f64>> = BTreeMap::new();
        for batches in measurement.rounds.iter().flat_map(distinct_columns) {
            for canary in OF_A_CASE {
                let column = batches.canaries.get(&canary).into_iter().flatten();
                let finite = column.map(|&reading| f64::from(reading)).filter(|reading| reading.is_finite());
                readings.entry(canary).or_default().extend(finite);
            }
        }
        readings.retain(|_, all| all.len() >= LEAST_OF_A_CASE);
        readings.into_iter().filter_map(|(canary, all)| Some((canary, Reference::of(all)?))).collect()
    }

    fn over(run: &Run) -> BTreeMap<Canary, Reference> {
        let mut totals: BTreeMap<Canary, usize> = BTreeMap::new();
        for_each_column(run, |_, _, canary, column| *totals.entry(canary).or_default() += column.len());
        let mut readings: BTreeMap<Canary, Vec<f64>> = BTreeMap::new();
        for_each_column(run, |_, _, canary, column| {
            let step = totals[&canary].div_ceil(READINGS_FOR_REFERENCE).max(1);
            let finite = column.iter().step_by(step).map(|&reading| f64::from(reading)).filter(|r| r.is_finite());
            readings.entry(canary).or_default().extend(finite);
        });
        readings.into_iter().filter_map(|(canary, all)| Some((canary, Reference::of(all)?))).collect()
    }

    pub fn get(&self, canary: Canary) -> Option<Reference> {
        self.of_run.get(&canary).copied()
    }

    /// Core frequency that the chain of dependent multiplies shows in its steady state, in hertz.
    pub fn core_hertz(&self, multiply_cycles: u32) -> Option<f64> {
        let cycles = f64::from(CANARY_CHAIN_MULTIPLIES * multiply_cycles);
        self.get(Canary::Chain).map(|chain| cycles / chain.nanoseconds * 1e9)
    }

    /// Judges batches by the canaries beside them.
    pub fn judge(&self, batches: &Batches, wanted: Canaries) -> Judged {
        let columns: Vec<(Reference, &[f32])> =
            self.columns(batches, wanted).map(|(_, r, column)| (r, column)).collect();
        let readings = columns.iter().map(|(_, column)| column.len()).max().unwrap_or(0);
        let off = (0..readings).map(|at| {
            let is_off = |(reference, column): &(Reference, &[f32])| {
                column.get(at).is_some_and(|&reading| !reference.is_steady(reference.relative(reading)))
            };
            columns.iter().any(is_off)
        });
        Judged { off: off.collect(), stride: batches.canary_stride.max(1), frequency: Vec::new(), agreement: 0.0 }
    }

    /// Judges batches of a quantity that is a fixed number of core cycles: the frequency, which is taken out of its
    /// values, is taken out of the other canaries too, so that a batch at another but steady frequency is undisturbed.
    /// `None` where the chain was not read.
    pub fn judge_cycles(&self, batches: &Batches, wanted: Canaries) -> Option<Judged> {
        let reference = self.get(Canary::Chain)?;
        let chain = batches.canaries.get(&Canary::Chain)?;
        let frequency: Vec<f64> = chain.iter().map(|&reading| reference.relative(reading)).collect();
        let others: Vec<(Reference, &[f32])> = self
            .columns(batches, wanted)
            .filter(|(canary, ..)| *canary != Canary::Chain)
            .map(|(_, reference, column)| (reference, column))
            .collect();
        let off = frequency.iter().enumerate().map(|(at, &slowness)| {
            let is_off = |(reference, column): &(Reference, &[f32])| {
                column.get(at).is_some_and(|&reading| !reference.is_steady(reference.relative(reading) / slowness))
            };
            !(FREQUENCY_RANGE.0..=FREQUENCY_RANGE.1).contains(&slowness) || others.iter().any(is_off)
        });
        let off = off.collect();
        Some(Judged { off, stride: batches.canary_stride.max(1), frequency, agreement: reference.tolerance })
    }

    fn columns<'a>(
        &'a self,
        batches: &'a Batches,
        wanted: Canaries,
    ) -> impl Iterator<Item = (Canary, Reference, &'a [f32])> {
        wanted.iter().filter_map(|canary| Some((canary, self.get(canary)?, batches.canaries.get(&canary)?.as_slice())))
    }

    /// Each canary over the course of the run. Readings whose steady state is that of a case are shown as if it were that
    /// of the run, so that a quiet machine is a flat line.
    pub fn histories(&self, run: &Run) -> Vec<CanaryHistory> {
        let mut points: BTreeMap<Canary, Vec<CanaryPoint>> = BTreeMap::new();
        for_each_column(run, |measurement, span, canary, column| {
            let of_case = self.of_cases.get(&key(measurement)).and_then(|all| all.get(&canary));
            let scale = of_case.zip(self.get(canary)).map_or(1.0, |(own, run)| run.nanoseconds / own.nanoseconds);
            let moment = |index: usize| span.0 + (span.1 - span.0) * (index as f64 + 0.5) / column.len() as f64;
            let point = |(index, &reading)| {
                let nanoseconds = f64::from(reading) * scale;
                CanaryPoint { at: moment(index), canary, nanoseconds }
            };
            points.entry(canary).or_default().extend(column.iter().enumerate().map(point));
        });
        let history = |(canary, points): (Canary, Vec<CanaryPoint>)| {
            let reference = self.get(canary)?;
            let steady = points.iter().filter(|p| reference.is_steady(p.nanoseconds / reference.nanoseconds)).count();
            Some(CanaryHistory {
                canary,
                reference: reference.nanoseconds,
                tolerance: reference.tolerance,
                steady_share: steady as f64 / points.len() as f64,
                points: thinned(points),
            })
        };
        points.into_iter().filter_map(history).collect()
    }
}

/// Which batches of one reading were disturbed.
#[derive(Clone, Debug)]
pub(crate) struct Judged {
    /// For each reading of the canaries whether one was off.
    off: Vec<bool>,
    stride: usize,
    /// For each reading the chain as a multiple of its reference, where values are normalised by it.
    frequency: Vec<f64>,
    /// How far two neighbouring chain readings may differ for the frequency between them to be known.
    agreement: f64,
}

impl Judged {
    /// Whether a canary was read at all.
    pub fn was_read(&self) -> bool {
        !self.off.is_empty()
    }

    /// Whether the canaries on either side of a batch say that it was disturbed.
    pub fn is_disturbed(&self, batch: usize) -> bool {
        let before = batch / self.stride;
        let off = |at: usize| self.off.get(at).copied().unwrap_or(false);
        off(before) || off(before + 1) || self.frequency_moved(before)
    }

    fn frequency_moved(&self, before: usize) -> bool {
        match (self.frequency.get(before), self.frequency.get(before + 1)) {
            (Some(before), Some(after)) => (before / after - 1.0).abs() > self.agreement,
            _ => false,
        }
    }

    /// What the time of a batch must be multiplied by to be that at the reference frequency; 1 without normalising.
    pub fn scale(&self, batch: usize) -> f64 {
        let before = batch / self.stride;
        match (self.frequency.get(before), self.frequency.get(before + 1)) {
            (Some(before), Some(after)) => 2.0 / (before + after),
            (Some(one), None) | (None, Some(one)) => 1.0 / one,
            (None, None) => 1.0,
        }
    }
}

/// Visits every column of canary readings, in order of time, with the span that it was read over, in seconds. Readings of
/// one round follow each other and are taken to last in proportion to their batches; columns that several metrics of one
/// operation share are visited once.
fn for_each_column<'r>(run: &'r Run, mut visit: impl FnMut(&'r Measurement, (f64, f64), Canary, &'r [f32])) {
    let of = |measurement: &'r Measurement| measurement.rounds.iter().map(move |round| (measurement, round));
    let mut rounds: Vec<(&Measurement, &Round)> = run.measurements.iter().flat_map(of).collect();
    rounds.sort_by(|a, b| a.1.at.total_cmp(&b.1.at));
    for (measurement, round) in rounds {
        let columns = distinct_columns(round);
        let total = columns.iter().map(|batches| batches.len()).sum::<usize>().max(1) as f64;
        let mut done = 0.0;
        for batches in columns {
            let moment = |batch: f64| round.at + round.seconds * batch / total;
            let span = (moment(done), moment(done + batches.len() as f64));
            done += batches.len() as f64;
            batches.canaries.iter().for_each(|(&canary, column)| visit(measurement, span, canary, column));
        }
    }
}

fn key(measurement: &Measurement) -> (Name, Case) {
    (measurement.planned.probe, measurement.planned.case.clone())
}

fn distinct_columns(round: &Round) -> Vec<&Batches> {
    let Attempt::Measured(readings) = &round.attempt else { return Vec::new() };
    let mut distinct: Vec<&Batches> = Vec::new();
    for reading in readings {
        if let Readings::Batches(batches) = &reading.readings
            && !batches.canaries.is_empty()
            && distinct.last().is_none_or(|last| last.canaries != batches.canaries)
        {
            distinct.push(batches);
        }
    }
    distinct
}

/// At most [`HISTORY_POINTS`]: of each group of neighbours the lowest, the median and the highest, in order of time.
fn thinned(mut points: Vec<CanaryPoint>) -> Vec<CanaryPoint> {
    if points.len() <= HISTORY_POINTS {
        return points;
    }
    let group = points.len().div_ceil(HISTORY_POINTS / 3);
    points.chunks_mut(group).flat_map(lowest_median_highest).collect()
}

fn lowest_median_highest(points: &mut [CanaryPoint]) -> Vec<CanaryPoint> {
    if points.len() < 3 {
        return points.to_vec();
    }
    let by_reading = |a: &CanaryPoint, b: &CanaryPoint| a.nanoseconds.total_cmp(&b.nanoseconds);
    let (below, &mut median, above) = points.select_nth_unstable_by(points.len() / 2, by_reading);
    let lowest = below.iter().copied().min_by(by_reading).unwrap_or(median);
    let highest = above.iter().copied().max_by(by_reading).unwrap_or(median);
    let mut kept = vec![lowest, median, highest];
    kept.sort_by(|a, b| a.at.total_cmp(&b.at));
    kept
}
