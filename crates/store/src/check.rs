//! Invariants of a run: checked before it is stored or exported, and after it is imported.

use std::collections::HashSet;

use kelvin_model::grammar::{BEGINNING, Grammar, ID, WORD};
use kelvin_model::{
    Attempt, Batches, BoundRecord, Case, ClockKind, Explanation, FOREIGN_MODE, FORMAT, Fact, Hazard, Learned, Machine,
    Measurement, Metric, Name, Outline, PartOf, Planned, Prediction, PredictionRecord, Readings, Round, Run, RunStatus,
    Value, WordedStudy,
};

use crate::labels;

/// A field that contradicts the rest of its run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("field {field}: {problem}")]
pub struct Invalid {
    /// Path to the field: `measurements[3].rounds[0].readings[1].nanoseconds`.
    pub field: String,
    /// What is wrong, and what would be right.
    pub problem: String,
}

pub(crate) type Checked = Result<(), Invalid>;

/// Checks what all of kelvin relies on: names by their grammar, columns of one length, finite numbers, metrics that
/// are defined, measurements that follow the plan.
///
/// # Errors
/// The first invalid field.
pub fn check(run: &Run) -> Checked {
    outline(&run.outline)?;
    let defined = defined(&run.outline.metrics);
    measurements(run, &defined)?;
    conclusion((&run.predictions, &run.studies, &run.explanations), &defined)?;
    if let RunStatus::Partial(why) = &run.status
        && why.is_empty()
    {
        return invalid("status", "a partial run must say why it is partial");
    }
    labels::check(&run.labels)?;
    not_negative("seconds", run.seconds)
}

/// Checks what is known before the first measurement.
pub(crate) fn outline(outline: &Outline) -> Checked {
    if outline.format != FORMAT {
        return invalid("format", format!("{} is not {FORMAT}, the format that this kelvin writes", outline.format));
    }
    id(&outline.id)?;
    if started(&outline.started).is_none() {
        return invalid("started", format!("{:?} is not a time such as 2026-01-31T12:00:00Z", outline.started));
    }
    named("kelvin", &outline.kelvin, &WORD)?;
    clock_and_settings(outline)?;
    foreign(outline)?;
    machine(&outline.machine)?;
    for (i, found) in outline.hazards.iter().enumerate() {
        hazard(found, &format!("hazards[{i}]"))?;
    }
    metrics(&outline.metrics)?;
    let defined = defined(&outline.metrics);
    plan(&outline.plan, &defined)?;
    for (i, row) in outline.learned.iter().enumerate() {
        learned(row, &defined, &format!("learned[{i}]"))?;
    }
    for (i, record) in outline.bounds.iter().enumerate() {
        bound(record, &defined, &format!("bounds[{i}]"))?;
    }
    for (i, &ratio) in outline.learned_core.iter().enumerate() {
        not_negative(&format!("learned_core[{i}]"), ratio)?;
    }
    Ok(())
}

/// Microseconds since 1970 of a time in RFC 3339, if it is one.
pub(crate) fn started(text: &str) -> Option<i64> {
    // The parser also accepts what may follow a time in brackets.
    let plain = text.bytes().all(|byte| byte.is_ascii_digit() || b"T:.Z+-".contains(&byte));
    plain.then(|| text.parse::<jiff::Timestamp>().ok().map(jiff::Timestamp::as_microsecond))?
}

/// Ids of the metrics that a run defines.
pub(crate) fn defined(metrics: &[Metric]) -> HashSet<Name> {
    metrics.iter().map(|metric| metric.id).collect()
}

