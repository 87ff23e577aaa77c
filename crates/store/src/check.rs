//! Invariants of a run: checked before it is stored or exported, and after it is imported.

use std::collections::HashSet;

use kelvin_core::identifiers::{Grammar, ID_GRAMMAR, ID_PREFIX_GRAMMAR, WORD_GRAMMAR};
use kelvin_core::{
    Batches, Case, ClockKind, Explanation, FOREIGN_MODE, Input, Machine, Metric, Name, PartKind, PlannedMeasurement,
    Prediction, PredictionRecord, RUN_FORMAT, Readings, Round, RoundOutcome, Run, RunHeader, RunStatus, Value,
};

use crate::labels;

/// A field that contradicts the rest of its run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("field {field}: {problem}")]
pub struct InvalidField {
    /// Path to the field: `measurements[3].rounds[0].readings[1].nanoseconds`.
    pub field: String,
    /// What is wrong, and what would be right.
    pub problem: String,
}

pub(crate) type CheckResult = Result<(), InvalidField>;

/// Checks what all of kelvin relies on: names by their grammar, columns of one length, finite numbers, metrics that
/// are defined, measurements that follow the plan.
///
/// # Errors
/// The first invalid field.
pub fn check(run: &Run) -> CheckResult {
    check_header(&run.header)?;
    let defined = defined_metrics(&run.header.metrics);
    check_measurements(run, &defined)?;
    check_conclusion(&run.predictions, &run.explanations, &defined)?;
    if let RunStatus::Partial(why) = &run.status
        && why.is_empty()
    {
        return invalid_field("status", "a partial run must say why it is partial");
    }
    labels::check_labels(&run.labels)?;
    check_not_negative("seconds", run.seconds)
}

/// Checks what is known before the first measurement.
pub(crate) fn check_header(header: &RunHeader) -> CheckResult {
    if header.format != RUN_FORMAT {
        return invalid_field(
            "format",
            format!("{} is not {RUN_FORMAT}, the format that this kelvin writes", header.format),
        );
    }
    check_grammar("id", &header.id, &WORD_GRAMMAR)?;
    // Ids are typed, abbreviated, and used as file names.
    if header.id == "last" {
        return invalid_field("id", "\"last\" means the newest run and cannot be an id");
    }
    if parse_started(&header.started).is_none() {
        return invalid_field("started", format!("{:?} is not a time such as 2026-01-31T12:00:00Z", header.started));
    }
    check_grammar("kelvin", &header.kelvin, &WORD_GRAMMAR)?;
    check_positive("clock.hertz", header.clock.hertz)?;
    check_not_negative("clock.relative_error", header.clock.relative_error)?;
    check_not_negative("clock.pair_nanoseconds", header.clock.pair_nanoseconds)?;
    check_grammar("settings.mode", &header.settings.mode, &WORD_GRAMMAR)?;
    check_not_negative("settings.budget_seconds", header.settings.budget_seconds)?;
    check_not_negative("settings.target", header.settings.target)?;
    check_foreign(header)?;
    check_machine(&header.machine)?;
    for (i, hazard) in header.hazards.iter().enumerate() {
        check_grammar(&format!("hazards[{i}].id"), &hazard.id, &ID_GRAMMAR)?;
        for prefix in &hazard.affects {
            check_grammar(&format!("hazards[{i}].affects"), prefix, &ID_PREFIX_GRAMMAR)?;
        }
    }
    check_metrics(&header.metrics)?;
    let defined = defined_metrics(&header.metrics);
    check_plan(&header.plan, &defined)?;
    for (i, row) in header.spread_history.iter().enumerate() {
        let path = format!("spread_history[{i}]");
        check_metric_at(row.metric, &row.case, &defined, &path)?;
        check_same_length(&path, ("headlines", row.headlines.len()), ("within_variances", row.within_variances.len()))?;
        check_all_finite(&format!("{path}.headlines"), &row.headlines)?;
        row.within_variances
            .iter()
            .try_for_each(|&variance| check_not_negative(&format!("{path}.within_variances"), variance))?;
    }
    for (i, record) in header.bounds.iter().enumerate() {
        let path = format!("bounds[{i}]");
        check_metric_at(record.metric, &record.case, &defined, &path)?;
        check_positive(&format!("{path}.bound.limit"), record.bound.limit)?;
        check_inputs(&record.bound.inputs, &format!("{path}.bound"))?;
    }
    for (i, &ratio) in header.core_ratio_history.iter().enumerate() {
        check_not_negative(&format!("core_ratio_history[{i}]"), ratio)?;
    }
    Ok(())
}

