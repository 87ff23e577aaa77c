//! The summary of one metric at one case, with its warnings.

use kelvin_model::units::{number, p_value, percent, plain};
use kelvin_model::{Better, Metric, Treatment, Unit};
use kelvin_stats::{
    Alternation, Cluster, RunToRun, Samples, Sorted, Trend, TwoStates, Uncertain, alternation, clusters,
    effective_samples, trend, two_states,
};

use crate::gather::Gathered;
use crate::headlines::{Past, Settled};
use crate::result::{Distribution, Figure, MetricResult, Mode, ModesOf, Outcome, Summary, Warning};

/// Modes that differ by a smaller share of the headline do not matter.
const MODES_APART: f64 = 0.02;
/// Largest chance of a drift, or of a difference between halves, by accident.
pub(crate) const ALPHA: f64 = 0.01;
/// A drift, or a difference between halves, matters from this share of the headline on.
const MOVED: f64 = 0.02;
/// Below this share of undisturbed samples there is a warning.
const DISTURBED: f64 = 0.3;
/// Samples are called correlated if this many of them ...
const MANY_SAMPLES: usize = 100;
/// ... are worth fewer independent ones than this, ...
const FEW_EFFECTIVE: f64 = 20.0;

/// A summary, not yet known to be a result.
pub(crate) struct Summarised {
    /// Whether there were enough samples for the headline that the metric defines.
    pub known: bool,
    pub summary: Summary,
    pub warnings: Vec<Warning>,
}

/// Summarises samples; `None` if there are none.
pub(crate) fn summarise(gathered: &Gathered, metric: &Metric, past: &Past<'_>, target: f64) -> Option<Summarised> {
    let history = past.history.as_ref();
    // The spread between runs was learned from headlines, and is added to the figure beside them too.
    let is_headline = metric.headline == Treatment::AsFound;
    let plain = Settled::of(gathered, Treatment::AsFound, None)?;
    let component = history.map(|history| RunToRun { within: plain.within_variance, ..*history });
    let as_found = Settled::of(gathered, Treatment::AsFound, if is_headline { history } else { component.as_ref() })?;
    let kept = Settled::headline(gathered, history);
    let known = kept.is_some();
    let head = kept.as_ref().unwrap_or(&as_found);
    let pooled = Samples::new(head.samples.concat()).ok()?;
    let sorted = pooled.sorted();
    let effective = effective_samples(&head.samples);
    let undisturbed = match metric.headline {
        Treatment::AsFound => Settled::of(gathered, Treatment::Undisturbed, component.as_ref()),
        _ => kept.clone(),
    };
    let states = head.states.or(as_found.states);
    let states_of_runs = two_states(&[past.earlier.headlines, &[head.headline]].concat());
    let (modes_of, modes) = match (states, states_of_runs) {
        (Some(states), _) => (ModesOf::Rounds, states_as_modes(&states)),
        (None, Some(states)) => (ModesOf::Runs, states_as_modes(&states)),
        (None, None) => modes_of(&head.samples, &sorted, head.headline, effective),
    };
    let summary = Summary {
        headline: head.headline,
        interval: head.interval,
        run_interval: head.of_rounds,
        treatment: if known { metric.headline } else { Treatment::AsFound },
        as_found: figure(&as_found),
        undisturbed: undisturbed.as_ref().filter(|_| gathered.guarded).map(figure),
        kept_share: gathered.kept_share(),
        rounds: gathered.rounds.len() as u32,
        failed_rounds: gathered.failed,
        round_headlines: head.round_headlines.clone(),
        round_times: head.round_times.clone(),
        within_variance: head.within_variance,
        learned_runs: history.map_or(0, |history| history.runs as u32),
        distribution: distribution(&pooled, &sorted, metric.better, gathered.of_batch_means),
        modes,
        modes_of,
        effective_samples: effective,
        tags: gathered.tags.clone(),
        notes: gathered.notes.clone(),
        canary_correlations: gathered.canary_correlations(),
    };
    let warnings = warnings(gathered, metric, &summary, target, known);
    Some(Summarised { known, summary, warnings })
}

fn figure(settled: &Settled<'_>) -> Figure {
    Figure { value: settled.headline, interval: settled.interval, n: settled.n() as u64 }
}

fn distribution(samples: &Samples, sorted: &Sorted, better: Better, of_batch_means: bool) -> Distribution {
    Distribution {
        of_batch_means,
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
        mean: samples.mean(),
        std: samples.std(),
    }
}