/// Checks one round; `path` leads to it.
pub(crate) fn round(round: &Round, defined: &HashSet<Name>, path: &str) -> Checked {
    not_negative(&format!("{path}.at"), round.at)?;
    not_negative(&format!("{path}.seconds"), round.seconds)?;
    not_negative(&format!("{path}.timing"), round.timing.unwrap_or(0.0))?;
    let Attempt::Measured(readings) = &round.attempt else { return Ok(()) };
    for (i, reading) in readings.iter().enumerate() {
        let path = format!("{path}.readings[{i}]");
        is_defined(&format!("{path}.metric"), reading.metric, defined)?;
        not_negative(&format!("{path}.overhead.clock_pair"), reading.overhead.clock_pair)?;
        not_negative(&format!("{path}.overhead.loop_iteration"), reading.overhead.loop_iteration)?;
        match &reading.readings {
            Readings::Batches(columns) => batches(columns, &path)?,
            Readings::Scalars(values) => all_finite(&format!("{path}.scalars"), values)?,
        }
    }
    Ok(())
}

/// Ids of runs are typed, abbreviated, and used as file names; none is `last`.
fn id(id: &str) -> Checked {
    named("id", id, &WORD)?;
    if id == "last" {
        return invalid("id", "\"last\" means the newest run and cannot be an id");
    }
    Ok(())
}

/// Refuses a name that its grammar does not allow.
fn named(field: &str, name: &str, grammar: &Grammar) -> Checked {
    if grammar.allows(name) {
        return Ok(());
    }
    let shown: String = name.chars().take(60).collect();
    invalid(field, format!("{shown:?} must be {}", grammar.words))
}

fn case(case: &Case, path: &str) -> Checked {
    for (axis, value) in case.iter() {
        named(&format!("{path}.case"), &axis, &ID)?;
        if let Value::Word(word) = value {
            named(&format!("{path}.case.{axis}"), &word, &WORD)?;
        }
    }
    Ok(())
}

fn hazard(hazard: &Hazard, path: &str) -> Checked {
    named(&format!("{path}.id"), &hazard.id, &ID)?;
    hazard.affects.iter().try_for_each(|beginning| named(&format!("{path}.affects"), beginning, &BEGINNING))
}

fn clock_and_settings(outline: &Outline) -> Checked {
    positive("clock.hertz", outline.clock.hertz)?;
    not_negative("clock.relative_error", outline.clock.relative_error)?;
    not_negative("clock.pair_nanoseconds", outline.clock.pair_nanoseconds)?;
    named("settings.mode", &outline.settings.mode, &WORD)?;
    not_negative("settings.budget_seconds", outline.settings.budget_seconds)?;
    not_negative("settings.target", outline.settings.target)
}

/// A foreign run is one in all respects, or in none.
fn foreign(outline: &Outline) -> Checked {
    let is_foreign = outline.foreign.is_some();
    if (outline.clock.kind == ClockKind::Foreign) != is_foreign {
        return invalid("clock.kind", "\"foreign\" belongs to a run with the field `foreign`, and to no other");
    }
    if (outline.settings.mode == *FOREIGN_MODE) != is_foreign {
        return invalid("settings.mode", "\"foreign\" belongs to a run with the field `foreign`, and to no other");
    }
    outline.foreign.as_ref().map_or(Ok(()), |foreign| named("foreign.tool", &foreign.tool, &WORD))
}

fn machine(machine: &Machine) -> Checked {
    named("machine.identity", &machine.identity, &WORD)?;
    named("machine.architecture", &machine.architecture, &WORD)?;
    let numbers = [
        ("machine.cpu.nominal_hz", &machine.cpu.nominal_hz),
        ("machine.cpu.maximum_hz", &machine.cpu.maximum_hz),
        ("machine.cpu.measured_hz", &machine.cpu.measured_hz),
        ("machine.cpu.counter_hz", &machine.cpu.counter_hz),
        ("machine.memory.transfers_per_second", &machine.memory.transfers_per_second),
        ("machine.memory.peak_bytes_per_second", &machine.memory.peak_bytes_per_second),
    ];
    for (field, fact) in numbers {
        known(field, fact)?;
    }
    for (i, nic) in machine.nics.iter().enumerate() {
        known(&format!("machine.nics[{i}].bits_per_second"), &nic.bits_per_second)?;
    }
    machine
        .limits
        .cpu_quota
        .get()
        .copied()
        .flatten()
        .map_or(Ok(()), |quota| not_negative("machine.limits.cpu_quota", quota))
}

