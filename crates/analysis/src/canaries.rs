//! Canaries over a run: the steady state of each, how far from it is disturbed, and which batches were.

use kelvin_core::IndirectSort;
use std::collections::BTreeMap;

use crate::prelude::*;

/// Relative width of the window whose fullest place is the steady state: wide enough for the jitter of a reading of a
/// few microseconds, narrow enough to separate two frequency steps (100 MHz at 4 GHz).
const MODE_WIDTH_RATIO: f64 = 0.02;
/// Least share of the readings of the block canary that make a steady state. A busy sibling thread can only slow the block,
/// so its fastest state that is no accident is the undisturbed one, even with a neighbour most of the time.
const MIN_MODE_SHARE: f64 = 0.05;
/// Readings further than this from the reference are outside the dominant mode, and do not count for its spread.
const MODE_REACH_RATIO: f64 = 0.1;
/// Tolerance in standard deviations of the dominant mode.
const TOLERANCE_STDS: f64 = 3.0;
/// Bounds of the tolerance. Below 1.5 % the clock's grain and single interrupts would tag quiet batches; above 5 % a
/// change of frequency would pass.
const TOLERANCE_RANGE: (f64, f64) = (0.015, 0.05);
/// The least tolerance of the block canary. A busy sibling slows it by 15 % and more; what a batch leaves in the caches by up to 3 %, and
/// samples next to such readings take as long as all others.
const MIN_BLOCK_TOLERANCE: f64 = 0.04;
/// The reference is found from at most this many readings, evenly taken: its error is then below 0.1 %.
const MAX_REFERENCE_READINGS: usize = 20_000;
/// Maximum points of a canary's history.
const MAX_HISTORY_POINTS: usize = 2000;
/// The logarithm that one reading of the block counts with at most: a longer one was interrupted, and shows no neighbour.
const MAX_LOG_SLOWDOWN: f64 = 1.0;
/// A chain reading beyond this factor of the reference is an interruption, not a frequency.
const FREQUENCY_RANGE: (f64, f64) = (0.4, 2.5);

/// The block canary over the chain canary, each in its steady state. A busy sibling thread slows the block and leaves the
/// chain alone, so this is least on an unshared core. Each run keeps it for later ones, which detect by it a core that was
/// shared from beginning to end.
pub static BLOCK_OVER_CHAIN: Metric =
    Metric::duration("canary.block_over_chain", "The block canary over the chain canary, each in its steady state")
        .unit(Unit::Ratio, Better::Lower);
/// The chain canary in its steady state: what one core cycle takes, as a multiple that is the same in all runs. Each run keeps it for later
/// comparisons, which see by it how much figures of a fixed number of core cycles differ from run to run without the frequency.
pub static STEADY_CHAIN: Metric = Metric::duration("canary.steady_chain", "The chain canary in its steady state");
/// Maximum earlier runs that define an unshared core: after a lasting change, this many runs unlearn it.
const MAX_EARLIER_RUNS: usize = 10;
/// Share by which the block must be slower than that for the whole run to count as disturbed: the same program on the same
/// machine repeats it to 1 %, and a sibling thread takes 15 % or more.
const SHARED_CORE_SLOWDOWN: f64 = 0.06;

/// The dominant steady state of readings.
fn dominant_state(readings: &[f64]) -> Option<SteadyState> {
    let sorted = thin_evenly(readings)?;
    steady_state_at(dominant_mode(&sorted, MODE_WIDTH_RATIO).0, &sorted, TOLERANCE_RANGE.0)
}

/// The fastest steady state of readings, or the dominant one if no state is steady.
fn fastest_state(readings: &[f64]) -> Option<SteadyState> {
    let sorted = thin_evenly(readings)?;
    let (nanoseconds, _) = fastest_mode(&sorted, MODE_WIDTH_RATIO, MIN_MODE_SHARE)
        .unwrap_or_else(|| dominant_mode(&sorted, MODE_WIDTH_RATIO));
    steady_state_at(nanoseconds, &sorted, MIN_BLOCK_TOLERANCE)
}

fn steady_state_at(nanoseconds: f64, sorted: &Sorted, floor: f64) -> Option<SteadyState> {
    if nanoseconds <= 0.0 {
        return None;
    }
    let tolerance = (TOLERANCE_STDS * mode_std(sorted, nanoseconds) / nanoseconds).clamp(floor, TOLERANCE_RANGE.1);
    Some(SteadyState { nanoseconds, tolerance })
}

