//! CPUs that a host moves: their joint bandwidth is bimodal, each mode named by their core-to-core latency.

use kelvin_analysis::testing::{add_scalars, run};
use kelvin_analysis::{Analysis, MetricResult, analyse};
use kelvin_model::{Axis, AxisScale, Canaries, Case, Metric, Treatment};

const AXES: [Axis; 2] =
    [Axis::new("bytes", "working set", AxisScale::Bytes), Axis::new("cpus", "CPUs", AxisScale::Category)];
static FILL: Metric =
    Metric::rate("mem.bandwidth.fill", "A fill").over(AXES).headline(Treatment::AsFound).canaries(Canaries::NONE);
static CORE_TO_CORE: Metric = Metric::duration("mem.bandwidth.core_to_core", "A line")
    .over(AXES)
    .headline(Treatment::AsFound)
    .canaries(Canaries::NONE);

const NEAR: f64 = 62.0;
const FAR: f64 = 226.0;

/// A run of these rates in GB/s and core-to-core latencies in ns, round by round.
fn of(rates: [f64; 6], ways: [f64; 6]) -> Analysis {
    let mut run = run(&[FILL, CORE_TO_CORE]);
    let case = || Case::new().with("bytes", 128 << 20).at(kelvin_model::Point::named("cpus", "all"));
    add_scalars(&mut run, &FILL, case(), &rates.map(|rate| rate * 1e9));
    add_scalars(&mut run, &CORE_TO_CORE, case(), &ways);
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
fn each_rate_is_named_by_its_core_to_core_latency() {
    let analysis = of([40.0, 77.0, 40.4, 39.8, 76.5, 40.1], [NEAR, FAR, NEAR + 1.0, NEAR, FAR - 2.0, NEAR]);
    assert_eq!(names(&analysis), [Some("core-to-core latency 62.0 ns"), Some("core-to-core latency 225 ns")]);
    let text = finding(&analysis).unwrap();
    assert!(text.contains("62.0 ns (67 %) and 225 ns (33 %) of the rounds"), "{text}");
    assert!(text.contains("mem.bandwidth.fill the most: 40.0 GB/s (67 %, core-to-core latency 62.0 ns)"), "{text}");
}

#[test]
fn cpus_that_stay_where_they_are_explain_no_two_rates() {
    let analysis = of([40.0, 77.0, 40.4, 39.8, 76.5, 40.1], [NEAR, NEAR, NEAR + 1.0, NEAR, NEAR - 2.0, NEAR]);
    assert_eq!(names(&analysis), [None, None]);
    assert_eq!(finding(&analysis), None);
}

#[test]
fn a_move_is_reported_though_no_rate_shows_it() {
    let analysis = of([40.0, 40.2, 40.4, 39.8, 40.3, 40.1], [NEAR, FAR, NEAR, NEAR, FAR, NEAR]);
    assert!(names(&analysis).is_empty());
    let text = finding(&analysis).unwrap();
    assert!(text.ends_with("the bandwidths of all CPUs in this run belong to 62.0 ns."), "{text}");
}
