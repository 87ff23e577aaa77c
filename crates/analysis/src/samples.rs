//! From raw readings to samples: overhead subtracted, warm-up and disturbed samples separated.

use std::collections::BTreeMap;

use kelvin_core::catalogue::{RunVariation, transfer};

use kelvin_core::EventRate;

use crate::counters::event_rates;
use crate::prelude::*;

/// A round counts for an undisturbed headline with this many undisturbed samples, or a fifth of what it has if that is
/// less: of operations that take milliseconds a round has but a few.
const MIN_UNDISTURBED_SAMPLES: usize = 5;
/// An undisturbed headline needs this many such rounds (or all, where a run made fewer).
const MIN_UNDISTURBED_ROUNDS: usize = 2;
/// And of undisturbed samples, as a share of all: fewer are the exception, not the machine left alone.
const MIN_UNDISTURBED_SHARE: f64 = 0.02;
/// Maximum samples for the correlation with a canary: its error is then below 0.03.
const MAX_CORRELATION_SAMPLES: usize = 1500;

/// The samples that one round made of a metric, in its unit.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct RoundSamples {
    /// The number of the round.
    pub index: u32,
    /// Seconds from the start of the run at which the round began.
    pub start_seconds: f64,
    /// All samples except warm-up and those that the round waited for.
    pub as_found: Vec<f64>,
    /// How many of them are undisturbed.
    pub undisturbed_found: usize,
    /// Those and the undisturbed ones that the round waited for, normalised to the reference frequency where the metric asks for
    /// that.
    pub undisturbed: Vec<f64>,
}

impl RoundSamples {
    fn is_undisturbed(&self) -> bool {
        !self.undisturbed.is_empty()
            && self.undisturbed.len()
                >= MIN_UNDISTURBED_SAMPLES.min(self.as_found.len().div_ceil(MIN_UNDISTURBED_SAMPLES))
    }
}

/// All samples of one metric at one case.
#[derive(Clone, Debug, Default)]
pub(crate) struct SampleSet {
    /// The samples that make the headline.
    pub treatment: HeadlineSamples,
    /// Rounds with samples, in the order in which they ran.
    pub rounds: Vec<RoundSamples>,
    /// Rounds that failed.
    pub failed_rounds: u32,
    /// Whether samples are means of batches.
    pub is_of_batch_means: bool,
    /// Whether there are timed batches, rather than values from counters only.
    pub is_timed: bool,
    /// Whether states of the machine outlast several rounds.
    pub has_lasting_states: bool,
    /// How much runs differ beyond what rounds show.
    pub unobserved: UnobservedVariance,
    /// Whether canaries that guard the metric were read.
    pub is_guarded: bool,
    /// How many samples carry each tag.
    pub tags: Vec<TagCount>,
    /// Notes of the rounds, each once.
    pub notes: Vec<String>,
    /// What the processor counted for an operation.
    pub counters: Vec<EventRate>,
    /// Samples without a finite value.
    unusable: u64,
    /// For each canary that guards the metric, its readings before and after samples, and the times of those samples.
    canary_neighbours: BTreeMap<Canary, (Vec<f64>, Vec<f64>)>,
}

impl SampleSet {
    pub fn from_measurement(measurement: &Measurement, metric: &Metric, references: &CanaryReferences) -> Self {
        let metric = &metric.for_case(&measurement.planned.case);
        let references = &references.for_metric(measurement, metric);
        let mut set = Self {
            failed_rounds: measurement.failures().count() as u32,
            has_lasting_states: transfer::is_whole_transfer(metric),
            unobserved: unobserved_variance(metric, &measurement.planned.case, references),
            treatment: metric.headline,
            counters: event_rates(measurement, metric.id),
            ..Self::default()
        };
        // What was left out after a first round for lack of time is no result of one round.
        let rounds = if measurement.skipped.is_some() { &[] } else { measurement.rounds.as_slice() };
        for round in rounds {
            let RoundOutcome::Measured(readings) = &round.outcome else { continue };
            let (index, start_seconds) = (round.index, round.start_seconds);
            let mut samples = RoundSamples { index, start_seconds, ..RoundSamples::default() };
            for reading in readings.iter().filter(|reading| reading.metric == metric.id) {
                set.add_reading(reading, metric, references, &mut samples);
            }
            set.rounds.push(samples);
        }
        set.rounds.retain(|round| !round.as_found.is_empty());
        if set.unusable > 0 {
            let note =
                format!("{} samples took no longer than the overhead subtracted, and gave no rate", set.unusable);
            set.add_note(&note);
        }
        set
    }

