//! The analysis of a run, put together from its parts.

use kelvin_model::{Attempt, Measurement, Metric, PredictionRecord, Reason, Run, StudyResult, Unit};

use crate::bounds::{broken_bound, implausible};
use crate::files;
use crate::findings;
use crate::gather::Gathered;
use crate::headlines::{Desk, core_hertz, metrics_of};
use crate::levels;
use crate::pages::pages;
use crate::peers::Peer;
use crate::placement;
use crate::predicted::compare;
use crate::result::{Analysis, MetricResult, Outcome};
use crate::study;
use crate::summary::summarise;

/// Analyses a run: a stored one and a live one alike.
pub fn analyse(run: &Run) -> Analysis {
    let desk = Desk::of(run);
    let hertz = core_hertz(run, &desk);
    let mut results = Vec::new();
    let mut batches = Batches::default();
    for measurement in &run.measurements {
        for metric in metrics_of(run, measurement) {
            let gathered = Gathered::of(measurement, &metric, &desk.references);
            batches.count(&gathered);
            results.push(result(run, measurement, &metric, &gathered, &desk, hertz));
        }
    }
    let found = levels::of_results(&results, &run.outline.machine);
    if let Some(found) = &found {
        results.iter_mut().for_each(|result| levels::name_modes(result, found));
    }
    placement::name_modes(&mut results);
    let mut analysis = Analysis {
        levels: found,
        peers: Peer::among(&results),
        results,
        canaries: desk.references.histories(run),
        studies: all_studies(run),
        laws: study::laws(run),
        best_cells: study::best_cells(run),
        findings: Vec::new(),
        verdict: Vec::new(),
        undisturbed_share: batches.undisturbed_share(),
        block_over_chain: desk.references.block_over_chain,
        core_shared: desk.references.shared,
    };
    analysis.findings = findings::findings(run, &analysis);
    analysis.verdict = findings::verdict(run, &analysis);
    analysis
}

/// The conclusions that analysis draws from the measurements of a run, study by study; empty without a study.
pub fn studies(run: &Run) -> Vec<StudyResult> {
    let studies = [
        study::tasks(run),
        pages(run),
        files::cache_below(run),
        files::block_sizes(run),
        files::depths(run),
        study::threads(run),
        study::engines(run),
        study::remote(run),
        study::tune(run),
        study::network_calls(run),
        study::network_streams(run),
        study::peer(run),
    ];
    studies.into_iter().flatten().collect()
}

/// The studies that a run carries, and those that it has measured but not concluded.
fn all_studies(run: &Run) -> Vec<StudyResult> {
    let mut all = run.studies.clone();
    all.extend(studies(run).into_iter().filter(|new| run.studies.iter().all(|known| known.id != new.id)));
    all
}

/// Timed samples guarded by canaries, of the whole run.
#[derive(Default)]
struct Batches {
    found: usize,
    kept: usize,
}

impl Batches {
    fn count(&mut self, gathered: &Gathered) {
        if gathered.guarded {
            self.found += gathered.found();
            self.kept += gathered.kept();
        }
    }

    fn undisturbed_share(&self) -> Option<f64> {
        (self.found > 0).then(|| self.kept as f64 / self.found as f64)
    }
}

fn result<'r>(
    run: &'r Run,
    measurement: &'r Measurement,
    metric: &Metric,
    gathered: &Gathered,
    desk: &Desk<'r>,
    hertz: Option<f64>,
) -> MetricResult {
    let case = &measurement.planned.case;
    let past = desk.past(metric.id, case);
    let mut warnings = Vec::new();
    let outcome = match summarise(gathered, metric, &past, run.outline.settings.target) {
        None => not_measured(measurement),
        Some(summarised) => {
            warnings = summarised.warnings;
            match broken_bound(metric, run.bound(&metric.id, case), summarised.summary.headline) {
                Some(ceiling) => Outcome::Invalid(ceiling),
                None if summarised.known => Outcome::Measured(Box::new(summarised.summary)),
                None => Outcome::NotKnown(Box::new(summarised.summary)),
            }
        }
    };
    let cycles = in_cycles(metric, &outcome, hertz);
    if outcome.summary().is_some() {
        warnings.extend(implausible(metric, cycles));
    }
    let compared = compare(run, metric, case, &outcome);
    let record = run.prediction(&metric.id, case);
    MetricResult {
        probe: measurement.planned.probe,
        metric: *metric,
        case: case.clone(),
        only_input: measurement.planned.only_input,
        outcome,
        cycles,
        prediction: record.and_then(|record| record.prediction.clone()),
        none_because: record.and_then(none_because),
        ratio: compared.ratio,
        verdict: compared.verdict,
        explained_by: compared.explained_by,
        warnings,
    }
}

fn none_because(record: &PredictionRecord) -> Option<String> {
    record.none_because.as_ref().map(|reason| reason.0.clone())
}

/// The headline in core cycles, where the metric is a duration on one CPU.
fn in_cycles(metric: &Metric, outcome: &Outcome, hertz: Option<f64>) -> Option<f64> {
    let headline = outcome.summary()?.headline;
    match metric.unit {
        Unit::Nanoseconds if metric.cycles => Some(headline * hertz? / 1e9),
        Unit::Cycles => Some(headline),
        _ => None,
    }
}

/// Why there is no sample: skipped, failed, without this metric, or never reached.
pub(crate) fn not_measured(measurement: &Measurement) -> Outcome {
    if let Some(reason) = measurement.skip_reason() {
        return Outcome::Skipped(reason.clone());
    }
    if let Some(reason) = most_frequent(measurement.failures()) {
        return Outcome::Failed(reason.into());
    }
    if measurement.rounds.is_empty() {
        return Outcome::NotReached;
    }
    let measured = measurement.rounds.iter().filter(|round| matches!(round.attempt, Attempt::Measured(_))).count();
    Outcome::Skipped(Reason::new(format!("its {measured} rounds made no sample of this metric at this case")))
}

/// The most frequent of some texts, the first of equally frequent ones.
fn most_frequent<'a>(texts: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for text in texts {
        match counts.iter_mut().find(|(known, _)| *known == text) {
            Some((_, count)) => *count += 1,
            None => counts.push((text, 1)),
        }
    }
    counts.into_iter().rev().max_by_key(|(_, count)| *count).map(|(text, _)| text)
}