fn modes(sorted: &Sorted, headline: f64, effective: f64) -> Vec<Mode> {
    let found = clusters(sorted, effective);
    let centers = || found.iter().map(|cluster| cluster.center);
    let apart = centers().fold(f64::NEG_INFINITY, f64::max) - centers().fold(f64::INFINITY, f64::min);
    if found.len() < 2 || apart <= MODES_APART * headline.abs() {
        return Vec::new();
    }
    found.iter().map(mode).collect()
}

/// The modes of samples, and how they change between them.
fn modes_of(samples: &[&[f64]], sorted: &Sorted, headline: f64, effective: f64) -> (ModesOf, Vec<Mode>) {
    let modes = modes(sorted, headline, effective);
    (within_rounds(samples, &modes), modes)
}

/// Whether samples are of modes that the machine changes between in stretches.
pub(crate) fn is_in_stretches(samples: &[&[f64]], sorted: &Sorted, headline: f64) -> bool {
    modes_of(samples, sorted, headline, effective_samples(samples)).0 == ModesOf::Stretches
}

/// How samples change between their two largest modes.
fn within_rounds(samples: &[&[f64]], modes: &[Mode]) -> ModesOf {
    let [first, second, ..] = modes else { return ModesOf::Samples };
    match alternation(samples, f64::midpoint(first.center, second.center)) {
        Some(Alternation::Stretches) => ModesOf::Stretches,
        _ => ModesOf::Samples,
    }
}

fn mode(cluster: &Cluster) -> Mode {
    Mode { center: cluster.center, share: cluster.share, level: None }
}

fn states_as_modes(states: &TwoStates) -> Vec<Mode> {
    let dominant = states.dominant();
    let other = if dominant == states.low { states.high } else { states.low };
    [dominant, other].iter().map(mode).collect()
}

fn warnings(gathered: &Gathered, metric: &Metric, summary: &Summary, target: f64, known: bool) -> Vec<Warning> {
    let wide = wide_warning(summary, metric.unit, target);
    // What changes from one operation to the next is no doubt in a median that is known.
    let is_doubt = summary.modes_of != ModesOf::Samples || wide.is_some();
    let modes = modes_warning(summary, metric.unit).filter(|_| is_doubt);
    // Where rounds are bimodal, one mode at the end of the run is no drift.
    let steady = summary.modes_of != ModesOf::Rounds;
    let drift = drift_warning(summary).filter(|_| steady);
    let explained = modes.is_some() || drift.is_some();
    let wide = wide.filter(|_| !explained);
    let halves = halves_warning(summary).filter(|_| drift.is_none() && steady);
    let judged_by = |treatment| treatment != Treatment::AsFound;
    let disturbed = disturbed_warning(gathered, metric, known).filter(|_| judged_by(metric.headline));
    [modes, drift, wide, disturbed, halves, effective_warning(summary), failed_warning(summary)]
        .into_iter()
        .flatten()
        .collect()
}

/// The modes of a summary in a warning.
pub(crate) fn modes_warning(summary: &Summary, unit: Unit) -> Option<Warning> {
    let text = match summary.modes_of {
        ModesOf::Samples => format!(
            "{} modes from one operation to the next: {}; the median may be of either",
            summary.modes.len(),
            modes_in_words(&summary.modes, unit)
        ),
        ModesOf::Stretches => format!(
            "{} modes in stretches: {}; the machine changes meanwhile, and repeating does not narrow them",
            summary.modes.len(),
            modes_in_words(&summary.modes, unit)
        ),
        ModesOf::Rounds => format!(
            "bimodal from round to round: {} of the rounds; the headline is the first",
            modes_in_words(&summary.modes, unit)
        ),
        ModesOf::Runs => format!(
            "bimodal from run to run: {} of the runs of this machine; the headline is that of this run",
            modes_in_words(&summary.modes, unit)
        ),
    };
    (!summary.modes.is_empty()).then_some(Warning::Modes { text })
}

/// Names the modes of a value that is bimodal from round to round or from run to run, also in its warning.
pub(crate) fn name_modes(result: &mut MetricResult, name: impl Fn(&Mode) -> Option<String>) {
    let (Outcome::Measured(summary) | Outcome::NotKnown(summary)) = &mut result.outcome else { return };
    if summary.states().is_empty() {
        return;
    }
    for mode in &mut summary.modes {
        mode.level = name(mode);
    }
    if let Some(named) = modes_warning(summary, result.metric.unit) {
        let of_modes = result.warnings.iter_mut().filter(|warning| matches!(warning, Warning::Modes { .. }));
        of_modes.for_each(|warning| *warning = named.clone());
    }
}

