//! The headlines of a run with their intervals: all that predictions and later runs need.

use std::collections::HashMap;

use kelvin_core::catalogue::cpu::{BusyCpus, FREQUENCY};

use crate::kept_headlines::measured_value;
use crate::prelude::*;

/// The headline of a metric at a case, or the input that is missing.
type CaseFigure = (Case, Result<MeasuredValue, MissingInput>);

/// The headlines of all metrics of a run at all cases.
#[derive(Clone, Debug)]
pub struct Headlines {
    figures: HashMap<Name, Vec<CaseFigure>>,
    chain_hertz: Option<f64>,
}

impl Headlines {
    /// Computes the headlines of a run.
    pub fn from_run(run: &Run) -> Self {
        Self::read_metrics(run, &Baselines::from_run(run), |_| true)
    }

    fn read_metrics(run: &Run, baselines: &Baselines<'_>, is_read: impl Fn(&Metric) -> bool) -> Self {
        let mut figures: HashMap<Name, Vec<CaseFigure>> = HashMap::new();
        for (measurement, metric) in measured_metrics(run).filter(|(_, metric)| is_read(metric)) {
            let case = &measurement.planned.case;
            if let Some(kept) = run.kept_headline(measurement, &metric.id) {
                figures.entry(metric.id).or_default().push((case.clone(), measured_value(kept)));
                continue;
            }
            let samples = SampleSet::from_measurement(measurement, &metric, &baselines.references);
            let history = baselines.between_run_variance(metric.id, case);
            let bound = run.bound(&metric.id, case);
            let computed = ComputedHeadline::from_samples(&samples, history.as_ref());
            let possible_headline =
                computed.filter(|computed| exceeded_bound(&metric, bound, computed.headline).is_none());
            let figure = possible_headline
                .map(|computed| MeasuredValue { value: computed.headline, half_width: computed.half_width() })
                .ok_or_else(|| missing_input_of(measurement, &metric, bound, &samples));
            figures.entry(metric.id).or_default().push((case.clone(), figure));
        }
        let cycles = run.header.clock.multiply_cycles.get();
        Self { figures, chain_hertz: cycles.and_then(|&cycles| baselines.references.core_hertz(cycles)) }
    }

    /// The figures of a metric at all cases.
    fn figures(&self, metric: &str) -> &[CaseFigure] {
        self.figures.iter().find(|(id, _)| **id == *metric).map_or(&[], |(_, cases)| cases)
    }

    /// The headline of a metric at a case; `None` if it was not measured, is not known, or is impossible.
    pub fn get(&self, metric: &str, case: &Case) -> Option<MeasuredValue> {
        self.cases(metric).find(|(candidate, _)| *candidate == case).map(|(_, measured)| measured)
    }

    /// What the run has of a metric at a case without a headline.
    pub fn missing_input(&self, metric: &str, case: &Case) -> MissingInput {
        let missing_input =
            |(candidate, figure): &CaseFigure| figure.as_ref().err().filter(|_| candidate == case).cloned();
        let input = self.figures(metric).iter().find_map(missing_input);
        input.unwrap_or_else(|| MissingInput::NoFigure("this run did not measure".into()))
    }

    /// All cases at which a metric was measured, with its headlines.
    pub fn cases<'a>(&'a self, metric: &str) -> impl Iterator<Item = (&'a Case, MeasuredValue)> + use<'a> {
        self.figures(metric).iter().filter_map(|(case, figure)| Some((case, *figure.as_ref().ok()?)))
    }

    /// Frequency of the core that probes ran on, in hertz: the metric `cpu.frequency` where it was measured on one CPU,
    /// else what the chain canary shows.
    pub fn core_hertz(&self) -> Option<f64> {
        let is_one_cpu = |case: &Case| BusyCpus::of(case) != Some(BusyCpus::All);
        let measured = self.cases(&FREQUENCY.id).find(|(case, _)| is_one_cpu(case)).map(|(_, measured)| measured.value);
        measured.or(self.chain_hertz)
    }
}

