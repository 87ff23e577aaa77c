//! The summary of one metric at one case, with its warnings.

use crate::headlines::MetricHistory;
use crate::prelude::*;

/// Modes that differ by a smaller share of the headline do not matter.
const MIN_MODE_DISTANCE: f64 = 0.02;
/// Largest chance of a drift, or of a difference between halves, by accident.
pub(crate) const TREND_ALPHA: f64 = 0.01;
/// A drift, or a difference between halves, matters from this share of the headline on.
const MIN_DRIFT_SHARE: f64 = 0.02;
/// Below this share of undisturbed samples there is a warning.
const WARNED_UNDISTURBED_SHARE: f64 = 0.3;
/// Samples are called correlated if this many of them ...
const MIN_CORRELATED_SAMPLES: usize = 100;
/// ... are worth fewer independent ones than this, ...
const FEW_EFFECTIVE_SAMPLES: f64 = 20.0;

/// A summary, not yet known to be a result.
pub(crate) struct SummaryDraft {
    /// Whether there were enough samples for the headline that the metric defines.
    pub is_known: bool,
    pub summary: Summary,
    pub warnings: Vec<Warning>,
}

/// Summarises samples; `None` if there are none.
pub(crate) fn summarise(
    samples: &SampleSet,
    metric: &Metric,
    metric_history: &MetricHistory<'_>,
    target: f64,
) -> Option<SummaryDraft> {
    let history = metric_history.between_runs.as_ref();
    // The spread between runs was learned from headlines, and is added to the figure next to them too.
    let is_headline = metric.headline == HeadlineSamples::AsFound;
    let raw = ComputedHeadline::from_treatment(samples, HeadlineSamples::AsFound, None)?;
    let component = history.map(|history| BetweenRunVariance { within: raw.within_variance, ..*history });
    let as_found = ComputedHeadline::from_treatment(
        samples,
        HeadlineSamples::AsFound,
        if is_headline { history } else { component.as_ref() },
    )?;
    let headline = ComputedHeadline::from_samples(samples, history);
    let is_known = headline.is_some();
    let primary = headline.as_ref().unwrap_or(&as_found);
    let pooled_samples = primary.samples.concat();
    let sorted = Sorted::new(pooled_samples.clone())?;
    let effective_count = effective_samples(&primary.samples);
    let undisturbed = match metric.headline {
        HeadlineSamples::AsFound => {
            ComputedHeadline::from_treatment(samples, HeadlineSamples::Undisturbed, component.as_ref())
        }
        _ => headline.clone(),
    };
    let states = primary.states.or(as_found.states);
    let run_states = two_states(&[metric_history.earlier_runs.headlines, &[primary.headline]].concat());
    let (mode_unit, modes) = match (states, run_states) {
        (Some(states), _) => (ModeUnit::Rounds, modes_from_states(&states)),
        (None, Some(states)) => (ModeUnit::Runs, modes_from_states(&states)),
        (None, None) => modes_with_unit(&primary.samples, &sorted, primary.headline, effective_count),
    };
    let summary = Summary {
        headline: primary.headline,
        interval: primary.interval,
        run_interval: primary.own_interval,
        treatment: if is_known { metric.headline } else { HeadlineSamples::AsFound },
        as_found: headline_figure(&as_found),
        undisturbed: undisturbed.as_ref().filter(|_| samples.is_guarded).map(headline_figure),
        undisturbed_share: samples.undisturbed_share(),
        rounds: samples.rounds.len() as u32,
        failed_rounds: samples.failed_rounds,
        round_headlines: primary.round_headlines.clone(),
        round_times: primary.round_times.clone(),
        within_variance: primary.within_variance,
        learned_runs: history.map_or(0, |history| history.runs as u32),
        distribution: distribution(&pooled_samples, &sorted, metric.better, samples.is_of_batch_means),
        modes,
        mode_unit,
        effective_samples: effective_count,
        tags: samples.tags.clone(),
        notes: samples.notes.clone(),
        canary_correlations: samples.canary_correlations(),
        counters: samples.counters.clone(),
    };
    let warnings = warnings(samples, metric, &summary, target, is_known);
    Some(SummaryDraft { is_known, summary, warnings })
}

fn headline_figure(computed: &ComputedHeadline<'_>) -> Figure {
    Figure { value: computed.headline, interval: computed.interval, n: computed.sample_count() as u64 }
}

fn distribution(samples: &[f64], sorted: &Sorted, better: Better, is_of_batch_means: bool) -> Distribution {
    Distribution {
        is_of_batch_means,
        n: samples.len() as u64,
        best: if better == Better::Higher { sorted.max() } else { sorted.min() },
        min: sorted.min(),
        p5: sorted.quantile(0.05),
        p25: sorted.quantile(0.25),
        p50: sorted.quantile(0.5),
        p75: sorted.quantile(0.75),
        p95: sorted.quantile(0.95),
        p99: sorted.quantile(0.99),
        max: sorted.max(),
        mean: mean(samples),
        std: variance(samples).sqrt(),
    }
}