    fn add_reading(
        &mut self,
        reading: &MetricReadings,
        metric: &Metric,
        references: &CanaryReferences,
        samples: &mut RoundSamples,
    ) {
        reading.notes.iter().for_each(|note| self.add_note(note));
        let batches = match &reading.readings {
            Readings::Scalars(values) => {
                let finite: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
                samples.undisturbed_found += finite.len();
                samples.as_found.extend(&finite);
                samples.undisturbed.extend(finite);
                return;
            }
            Readings::Batches(batches) => batches,
        };
        self.is_timed = true;
        self.is_of_batch_means |= batches.iterations.iter().any(|&iterations| iterations > 1);
        self.count_tags(&batches.tags);
        let is_cycle_normalised = metric.headline == HeadlineSamples::CycleNormalised;
        let disturbance =
            references.judge_batches(batches, metric.canaries, is_cycle_normalised).unwrap_or_else(|| {
                self.add_note(
                    "the frequency canary was not read next to all samples: those are not normalised to one frequency",
                );
                references.judge_batches(batches, metric.canaries, false).unwrap_or_default()
            });
        self.is_guarded |= disturbance.has_readings();
        for batch in 0..batches.len() {
            let tags = batches.tags.get(batch).copied().unwrap_or(SampleTags::NONE);
            if tags.intersects(SampleTags::WARM_UP) {
                continue;
            }
            let time = time_per_iteration(batches, batch, &reading.overhead, metric.overhead);
            let Some(value) = value_in_unit(time, batches.work_per_iteration, metric.unit) else {
                self.unusable += 1;
                continue;
            };
            let was_awaited = tags.intersects(SampleTags::AWAITED);
            if !was_awaited {
                samples.as_found.push(value);
                self.add_canary_neighbours(batches, batch, metric, time);
            }
            if !tags.intersects(metric.contaminants)
                && !disturbance.is_disturbed(batch)
                && let Some(normalised) =
                    value_in_unit(time * disturbance.frequency_scale(batch), batches.work_per_iteration, metric.unit)
            {
                samples.undisturbed.push(normalised);
                samples.undisturbed_found += usize::from(!was_awaited);
            }
        }
    }

    /// Keeps the canary readings around a sample, up to as many as a rank correlation needs.
    fn add_canary_neighbours(&mut self, batches: &Batches, batch: usize, metric: &Metric, time: f64) {
        for canary in metric.canaries.iter() {
            let Some((before, after)) = batches.neighbours(canary, batch) else { continue };
            let (readings, times) = self.canary_neighbours.entry(canary).or_default();
            if readings.len() < MAX_CORRELATION_SAMPLES {
                readings.push(f64::from(before) + f64::from(after));
                times.push(time);
            }
        }
    }

    /// Rank correlations of the samples' times with the canaries that guard the metric.
    pub fn canary_correlations(&self) -> Vec<CanaryCorrelation> {
        let correlation_of = |(&canary, (readings, times)): (&Canary, &(Vec<f64>, Vec<f64>))| {
            let (correlation, p) = spearman(readings, times)?;
            Some(CanaryCorrelation { canary, correlation, p })
        };
        self.canary_neighbours.iter().filter_map(correlation_of).collect()
    }

    fn add_note(&mut self, note: &str) {
        if !self.notes.iter().any(|existing| existing == note) {
            self.notes.push(note.into());
        }
    }

    fn count_tags(&mut self, tags: &[SampleTags]) {
        for (tag, name) in SampleTags::NAMES {
            let count = tags.iter().filter(|tags| tags.intersects(tag)).count() as u64;
            if count > 0 {
                let new = || TagCount { tag: Name::new(name), count: 0 };
                find_or_push(&mut self.tags, |existing| existing.tag == *name, new).count += count;
            }
        }
    }

    /// Number of rounds that count for the headline; none where so few samples are undisturbed that there is no headline.
    pub fn counting_rounds(&self) -> u32 {
        if self.treatment == HeadlineSamples::AsFound {
            return self.rounds.len() as u32;
        }
        if self.is_exception() {
            return 0;
        }
        self.rounds.iter().filter(|round| round.is_undisturbed()).count() as u32
    }

