//! A run that is kept by its headlines gives the figures that its samples gave, to six digits, and nothing that needs samples.

use kelvin_analysis::{Analysis, MetricResult, Outcome, analyse, keep_headlines};
use kelvin_core::{Interval, RoundOutcome, Run};
use kelvin_testing::stored_run;

fn run() -> Run {
    serde_json::from_str(&stored_run("intel-guest-3")).unwrap()
}

fn assert_close(kept: f64, sampled: f64, name: &str) {
    assert!((kept - sampled).abs() <= 5.1e-6 * sampled.abs(), "{name}: {kept} and {sampled}");
}

fn assert_same_interval(kept: Option<Interval>, sampled: Option<Interval>, name: &str) {
    match (kept, sampled) {
        (Some(kept), Some(sampled)) => {
            assert_eq!(kept.kind, sampled.kind, "{name}");
            assert_close(kept.lower, sampled.lower, name);
            assert_close(kept.upper, sampled.upper, name);
        }
        (kept, sampled) => assert_eq!(kept.is_none(), sampled.is_none(), "{name}"),
    }
}

fn assert_same_result(kept: &MetricResult, sampled: &MetricResult) {
    let name = format!("{} {}", sampled.metric.id, sampled.case);
    assert_eq!((kept.probe, kept.metric, &kept.case), (sampled.probe, sampled.metric, &sampled.case));
    let warnings = |result: &MetricResult| result.warnings.iter().map(|w| w.text.clone()).collect::<Vec<_>>();
    assert_eq!((warnings(kept), kept.verdict), (warnings(sampled), sampled.verdict), "{name}");
    assert_eq!(kept.no_prediction_reason, sampled.no_prediction_reason, "{name}");
    match (&kept.outcome, &sampled.outcome) {
        (Outcome::Measured(kept), Outcome::Measured(sampled))
        | (Outcome::NotKnown(kept), Outcome::NotKnown(sampled)) => {
            assert_close(kept.headline, sampled.headline, &name);
            assert_close(kept.within_variance, sampled.within_variance, &name);
            assert_close(kept.distribution.p99, sampled.distribution.p99, &name);
            assert_same_interval(kept.interval, sampled.interval, &name);
            assert_same_interval(kept.run_interval, sampled.run_interval, &name);
            assert_eq!((kept.rounds, kept.distribution.n), (sampled.rounds, sampled.distribution.n), "{name}");
            assert!(kept.round_headlines.is_empty());
        }
        (kept, sampled) => assert_eq!(kept, sampled, "{name}"),
    }
}

/// A run, its analysis, the run that is kept of it, and the analysis of that.
fn analyses() -> (Run, Analysis, Run, Analysis) {
    let run = run();
    let sampled = analyse(&run);
    let kept_run = keep_headlines(&run, &sampled);
    let kept = analyse(&kept_run);
    (run, sampled, kept_run, kept)
}

#[test]
fn figures_are_those_of_the_samples() {
    let (_, sampled, kept_run, kept) = analyses();
    assert!(kept_run.is_kept_by_headlines() && kept.results.len() == sampled.results.len());
    let measured = sampled.results.iter().filter(|result| result.outcome.summary().is_some()).count();
    assert!(measured > 100, "{measured}");
    kept.results.iter().zip(&sampled.results).for_each(|(kept, sampled)| assert_same_result(kept, sampled));
    // What later runs learn, but for the canaries.
    let [learned, expected] = [&kept, &sampled].map(|analysis| analysis.stored_headlines(|_| true));
    let names = |list: &[kelvin_core::StoredHeadline]| {
        list.iter().map(|entry| (entry.metric, entry.case.clone())).collect::<Vec<_>>()
    };
    assert_eq!(names(&learned), names(&expected[..learned.len()]));
}

#[test]
fn what_needs_samples_is_absent_and_said() {
    let (run, sampled, kept_run, kept) = analyses();
    let is_said = |analysis: &Analysis| {
        analysis.findings.iter().any(|finding| finding.text.starts_with("Only the headlines of this run were kept"))
    };
    assert_eq!((is_said(&kept), is_said(&sampled)), (true, false));
    assert!(kept.studies.is_empty() && kept.canaries.is_empty());
    let has_samples = |run: &Run| {
        let mut rounds = run.measurements.iter().flat_map(|measurement| &measurement.rounds);
        rounds.any(|round| matches!(round.outcome, RoundOutcome::Measured(_)))
    };
    assert_eq!((has_samples(&kept_run), has_samples(&run)), (false, true));
    // Kept once more, nothing changes.
    assert_eq!(keep_headlines(&kept_run, &kept).kept_headlines, kept_run.kept_headlines);
}

#[test]
fn bytes_are_a_tenth() {
    let (run, _, kept_run, _) = analyses();
    let bytes = [&kept_run, &run].map(|run| serde_json::to_string(run).unwrap().len());
    assert!(10 * bytes[0] < 3 * bytes[1], "{bytes:?}");
}