fn modes(sorted: &Sorted, headline: f64, effective_count: f64) -> Vec<Mode> {
    let sample_clusters = clusters(sorted, effective_count);
    let distance = min_max(sample_clusters.iter().map(|cluster| cluster.center)).map(|(low, high)| high - low);
    if sample_clusters.len() < 2 || distance.unwrap_or(0.0) <= MIN_MODE_DISTANCE * headline.abs() {
        return Vec::new();
    }
    sample_clusters.iter().map(mode_from_cluster).collect()
}

/// The modes of samples, and how these change between the two largest.
fn modes_with_unit(samples: &[&[f64]], sorted: &Sorted, headline: f64, effective_count: f64) -> (ModeUnit, Vec<Mode>) {
    let modes = modes(sorted, headline, effective_count);
    let pattern = match modes.as_slice() {
        [first, second, ..] => mode_pattern(samples, f64::midpoint(first.center, second.center)),
        _ => None,
    };
    (if pattern == Some(ModePattern::Persistent) { ModeUnit::Periods } else { ModeUnit::Samples }, modes)
}

/// Whether samples are of modes that the machine changes between in stretches.
pub(crate) fn has_persistent_modes(samples: &[&[f64]], sorted: &Sorted, headline: f64) -> bool {
    modes_with_unit(samples, sorted, headline, effective_samples(samples)).0 == ModeUnit::Periods
}

fn mode_from_cluster(cluster: &Cluster) -> Mode {
    Mode { center: cluster.center, share: cluster.share, level: None }
}

fn modes_from_states(states: &TwoStates) -> Vec<Mode> {
    let dominant = states.dominant();
    let other = if dominant == states.low { states.high } else { states.low };
    [dominant, other].iter().map(mode_from_cluster).collect()
}

fn warnings(samples: &SampleSet, metric: &Metric, summary: &Summary, target: f64, is_known: bool) -> Vec<Warning> {
    let interval_warning = wide_warning(summary, metric.unit, target);
    // What changes from one operation to the next is no doubt in a median that is known.
    let is_doubt = summary.mode_unit != ModeUnit::Samples || interval_warning.is_some();
    let modes = modes_warning(summary, metric.unit).filter(|_| is_doubt);
    // Where rounds are bimodal, one mode at the end of the run is no drift.
    let is_steady = summary.mode_unit != ModeUnit::Rounds;
    let drift = drift_warning(summary).filter(|_| is_steady);
    let is_explained = modes.is_some() || drift.is_some();
    let wide_interval = interval_warning.filter(|_| !is_explained);
    let halves = halves_warning(summary).filter(|_| drift.is_none() && is_steady);
    let is_undisturbed = |treatment| treatment != HeadlineSamples::AsFound;
    let disturbed = disturbed_warning(samples, metric, is_known).filter(|_| is_undisturbed(metric.headline));
    [modes, drift, wide_interval, disturbed, halves, effective_warning(summary), failed_warning(summary)]
        .into_iter()
        .flatten()
        .collect()
}

/// The modes of a summary in a warning.
pub(crate) fn modes_warning(summary: &Summary, unit: Unit) -> Option<Warning> {
    let (count, modes) = (summary.modes.len(), modes_text(&summary.modes, unit));
    let text = match summary.mode_unit {
        ModeUnit::Samples => {
            format!("{count} modes from one operation to the next: {modes}; the median may be of either")
        }
        ModeUnit::Periods => format!(
            "{count} modes in stretches: {modes}; the machine changes meanwhile, and repeating does not narrow them"
        ),
        ModeUnit::Rounds => format!("bimodal from round to round: {modes} of the rounds; the headline is the first"),
        ModeUnit::Runs => {
            format!("bimodal from run to run: {modes} of the runs of this machine; the headline is that of this run")
        }
    };
    (!summary.modes.is_empty()).then_some(Warning::new(WarningKind::Modes, text))
}

/// Names the modes of a value that is bimodal from round to round or from run to run, also in its warning.
pub(crate) fn rename_modes(result: &mut MetricResult, name: impl Fn(&Mode) -> Option<String>) {
    let (Outcome::Measured(summary) | Outcome::NotKnown(summary)) = &mut result.outcome else { return };
    if summary.states().is_empty() {
        return;
    }
    for mode in &mut summary.modes {
        mode.level = name(mode);
    }
    if let Some(replacement) = modes_warning(summary, result.metric.unit) {
        let mode_warnings = result.warnings.iter_mut().filter(|warning| warning.kind == WarningKind::Modes);
        mode_warnings.for_each(|warning| *warning = replacement.clone());
    }
}