/// Microseconds since 1970 of a time in RFC 3339, if it is one.
pub(crate) fn parse_started(text: &str) -> Option<i64> {
    // The parser also accepts what may follow a time in brackets.
    let plain = text.bytes().all(|byte| byte.is_ascii_digit() || b"T:.Z+-".contains(&byte));
    plain.then(|| text.parse::<jiff::Timestamp>().ok().map(jiff::Timestamp::as_microsecond))?
}

/// Ids of the metrics that a run defines.
pub(crate) fn defined_metrics(metrics: &[Metric]) -> HashSet<Name> {
    metrics.iter().map(|metric| metric.id).collect()
}

/// Checks one round; `path` leads to it.
pub(crate) fn check_round(round: &Round, defined: &HashSet<Name>, path: &str) -> CheckResult {
    check_not_negative(&format!("{path}.at"), round.start_seconds)?;
    check_not_negative(&format!("{path}.seconds"), round.seconds)?;
    check_not_negative(&format!("{path}.timing"), round.timing.unwrap_or(0.0))?;
    let RoundOutcome::Measured(readings) = &round.outcome else { return Ok(()) };
    for (i, reading) in readings.iter().enumerate() {
        let path = format!("{path}.readings[{i}]");
        check_defined(&format!("{path}.metric"), reading.metric, defined)?;
        check_not_negative(&format!("{path}.overhead.clock_pair"), reading.overhead.clock_pair)?;
        check_not_negative(&format!("{path}.overhead.loop_iteration"), reading.overhead.loop_iteration)?;
        match &reading.readings {
            Readings::Batches(columns) => check_batches(columns, &path)?,
            Readings::Scalars(values) => check_all_finite(&format!("{path}.scalars"), values)?,
        }
    }
    Ok(())
}

/// Refuses a name that its grammar does not allow.
fn check_grammar(field: &str, name: &str, grammar: &Grammar) -> CheckResult {
    if grammar.allows(name) {
        return Ok(());
    }
    let shown: String = name.chars().take(60).collect();
    invalid_field(field, format!("{shown:?} must be {}", grammar.words))
}

fn check_case(case: &Case, path: &str) -> CheckResult {
    for (axis, value) in case.iter() {
        check_grammar(&format!("{path}.case"), &axis, &ID_GRAMMAR)?;
        if let Value::Word(word) = value {
            check_grammar(&format!("{path}.case.{axis}"), &word, &WORD_GRAMMAR)?;
        }
    }
    Ok(())
}

/// A foreign run is one in all respects, or in none.
fn check_foreign(header: &RunHeader) -> CheckResult {
    let is_foreign = header.foreign.is_some();
    if (header.clock.kind == ClockKind::Foreign) != is_foreign {
        return invalid_field("clock.kind", "\"foreign\" belongs to a run with the field `foreign`, and to no other");
    }
    if (header.settings.mode == *FOREIGN_MODE) != is_foreign {
        return invalid_field(
            "settings.mode",
            "\"foreign\" belongs to a run with the field `foreign`, and to no other",
        );
    }
    header.foreign.as_ref().map_or(Ok(()), |foreign| check_grammar("foreign.tool", &foreign.tool, &WORD_GRAMMAR))
}

