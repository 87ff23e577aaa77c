//! The headlines of a run with their intervals: all that predictions and later runs need.

use std::collections::HashMap;

use kelvin_catalogue::cpu::{BusyCpus, FREQUENCY};
use kelvin_model::units::plain;
use kelvin_model::{
    AsFound, Bound, Case, Estimate, Interval, IntervalKind, Lacking, Learned, MeasuredValue, Measurement, Metric, Name,
    Run, Treatment,
};
use kelvin_stats::{
    Earlier, HeadlineInterval, HeadlineIntervalKind, LEVEL, RunToRun, Samples, TwoStates, Unseen, headline_interval,
    median, repeat_interval, two_states, within_spread,
};

use crate::bounds::broken_bound;
use crate::canaries::References;
use crate::gather::{Gathered, not_measured};
use crate::result::Outcome;

/// The headlines of all metrics of a run at all cases.
#[derive(Clone, Debug)]
pub struct Headlines {
    measured: HashMap<Name, Vec<(Case, MeasuredValue)>>,
    lacking: HashMap<Name, Vec<(Case, Lacking)>>,
    chain_hertz: Option<f64>,
}

impl Headlines {
    /// Computes the headlines of a run.
    pub fn of(run: &Run) -> Self {
        Self::read(run, &Desk::of(run), |_| true)
    }

    fn read(run: &Run, desk: &Desk<'_>, wanted: impl Fn(&Metric) -> bool) -> Self {
        let mut measured: HashMap<Name, Vec<(Case, MeasuredValue)>> = HashMap::new();
        let mut lacking: HashMap<Name, Vec<(Case, Lacking)>> = HashMap::new();
        for measurement in &run.measurements {
            let case = &measurement.planned.case;
            for metric in metrics_of(run, measurement).into_iter().filter(|metric| wanted(metric)) {
                let gathered = Gathered::of(measurement, &metric, &desk.references);
                let history = desk.history(metric.id, case);
                let settled = Settled::headline(&gathered, history.as_ref());
                let bound = run.bound(&metric.id, case);
                let is_possible = |settled: &Settled<'_>| broken_bound(&metric, bound, settled.headline).is_none();
                if let Some(settled) = settled.filter(is_possible) {
                    let value = MeasuredValue { value: settled.headline, half_width: settled.half_width() };
                    measured.entry(metric.id).or_default().push((case.clone(), value));
                } else {
                    let lack = lack(measurement, &metric, bound, &gathered);
                    lacking.entry(metric.id).or_default().push((case.clone(), lack));
                }
            }
        }
        let cycles = run.outline.clock.multiply_cycles.get();
        Self { measured, lacking, chain_hertz: cycles.and_then(|&cycles| desk.references.core_hertz(cycles)) }
    }

    /// The headline of a metric at a case; `None` if it was not measured, is not known, or is impossible.
    pub fn get(&self, metric: &str, case: &Case) -> Option<MeasuredValue> {
        self.cases(metric).find(|(known, _)| *known == case).map(|(_, measured)| measured)
    }

    /// What the run has of a metric at a case without a headline.
    pub fn lacking(&self, metric: &str, case: &Case) -> Lacking {
        let known = self.lacking.iter().find(|(id, _)| **id == *metric).map(|(_, cases)| cases.as_slice());
        let found = known.unwrap_or_default().iter().find(|(known, _)| known == case);
        found.map_or_else(|| Lacking::Nothing("this run did not measure".into()), |(_, lack)| lack.clone())
    }

    /// All cases at which a metric was measured, with its headlines.
    pub fn cases<'a>(&'a self, metric: &str) -> impl Iterator<Item = (&'a Case, MeasuredValue)> + use<'a> {
        let known = self.measured.iter().find(|(id, _)| **id == *metric).map(|(_, cases)| cases.as_slice());
        known.unwrap_or_default().iter().map(|(case, measured)| (case, *measured))
    }

    /// Frequency of the core that probes ran on, in hertz: the metric `cpu.frequency` where it was measured on one CPU,
    /// else what the chain canary shows.
    pub fn core_hertz(&self) -> Option<f64> {
        let on_one_cpu = |case: &Case| BusyCpus::of(case) != Some(BusyCpus::All);
        let measured = self.cases(&FREQUENCY.id).find(|(case, _)| on_one_cpu(case)).map(|(_, measured)| measured.value);
        measured.or(self.chain_hertz)
    }
}

