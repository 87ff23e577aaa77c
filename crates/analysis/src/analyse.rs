//! The analysis of a run, assembled from its parts.

use kelvin_reference::ReferenceLibrary;

use crate::bounds::implausible_warning;
use crate::class_comparison;
use crate::growth_end::growth_ends;
use crate::prediction_comparison::compare_with_prediction;
use crate::prelude::*;
use crate::studies::{self, add_tables, load, threads};
use crate::summary::summarise;
use crate::{cpu_placement_modes, findings, levels, network_charts, overview, sanity};

/// Analyses a run: a stored one and a live one alike.
pub fn analyse(run: &Run) -> Analysis {
    analyse_with_library(run, kelvin_reference::built_in_library())
}

/// Analyses a run and judges it against these machines of its class.
pub fn analyse_with_library(run: &Run, library: &ReferenceLibrary) -> Analysis {
    let mut evidence = Evidence::new(run);
    let hertz = core_hertz(run, &evidence.baselines);
    let mut results = Vec::new();
    let (mut guarded, mut undisturbed) = (0, 0);
    for (measurement, metric) in measured_metrics(run) {
        let samples = SampleSet::from_measurement(measurement, &metric, &evidence.baselines.references);
        if samples.is_guarded {
            guarded += samples.found_count();
            undisturbed += samples.undisturbed_found();
        }
        results.push(metric_result(run, measurement, &metric, &samples, &evidence.baselines, hertz));
        evidence.add_samples(measurement, metric.id, &samples);
    }
    let machine = &run.header.machine;
    let mut levels = levels::levels_from_results(&results, machine);
    let mut studies = studies::uncorrected_studies(&evidence);
    let level_conclusions = levels.iter_mut().flat_map(|levels| &mut levels.conclusions);
    studies::correct_p_values(
        studies.iter_mut().flat_map(|study| &mut study.conclusions).chain(level_conclusions).collect(),
    );
    studies::add_answers(&mut studies);
    // Kept headlines have their names and warnings.
    if !run.is_kept_by_headlines() {
        if let Some(levels) = &levels {
            results.iter_mut().for_each(|result| levels::name_latency_modes(result, levels));
        }
        cpu_placement_modes::name_bandwidth_modes(&mut results);
        sanity::add_warnings(&evidence, &mut results);
    }
    let class_comparison = class_comparison::compare_with_class(library, machine, &mut results);
    let (model_lines, knees) = load::model_lines(evidence.sweeps());
    let references = &evidence.baselines.references;
    let mut analysis = Analysis {
        levels,
        rivals: RivalResult::from_results(&results),
        ceilings: network_charts::line_ceilings(&results, machine.topology.allowed.get().map_or(1, Vec::len) as u64),
        tails: network_charts::tails_from_results(&results),
        laws: threads::fitted_laws(&evidence),
        best_cells: threads::best_cells(&studies),
        studies: add_tables(studies, &results),
        results,
        canaries: references.histories(run),
        class_comparison,
        model_lines,
        knees,
        growth_ends: growth_ends(&evidence),
        timelines: load::timelines(evidence.sweeps()),
        overview: None,
        findings: Vec::new(),
        verdict: Vec::new(),
        undisturbed_share: (guarded > 0).then(|| undisturbed as f64 / guarded as f64),
        block_over_chain: references.block_over_chain,
        core_sharing_ratio: references.sharing_ratio,
        frequency_moved: references.frequency_deviation,
        slowdown: references.log_slowdown.map(|logarithm| logarithm.exp() - 1.0),
    };
    analysis.findings = findings::findings(&evidence, &analysis);
    analysis.verdict = findings::verdict(machine, &analysis);
    analysis.overview = overview::overview(&evidence, &analysis);
    analysis
}

fn metric_result<'r>(
    run: &'r Run,
    measurement: &'r Measurement,
    metric: &Metric,
    samples: &SampleSet,
    baselines: &Baselines<'r>,
    hertz: Option<f64>,
) -> MetricResult {
    let case = &measurement.planned.case;
    let kept = run.kept_headline(measurement, &metric.id);
    let (outcome, mut warnings) = match kept {
        Some(kept) => (kept.outcome.clone(), kept.warnings.clone()),
        None => sampled_outcome(run, measurement, metric, (samples, baselines)),
    };
    let cycles = outcome.summary().and_then(|summary| match metric.unit {
        Unit::Nanoseconds if metric.cycles => Some(summary.headline * hertz? / 1e9),
        Unit::Cycles => Some(summary.headline),
        _ => None,
    });
    if outcome.summary().is_some() && kept.is_none() {
        warnings.extend(implausible_warning(metric, cycles));
    }
    let only_input = measurement.planned.only_input;
    // What is measured only for other predictions is measured briefly and not judged.
    let record = run.prediction(&metric.id, case).filter(|_| !only_input);
    let mut result = MetricResult {
        probe: measurement.planned.probe,
        metric: *metric,
        case: case.clone(),
        only_input,
        outcome,
        cycles,
        prediction: record.and_then(|record| record.prediction.clone()),
        no_prediction_reason: if only_input {
            Some(INPUT_ONLY_REASON.into())
        } else {
            record.and_then(|record| Some(record.missing_reason.as_ref()?.0.clone()))
        },
        ratio: None,
        verdict: RangeVerdict::NotPredicted,
        log_distance: None,
        class_range: None,
        explained_by: Vec::new(),
        warnings,
    };
    compare_with_prediction(run, &mut result);
    result
}

/// The outcome that the samples of a metric at a case give, with its warnings.
fn sampled_outcome<'r>(
    run: &'r Run,
    measurement: &'r Measurement,
    metric: &Metric,
    (samples, baselines): (&SampleSet, &Baselines<'r>),
) -> (Outcome, Vec<Warning>) {
    let case = &measurement.planned.case;
    let history = baselines.metric_history(metric.id, case);
    let Some(draft) = summarise(samples, metric, &history, run.header.settings.target) else {
        return (missing_outcome(measurement), Vec::new());
    };
    let outcome = match exceeded_bound(metric, run.bound(&metric.id, case), draft.summary.headline) {
        Some(ceiling) => Outcome::Invalid(ceiling),
        None if draft.is_known => Outcome::Measured(Box::new(draft.summary)),
        None => Outcome::NotKnown(Box::new(draft.summary)),
    };
    (outcome, draft.warnings)
}

/// Why an input is not judged.
const INPUT_ONLY_REASON: &str = "it was measured only as an input of other predictions";
