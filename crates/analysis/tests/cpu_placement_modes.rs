//! CPUs that a host moves: their joint bandwidth is bimodal, each mode named by their core-to-core latency.

use kelvin_analysis::testing::{add_scalars, empty_run};
use kelvin_analysis::{Analysis, MetricResult, analyse};
use kelvin_core::{Axis, AxisScale, Canaries, Case, HeadlineSamples, Metric};

const AXES: [Axis; 2] =
    [Axis::new("bytes", "working set", AxisScale::Bytes), Axis::new("cpus", "CPUs", AxisScale::Category)];
static FILL: Metric = Metric::rate("mem.bandwidth.fill", "A fill")
    .with_axes(AXES)
    .headline(HeadlineSamples::AsFound)
    .canaries(Canaries::NONE);
static CORE_TO_CORE: Metric = Metric::duration("mem.bandwidth.core_to_core", "A line")
    .with_axes(AXES)
    .headline(HeadlineSamples::AsFound)
    .canaries(Canaries::NONE);

const NEAR_LATENCY: f64 = 62.0;
const FAR_LATENCY: f64 = 226.0;

/// A run of these rates in GB/s and core-to-core latencies in ns, round by round.
fn analysis_of(rates: [f64; 6], latencies: [f64; 6]) -> Analysis {
    let mut run = empty_run(&[FILL, CORE_TO_CORE]);
    let case =
        || Case::new().with_number("bytes", 128 << 20).with_word(kelvin_core::AxisWord::from_names("cpus", "all"));
    add_scalars(&mut run, &FILL, case(), &rates.map(|rate| rate * 1e9));
    add_scalars(&mut run, &CORE_TO_CORE, case(), &latencies);
    analyse(&run)
}

fn fill(analysis: &Analysis) -> &MetricResult {
    analysis.results.iter().find(|result| result.metric.id == FILL.id).unwrap()
}

fn names(analysis: &Analysis) -> Vec<Option<&str>> {
    fill(analysis).outcome.summary().unwrap().modes.iter().map(|mode| mode.level.as_deref()).collect()
}

fn finding(analysis: &Analysis) -> Option<&str> {
    analysis
        .findings
        .iter()
        .find(|finding| finding.metrics.contains(&CORE_TO_CORE.id))
        .map(|finding| finding.text.as_str())
}

#[test]
fn rate_modes_are_named_by_core_latency() {
    let analysis = analysis_of(
        [40.0, 77.0, 40.4, 39.8, 76.5, 40.1],
        [NEAR_LATENCY, FAR_LATENCY, NEAR_LATENCY + 1.0, NEAR_LATENCY, FAR_LATENCY - 2.0, NEAR_LATENCY],
    );
    assert_eq!(names(&analysis), [Some("core-to-core latency 62.0 ns"), Some("core-to-core latency 225 ns")]);
    let text = finding(&analysis).unwrap();
    assert!(text.contains("62.0 ns (67 %) and 225 ns (33 %) of the rounds"), "{text}");
    assert!(text.contains("mem.bandwidth.fill the most: 40.0 GB/s (67 %, core-to-core latency 62.0 ns)"), "{text}");
}

#[test]
fn unmoved_cpus_do_not_name_modes() {
    let analysis = analysis_of(
        [40.0, 77.0, 40.4, 39.8, 76.5, 40.1],
        [NEAR_LATENCY, NEAR_LATENCY, NEAR_LATENCY + 1.0, NEAR_LATENCY, NEAR_LATENCY - 2.0, NEAR_LATENCY],
    );
    assert_eq!(names(&analysis), [None, None]);
    assert_eq!(finding(&analysis), None);
}

#[test]
fn move_is_reported_without_rate_change() {
    let analysis = analysis_of(
        [40.0, 40.2, 40.4, 39.8, 40.3, 40.1],
        [NEAR_LATENCY, FAR_LATENCY, NEAR_LATENCY, NEAR_LATENCY, FAR_LATENCY, NEAR_LATENCY],
    );
    assert!(names(&analysis).is_empty());
    let text = finding(&analysis).unwrap();
    assert!(text.ends_with("the bandwidths of all CPUs in this run belong to 62.0 ns."), "{text}");
}