fn check_machine(machine: &Machine) -> CheckResult {
    check_grammar("machine.identity", &machine.identity, &WORD_GRAMMAR)?;
    check_grammar("machine.architecture", &machine.architecture, &WORD_GRAMMAR)?;
    let numbers = [
        ("machine.cpu.nominal_hz", &machine.cpu.nominal_hz),
        ("machine.cpu.maximum_hz", &machine.cpu.maximum_hz),
        ("machine.cpu.measured_hz", &machine.cpu.measured_hz),
        ("machine.cpu.counter_hz", &machine.cpu.counter_hz),
        ("machine.memory.transfers_per_second", &machine.memory.transfers_per_second),
        ("machine.memory.peak_bytes_per_second", &machine.memory.peak_bytes_per_second),
    ];
    for (field, fact) in numbers {
        fact.get().map_or(Ok(()), |&value| check_not_negative(field, value))?;
    }
    for (i, nic) in machine.nics.iter().enumerate() {
        let speed = nic.bits_per_second.get().copied().unwrap_or_default();
        check_not_negative(&format!("machine.nics[{i}].bits_per_second"), speed)?;
    }
    let quota = machine.limits.cpu_quota.get().copied().flatten();
    check_not_negative("machine.limits.cpu_quota", quota.unwrap_or_default())
}

fn check_metrics(metrics: &[Metric]) -> CheckResult {
    let mut seen = HashSet::new();
    for (i, metric) in metrics.iter().enumerate() {
        check_metric_names(metric, &format!("metrics[{i}]"))?;
        if !seen.insert(metric.id) {
            return invalid_field(format!("metrics[{i}].id"), format!("{} is defined twice", metric.id));
        }
        for (field, bound) in [("floor", metric.floor), ("ceiling", metric.ceiling)] {
            bound.map_or(Ok(()), |bound| check_finite(&format!("metrics[{i}].{field}"), bound))?;
        }
    }
    Ok(())
}

fn check_metric_names(metric: &Metric, path: &str) -> CheckResult {
    check_grammar(&format!("{path}.id"), &metric.id, &ID_GRAMMAR)?;
    metric.axes().try_for_each(|axis| check_grammar(&format!("{path}.axes"), &axis.name, &ID_GRAMMAR))?;
    for (field, place) in
        [("restricted_to", metric.restricted_to), ("except", metric.except), ("as_found_where", metric.as_found_where)]
    {
        let Some(point) = place else { continue };
        check_grammar(&format!("{path}.{field}"), &point.axis(), &ID_GRAMMAR)?;
        check_grammar(&format!("{path}.{field}"), &point.word(), &WORD_GRAMMAR)?;
    }
    Ok(())
}

fn check_plan(plan: &[PlannedMeasurement], defined: &HashSet<Name>) -> CheckResult {
    let mut seen: HashSet<(Name, &Case)> = HashSet::new();
    for (i, planned) in plan.iter().enumerate() {
        check_planned_names(planned, &format!("plan[{i}]"))?;
        for metric in &planned.metrics {
            check_defined(&format!("plan[{i}].metrics"), *metric, defined)?;
        }
        if !seen.insert((planned.probe, &planned.case)) {
            return invalid_field(format!("plan[{i}]"), format!("{} {} is planned twice", planned.probe, planned.case));
        }
    }
    Ok(())
}

fn check_planned_names(planned: &PlannedMeasurement, path: &str) -> CheckResult {
    check_grammar(&format!("{path}.probe"), &planned.probe, &ID_GRAMMAR)?;
    check_case(&planned.case, path)
}