/// The finite readings in order, at most [`MAX_REFERENCE_READINGS`] of them.
fn thin_evenly(readings: &[f64]) -> Option<Sorted> {
    let step = readings.len().div_ceil(MAX_REFERENCE_READINGS).max(1);
    let thinned = readings.iter().step_by(step).copied().filter(|reading| reading.is_finite()).collect();
    Sorted::new(thinned)
}

/// Spread of a steady state: on each side the distance that 68 % of the nearby readings keep to the reference, and of
/// both sides the smaller, since disturbance only ever adds to a side.
fn mode_std(sorted: &Sorted, reference: f64) -> f64 {
    let values = sorted.values();
    let side = |from: f64, to: f64| {
        let nearby = &values[values.partition_point(|&v| v < from)..values.partition_point(|&v| v <= to)];
        let mut distances: Vec<f64> = nearby.iter().map(|value| (value - reference).abs()).collect();
        distances.sort_unstable_by(f64::total_cmp);
        distances.get((distances.len() * 68 / 100).min(distances.len().saturating_sub(1))).copied()
    };
    let lower = side(reference * (1.0 - MODE_REACH_RATIO), reference);
    let upper = side(reference, reference * (1.0 + MODE_REACH_RATIO));
    match (lower, upper) {
        (Some(lower), Some(upper)) => lower.min(upper),
        (lower, upper) => lower.or(upper).unwrap_or(0.0),
    }
}

/// With fewer readings the steady state of a core is not known: a state of a twentieth of them must be no accident.
const MIN_CORE_READINGS: usize = 400;
/// With fewer readings right after the work of a metric its frequency is that of the run.
const MIN_CASE_READINGS: usize = 12;

/// [`BLOCK_OVER_CHAIN`] of an unshared core by earlier runs of this machine: the second least of the newest, since what was
/// seen twice is no accident.
fn unshared_block_ratio(run: &Run) -> Option<f64> {
    let history = &run.header.core_ratio_history;
    let mut ratios = history[history.len().saturating_sub(MAX_EARLIER_RUNS)..].to_vec();
    ratios.sort_unstable_by(f64::total_cmp);
    ratios.get(1).copied()
}

/// The readings of the block canary as they would be at the reference frequency, by the chain that was read just before
/// each; only those next to a steady chain, because an interrupted one shows no frequency.
fn block_at_reference(columns: &[&Batches], chain: Option<&SteadyState>) -> Vec<f64> {
    let mut blocks = Vec::new();
    for batches in columns {
        let chains = batches.canaries.get(&Canary::Chain);
        for (index, &block) in batches.canaries.get(&Canary::Block).into_iter().flatten().enumerate() {
            let slowness = chains
                .and_then(|column| column.get(index))
                .zip(chain)
                .map(|(&reading, chain)| chain.ratio_to_steady(reading));
            if slowness.zip(chain).is_none_or(|(slowness, chain)| chain.is_steady(slowness)) {
                blocks.push(f64::from(block) / slowness.unwrap_or(1.0));
            }
        }
    }
    blocks
}

/// The mean logarithm of the block canary over its steady state, of what was found in a run.
fn mean_log_slowdown(columns: &[&Batches], block: &SteadyState) -> Option<f64> {
    let (mut sum, mut readings) = (0.0, 0);
    for batches in columns {
        let Some(column) = batches.canaries.get(&Canary::Block).map(|column| found_readings(batches, column)) else {
            continue;
        };
        sum +=
            column.iter().map(|&reading| block.ratio_to_steady(reading).ln().clamp(0.0, MAX_LOG_SLOWDOWN)).sum::<f64>();
        readings += column.len();
    }
    (readings > 0).then(|| sum / readings as f64)
}

/// The steady states by which the rounds of a run that goes on judge whether the core is undisturbed; `None` before enough
/// was read to know them.
pub fn steady_core(run: &Run) -> Option<CoreSteadyState> {
    let columns: Vec<&Batches> = canary_columns(run).map(|(_, batches)| batches).collect();
    if columns.iter().map(|batches| batches.len()).sum::<usize>() < MIN_CORE_READINGS {
        return None;
    }
    let references = CanaryReferences::core_references(&columns, unshared_block_ratio(run));
    Some(CoreSteadyState { chain: references.get(Canary::Chain)?, block: references.get(Canary::Block)? })
}

