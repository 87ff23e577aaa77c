//! Figures that a run measured only as inputs of other predictions: no finding and no comparison is about them.

use std::slice;

use kelvin_analysis::testing::guest;
use kelvin_analysis::{ComparisonRequest, ComparisonSubject, FindingData, RangeVerdict, SideInput, analyse};
use kelvin_core::catalogue::os::{NullCall, SYSCALL_NULL};
use kelvin_core::{Case, Name, Run};

/// A run that requests one figure, whose other figures are far outside their predictions.
fn run_requesting(requested: Name) -> Run {
    let mut run = guest::guest_run();
    let is_requested = |metrics: &[Name]| metrics == [requested];
    run.measurements
        .iter_mut()
        .for_each(|measurement| measurement.planned.only_input = !is_requested(&measurement.planned.metrics));
    run.header.plan.iter_mut().for_each(|planned| planned.only_input = !is_requested(&planned.metrics));
    for record in run.predictions.iter_mut().filter(|record| record.metric != requested) {
        let Some(prediction) = &mut record.prediction else { continue };
        for end in [&mut prediction.value, &mut prediction.low, &mut prediction.high] {
            *end /= 100.0;
        }
    }
    run
}

#[test]
fn input_only_metric_is_no_finding() {
    let call = SYSCALL_NULL.id;
    let analysis = analyse(&run_requesting(call));
    let all_requested = analyse(&{
        let mut run = run_requesting(call);
        run.measurements.iter_mut().for_each(|measurement| measurement.planned.only_input = false);
        run
    });
    let gaps = |analysis: &kelvin_analysis::Analysis| {
        let gaps = analysis.findings.iter().filter(|finding| matches!(finding.data, FindingData::Gap(_)));
        gaps.filter(|finding| finding.metrics != [call]).count()
    };
    assert!(gaps(&all_requested) > 10, "the same figures, asked for, are findings");
    assert_eq!(gaps(&analysis), 0);
    for finding in &analysis.findings {
        assert!(finding.metrics.iter().all(|metric| *metric == call), "{finding:?}");
    }
    for input in analysis.results.iter().filter(|result| result.only_input) {
        assert_eq!((input.ratio, input.log_distance), (None, None), "{}", input.metric.id);
        let is_judged = !matches!(input.verdict, RangeVerdict::NotPredicted | RangeVerdict::NotMeasured);
        assert!(
            !is_judged && input.prediction.is_none() && input.no_prediction_reason.is_some(),
            "{}",
            input.metric.id
        );
    }
    let result = analysis.results.iter().find(|result| !result.only_input).unwrap();
    assert!(result.prediction.is_some() && result.ratio.is_some());
}

#[test]
fn input_only_metric_is_not_compared() {
    let call = SYSCALL_NULL.id;
    let base = run_requesting(call);
    let mut other = base.clone();
    let case = Case::new().with_word(NullCall::Getppid);
    guest::replace(&mut other, &SYSCALL_NULL, &case, 300.0);
    other.header.id = "another".into();
    let side =
        |name: &str, run| SideInput { name: name.into(), subject: ComparisonSubject::Runs(slice::from_ref(run)) };
    let request = ComparisonRequest {
        base: side("A", &base),
        other: side("B", &other),
        spread_histories: &[],
        cycle_spread_histories: &[],
        threshold: 0.01,
    };
    let comparison = request.compare();
    let figures: Vec<Name> = comparison.figures.iter().map(|figure| figure.metric.id).collect();
    assert_eq!(figures, [call]);
    assert!(comparison.not_compared.is_empty(), "{:?}", comparison.not_compared);
}