/// What there is of a metric without a headline within its bounds.
fn lack(measurement: &Measurement, metric: &Metric, bound: Option<&Bound>, gathered: &Gathered) -> Lacking {
    let Some(found) = Settled::of(gathered, Treatment::AsFound, None) else {
        return Lacking::Nothing(match not_measured(measurement) {
            Outcome::Skipped(reason) => format!("was skipped: {reason}"),
            Outcome::Failed(reason) => format!("failed: {reason}"),
            _ => "this run did not reach".into(),
        });
    };
    // If the headline is impossible, the figure as found is no better.
    let headline = Settled::headline(gathered, None).map_or(found.headline, |settled| settled.headline);
    if let Some(ceiling) = broken_bound(metric, bound, headline) {
        let (value, bound) = (plain(ceiling.value, metric.unit), plain(ceiling.bound, metric.unit));
        return Lacking::Nothing(format!("came out at {value}, beyond what is possible ({bound})"));
    }
    let Ok(samples) = Samples::new(found.samples.concat()) else {
        return Lacking::Nothing("has no sample".into());
    };
    let sorted = samples.sorted();
    let why = gathered.why_too_few();
    Lacking::AsFound(AsFound { value: found.headline, low: sorted.quantile(0.05), high: sorted.quantile(0.95), why })
}

/// As [`Headlines::core_hertz`], without the headlines of all other metrics.
pub(crate) fn core_hertz(run: &Run, desk: &Desk<'_>) -> Option<f64> {
    Headlines::read(run, desk, |metric| metric.id == FREQUENCY.id).core_hertz()
}

/// What was learned of one metric at one case from earlier runs of the machine.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Past<'r> {
    /// The spread between runs.
    pub history: Option<RunToRun>,
    /// Their headlines.
    pub earlier: Earlier<'r>,
}

/// What every metric of a run is judged by: the references of canaries, and what was learned from earlier runs.
pub(crate) struct Desk<'r> {
    pub references: References,
    learned: HashMap<(Name, &'r Case), &'r Learned>,
}

impl<'r> Desk<'r> {
    pub fn of(run: &'r Run) -> Self {
        Self::by(References::of(run), run)
    }

    /// With references that are known already.
    pub fn by(references: References, run: &'r Run) -> Self {
        let learned = run.outline.learned.iter().map(|learned| ((learned.metric, &learned.case), learned)).collect();
        Self { references, learned }
    }