    /// Whether undisturbed samples are so few, with those that rounds waited for, that they are no headline.
    fn is_exception(&self) -> bool {
        (self.undisturbed_count() as f64) < MIN_UNDISTURBED_SHARE * self.found_count().max(1) as f64
    }

    /// Number of undisturbed samples, with those that rounds waited for.
    fn undisturbed_count(&self) -> usize {
        self.rounds.iter().map(|round| round.undisturbed.len()).sum()
    }

    /// Number of samples without warm-up and without those that rounds waited for.
    pub fn found_count(&self) -> usize {
        self.rounds.iter().map(|round| round.as_found.len()).sum()
    }

    /// How many of them are undisturbed.
    pub fn undisturbed_found(&self) -> usize {
        self.rounds.iter().map(|round| round.undisturbed_found).sum()
    }

    /// What share of them is undisturbed.
    pub fn undisturbed_share(&self) -> f64 {
        self.undisturbed_found() as f64 / self.found_count().max(1) as f64
    }

    /// Why its undisturbed samples make no headline, as an end of a sentence: `never undisturbed`.
    pub fn shortage_reason(&self) -> String {
        if self.undisturbed_count() == 0 {
            return "never undisturbed".into();
        }
        let share = percent(self.undisturbed_share());
        if self.is_exception() {
            return format!("undisturbed in {share} of its samples, which are too few");
        }
        let (usable_rounds, rounds) = (self.counting_rounds(), self.rounds.len());
        format!(
            "undisturbed in {share} of its samples, enough of them in {usable_rounds} of {rounds} rounds where {MIN_UNDISTURBED_ROUNDS} are needed"
        )
    }

    /// The rounds and their samples under a treatment; `None` if there are too few undisturbed ones.
    pub fn select(&self, treatment: HeadlineSamples) -> Option<Vec<(&RoundSamples, &[f64])>> {
        if treatment == HeadlineSamples::AsFound {
            let rounds = self.rounds.iter().map(|round| (round, round.as_found.as_slice())).collect::<Vec<_>>();
            return (!rounds.is_empty()).then_some(rounds);
        }
        let undisturbed_rounds = self.rounds.iter().filter(|round| round.is_undisturbed());
        let selected: Vec<(&RoundSamples, &[f64])> =
            undisturbed_rounds.map(|round| (round, round.undisturbed.as_slice())).collect();
        let is_sufficient = selected.len() >= MIN_UNDISTURBED_ROUNDS.min(self.rounds.len()) && !self.is_exception();
        (!selected.is_empty() && is_sufficient).then_some(selected)
    }
}

/// How much runs differ beyond what rounds show.
fn unobserved_variance(metric: &Metric, case: &Case, references: &CanaryReferences) -> UnobservedVariance {
    let assumed_std = assumed_between_run_std(metric, case);
    if assumed_std == 0.0 {
        return UnobservedVariance::default();
    }
    if metric.headline == HeadlineSamples::AsFound {
        let neighbour_std = ASSUMED_NEIGHBOUR_STD * references.log_slowdown.unwrap_or(0.0);
        return UnobservedVariance::from_assumed(assumed_std.hypot(neighbour_std));
    }
    let frequency = references.frequency_deviation.filter(|_| metric.canaries.contains(Canary::Chain)).unwrap_or(0.0);
    UnobservedVariance { frequency, ..UnobservedVariance::from_assumed(assumed_std) }
}

/// The standard deviation from run to run of a figure, as a part of it, that is assumed until earlier runs show it.
///
/// Made of three default runs of one guest (Intel, 2 CPUs, 27 November 2026; `crates/store/tests/runs`), each analysed as the first of a
/// machine: with these the distance of another run's figure is beyond the interval in one of twenty, of each kind. `bench/repeatability.py
/// --fresh` judges them on other machines and days.
pub(crate) fn assumed_between_run_std(metric: &Metric, case: &Case) -> f64 {
    match RunVariation::from_metric(metric, case) {
        RunVariation::None => 0.0,
        RunVariation::Clock => ASSUMED_CLOCK_STD,
        RunVariation::KernelCopies => 0.03,
        RunVariation::Memory => 0.06,
        RunVariation::SeveralCpus => 0.10,
        RunVariation::Transfer => ASSUMED_BETWEEN_RUN_STD,
        RunVariation::Device => 0.10,
    }
}