/// Measurements are those of the plan, in its order; after them only those of unplanned events.
fn check_measurements(run: &Run, defined: &HashSet<Name>) -> CheckResult {
    let plan = &run.header.plan;
    if run.measurements.len() < plan.len() {
        let problem = format!("{} measurements, but the plan has {}", run.measurements.len(), plan.len());
        return invalid_field("measurements", problem);
    }
    let mut seen: HashSet<(Name, &Case)> = HashSet::new();
    for (i, measurement) in run.measurements.iter().enumerate() {
        let path = format!("measurements[{i}]");
        match plan.get(i) {
            Some(planned) if *planned == measurement.planned => {}
            Some(planned) => {
                return invalid_field(path, format!("it must be {} {}, as in plan[{i}]", planned.probe, planned.case));
            }
            None => {
                check_planned_names(&measurement.planned, &path)?;
                if !measurement.planned.metrics.is_empty() || measurement.planned.only_input {
                    return invalid_field(path, "it names metrics or is an input, but is not in the plan");
                }
                if measurement.rounds.is_empty() && measurement.skipped.is_none() {
                    return invalid_field(path, "it is not in the plan and has no rounds");
                }
            }
        }
        if !seen.insert((measurement.planned.probe, &measurement.planned.case)) {
            return invalid_field(path, "an earlier measurement has the same probe and case");
        }
        for (j, item) in measurement.rounds.iter().enumerate() {
            check_round(item, defined, &format!("{path}.rounds[{j}]"))?;
        }
    }
    Ok(())
}

fn check_batches(columns: &Batches, path: &str) -> CheckResult {
    let n = columns.nanoseconds.len();
    check_same_length(path, ("iterations", columns.iterations.len()), ("nanoseconds", n))?;
    check_same_length(path, ("tags", columns.tags.len()), ("nanoseconds", n))?;
    check_all_finite(&format!("{path}.nanoseconds"), &columns.nanoseconds)?;
    if let Some(i) = columns.iterations.iter().position(|&iterations| iterations == 0) {
        return invalid_field(format!("{path}.iterations[{i}]"), "a batch of 0 operations has no time per operation");
    }
    check_not_negative(&format!("{path}.work_per_iteration"), columns.work_per_iteration)?;
    check_canaries(columns, path)
}

/// A canary is read before the first batch, then after every `canary_stride` batches and after the last one.
fn check_canaries(columns: &Batches, path: &str) -> CheckResult {
    if columns.canaries.is_empty() {
        return Ok(());
    }
    if columns.canary_stride == 0 {
        return invalid_field(format!("{path}.canary_stride"), "it is 0, but canaries were read");
    }
    let expected = 1 + columns.len().div_ceil(columns.canary_stride);
    for (canary, readings) in &columns.canaries {
        let field = format!("{path}.canaries.{}", canary.name());
        let found = readings.len();
        if found != expected && !(columns.is_empty() && found == 0) {
            let (n, stride) = (columns.len(), columns.canary_stride);
            return invalid_field(field, format!("{found} readings; {n} batches at stride {stride} have {expected}"));
        }
        if let Some(i) = readings.iter().position(|value| !value.is_finite()) {
            return invalid_field(format!("{field}[{i}]"), format!("{} is not a finite number", readings[i]));
        }
    }
    Ok(())
}

/// Checks what is known after the last round.
pub(crate) fn check_conclusion(
    predictions: &[PredictionRecord],
    explanations: &[Explanation],
    defined: &HashSet<Name>,
) -> CheckResult {
    for (i, record) in predictions.iter().enumerate() {
        let path = format!("predictions[{i}]");
        check_metric_at(record.metric, &record.case, defined, &path)?;
        match (&record.prediction, &record.missing_reason) {
            (Some(prediction), None) => check_prediction(prediction, &path)?,
            (None, Some(_)) => {}
            (None, None) => return invalid_field(path, "neither a prediction nor a reason for none"),
            (Some(_), Some(_)) => return invalid_field(path, "both a prediction and a reason for none"),
        }
    }
    for (i, explanation) in explanations.iter().enumerate() {
        check_explanation(explanation, defined, &format!("explanations[{i}]"))?;
    }
    Ok(())
}