/// The dominant state of the chain canary right after the work of a metric.
fn own_frequency_state(measurement: &Measurement, metric: &Metric) -> Option<SteadyState> {
    let mut readings = Vec::new();
    for round in &measurement.rounds {
        let RoundOutcome::Measured(metric_readings) = &round.outcome else { continue };
        for reading in metric_readings.iter().filter(|reading| reading.metric == metric.id) {
            let Readings::Batches(batches) = &reading.readings else { continue };
            // The first comes before the work.
            let chain_readings = batches.canaries.get(&Canary::Chain).into_iter().flatten().skip(1);
            readings.extend(chain_readings.map(|&reading| f64::from(reading)));
        }
    }
    if readings.len() < MIN_CASE_READINGS { None } else { dominant_state(&readings) }
}

/// The references of all canaries of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct CanaryReferences {
    /// [`BLOCK_OVER_CHAIN`] of this run.
    pub block_over_chain: Option<f64>,
    /// That over what it is by earlier runs, where the core was shared throughout.
    pub sharing_ratio: Option<f64>,
    /// How far the core's frequency was from its dominant one, a standard deviation as a part of it, where it moved.
    pub frequency_deviation: Option<f64>,
    /// How much longer work took on average than on the core left alone, by the block canary: a logarithm.
    pub log_slowdown: Option<f64>,
    steady_states: BTreeMap<Canary, SteadyState>,
}

impl CanaryReferences {
    pub fn from_run(run: &Run) -> Self {
        let measured_columns: Vec<(&Measurement, &Batches)> = canary_columns(run).collect();
        let columns: Vec<&Batches> = measured_columns.iter().map(|(_, batches)| *batches).collect();
        let mut references = Self::core_references(&columns, unshared_block_ratio(run));
        // Not those of a measurement that sets its own frequency.
        let is_of_core = |measurement: &Measurement| {
            let mut metrics = measurement.planned.metrics.iter().filter_map(|metric| run.metric(metric));
            !metrics.any(|metric| metric.own_frequency)
        };
        let core_columns = measured_columns.iter().filter(|(measurement, _)| is_of_core(measurement));
        let core_batches = core_columns.map(|(_, batches)| *batches);
        references.frequency_deviation = references.deviation_of_frequency(core_batches);
        references.log_slowdown = references.get(Canary::Block).and_then(|block| mean_log_slowdown(&columns, &block));
        references
    }

