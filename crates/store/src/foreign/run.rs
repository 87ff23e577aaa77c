//! A foreign run from what was found in a file.

use std::collections::BTreeMap;

use jiff::{Timestamp, Unit};
use kelvin_core::{
    Case, ClockInfo, ClockKind, FOREIGN_MODE, Fact, Foreign, Measurement, Metric, MetricReadings, Name,
    OverheadReading, PlannedMeasurement, RUN_FORMAT, Readings, Round, RoundOutcome, Run, RunHeader, RunSettings,
    RunStatus,
};
use sha2::{Digest, Sha256};

use crate::foreign::Tool;
use crate::foreign::mapping::{ImportedValue, ParsedResults};

/// What a run has of the import, in addition to its file.
#[derive(Clone, Copy, Debug)]
pub struct ImportInfo<'a> {
    /// When the file was written, for files without a time of measurement.
    pub written: Timestamp,
    /// Version of the kelvin that imports it.
    pub kelvin: &'a str,
}

/// Stands for the identity of a machine, and its architecture, where a file does not state it.
const UNKNOWN_IDENTITY: &str = "unknown";

/// The run: one probe named for the program, one round with one value of each metric.
pub(crate) fn build_run(file: &[u8], results: ParsedResults, import: &ImportInfo<'_>) -> Run {
    let tool = results.tool;
    let measured_at = results.measured_at_ms.and_then(|ms| Timestamp::from_millisecond(ms).ok());
    let mut notes = results.not_imported.clone();
    if measured_at.is_none() {
        notes.push(
            "the file does not say when it was measured: the run has the time at which the file was written".into(),
        );
    }
    let started = measured_at.unwrap_or(import.written);
    let started = started.round(Unit::Second).unwrap_or(started);
    let probe = Name::new(tool.name());
    let mut cases: BTreeMap<&Case, Vec<&ImportedValue>> = BTreeMap::new();
    for value in &results.values {
        cases.entry(&value.case).or_default().push(value);
    }
    let measurements: Vec<Measurement> =
        cases.into_iter().map(|(case, values)| build_measurement(probe, case, &values)).collect();
    let mut machine = results.machine;
    // A word must stand there, and no machine has these.
    machine.identity = UNKNOWN_IDENTITY.into();
    if machine.architecture.is_empty() {
        machine.architecture = Name::new(UNKNOWN_IDENTITY);
    }
    let header = RunHeader {
        format: RUN_FORMAT,
        id: run_id(tool, file, started),
        started: started.to_string(),
        kelvin: import.kelvin.to_owned(),
        build: None,
        command: vec![tool.name().into()],
        settings: RunSettings {
            mode: FOREIGN_MODE,
            budget_seconds: 0.0,
            rounds: 1,
            target: 0.0,
            seed: 0,
            cpu: 0,
            partner_cpu: None,
            canaries: false,
            realtime: false,
        },
        clock: ClockInfo {
            kind: ClockKind::Foreign,
            hertz: 1e9,
            relative_error: 0.0,
            pair_nanoseconds: 0.0,
            multiply_cycles: Fact::unknown("a foreign run"),
            note: Some(format!("{} timed it: its clock and that clock's error are not known", tool.name())),
            source_before: None,
            source_after: None,
        },
        machine,
        hazards: Vec::new(),
        metrics: metrics(&results.values),
        plan: measurements.iter().map(|measurement| measurement.planned.clone()).collect(),
        spread_history: Vec::new(),
        core_ratio_history: Vec::new(),
        network_path: None,
        bounds: Vec::new(),
        foreign: Some(Foreign { tool: probe, version: results.version }),
    };
    Run { measurements, status: RunStatus::Complete, notes, ..Run::from_header(header) }
}

/// As those of kelvin's own runs, time first, so that it sorts among them; then the file's digest, so that the same file is the same
/// run; then who measured it.
fn run_id(tool: Tool, file: &[u8], started: Timestamp) -> String {
    let digest = Sha256::digest(file);
    let digest: String = digest.iter().take(3).map(|byte| format!("{byte:02x}")).collect();
    format!("{:x}-{digest}-{}", started.as_millisecond().max(0), tool.name())
}

/// The metrics, without what only kelvin's own samples have.
fn metrics(values: &[ImportedValue]) -> Vec<Metric> {
    let mut metrics: Vec<Metric> = Vec::new();
    for value in values {
        if metrics.iter().all(|other| other.id != value.metric.id) {
            metrics.push(value.metric.as_found());
        }
    }
    metrics
}

fn build_measurement(probe: Name, case: &Case, values: &[&ImportedValue]) -> Measurement {
    let planned = PlannedMeasurement {
        probe,
        metrics: values.iter().map(|value| value.metric.id).collect(),
        case: case.clone(),
        only_input: false,
    };
    let reading = |value: &&ImportedValue| MetricReadings {
        metric: value.metric.id,
        readings: Readings::Scalars(vec![value.value]),
        overhead: OverheadReading::default(),
        notes: Vec::new(),
        counted: None,
    };
    let outcome = RoundOutcome::Measured(values.iter().map(reading).collect());
    let round = Round { index: 0, start_seconds: 0.0, seconds: 0.0, timing: None, cpu: 0, outcome };
    Measurement { planned, rounds: vec![round], skipped: None }
}