    /// What the run knew of a metric at a case from earlier runs.
    pub fn learned(&self, metric: Name, case: &'r Case) -> Option<&'r Learned> {
        self.learned.get(&(metric, case)).copied()
    }

    /// The spread between runs learned from earlier ones; `None` with too few, or where they were bimodal: the distance
    /// between modes is no spread.
    pub fn history(&self, metric: Name, case: &'r Case) -> Option<RunToRun> {
        let learned = self.learned(metric, case)?;
        if two_states(&learned.headlines).is_some() {
            return None;
        }
        RunToRun::learn(&learned.headlines, &learned.within)
    }

    /// All that was learned of a metric at a case from earlier runs.
    pub fn past(&self, metric: Name, case: &'r Case) -> Past<'r> {
        let learned = self.learned(metric, case);
        let earlier = |learned: &'r Learned| Earlier { headlines: &learned.headlines, within: &learned.within };
        Past { history: self.history(metric, case), earlier: learned.map(earlier).unwrap_or_default() }
    }
}

/// The metrics of a measurement that the run defines: those planned, then those read without a plan.
pub(crate) fn metrics_of(run: &Run, measurement: &Measurement) -> Vec<Metric> {
    let mut ids: Vec<Name> = measurement.planned.metrics.clone();
    for round in &measurement.rounds {
        if let kelvin_model::Attempt::Measured(readings) = &round.attempt {
            for reading in readings {
                if !ids.contains(&reading.metric) {
                    ids.push(reading.metric);
                }
            }
        }
    }
    ids.iter().filter_map(|id| run.metric(id)).map(|metric| metric.at(&measurement.planned.case)).collect()
}

/// A headline and where it comes from.
#[derive(Clone, Debug)]
pub(crate) struct Settled<'g> {
    pub headline: f64,
    pub interval: Option<Interval>,
    /// The same by its own rounds alone, without what differs from run to run.
    pub of_rounds: Option<Interval>,
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
fn least_of(rounds: &[f64]) -> f64 {
    if rounds.iter().any(|&round| round < 0.0) { f64::NEG_INFINITY } else { 0.0 }
}

/// An estimate whose interval ends at [`least_of`] its rounds.
pub(crate) fn estimate_above_zero(estimate: Estimate, rounds: &[f64]) -> Estimate {
    Estimate { low: estimate.low.max(least_of(rounds)), ..estimate }
}

fn above_zero(interval: Interval, rounds: &[f64]) -> Interval {
    Interval { lower: interval.lower.max(least_of(rounds)), ..interval }
}

impl<'g> Settled<'g> {
    /// The headline, from the samples that make it; `None` if there are none, or too few undisturbed ones.
    pub fn headline(gathered: &'g Gathered, history: Option<&RunToRun>) -> Option<Self> {
        Self::of(gathered, gathered.treatment, history)
    }

    /// `None` if there are no samples, or too few undisturbed ones.
    pub fn of(gathered: &'g Gathered, treatment: Treatment, history: Option<&RunToRun>) -> Option<Self> {
        let selected = gathered.select(treatment)?;
        let round_headlines: Vec<f64> = selected.iter().map(|(_, samples)| median(samples)).collect();
        let round_times = selected.iter().map(|(round, _)| round.at).collect();
        let round_indices = selected.iter().map(|(round, _)| round.index).collect();
        let states = two_states(&round_headlines);
        let counts = |headline: f64| states.is_none_or(|states| states.are_one(headline, states.dominant().center));
        let counting: Vec<f64> = round_headlines.iter().copied().filter(|&headline| counts(headline)).collect();
        let samples = selected.into_iter().zip(&round_headlines).filter(|(_, headline)| counts(**headline));
        let within = within_spread(&counting);
        // The spread learned from earlier runs is of one mode or of both; in the latter case it says nothing of one.
        let history = history.filter(|_| states.is_none());
        let interval_of = if gathered.lasting { repeat_interval } else { headline_interval };
        let within_zero =
            |interval: Option<HeadlineInterval>| interval.map(|found| above_zero(labelled(found), &counting));
        Some(Self {
            headline: kelvin_stats::headline(&counting),
            interval: within_zero(interval_of(&counting, history, gathered.unseen)),
            of_rounds: within_zero(interval_of(&counting, None, Unseen::default())),
            samples: samples.map(|((_, samples), _)| samples).collect(),
            within_variance: within.map_or(0.0, |within| within.variance),
            round_headlines,
            round_times,
            round_indices,
            states,
        })
    }

    /// Half-width for what is made of several figures of one run, in which what differs from run to run cancels.
    fn half_width(&self) -> f64 {
        let quartiles = || {
            let all = Samples::new(self.samples.concat()).ok()?.sorted();
            Some((all.quantile(0.75) - all.quantile(0.25)) / 2.0)
        };
        self.of_rounds.map(|interval| interval.half_width()).or_else(quartiles).unwrap_or(0.0)
    }

    /// Number of samples behind it.
    pub fn n(&self) -> usize {
        self.samples.iter().map(|samples| samples.len()).sum()
    }
}

fn labelled(interval: HeadlineInterval) -> Interval {
    let (kind, level) = match interval.kind {
        HeadlineIntervalKind::Confidence => (IntervalKind::Confidence, LEVEL),
        HeadlineIntervalKind::Range => (IntervalKind::Range, 1.0),
    };
    Interval { kind, level, lower: interval.lower, upper: interval.upper }
}