    /// How far the frequency was from the dominant one, the root of the mean square as a part of it; nothing where that is no more than is assumed
    /// of every clock. A block that is as fast as the chain next to it lets expect shows that the reading is one of the frequency.
    fn deviation_of_frequency<'r>(&self, columns: impl Iterator<Item = &'r Batches>) -> Option<f64> {
        let (chain, block) = self.get(Canary::Chain).zip(self.get(Canary::Block))?;
        let mut squares = Vec::new();
        for batches in columns {
            let [chains, blocks] =
                [Canary::Chain, Canary::Block].map(|canary| batches.canaries.get(&canary).into_iter().flatten());
            for (&chains, &blocks) in chains.zip(blocks) {
                let slowness = chain.ratio_to_steady(chains);
                if (block.ratio_to_steady(blocks) / slowness - 1.0).abs() <= TOLERANCE_RANGE.0 {
                    squares.push((slowness - 1.0).powi(2));
                }
            }
        }
        let deviation = if squares.is_empty() { return None } else { mean(&squares).sqrt() };
        (deviation > ASSUMED_CLOCK_STD).then_some(deviation)
    }

    /// The steady states of the core over all columns of a run: its frequency, and the block at that frequency. A block
    /// that was never as fast as on an `unshared` core is compared with that one.
    fn core_references(columns: &[&Batches], unshared: Option<f64>) -> Self {
        let mut references = Self::default();
        let chains = columns.iter().filter_map(|batches| batches.canaries.get(&Canary::Chain)).flatten();
        let Some(chain) = dominant_state(&chains.map(|&reading| f64::from(reading)).collect::<Vec<f64>>()) else {
            let block = fastest_state(&block_at_reference(columns, None));
            references.steady_states.extend(block.map(|block| (Canary::Block, block)));
            return references;
        };
        references.steady_states.insert(Canary::Chain, chain);
        if let Some(mut block) = fastest_state(&block_at_reference(columns, Some(&chain))) {
            let ratio = block.nanoseconds / chain.nanoseconds;
            references.block_over_chain = Some(ratio);
            if let Some(unshared) = unshared.filter(|unshared| ratio > unshared * (1.0 + SHARED_CORE_SLOWDOWN)) {
                references.sharing_ratio = Some(ratio / unshared);
                block.nanoseconds = unshared * chain.nanoseconds;
            }
            references.steady_states.insert(Canary::Block, block);
        }
        references
    }

    /// The references that judge a metric of one measurement.
    pub fn for_metric(&self, measurement: &Measurement, metric: &Metric) -> Self {
        let mut references = self.clone();
        if metric.own_frequency
            && let (Some(chain), Some(block)) = (self.get(Canary::Chain), self.get(Canary::Block))
            && let Some(metric_chain) = own_frequency_state(measurement, metric)
        {
            references.steady_states.insert(Canary::Chain, metric_chain);
            let nanoseconds = block.nanoseconds * metric_chain.nanoseconds / chain.nanoseconds;
            references.steady_states.insert(Canary::Block, SteadyState { nanoseconds, ..block });
        }
        references
    }

    pub fn get(&self, canary: Canary) -> Option<SteadyState> {
        self.steady_states.get(&canary).copied()
    }

    /// Core frequency that the chain of dependent multiplies shows in its steady state, in hertz.
    pub fn core_hertz(&self, multiply_cycles: u32) -> Option<f64> {
        let cycles = f64::from(CANARY_CHAIN_MULTIPLIES * multiply_cycles);
        self.get(Canary::Chain).map(|chain| cycles / chain.nanoseconds * 1e9)
    }

    /// Judges batches by the canaries next to them. Of a quantity that is a fixed number of core cycles (`by_cycles`) the frequency, which is
    /// divided out of its values, is divided out of the other canaries too, so that a batch at another but steady frequency is
    /// undisturbed; `None` where the chain that shows it was not read.
    pub fn judge_batches(
        &self,
        batches: &Batches,
        canaries: Canaries,
        is_cycle_normalised: bool,
    ) -> Option<DisturbedBatches> {
        let (mut frequency, mut tolerance) = (Vec::new(), 0.0);
        if is_cycle_normalised {
            let (reference, chain) = (self.get(Canary::Chain)?, batches.canaries.get(&Canary::Chain)?);
            frequency = chain.iter().map(|&reading| reference.ratio_to_steady(reading)).collect();
            tolerance = reference.tolerance;
        }
        let other_canaries = canaries.iter().filter(|&canary| !is_cycle_normalised || canary != Canary::Chain);
        let columns: Vec<(SteadyState, &[f32])> = other_canaries
            .filter_map(|canary| Some((self.get(canary)?, batches.canaries.get(&canary)?.as_slice())))
            .collect();
        let readings = match is_cycle_normalised {
            true => frequency.len(),
            false => columns.iter().map(|(_, column)| column.len()).max().unwrap_or(0),
        };
        let disturbed = (0..readings).map(|index| {
            let slowness = frequency.get(index).copied().unwrap_or(1.0);
            let is_disturbed = |(reference, column): &(SteadyState, &[f32])| {
                column
                    .get(index)
                    .is_some_and(|&reading| !reference.is_steady(reference.ratio_to_steady(reading) / slowness))
            };
            !(FREQUENCY_RANGE.0..=FREQUENCY_RANGE.1).contains(&slowness) || columns.iter().any(is_disturbed)
        });
        Some(DisturbedBatches {
            flags: disturbed.collect(),
            stride: batches.canary_stride.max(1),
            frequency,
            tolerance,
        })
    }

    /// Each canary over the run.
    pub fn histories(&self, run: &Run) -> Vec<CanaryHistory> {
        let history = |(canary, mut points): (Canary, Vec<CanaryReading>)| {
            let reference = self.get(canary)?;
            let steady_count =
                points.iter().filter(|p| reference.is_steady(p.nanoseconds / reference.nanoseconds)).count();
            let steady_share = steady_count as f64 / points.len() as f64;
            if points.len() > MAX_HISTORY_POINTS {
                let group = points.len().div_ceil(MAX_HISTORY_POINTS / 3);
                points = points.chunks_mut(group).flat_map(lowest_median_highest).collect();
            }
            Some(CanaryHistory {
                canary,
                reference: reference.nanoseconds,
                tolerance: reference.tolerance,
                steady_share,
                points,
            })
        };
        canary_points(run).into_iter().filter_map(history).collect()
    }
}

