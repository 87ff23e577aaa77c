//! The analysis of a run, assembled from its parts.

use kelvin_model::{Measurement, Metric, PredictionRecord, Run, Unit};
use kelvin_reference::Library;

use crate::bounds::{broken_bound, implausible};
use crate::gather::{Gathered, not_measured};
use crate::headlines::{Desk, core_hertz, metrics_of};
use crate::normal;
use crate::predicted::compare;
use crate::result::BesideRival;
use crate::result::{Analysis, MetricResult, Outcome};
use crate::studies::{self, load, threads, with_tables};
use crate::summary::summarise;
use crate::{ceilings, findings, levels, placement, plausible, screen, tails};

/// Analyses a run: a stored one and a live one alike.
pub fn analyse(run: &Run) -> Analysis {
    analyse_among(run, kelvin_reference::library())
}

/// The same, judged against these machines of its class.
pub fn analyse_among(run: &Run, library: &Library) -> Analysis {
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
    let mut found = levels::of_results(&results, &run.outline.machine);
    let mut drawn = studies::drawn(run);
    let of_levels = found.iter_mut().flat_map(|found| &mut found.conclusions);
    studies::correct(drawn.iter_mut().flat_map(|study| &mut study.conclusions).chain(of_levels).collect());
    studies::answer(&mut drawn);
    if let Some(found) = &found {
        results.iter_mut().for_each(|result| levels::name_modes(result, found));
    }
    placement::name_modes(&mut results);
    plausible::warn(run, &mut results);
    let normal = normal::judge(library, &run.outline.machine, &mut results);
    let (model_lines, knees) = load::models(run);
    let mut analysis = Analysis {
        levels: found,
        rivals: BesideRival::among(&results),
        ceilings: ceilings::of_results(&results, run.outline.machine.topology.allowed.get().map_or(1, Vec::len) as u64),
        tails: tails::of_results(&results),
        studies: with_tables(drawn, &results),
        results,
        canaries: desk.references.histories(run),
        normal,
        laws: threads::laws(run),
        model_lines,
        knees,
        timelines: load::timelines(run),
        best_cells: Vec::new(),
        screen: None,
        findings: Vec::new(),
        verdict: Vec::new(),
        undisturbed_share: batches.undisturbed_share(),
        block_over_chain: desk.references.block_over_chain,
        core_shared: desk.references.shared,
        frequency_moved: desk.references.moving,
        slowed: desk.references.slowed.map(|logarithm| logarithm.exp() - 1.0),
    };
    analysis.best_cells = threads::best_cells(run, &analysis.studies);
    analysis.findings = findings::findings(run, &analysis);
    analysis.verdict = findings::verdict(run, &analysis);
    analysis.screen = screen::screen(run, &analysis);
    analysis
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
            self.kept += gathered.quiet();
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
    let only_input = measurement.planned.only_input;
    let compared = compare(run, metric, case, &outcome, only_input);
    // What is measured only for other predictions is measured briefly and not judged.
    let record = run.prediction(&metric.id, case).filter(|_| !only_input);
    MetricResult {
        probe: measurement.planned.probe,
        metric: *metric,
        case: case.clone(),
        only_input,
        outcome,
        cycles,
        prediction: record.and_then(|record| record.prediction.clone()),
        none_because: if only_input { Some(INPUT.into()) } else { record.and_then(none_because) },
        ratio: compared.ratio,
        verdict: compared.verdict,
        outside: compared.outside,
        of_class: None,
        explained_by: compared.explained_by,
        warnings,
    }
}

/// Why an input is not judged.
const INPUT: &str = "it was measured only as an input of other predictions";

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