/// What there is of a metric without a headline within its bounds.
fn missing_input_of(
    measurement: &Measurement,
    metric: &Metric,
    bound: Option<&Bound>,
    samples: &SampleSet,
) -> MissingInput {
    let Some(as_found) = ComputedHeadline::from_treatment(samples, HeadlineSamples::AsFound, None) else {
        return MissingInput::NoFigure(match missing_outcome(measurement) {
            Outcome::Skipped(reason) => format!("was skipped: {reason}"),
            Outcome::Failed(reason) => format!("failed: {reason}"),
            _ => "this run did not reach".into(),
        });
    };
    // If the headline is impossible, the figure as found is no better.
    let headline =
        ComputedHeadline::from_samples(samples, None).map_or(as_found.headline, |computed| computed.headline);
    if let Some(ceiling) = exceeded_bound(metric, bound, headline) {
        let (value, bound) = (value_text(ceiling.value, metric.unit), value_text(ceiling.bound, metric.unit));
        return MissingInput::NoFigure(format!("came out at {value}, beyond what is possible ({bound})"));
    }
    let Some(sorted) = Sorted::new(as_found.samples.concat()) else {
        return MissingInput::NoFigure("has no sample".into());
    };
    let (value, [low, high]) = (as_found.headline, [0.05, 0.95].map(|share| sorted.quantile(share)));
    MissingInput::AsFound(AsFoundValue { value, low, high, reason: samples.shortage_reason() })
}

/// As [`Headlines::core_hertz`], without the headlines of all other metrics.
pub(crate) fn core_hertz(run: &Run, baselines: &Baselines<'_>) -> Option<f64> {
    Headlines::read_metrics(run, baselines, |metric| metric.id == FREQUENCY.id).core_hertz()
}

/// What was learned of one metric at one case from earlier runs of the machine.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MetricHistory<'r> {
    /// The spread between runs.
    pub between_runs: Option<BetweenRunVariance>,
    /// Their headlines.
    pub earlier_runs: EarlierRuns<'r>,
}

/// What every metric of a run is judged by: the references of canaries, and what was learned from earlier runs.
pub(crate) struct Baselines<'r> {
    pub references: CanaryReferences,
    histories: HashMap<(Name, &'r Case), &'r SpreadHistory>,
}

impl<'r> Baselines<'r> {
    pub fn from_run(run: &'r Run) -> Self {
        Self::with_references(CanaryReferences::from_run(run), run)
    }

    /// With references that are known already.
    pub fn with_references(references: CanaryReferences, run: &'r Run) -> Self {
        let histories =
            run.header.spread_history.iter().map(|history| ((history.metric, &history.case), history)).collect();
        Self { references, histories }
    }

    /// What the run knew of a metric at a case from earlier runs.
    pub fn spread_history(&self, metric: Name, case: &'r Case) -> Option<&'r SpreadHistory> {
        self.histories.get(&(metric, case)).copied()
    }

    /// The spread between runs learned from earlier ones; `None` with too few, or where they were bimodal: the distance
    /// between modes is no spread.
    pub fn between_run_variance(&self, metric: Name, case: &'r Case) -> Option<BetweenRunVariance> {
        let history = self.spread_history(metric, case)?;
        if two_states(&history.headlines).is_some() {
            return None;
        }
        BetweenRunVariance::learn(&history.headlines, &history.within_variances)
    }

    /// All that was learned of a metric at a case from earlier runs.
    pub fn metric_history(&self, metric: Name, case: &'r Case) -> MetricHistory<'r> {
        let history = self.spread_history(metric, case);
        let to_earlier_runs = |spread: &'r SpreadHistory| EarlierRuns {
            headlines: &spread.headlines,
            within_run: &spread.within_variances,
        };
        MetricHistory {
            between_runs: self.between_run_variance(metric, case),
            earlier_runs: history.map(to_earlier_runs).unwrap_or_default(),
        }
    }
}

/// Each metric of each measurement of a run.
pub(crate) fn measured_metrics(run: &Run) -> impl Iterator<Item = (&Measurement, Metric)> {
    let pair_metrics = |measurement| metrics_of(run, measurement).into_iter().map(move |metric| (measurement, metric));
    run.measurements.iter().flat_map(pair_metrics)
}

/// The metrics of a measurement that the run defines: those planned, then those read, or kept, without a plan.
pub(crate) fn metrics_of(run: &Run, measurement: &Measurement) -> Vec<Metric> {
    let read = measurement.rounds.iter().flat_map(|round| match &round.outcome {
        kelvin_core::RoundOutcome::Measured(readings) => readings.as_slice(),
        _ => &[],
    });
    let PlannedMeasurement { probe, metrics, case, .. } = &measurement.planned;
    let kept = run.kept_headlines.iter().filter(|kept| kept.probe == *probe && kept.case == *case);
    let read = read.map(|reading| reading.metric).chain(kept.map(|kept| kept.metric));
    let ids = each_once(metrics.iter().copied().chain(read));
    ids.iter().filter_map(|id| run.metric(id)).map(|metric| metric.for_case(case)).collect()
}

/// A headline and where it comes from.
#[derive(Clone, Debug)]
pub(crate) struct ComputedHeadline<'g> {
    pub headline: f64,
    pub interval: Option<Interval>,
    /// The interval by its own rounds alone, without what differs from run to run.
    pub own_interval: Option<Interval>,
    /// Samples of its rounds.
    pub samples: Vec<&'g [f64]>,
    /// Of every round that counts.
    pub round_headlines: Vec<f64>,
    pub round_times: Vec<f64>,
    pub round_indices: Vec<u32>,
    /// The two modes of the rounds, if bimodal; the dominant one makes the headline.
    pub states: Option<TwoStates>,
    pub within_variance: f64,
}