/// Which batches of one reading were disturbed.
#[derive(Clone, Debug, Default)]
pub(crate) struct DisturbedBatches {
    /// For each reading of the canaries whether one was off.
    flags: Vec<bool>,
    stride: usize,
    /// For each reading the chain as a multiple of its reference, where values are normalised by it.
    frequency: Vec<f64>,
    /// How far two neighbouring chain readings may differ for the frequency between them to be known.
    tolerance: f64,
}

impl DisturbedBatches {
    /// Whether a canary was read at all.
    pub fn has_readings(&self) -> bool {
        !self.flags.is_empty()
    }

    /// Whether the canaries on either side of a batch show a disturbance.
    pub fn is_disturbed(&self, batch: usize) -> bool {
        let before = batch / self.stride;
        let is_reading_disturbed = |index: usize| self.flags.get(index).copied().unwrap_or(false);
        let has_frequency_moved = match (self.frequency.get(before), self.frequency.get(before + 1)) {
            (Some(before), Some(after)) => (before / after - 1.0).abs() > self.tolerance,
            _ => false,
        };
        is_reading_disturbed(before) || is_reading_disturbed(before + 1) || has_frequency_moved
    }

    /// Factor from the time of a batch to that at the reference frequency; 1 without normalising.
    pub fn frequency_scale(&self, batch: usize) -> f64 {
        let before = batch / self.stride;
        match (self.frequency.get(before), self.frequency.get(before + 1)) {
            (Some(before), Some(after)) => 2.0 / (before + after),
            (Some(frequency), None) | (None, Some(frequency)) => 1.0 / frequency,
            (None, None) => 1.0,
        }
    }
}

/// The readings of each canary in order of time. Readings of one round follow each other and are taken to last in proportion to their
/// batches; columns that several metrics of one operation share are read once. What was read while a round waited is left out.
fn canary_points(run: &Run) -> BTreeMap<Canary, Vec<CanaryReading>> {
    let mut points: BTreeMap<Canary, Vec<CanaryReading>> = BTreeMap::new();
    let mut rounds: Vec<&Round> = run.measurements.iter().flat_map(|measurement| &measurement.rounds).collect();
    rounds.indirect_sort_by(|a, b| a.start_seconds.total_cmp(&b.start_seconds));
    for round in rounds {
        let columns = distinct_columns(round);
        let total = columns.iter().map(|batches| batches.len()).sum::<usize>().max(1) as f64;
        let mut offset = 0.0;
        for batches in columns {
            let moment = |batch: f64| round.start_seconds + round.seconds * batch / total;
            let (start, end) = (moment(offset), moment(offset + found_count(batches) as f64));
            offset += batches.len() as f64;
            for (&canary, column) in &batches.canaries {
                let column = found_readings(batches, column);
                let reading = |(index, &nanoseconds): (usize, &f32)| CanaryReading {
                    seconds: start + (end - start) * (index as f64 + 0.5) / column.len() as f64,
                    canary,
                    nanoseconds: f64::from(nanoseconds),
                };
                points.entry(canary).or_default().extend(column.iter().enumerate().map(reading));
            }
        }
    }
    points
}

/// The columns of all rounds of a run, each once, with what they are of.
fn canary_columns(run: &Run) -> impl Iterator<Item = (&Measurement, &Batches)> {
    run.measurements.iter().flat_map(|measurement| {
        let columns = measurement.rounds.iter().flat_map(distinct_columns);
        columns.map(move |batches| (measurement, batches))
    })
}

/// How many batches are part of what was found: others are of a round that waited for the core to be undisturbed.
fn found_count(batches: &Batches) -> usize {
    batches.tags.iter().position(|tags| tags.intersects(SampleTags::AWAITED)).unwrap_or(batches.len())
}

/// The readings of a canary at these.
fn found_readings<'r>(batches: &Batches, column: &'r [f32]) -> &'r [f32] {
    let readings = found_count(batches).div_ceil(batches.canary_stride.max(1)) + 1;
    &column[..readings.min(column.len())]
}

fn distinct_columns(round: &Round) -> Vec<&Batches> {
    let RoundOutcome::Measured(readings) = &round.outcome else { return Vec::new() };
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

fn lowest_median_highest(points: &mut [CanaryReading]) -> Vec<CanaryReading> {
    if points.len() < 3 {
        return points.to_vec();
    }
    points.indirect_sort_by(|a, b| a.nanoseconds.total_cmp(&b.nanoseconds));
    let mut thinned = vec![points[0], points[points.len() / 2], points[points.len() - 1]];
    thinned.indirect_sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    thinned
}