fn metrics(metrics: &[Metric]) -> Checked {
    let mut seen = HashSet::new();
    for (i, metric) in metrics.iter().enumerate() {
        names_of(metric, &format!("metrics[{i}]"))?;
        if !seen.insert(metric.id) {
            return invalid(format!("metrics[{i}].id"), format!("{} is defined twice", metric.id));
        }
        for (field, bound) in [("floor", metric.floor), ("ceiling", metric.ceiling)] {
            bound.map_or(Ok(()), |bound| finite(&format!("metrics[{i}].{field}"), bound))?;
        }
    }
    Ok(())
}

fn names_of(metric: &Metric, path: &str) -> Checked {
    named(&format!("{path}.id"), &metric.id, &ID)?;
    metric.axes().try_for_each(|axis| named(&format!("{path}.axes"), &axis.name, &ID))?;
    for (field, place) in [("only", metric.only), ("as_found_where", metric.as_found_where)] {
        let Some(point) = place else { continue };
        named(&format!("{path}.{field}"), &point.axis(), &ID)?;
        named(&format!("{path}.{field}"), &point.word(), &WORD)?;
    }
    Ok(())
}

fn plan(plan: &[Planned], defined: &HashSet<Name>) -> Checked {
    let mut seen: HashSet<(Name, &Case)> = HashSet::new();
    for (i, planned) in plan.iter().enumerate() {
        names_of_planned(planned, &format!("plan[{i}]"))?;
        for metric in &planned.metrics {
            is_defined(&format!("plan[{i}].metrics"), *metric, defined)?;
        }
        if !seen.insert((planned.probe, &planned.case)) {
            return invalid(format!("plan[{i}]"), format!("{} {} is planned twice", planned.probe, planned.case));
        }
    }
    Ok(())
}

fn names_of_planned(planned: &Planned, path: &str) -> Checked {
    named(&format!("{path}.probe"), &planned.probe, &ID)?;
    case(&planned.case, path)
}

fn learned(row: &Learned, defined: &HashSet<Name>, path: &str) -> Checked {
    is_defined(&format!("{path}.metric"), row.metric, defined)?;
    case(&row.case, path)?;
    same_length(path, ("headlines", row.headlines.len()), ("within", row.within.len()))?;
    all_finite(&format!("{path}.headlines"), &row.headlines)?;
    row.within.iter().try_for_each(|&variance| not_negative(&format!("{path}.within"), variance))
}

/// Measurements are those of the plan, in its order; after them only those of unplanned events.
fn measurements(run: &Run, defined: &HashSet<Name>) -> Checked {
    let plan = &run.outline.plan;
    if run.measurements.len() < plan.len() {
        let problem = format!("{} measurements, but the plan has {}", run.measurements.len(), plan.len());
        return invalid("measurements", problem);
    }
    let mut seen: HashSet<(Name, &Case)> = HashSet::new();
    for (i, measurement) in run.measurements.iter().enumerate() {
        let path = format!("measurements[{i}]");
        match plan.get(i) {
            Some(planned) if *planned == measurement.planned => {}
            Some(planned) => {
                return invalid(path, format!("it must be {} {}, as in plan[{i}]", planned.probe, planned.case));
            }
            None => beyond_the_plan(measurement, &path)?,
        }
        if !seen.insert((measurement.planned.probe, &measurement.planned.case)) {
            return invalid(path, "an earlier measurement has the same probe and case");
        }
        for (j, item) in measurement.rounds.iter().enumerate() {
            round(item, defined, &format!("{path}.rounds[{j}]"))?;
        }
    }
    Ok(())
}