/// Modes in words: `12.1 ns (67 %, L3) and 118 ns (33 %, DRAM)`.
pub(crate) fn modes_in_words(modes: &[Mode], unit: Unit) -> String {
    let mode = |mode: &Mode| {
        let level = mode.level.as_ref().map_or_else(String::new, |level| format!(", {level}"));
        format!("{} ({}{level})", plain(mode.center, unit), percent(mode.share))
    };
    modes.iter().map(mode).collect::<Vec<_>>().join(" and ")
}

/// How far a value moved over the rounds of a run.
pub(crate) struct Drift {
    /// Share of the headline.
    moved: f64,
    /// Chance of such a trend by accident.
    p: f64,
}

/// The drift of rounds, if there is one that matters.
pub(crate) fn drift(times: &[f64], rounds: &[f64], headline: f64) -> Option<Drift> {
    let Trend { slope, p, .. } = trend(times, rounds)?;
    let moved = slope * (times.last()? - times.first()?) / headline.abs();
    (p <= ALPHA && moved.is_finite() && moved.abs() > MOVED).then_some(Drift { moved, p })
}

fn drift_warning(summary: &Summary) -> Option<Warning> {
    let Drift { moved, p } = drift(&summary.round_times, &summary.round_headlines, summary.headline)?;
    let text = format!(
        "the value {} by {} over the run ({}, Mann-Kendall test over {} rounds)",
        if moved > 0.0 { "rose" } else { "fell" },
        percent(moved.abs()),
        p_value(p),
        summary.round_headlines.len()
    );
    Some(Warning::Drift { text })
}

fn halves_warning(summary: &Summary) -> Option<Warning> {
    let rounds = &summary.round_headlines;
    let (first, second) = rounds.split_at(rounds.len() / 2);
    let difference = Uncertain::median(second, None)?.minus(Uncertain::median(first, None)?);
    let p = difference.chance_of(0.0);
    let moved = difference.value / summary.headline.abs();
    let text = format!(
        "the second half of the run is {} {} than the first ({}, medians of {} against {} rounds): comparisons with \
         this number are weak",
        percent(moved.abs()),
        if moved > 0.0 { "higher" } else { "lower" },
        p_value(p),
        first.len(),
        second.len()
    );
    (p <= ALPHA && moved.is_finite() && moved.abs() > MOVED).then_some(Warning::HalvesDiffer { text })
}

fn wide_warning(summary: &Summary, unit: Unit, target: f64) -> Option<Warning> {
    let half = summary.run_interval?.half_width();
    let share = half / summary.headline.abs();
    let text = format!(
        "the interval of this run alone, ± {}, is {} the value; the target of {} was not reached",
        plain(half, unit),
        // Three digits, so that just above the target does not read as the target.
        if share < 1.0 { format!("{} % of", number(share * 100.0)) } else { format!("{} times", number(share)) },
        percent(target)
    );
    // A target relative to the value means nothing for a value of zero.
    (share.is_finite() && share > target).then_some(Warning::Wide { share, target, text })
}

fn disturbed_warning(gathered: &Gathered, metric: &Metric, known: bool) -> Option<Warning> {
    let share = gathered.kept_share();
    let kept = format!("{} of {} samples ({}) were undisturbed", gathered.quiet(), gathered.found(), percent(share));
    let text = if !known {
        let why = gathered.why_too_few();
        format!("the machine was never quiet for long enough, and the undisturbed value is not known: it was {why}")
    } else if share < DISTURBED {
        format!("only {kept}")
    } else if gathered.timed && !gathered.guarded && metric.canaries.iter().next().is_some() {
        "canaries were not read: disturbance that no counter shows could not be seen".into()
    } else {
        return None;
    };
    Some(Warning::Disturbed { text })
}

fn effective_warning(summary: &Summary) -> Option<Warning> {
    let n = summary.distribution.n;
    // A metric that varies from process to process has as many independent samples as rounds.
    let few = FEW_EFFECTIVE.max(1.5 * f64::from(summary.rounds));
    let text = format!(
        "{n} samples are so correlated that they are worth about {:.0} independent ones",
        summary.effective_samples
    );
    (n >= MANY_SAMPLES as u64 && summary.effective_samples < few).then_some(Warning::FewEffectiveSamples { text })
}

fn failed_warning(summary: &Summary) -> Option<Warning> {
    let text = format!("{} of {} rounds failed", summary.failed_rounds, summary.failed_rounds + summary.rounds);
    (summary.failed_rounds > 0).then_some(Warning::FailedRounds { text })
}