/// The least that the interval of a headline may reach down to. Times, rates and shares are not negative, however much they scatter: if no
/// round is below zero, neither is the interval.
fn interval_floor(rounds: &[f64]) -> f64 {
    if rounds.iter().any(|&round| round < 0.0) { f64::NEG_INFINITY } else { 0.0 }
}

/// An estimate whose interval ends at [`interval_floor`] its rounds.
pub(crate) fn clamp_estimate(estimate: Estimate, rounds: &[f64]) -> Estimate {
    Estimate { low: estimate.low.max(interval_floor(rounds)), ..estimate }
}

impl<'g> ComputedHeadline<'g> {
    /// The headline, from the samples that make it; `None` if there are none, or too few undisturbed ones.
    pub fn from_samples(samples: &'g SampleSet, history: Option<&BetweenRunVariance>) -> Option<Self> {
        Self::from_treatment(samples, samples.treatment, history)
    }

    /// `None` if there are no samples, or too few undisturbed ones.
    pub fn from_treatment(
        samples: &'g SampleSet,
        treatment: HeadlineSamples,
        history: Option<&BetweenRunVariance>,
    ) -> Option<Self> {
        let selected = samples.select(treatment)?;
        let round_headlines: Vec<f64> = selected.iter().map(|(_, samples)| median(samples)).collect();
        let round_times = selected.iter().map(|(round, _)| round.start_seconds).collect();
        let round_indices = selected.iter().map(|(round, _)| round.index).collect();
        let states = two_states(&round_headlines);
        let is_dominant =
            |headline: f64| states.is_none_or(|states| states.is_same_state(headline, states.dominant().center));
        let dominant: Vec<f64> = round_headlines.iter().copied().filter(|&headline| is_dominant(headline)).collect();
        let dominant_samples =
            selected.into_iter().zip(&round_headlines).filter(|(_, headline)| is_dominant(**headline));
        let within_run = within_run_variance(&dominant);
        // The spread learned from earlier runs is of one mode or of both; in the latter case it is not that of one.
        let history = history.filter(|_| states.is_none());
        let interval_of = if samples.has_lasting_states { repeat_interval } else { headline_interval };
        let clamp = |interval: Option<HeadlineInterval>| {
            interval.map(|HeadlineInterval { kind, lower, upper }| {
                let (kind, level) = match kind {
                    HeadlineIntervalKind::Confidence => (IntervalKind::Confidence, CONFIDENCE_LEVEL),
                    HeadlineIntervalKind::Range => (IntervalKind::Range, 1.0),
                };
                Interval { kind, level, lower: lower.max(interval_floor(&dominant)), upper }
            })
        };
        Some(Self {
            headline: kelvin_stats::headline(&dominant),
            interval: clamp(interval_of(&dominant, history, samples.unobserved)),
            own_interval: clamp(interval_of(&dominant, None, UnobservedVariance::default())),
            samples: dominant_samples.map(|((_, samples), _)| samples).collect(),
            within_variance: within_run.map_or(0.0, |estimate| estimate.variance),
            round_headlines,
            round_times,
            round_indices,
            states,
        })
    }

    /// Half-width for what is made of several figures of one run, in which what differs from run to run cancels.
    fn half_width(&self) -> f64 {
        let quartiles = || {
            let sorted = Sorted::new(self.samples.concat())?;
            Some((sorted.quantile(0.75) - sorted.quantile(0.25)) / 2.0)
        };
        self.own_interval.map(|interval| interval.half_width()).or_else(quartiles).unwrap_or(0.0)
    }

    /// Number of samples behind it.
    pub fn sample_count(&self) -> usize {
        self.samples.iter().map(|samples| samples.len()).sum()
    }
}