fn beyond_the_plan(measurement: &Measurement, path: &str) -> Checked {
    names_of_planned(&measurement.planned, path)?;
    if !measurement.planned.metrics.is_empty() || measurement.planned.only_input {
        return invalid(path, "it names metrics or is an input, but is not in the plan");
    }
    if measurement.rounds.is_empty() && measurement.skipped.is_none() {
        return invalid(path, "it is not in the plan and has no rounds");
    }
    Ok(())
}

fn batches(columns: &Batches, path: &str) -> Checked {
    let n = columns.nanoseconds.len();
    same_length(path, ("iterations", columns.iterations.len()), ("nanoseconds", n))?;
    same_length(path, ("tags", columns.tags.len()), ("nanoseconds", n))?;
    all_finite(&format!("{path}.nanoseconds"), &columns.nanoseconds)?;
    if let Some(i) = columns.iterations.iter().position(|&iterations| iterations == 0) {
        return invalid(format!("{path}.iterations[{i}]"), "a batch of 0 operations has no time per operation");
    }
    not_negative(&format!("{path}.work_per_iteration"), columns.work_per_iteration)?;
    canaries(columns, path)
}

/// A canary is read before the first batch, then after every `canary_stride` batches and after the last one.
fn canaries(columns: &Batches, path: &str) -> Checked {
    if columns.canaries.is_empty() {
        return Ok(());
    }
    if columns.canary_stride == 0 {
        return invalid(format!("{path}.canary_stride"), "it is 0, but canaries were read");
    }
    let expected = 1 + columns.len().div_ceil(columns.canary_stride);
    for (canary, readings) in &columns.canaries {
        let field = format!("{path}.canaries.{}", canary.name());
        let found = readings.len();
        if found != expected && !(columns.is_empty() && found == 0) {
            let (n, stride) = (columns.len(), columns.canary_stride);
            return invalid(field, format!("{found} readings; {n} batches at stride {stride} have {expected}"));
        }
        if let Some(i) = readings.iter().position(|value| !value.is_finite()) {
            return invalid(format!("{field}[{i}]"), format!("{} is not a finite number", readings[i]));
        }
    }
    Ok(())
}

/// Checks what is known after the last round.
pub(crate) fn conclusion(
    (predictions, studies, explanations): (&[PredictionRecord], &[WordedStudy], &[Explanation]),
    defined: &HashSet<Name>,
) -> Checked {
    for (i, record) in predictions.iter().enumerate() {
        prediction(record, defined, &format!("predictions[{i}]"))?;
    }
    for (i, study) in studies.iter().enumerate() {
        named(&format!("studies[{i}].id"), &study.id, &ID)?;
    }
    for (i, explanation) in explanations.iter().enumerate() {
        self::explanation(explanation, defined, &format!("explanations[{i}]"))?;
    }
    Ok(())
}

fn explanation(explanation: &Explanation, defined: &HashSet<Name>, path: &str) -> Checked {
    named(&format!("{path}.kelvin"), &explanation.kelvin, &WORD)?;
    named(&format!("{path}.probe"), &explanation.probe, &ID)?;
    names_of(&explanation.metric, &format!("{path}.metric"))?;
    is_defined(&format!("{path}.metric.id"), explanation.metric.id, defined)?;
    case(&explanation.case, path)?;
    for prediction in explanation.predicted.iter().chain(&explanation.predicted_without) {
        of_prediction(prediction, path)?;
    }
    for (i, part) in explanation.parts.iter().enumerate() {
        if let PartOf::Cause(id) = &part.of {
            named(&format!("{path}.parts[{i}].of.cause"), id, &ID)?;
        }
    }
    for (i, cause) in explanation.causes.iter().enumerate() {
        let path = format!("{path}.causes[{i}]");
        named(&format!("{path}.id"), &cause.id, &ID)?;
        let bystanders = cause.evidence.iter().filter_map(|evidence| Some(&evidence.bystander.as_ref()?.at));
        let of_formula = cause.by_formula.iter().flat_map(|by| [&by.formula.of, &by.formula.less]);
        for at in bystanders.chain(of_formula) {
            named(&format!("{path}.metric"), &at.metric, &ID)?;
            case(&at.case, &path)?;
        }
    }
    Ok(())
}