/// The samples of a metric, round by round, as found: only overhead is subtracted and warm-up left out. Rounds without
/// samples are left out.
pub fn samples_as_found(measurement: &Measurement, metric: &Metric) -> Vec<Vec<f64>> {
    let set = SampleSet::from_measurement(measurement, metric, &CanaryReferences::default());
    set.rounds.into_iter().map(|round| round.as_found).collect()
}

/// Values in their order, each once.
pub(crate) fn each_once<T: PartialEq>(values: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut distinct = Vec::new();
    for value in values {
        if !distinct.contains(&value) {
            distinct.push(value);
        }
    }
    distinct
}

/// The entry of a list that satisfies this; a new one at its end where there is none.
pub(crate) fn find_or_push<T>(list: &mut Vec<T>, is_match: impl Fn(&T) -> bool, new: impl FnOnce() -> T) -> &mut T {
    let index = list.iter().position(is_match).unwrap_or_else(|| {
        list.push(new());
        list.len() - 1
    });
    &mut list[index]
}

/// The medians of the rounds of a metric, as found, by their numbers.
pub(crate) fn round_medians(measurement: &Measurement, metric: &Metric) -> BTreeMap<u32, f64> {
    let samples = SampleSet::from_measurement(measurement, metric, &CanaryReferences::default());
    samples.rounds.iter().map(|round| (round.index, median(&round.as_found))).collect()
}

/// Why there is no sample, after the name of a side: `skipped: no second CPU`.
pub(crate) fn missing_text(measurement: &Measurement) -> String {
    match missing_outcome(measurement) {
        Outcome::Skipped(reason) => format!("skipped: {reason}"),
        Outcome::Failed(reason) => format!("failed: {reason}"),
        _ => "not reached".into(),
    }
}

/// Nanoseconds of one operation: the raw time of a batch less the metric's overhead.
fn time_per_iteration(batches: &Batches, batch: usize, overhead: &OverheadReading, subtract: Overhead) -> f64 {
    let iterations = batches.iterations.get(batch).copied().unwrap_or(1).max(1) as f64;
    let raw = batches.nanoseconds[batch];
    match subtract {
        Overhead::None => raw / iterations,
        Overhead::ClockPair => (raw - overhead.clock_pair) / iterations,
        Overhead::ClockPairAndLoop => (raw - overhead.clock_pair) / iterations - overhead.loop_iteration,
    }
}

/// A value in the metric's unit from the nanoseconds and the work of one operation; `None` if that is not
/// finite. Operations per second count one operation where no work is stated.
fn value_in_unit(nanoseconds: f64, work: f64, unit: Unit) -> Option<f64> {
    let value = match unit {
        Unit::BytesPerSecond | Unit::PerSecond | Unit::Hertz if nanoseconds <= 0.0 => return None,
        Unit::PerSecond if work == 0.0 => 1e9 / nanoseconds,
        Unit::BytesPerSecond | Unit::PerSecond | Unit::Hertz => work * 1e9 / nanoseconds,
        Unit::Nanoseconds | Unit::Cycles | Unit::Bytes | Unit::Ratio | Unit::Count => nanoseconds,
    };
    value.is_finite().then_some(value)
}

/// Why there is no sample: skipped, failed, no reading of this metric, or not reached.
pub(crate) fn missing_outcome(measurement: &Measurement) -> Outcome {
    if let Some(reason) = measurement.skip_reason() {
        return Outcome::Skipped(reason.clone());
    }
    let mut failures: Vec<(&str, usize)> = Vec::new();
    for text in measurement.failures() {
        find_or_push(&mut failures, |(existing, _)| *existing == text, || (text, 0)).1 += 1;
    }
    // The most frequent, of equals the first.
    if let Some((reason, _)) = failures.into_iter().rev().max_by_key(|(_, count)| *count) {
        return Outcome::Failed(reason.into());
    }
    if measurement.rounds.is_empty() {
        return Outcome::NotReached;
    }
    let measured = measurement.rounds.iter().filter(|round| matches!(round.outcome, RoundOutcome::Measured(_))).count();
    Outcome::Skipped(SkipReason::new(format!("its {measured} rounds gave no sample of this metric at this case")))
}