/// Modes in words: `12.1 ns (67 %, L3) and 118 ns (33 %, DRAM)`.
pub(crate) fn modes_text(modes: &[Mode], unit: Unit) -> String {
    let mode = |mode: &Mode| {
        let level = mode.level.as_ref().map_or_else(String::new, |level| format!(", {level}"));
        format!("{} ({}{level})", value_text(mode.center, unit), percent(mode.share))
    };
    modes.iter().map(mode).collect::<Vec<_>>().join(" and ")
}

/// How far a value moved over the rounds of a run, as a share of the headline, if that matters, and the chance of such a trend by accident.
pub(crate) fn value_drift(times: &[f64], rounds: &[f64], headline: f64) -> Option<(f64, f64)> {
    let Trend { slope, p, .. } = trend(times, rounds)?;
    let drift = slope * (times.last()? - times.first()?) / headline.abs();
    (p <= TREND_ALPHA && drift.is_finite() && drift.abs() > MIN_DRIFT_SHARE).then_some((drift, p))
}

fn drift_warning(summary: &Summary) -> Option<Warning> {
    let (drift, p) = value_drift(&summary.round_times, &summary.round_headlines, summary.headline)?;
    let (direction, change, chance) = (if drift > 0.0 { "rose" } else { "fell" }, percent(drift.abs()), p_value(p));
    let rounds = summary.round_headlines.len();
    let text =
        format!("the value {direction} by {change} over the run ({chance}, Mann-Kendall test over {rounds} rounds)");
    Some(Warning::new(WarningKind::Drift, text))
}

fn halves_warning(summary: &Summary) -> Option<Warning> {
    let rounds = &summary.round_headlines;
    let (first, second) = rounds.split_at(rounds.len() / 2);
    let difference = UncertainValue::median(second, None)?.minus(UncertainValue::median(first, None)?);
    let p = difference.p_value(0.0);
    let shift = difference.value / summary.headline.abs();
    let (change, side, chance) = (percent(shift.abs()), if shift > 0.0 { "higher" } else { "lower" }, p_value(p));
    let (before, after) = (first.len(), second.len());
    let text = format!(
        "the second half of the run is {change} {side} than the first ({chance}, medians of {before} against {after} rounds): comparisons with \
         this number are weak"
    );
    (p <= TREND_ALPHA && shift.is_finite() && shift.abs() > MIN_DRIFT_SHARE)
        .then_some(Warning::new(WarningKind::HalvesDiffer, text))
}

fn wide_warning(summary: &Summary, unit: Unit, target: f64) -> Option<Warning> {
    let half_width = summary.run_interval?.half_width();
    let share = half_width / summary.headline.abs();
    // Three digits, so that just above the target does not read as the target.
    let multiple =
        if share < 1.0 { format!("{} % of", number(share * 100.0)) } else { format!("{} times", number(share)) };
    let (width, target_text) = (value_text(half_width, unit), percent(target));
    let text = format!(
        "the interval of this run alone, ± {width}, is {multiple} the value; the target of {target_text} was not reached"
    );
    // A target relative to the value means nothing for a value of zero.
    let kind = WarningKind::WideInterval { share, target };
    (share.is_finite() && share > target).then_some(Warning::new(kind, text))
}

fn disturbed_warning(samples: &SampleSet, metric: &Metric, is_known: bool) -> Option<Warning> {
    let share = samples.undisturbed_share();
    let text = if !is_known {
        let reason = samples.shortage_reason();
        format!("the machine was never quiet for long enough, and the undisturbed value is not known: it was {reason}")
    } else if share < WARNED_UNDISTURBED_SHARE {
        let (count, total) = (samples.undisturbed_found(), samples.found_count());
        format!("only {count} of {total} samples ({}) were undisturbed", percent(share))
    } else if samples.is_timed && !samples.is_guarded && metric.canaries.iter().next().is_some() {
        "canaries were not read: disturbance that no counter shows could not be seen".into()
    } else {
        return None;
    };
    Some(Warning::new(WarningKind::Disturbed, text))
}

fn effective_warning(summary: &Summary) -> Option<Warning> {
    let n = summary.distribution.n;
    // A metric that varies from process to process has as many independent samples as rounds.
    let min_effective = FEW_EFFECTIVE_SAMPLES.max(1.5 * f64::from(summary.rounds));
    let effective_count = summary.effective_samples;
    let text = format!("{n} samples are so correlated that they are worth about {effective_count:.0} independent ones");
    (n >= MIN_CORRELATED_SAMPLES as u64 && effective_count < min_effective)
        .then_some(Warning::new(WarningKind::FewEffectiveSamples, text))
}

fn failed_warning(summary: &Summary) -> Option<Warning> {
    let text = format!("{} of {} rounds failed", summary.failed_rounds, summary.failed_rounds + summary.rounds);
    (summary.failed_rounds > 0).then_some(Warning::new(WarningKind::FailedRounds, text))
}
