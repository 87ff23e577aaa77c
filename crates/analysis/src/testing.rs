//! Synthetic runs whose right analysis is known by construction, for tests of this crate and of those that draw it.

pub mod guest;
pub mod large_machine;
pub mod load;

use kelvin_core::{
    Batches, Canary, Case, ClockInfo, ClockKind, Fact, Machine, Measurement, Metric, MetricReadings, Name,
    OverheadReading, PlannedMeasurement, RUN_FORMAT, Readings, Round, RoundOutcome, Run, RunHeader, RunSettings,
    RunStatus, SampleTags,
};

/// Clock pair of all synthetic batches, in nanoseconds.
pub const CLOCK_PAIR_NANOSECONDS: f64 = 20.0;
/// Loop iteration of all synthetic batches, in nanoseconds.
pub const LOOP_NANOSECONDS: f64 = 0.25;
/// Iterations of all synthetic batches.
pub const BATCH_ITERATIONS: u64 = 1000;
/// Undisturbed chain canary, in nanoseconds: 2752 multiplies of 3 cycles at 4.128 GHz.
pub const CHAIN_NANOSECONDS: f32 = 2000.0;
/// Undisturbed block canary, in nanoseconds.
pub const BLOCK_NANOSECONDS: f32 = 1000.0;
/// Seconds between the starts of two rounds of one case.
pub const ROUND_PERIOD_SECONDS: f64 = 10.0;

/// A complete run of an unknown machine that defines these metrics and has measured nothing.
pub fn empty_run(metrics: &[Metric]) -> Run {
    let outline = RunHeader {
        foreign: None,
        format: RUN_FORMAT,
        id: "20260101T000000-test".into(),
        started: "2026-01-01T00:00:00Z".into(),
        kelvin: "0.1.0".into(),
        build: None,
        command: vec!["kelvin".into(), "run".into()],
        settings: RunSettings {
            mode: Name::new("default"),
            budget_seconds: 150.0,
            rounds: 6,
            target: 0.02,
            seed: 1,
            cpu: 1,
            partner_cpu: None,
            canaries: true,
            realtime: false,
        },
        clock: ClockInfo {
            kind: ClockKind::Scripted,
            hertz: 1e9,
            relative_error: 0.0,
            pair_nanoseconds: CLOCK_PAIR_NANOSECONDS,
            multiply_cycles: Fact::known(3, "a synthetic run"),
            note: None,
            source_before: Some("tsc".into()),
            source_after: Some("tsc".into()),
        },
        machine: Machine::default(),
        hazards: Vec::new(),
        metrics: metrics.to_vec(),
        plan: Vec::new(),
        spread_history: Vec::new(),
        core_ratio_history: Vec::new(),
        network_path: None,
        bounds: Vec::new(),
    };
    Run { status: RunStatus::Complete, seconds: 60.0, ..Run::from_header(outline) }
}

/// Raw batches that yield these values, with undisturbed canaries between any two: durations in nanoseconds of a metric
/// that subtracts the clock pair.
pub fn batches(values: &[f64]) -> Batches {
    let mut batches = Batches {
        iterations: vec![BATCH_ITERATIONS; values.len()],
        nanoseconds: values.iter().map(|value| value * BATCH_ITERATIONS as f64 + CLOCK_PAIR_NANOSECONDS).collect(),
        tags: vec![SampleTags::NONE; values.len()],
        work_per_iteration: 0.0,
        canary_stride: 1,
        canaries: Default::default(),
    };
    batches.canaries.insert(Canary::Chain, vec![CHAIN_NANOSECONDS; values.len() + 1]);
    batches.canaries.insert(Canary::Block, vec![BLOCK_NANOSECONDS; values.len() + 1]);
    batches
}

/// The reading of a metric.
pub fn reading(metric: &Metric, readings: Readings) -> MetricReadings {
    let overhead = OverheadReading { clock_pair: CLOCK_PAIR_NANOSECONDS, loop_iteration: LOOP_NANOSECONDS };
    MetricReadings { metric: metric.id, readings, overhead, notes: Vec::new(), counted: None }
}

/// The round of this index with these readings.
pub fn round(index: usize, readings: Vec<MetricReadings>) -> Round {
    round_with_outcome(index, RoundOutcome::Measured(readings))
}

/// The round of this index with this outcome.
pub fn round_with_outcome(index: usize, outcome: RoundOutcome) -> Round {
    Round {
        index: index as u32,
        start_seconds: ROUND_PERIOD_SECONDS * index as f64,
        seconds: 1.0,
        timing: None,
        cpu: 1,
        outcome,
    }
}

/// Adds a measurement of one metric at a case.
pub fn add_measurement(run: &mut Run, metric: &Metric, case: Case, rounds: Vec<Round>) {
    let planned = PlannedMeasurement { probe: metric.id, metrics: vec![metric.id], case, only_input: false };
    run.header.plan.push(planned.clone());
    run.measurements.push(Measurement { planned, rounds, skipped: None });
}

/// Adds a measurement of one metric at a case, a round of undisturbed batches for each list of values.
pub fn add_rounds(run: &mut Run, metric: &Metric, case: Case, rounds: &[Vec<f64>]) {
    let readings = |values: &Vec<f64>| vec![reading(metric, Readings::Batches(batches(values)))];
    let rounds = rounds.iter().enumerate().map(|(index, values)| round(index, readings(values))).collect();
    add_measurement(run, metric, case, rounds);
}

/// Adds a measurement of one metric at a case, a round of one scalar for each value.
pub fn add_scalars(run: &mut Run, metric: &Metric, case: Case, values: &[f64]) {
    let readings = |value: f64| vec![reading(metric, Readings::Scalars(vec![value]))];
    let rounds = values.iter().enumerate().map(|(index, &value)| round(index, readings(value))).collect();
    add_measurement(run, metric, case, rounds);
}

/// What one study concludes from a run; `None` where it has nothing to conclude.
pub fn study(run: &Run, id: &str) -> Option<crate::Study> {
    crate::studies(run).into_iter().find(|study| study.id == *id)
}