fn check_explanation(explanation: &Explanation, defined: &HashSet<Name>, path: &str) -> CheckResult {
    check_grammar(&format!("{path}.kelvin"), &explanation.kelvin, &WORD_GRAMMAR)?;
    check_grammar(&format!("{path}.probe"), &explanation.probe, &ID_GRAMMAR)?;
    check_metric_names(&explanation.metric, &format!("{path}.metric"))?;
    check_defined(&format!("{path}.metric.id"), explanation.metric.id, defined)?;
    check_case(&explanation.case, path)?;
    for prediction in explanation.predicted.iter().chain(&explanation.predicted_without) {
        check_prediction(prediction, path)?;
    }
    for (i, part) in explanation.parts.iter().enumerate() {
        if let PartKind::Cause(id) = &part.kind {
            check_grammar(&format!("{path}.parts[{i}].of.cause"), id, &ID_GRAMMAR)?;
        }
    }
    for (i, cause) in explanation.causes.iter().enumerate() {
        let path = format!("{path}.causes[{i}]");
        check_grammar(&format!("{path}.id"), &cause.id, &ID_GRAMMAR)?;
        let bystanders = cause.evidence.iter().filter_map(|evidence| Some(&evidence.negative_control.as_ref()?.at));
        let of_formula = cause.by_formula.iter().flat_map(|by| [&by.formula.minuend, &by.formula.subtrahend]);
        for at in bystanders.chain(of_formula) {
            check_grammar(&format!("{path}.metric"), &at.metric, &ID_GRAMMAR)?;
            check_case(&at.case, &path)?;
        }
    }
    Ok(())
}

fn check_prediction(prediction: &Prediction, path: &str) -> CheckResult {
    for (field, value) in [("value", prediction.value), ("low", prediction.low), ("high", prediction.high)] {
        check_finite(&format!("{path}.prediction.{field}"), value)?;
    }
    if prediction.low > prediction.high {
        return invalid_field(format!("{path}.prediction.low"), "it is above `high`");
    }
    check_inputs(&prediction.inputs, &format!("{path}.prediction"))
}

fn check_inputs(inputs: &[Input], path: &str) -> CheckResult {
    let mut inputs = inputs.iter().enumerate();
    inputs.try_for_each(|(i, input)| check_finite(&format!("{path}.inputs[{i}].value"), input.value))
}

/// Checks a metric of the run at a case.
fn check_metric_at(metric: Name, case: &Case, defined: &HashSet<Name>, path: &str) -> CheckResult {
    check_defined(&format!("{path}.metric"), metric, defined)?;
    check_case(case, path)
}

/// Refuses a value that JSON cannot hold.
pub(crate) fn check_finite(field: &str, value: f64) -> CheckResult {
    if value.is_finite() { Ok(()) } else { invalid_field(field, format!("{value} is not a finite number")) }
}

/// Refuses a value below 0, or one that JSON cannot hold.
pub(crate) fn check_not_negative(field: &str, value: f64) -> CheckResult {
    check_finite(field, value)?;
    if value < 0.0 { invalid_field(field, format!("{value} is below 0")) } else { Ok(()) }
}

fn check_positive(field: &str, value: f64) -> CheckResult {
    check_finite(field, value)?;
    if value <= 0.0 { invalid_field(field, format!("{value} is not above 0")) } else { Ok(()) }
}

fn check_all_finite(field: &str, values: &[f64]) -> CheckResult {
    match values.iter().position(|value| !value.is_finite()) {
        Some(i) => invalid_field(format!("{field}[{i}]"), format!("{} is not a finite number", values[i])),
        None => Ok(()),
    }
}

fn check_defined(field: &str, metric: Name, defined: &HashSet<Name>) -> CheckResult {
    check_grammar(field, &metric, &ID_GRAMMAR)?;
    if defined.contains(&metric) {
        Ok(())
    } else {
        invalid_field(field, format!("{metric} is not among the metrics of the run"))
    }
}

fn check_same_length(path: &str, (column, found): (&str, usize), (other, expected): (&str, usize)) -> CheckResult {
    if found == expected {
        return Ok(());
    }
    invalid_field(format!("{path}.{column}"), format!("{found} values, but `{other}` has {expected}"))
}

pub(crate) fn invalid_field<T>(field: impl Into<String>, problem: impl Into<String>) -> Result<T, InvalidField> {
    Err(InvalidField { field: field.into(), problem: problem.into() })
}
