//! The analysis of a run, assembled from its parts.

use kelvin_core::{Measurement, Metric, PredictionRecord, Run, Unit};
use kelvin_reference::ReferenceLibrary;

use crate::bounds::{exceeded_bound, implausible_warning};
use crate::class_comparison;
use crate::headlines::{Baselines, core_hertz, metrics_of};
use crate::prediction_comparison::compare_with_prediction;
use crate::result::RivalResult;
use crate::result::{Analysis, MetricResult, Outcome};
use crate::samples::{SampleSet, missing_outcome};
use crate::studies::{self, add_tables, load, threads};
use crate::summary::summarise;
use crate::{cpu_placement_modes, findings, levels, overview, sanity, stream_ceilings, tails};

/// Analyses a run: a stored one and a live one alike.
pub fn analyse(run: &Run) -> Analysis {
    analyse_with_library(run, kelvin_reference::built_in_library())
}

/// The same, judged against these machines of its class.
pub fn analyse_with_library(run: &Run, library: &ReferenceLibrary) -> Analysis {
    let desk = Baselines::from_run(run);
    let hertz = core_hertz(run, &desk);
    let mut results = Vec::new();
    let mut batches = BatchCounts::default();
    for measurement in &run.measurements {
        for metric in metrics_of(run, measurement) {
            let gathered = SampleSet::from_measurement(measurement, &metric, &desk.references);
            batches.count(&gathered);
            results.push(metric_result(run, measurement, &metric, &gathered, &desk, hertz));
        }
    }
    let mut found = levels::levels_from_results(&results, &run.outline.machine);
    let mut drawn = studies::uncorrected_studies(run);
    let of_levels = found.iter_mut().flat_map(|found| &mut found.conclusions);
    studies::correct_p_values(drawn.iter_mut().flat_map(|study| &mut study.conclusions).chain(of_levels).collect());
    studies::add_answers(&mut drawn);
    if let Some(found) = &found {
        results.iter_mut().for_each(|result| levels::name_latency_modes(result, found));
    }
    cpu_placement_modes::name_bandwidth_modes(&mut results);
    sanity::add_warnings(run, &mut results);
    let normal = class_comparison::compare_with_class(library, &run.outline.machine, &mut results);
    let (model_lines, knees) = load::model_lines(run);
    let mut analysis = Analysis {
        levels: found,
        rivals: RivalResult::from_results(&results),
        ceilings: stream_ceilings::line_ceilings(
            &results,
            run.outline.machine.topology.allowed.get().map_or(1, Vec::len) as u64,
        ),
        tails: tails::tails_from_results(&results),
        studies: add_tables(drawn, &results),
        results,
        canaries: desk.references.histories(run),
        normal,
        laws: threads::fitted_laws(run),
        model_lines,
        knees,
        timelines: load::timelines(run),
        best_cells: Vec::new(),
        screen: None,
        findings: Vec::new(),
        verdict: Vec::new(),
        undisturbed_share: batches.undisturbed_share(),
        block_over_chain: desk.references.block_over_chain,
        core_shared: desk.references.sharing_ratio,
        frequency_moved: desk.references.frequency_deviation,
        slowed: desk.references.log_slowdown.map(|logarithm| logarithm.exp() - 1.0),
    };
    analysis.best_cells = threads::best_cells(run, &analysis.studies);
    analysis.findings = findings::findings(run, &analysis);
    analysis.verdict = findings::verdict(run, &analysis);
    analysis.screen = overview::overview(run, &analysis);
    analysis
}

/// Timed samples guarded by canaries, of the whole run.
#[derive(Default)]
struct BatchCounts {
    found: usize,
    undisturbed: usize,
}

impl BatchCounts {
    fn count(&mut self, gathered: &SampleSet) {
        if gathered.is_guarded {
            self.found += gathered.found_count();
            self.undisturbed += gathered.undisturbed_found();
        }
    }

    fn undisturbed_share(&self) -> Option<f64> {
        (self.found > 0).then(|| self.undisturbed as f64 / self.found as f64)
    }
}

fn metric_result<'r>(
    run: &'r Run,
    measurement: &'r Measurement,
    metric: &Metric,
    gathered: &SampleSet,
    desk: &Baselines<'r>,
    hertz: Option<f64>,
) -> MetricResult {
    let case = &measurement.planned.case;
    let past = desk.metric_history(metric.id, case);
    let mut warnings = Vec::new();
    let outcome = match summarise(gathered, metric, &past, run.outline.settings.target) {
        None => missing_outcome(measurement),
        Some(summarised) => {
            warnings = summarised.warnings;
            match exceeded_bound(metric, run.bound(&metric.id, case), summarised.summary.headline) {
                Some(ceiling) => Outcome::Invalid(ceiling),
                None if summarised.is_known => Outcome::Measured(Box::new(summarised.summary)),
                None => Outcome::NotKnown(Box::new(summarised.summary)),
            }
        }
    };
    let cycles = headline_cycles(metric, &outcome, hertz);
    if outcome.summary().is_some() {
        warnings.extend(implausible_warning(metric, cycles));
    }
    let only_input = measurement.planned.only_input;
    let compared = compare_with_prediction(run, metric, case, &outcome, only_input);
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
        none_because: if only_input { Some(INPUT_ONLY_REASON.into()) } else { record.and_then(no_prediction_reason) },
        ratio: compared.ratio,
        verdict: compared.verdict,
        outside: compared.range_distance,
        of_class: None,
        explained_by: compared.explained_by,
        warnings,
    }
}

/// Why an input is not judged.
const INPUT_ONLY_REASON: &str = "it was measured only as an input of other predictions";

fn no_prediction_reason(record: &PredictionRecord) -> Option<String> {
    record.none_because.as_ref().map(|reason| reason.0.clone())
}

/// The headline in core cycles, where the metric is a duration on one CPU.
fn headline_cycles(metric: &Metric, outcome: &Outcome, hertz: Option<f64>) -> Option<f64> {
    let headline = outcome.summary()?.headline;
    match metric.unit {
        Unit::Nanoseconds if metric.cycles => Some(headline * hertz? / 1e9),
        Unit::Cycles => Some(headline),
        _ => None,
    }
}