/// Checks one prediction record; `path` leads to it.
fn prediction(record: &PredictionRecord, defined: &HashSet<Name>, path: &str) -> Checked {
    is_defined(&format!("{path}.metric"), record.metric, defined)?;
    case(&record.case, path)?;
    let Some(prediction) = &record.prediction else {
        if record.none_because.is_none() {
            return invalid(path, "neither a prediction nor a reason for none");
        }
        return Ok(());
    };
    if record.none_because.is_some() {
        return invalid(path, "both a prediction and a reason for none");
    }
    of_prediction(prediction, path)
}

fn of_prediction(prediction: &Prediction, path: &str) -> Checked {
    for (field, value) in [("value", prediction.value), ("low", prediction.low), ("high", prediction.high)] {
        finite(&format!("{path}.prediction.{field}"), value)?;
    }
    if prediction.low > prediction.high {
        return invalid(format!("{path}.prediction.low"), "it is above `high`");
    }
    for (i, input) in prediction.inputs.iter().enumerate() {
        finite(&format!("{path}.prediction.inputs[{i}].value"), input.value)?;
    }
    Ok(())
}

/// Checks one bound.
fn bound(record: &BoundRecord, defined: &HashSet<Name>, path: &str) -> Checked {
    is_defined(&format!("{path}.metric"), record.metric, defined)?;
    case(&record.case, path)?;
    positive(&format!("{path}.bound.most"), record.bound.most)?;
    for (i, input) in record.bound.inputs.iter().enumerate() {
        finite(&format!("{path}.bound.inputs[{i}].value"), input.value)?;
    }
    Ok(())
}

/// Refuses a value that JSON cannot hold.
pub(crate) fn finite(field: &str, value: f64) -> Checked {
    if value.is_finite() { Ok(()) } else { invalid(field, format!("{value} is not a finite number")) }
}

/// Refuses a value below 0, or one that JSON cannot hold.
pub(crate) fn not_negative(field: &str, value: f64) -> Checked {
    finite(field, value)?;
    if value < 0.0 { invalid(field, format!("{value} is below 0")) } else { Ok(()) }
}

fn positive(field: &str, value: f64) -> Checked {
    finite(field, value)?;
    if value <= 0.0 { invalid(field, format!("{value} is not above 0")) } else { Ok(()) }
}

fn all_finite(field: &str, values: &[f64]) -> Checked {
    match values.iter().position(|value| !value.is_finite()) {
        Some(i) => invalid(format!("{field}[{i}]"), format!("{} is not a finite number", values[i])),
        None => Ok(()),
    }
}

fn known(field: &str, fact: &Fact<f64>) -> Checked {
    fact.get().map_or(Ok(()), |&value| not_negative(field, value))
}

fn is_defined(field: &str, metric: Name, defined: &HashSet<Name>) -> Checked {
    named(field, &metric, &ID)?;
    if defined.contains(&metric) {
        Ok(())
    } else {
        invalid(field, format!("{metric} is not among the metrics of the run"))
    }
}

fn same_length(path: &str, (column, found): (&str, usize), (other, expected): (&str, usize)) -> Checked {
    if found == expected {
        return Ok(());
    }
    invalid(format!("{path}.{column}"), format!("{found} values, but `{other}` has {expected}"))
}

pub(crate) fn invalid<T>(field: impl Into<String>, problem: impl Into<String>) -> Result<T, Invalid> {
    Err(Invalid { field: field.into(), problem: problem.into() })
}
