//! Invariants of a run: checked before it is stored or exported, and after it is imported.

use std::collections::HashSet;
use std::fmt::Display;

use kelvin_core::identifiers::{Grammar, ID_GRAMMAR, ID_PREFIX_GRAMMAR, WORD_GRAMMAR};
use kelvin_core::{
    Batches, Case, ClockKind, Distribution, Explanation, FOREIGN_MODE, Input, KeptHeadline, Labels, Machine, Metric,
    Name, Outcome, PartKind, PlannedMeasurement, Prediction, RUN_FORMAT, Readings, Round, RoundOutcome, Run, RunHeader,
    RunStatus, Value,
};

use crate::conclusion::RunConclusion;
use crate::error::InvalidField;
use crate::labels::checked_note;
use crate::tag::{Tag, TagError};

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
    check_conclusion(&RunConclusion::from_run(run), &defined)?;
    let is_unexplained = matches!(&run.status, RunStatus::Partial(reason) if reason.is_empty());
    require(!is_unexplained, "status", "a partial run must say why it is partial")?;
    check_labels(&run.labels)?;
    check_not_negative("seconds", run.seconds)
}

/// Checks what is known before the first measurement.
pub(crate) fn check_header(header: &RunHeader) -> CheckResult {
    let (format, started) = (header.format, &header.started);
    let problem = format_args!("{format} is not {RUN_FORMAT}, the format that this kelvin writes");
    require(format == RUN_FORMAT, "format", problem)?;
    check_grammar("id", &header.id, &WORD_GRAMMAR)?;
    // Ids are typed, abbreviated, and used as file names.
    require(header.id != "last", "id", "\"last\" means the newest run and cannot be an id")?;
    let problem = format_args!("{started:?} is not a time such as 2026-01-31T12:00:00Z");
    require(parse_started(started).is_some(), "started", problem)?;
    check_grammar("kelvin", &header.kelvin, &WORD_GRAMMAR)?;
    if let Some(build) = &header.build {
        build.commit.iter().try_for_each(|commit| check_grammar("build.commit", commit, &WORD_GRAMMAR))?;
        check_grammar("build.target", &build.target, &WORD_GRAMMAR)?;
        build.features.iter().try_for_each(|feature| check_grammar("build.features", feature, &WORD_GRAMMAR))?;
    }
    check_positive("clock.hertz", header.clock.hertz)?;
    check_not_negative("clock.relative_error", header.clock.relative_error)?;
    check_not_negative("clock.pair_nanoseconds", header.clock.pair_nanoseconds)?;
    check_grammar("settings.mode", &header.settings.mode, &WORD_GRAMMAR)?;
    check_not_negative("settings.budget_seconds", header.settings.budget_seconds)?;
    check_not_negative("settings.target", header.settings.target)?;
    check_foreign(header)?;
    check_machine(&header.machine).map_err(|error| error.under_parent("machine"))?;
    check_each("hazards", &header.hazards, |hazard| {
        check_grammar("id", &hazard.id, &ID_GRAMMAR)?;
        hazard.affects.iter().try_for_each(|prefix| check_grammar("affects", prefix, &ID_PREFIX_GRAMMAR))
    })?;
    check_metrics(&header.metrics)?;
    let defined = defined_metrics(&header.metrics);
    check_plan(&header.plan, &defined)?;
    check_each("spread_history", &header.spread_history, |row| {
        check_metric_at(row.metric, &row.case, &defined)?;
        check_same_length(("headlines", row.headlines.len()), ("within_variances", row.within_variances.len()))?;
        check_all_finite("headlines", &row.headlines)?;
        row.within_variances.iter().try_for_each(|&variance| check_not_negative("within_variances", variance))
    })?;
    check_each("bounds", &header.bounds, |record| {
        check_metric_at(record.metric, &record.case, &defined)?;
        check_positive("bound.limit", record.bound.limit)?;
        check_inputs("bound.inputs", &record.bound.inputs)
    })?;
    check_each("core_ratio_history", &header.core_ratio_history, |&ratio| check_not_negative("", ratio))
}

/// Microseconds since 1970 of a time in RFC 3339, if it is one.
pub(crate) fn parse_started(text: &str) -> Option<i64> {
    // The parser also accepts what may follow a time in brackets.
    let has_time_bytes = text.bytes().all(|byte| byte.is_ascii_digit() || b"T:.Z+-".contains(&byte));
    has_time_bytes.then(|| text.parse::<jiff::Timestamp>().ok().map(jiff::Timestamp::as_microsecond))?
}

/// Ids of the metrics that a run defines.
pub(crate) fn defined_metrics(metrics: &[Metric]) -> HashSet<Name> {
    metrics.iter().map(|metric| metric.id).collect()
}

/// Checks one round.
pub(crate) fn check_round(round: &Round, defined: &HashSet<Name>) -> CheckResult {
    check_not_negative("at", round.start_seconds)?;
    check_not_negative("seconds", round.seconds)?;
    check_not_negative("timing", round.timing.unwrap_or(0.0))?;
    let RoundOutcome::Measured(readings) = &round.outcome else { return Ok(()) };
    check_each("readings", readings, |reading| {
        check_defined("metric", reading.metric, defined)?;
        check_not_negative("overhead.clock_pair", reading.overhead.clock_pair)?;
        check_not_negative("overhead.loop_iteration", reading.overhead.loop_iteration)?;
        match &reading.readings {
            Readings::Batches(columns) => check_batches(columns),
            Readings::Scalars(values) => check_all_finite("scalars", values),
        }
    })
}

/// Checks the items of a list; an error names the first invalid one.
fn check_each<'a, T>(field: &str, items: &'a [T], mut check: impl FnMut(&'a T) -> CheckResult) -> CheckResult {
    let mut numbered = items.iter().enumerate();
    numbered.try_for_each(|(i, item)| check(item).map_err(|error| error.under_parent(format_args!("{field}[{i}]"))))
}

/// Refuses a name that its grammar does not allow.
fn check_grammar(field: &str, name: &str, grammar: &Grammar) -> CheckResult {
    if grammar.allows(name) {
        return Ok(());
    }
    let excerpt: String = name.chars().take(60).collect();
    invalid_field(field, format!("{excerpt:?} must be {}", grammar.words))
}

fn check_case(case: &Case) -> CheckResult {
    for (axis, value) in case.iter() {
        check_grammar("case", &axis, &ID_GRAMMAR)?;
        if let Value::Word(word) = value {
            check_grammar(&format!("case.{axis}"), &word, &WORD_GRAMMAR)?;
        }
    }
    Ok(())
}

/// A foreign run is one in all respects, or in none.
fn check_foreign(header: &RunHeader) -> CheckResult {
    let is_foreign = header.foreign.is_some();
    for (field, is_marked) in [
        ("clock.kind", header.clock.kind == ClockKind::Foreign),
        ("settings.mode", header.settings.mode == *FOREIGN_MODE),
    ] {
        let problem = "\"foreign\" belongs to a run with the field `foreign`, and to no other";
        require(is_marked == is_foreign, field, problem)?;
    }
    header.foreign.as_ref().map_or(Ok(()), |foreign| check_grammar("foreign.tool", &foreign.tool, &WORD_GRAMMAR))
}

fn check_machine(machine: &Machine) -> CheckResult {
    check_grammar("identity", &machine.identity, &WORD_GRAMMAR)?;
    check_grammar("architecture", &machine.architecture, &WORD_GRAMMAR)?;
    let numbers = [
        ("cpu.nominal_hz", &machine.cpu.nominal_hz),
        ("cpu.maximum_hz", &machine.cpu.maximum_hz),
        ("cpu.measured_hz", &machine.cpu.measured_hz),
        ("cpu.counter_hz", &machine.cpu.counter_hz),
        ("memory.transfers_per_second", &machine.memory.transfers_per_second),
        ("memory.peak_bytes_per_second", &machine.memory.peak_bytes_per_second),
    ];
    for (field, fact) in numbers {
        fact.get().map_or(Ok(()), |&value| check_not_negative(field, value))?;
    }
    check_each("memory.modules", machine.memory.modules.get().map_or(&[][..], Vec::as_slice), |group| {
        check_not_negative("transfers_per_second", group.transfers_per_second.unwrap_or_default())
    })?;
    check_each("nics", &machine.nics, |nic| {
        check_not_negative("bits_per_second", nic.bits_per_second.get().copied().unwrap_or_default())
    })?;
    let quota = machine.limits.cpu_quota.get().copied().flatten();
    check_not_negative("limits.cpu_quota", quota.unwrap_or_default())
}

fn check_metrics(metrics: &[Metric]) -> CheckResult {
    let mut metric_ids = HashSet::new();
    check_each("metrics", metrics, |metric| {
        check_metric_names(metric)?;
        require(metric_ids.insert(metric.id), "id", format_args!("{} is defined twice", metric.id))?;
        [("floor", metric.floor), ("ceiling", metric.ceiling)]
            .into_iter()
            .try_for_each(|(field, bound)| check_finite(field, bound.unwrap_or_default()))
    })
}

fn check_metric_names(metric: &Metric) -> CheckResult {
    check_grammar("id", &metric.id, &ID_GRAMMAR)?;
    metric.axes().try_for_each(|axis| check_grammar("axes", &axis.name, &ID_GRAMMAR))?;
    for (field, point) in
        [("restricted_to", metric.restricted_to), ("except", metric.except), ("as_found_where", metric.as_found_where)]
    {
        let Some(point) = point else { continue };
        check_grammar(field, &point.axis(), &ID_GRAMMAR)?;
        check_grammar(field, &point.word(), &WORD_GRAMMAR)?;
    }
    Ok(())
}

fn check_plan(plan: &[PlannedMeasurement], defined: &HashSet<Name>) -> CheckResult {
    let mut planned_cases: HashSet<(Name, &Case)> = HashSet::new();
    check_each("plan", plan, |planned| {
        check_planned_names(planned)?;
        planned.metrics.iter().try_for_each(|metric| check_defined("metrics", *metric, defined))?;
        let PlannedMeasurement { probe, case, .. } = planned;
        require(planned_cases.insert((*probe, case)), "", format_args!("{probe} {case} is planned twice"))
    })
}

fn check_planned_names(planned: &PlannedMeasurement) -> CheckResult {
    check_grammar("probe", &planned.probe, &ID_GRAMMAR)?;
    check_case(&planned.case)
}

/// Measurements are those of the plan, in its order; after them only those of unplanned events.
fn check_measurements(run: &Run, defined: &HashSet<Name>) -> CheckResult {
    let plan = &run.header.plan;
    let (count, planned) = (run.measurements.len(), plan.len());
    require(count >= planned, "measurements", format_args!("{count} measurements, but the plan has {planned}"))?;
    let mut measured_cases: HashSet<(Name, &Case)> = HashSet::new();
    let mut plan = plan.iter().enumerate();
    check_each("measurements", &run.measurements, |measurement| {
        let is_new = measured_cases.insert((measurement.planned.probe, &measurement.planned.case));
        if let Some((i, planned)) = plan.next() {
            let problem = format_args!("it must be {} {}, as in plan[{i}]", planned.probe, planned.case);
            require(*planned == measurement.planned, "", problem)?;
        } else {
            check_planned_names(&measurement.planned)?;
            let is_of_plan = !measurement.planned.metrics.is_empty() || measurement.planned.only_input;
            require(!is_of_plan, "", "it names metrics or is an input, but is not in the plan")?;
            let has_outcome = !measurement.rounds.is_empty() || measurement.skipped.is_some();
            require(has_outcome, "", "it is not in the plan and has no rounds")?;
        }
        require(is_new, "", "an earlier measurement has the same probe and case")?;
        check_each("rounds", &measurement.rounds, |round| check_round(round, defined))
    })
}

fn check_batches(columns: &Batches) -> CheckResult {
    let nanoseconds = ("nanoseconds", columns.nanoseconds.len());
    check_same_length(("iterations", columns.iterations.len()), nanoseconds)?;
    check_same_length(("tags", columns.tags.len()), nanoseconds)?;
    check_all_finite("nanoseconds", &columns.nanoseconds)?;
    check_each("iterations", &columns.iterations, |&iterations| {
        require(iterations != 0, "", "a batch of 0 operations has no time per operation")
    })?;
    check_not_negative("work_per_iteration", columns.work_per_iteration)?;
    check_canaries(columns)
}

/// A canary is read before the first batch, then after every `canary_stride` batches and after the last one.
fn check_canaries(columns: &Batches) -> CheckResult {
    if columns.canaries.is_empty() {
        return Ok(());
    }
    let (n, stride) = (columns.len(), columns.canary_stride);
    require(stride != 0, "canary_stride", "it is 0, but canaries were read")?;
    let expected = 1 + n.div_ceil(stride);
    columns.canaries.iter().try_for_each(|(canary, readings)| {
        let (field, count) = (format!("canaries.{}", canary.name()), readings.len());
        let problem = format_args!("{count} readings; {n} batches at stride {stride} have {expected}");
        require(count == expected || (columns.is_empty() && count == 0), &field, problem)?;
        check_each(&field, readings, |&value| check_finite("", value.into()))
    })
}

/// Checks what is known after the last round.
pub(crate) fn check_conclusion(conclusion: &RunConclusion, defined: &HashSet<Name>) -> CheckResult {
    check_each("predictions", &conclusion.predictions, |record| {
        check_metric_at(record.metric, &record.case, defined)?;
        match (&record.prediction, &record.missing_reason) {
            (Some(prediction), None) => check_prediction(prediction),
            (None, Some(_)) => Ok(()),
            (None, None) => invalid_field("", "neither a prediction nor a reason for none"),
            (Some(_), Some(_)) => invalid_field("", "both a prediction and a reason for none"),
        }
    })?;
    check_kept_headlines(&conclusion.kept_headlines, defined)?;
    check_each("explanations", &conclusion.explanations, |explanation| check_explanation(explanation, defined))
}

/// Each metric of a probe at a case has one.
fn check_kept_headlines(headlines: &[KeptHeadline], defined: &HashSet<Name>) -> CheckResult {
    let mut kept_cases: HashSet<(Name, Name, &Case)> = HashSet::new();
    check_each("kept_headlines", headlines, |kept| {
        check_grammar("probe", &kept.probe, &ID_GRAMMAR)?;
        check_metric_at(kept.metric, &kept.case, defined)?;
        let has_value = !matches!(kept.outcome, Outcome::Skipped(_) | Outcome::Failed(_) | Outcome::NotReached);
        require(has_value, "outcome", "only what was measured has a headline")?;
        if let Some(summary) = kept.outcome.found_summary() {
            check_not_negative("outcome.within_variance", summary.within_variance)?;
            let Distribution { min, p5, p50, p95, max, mean, std, .. } = summary.distribution;
            let numbers = [summary.headline, summary.effective_samples, min, p5, p50, p95, max, mean, std];
            check_all_finite("outcome", &numbers)?;
            check_each("outcome.tags", &summary.tags, |tag| check_grammar("tag", &tag.tag, &ID_GRAMMAR))?;
            require(summary.rounds > 0, "outcome.rounds", "a headline is of at least one round")?;
        }
        let is_new = kept_cases.insert((kept.probe, kept.metric, &kept.case));
        require(is_new, "", format_args!("{} {} {} comes twice", kept.probe, kept.metric, kept.case))
    })
}

fn check_explanation(explanation: &Explanation, defined: &HashSet<Name>) -> CheckResult {
    check_grammar("kelvin", &explanation.kelvin, &WORD_GRAMMAR)?;
    check_grammar("probe", &explanation.probe, &ID_GRAMMAR)?;
    check_metric_names(&explanation.metric).map_err(|error| error.under_parent("metric"))?;
    check_defined("metric.id", explanation.metric.id, defined)?;
    check_case(&explanation.case)?;
    explanation.predicted.iter().chain(&explanation.predicted_without).try_for_each(check_prediction)?;
    check_each("parts", &explanation.parts, |part| match &part.kind {
        PartKind::Cause(id) => check_grammar("of.cause", id, &ID_GRAMMAR),
        _ => Ok(()),
    })?;
    check_each("causes", &explanation.causes, |cause| {
        check_grammar("id", &cause.id, &ID_GRAMMAR)?;
        let control_figures =
            cause.evidence.iter().filter_map(|evidence| Some(&evidence.negative_control.as_ref()?.at));
        let formula_figures =
            cause.by_formula.iter().flat_map(|size| [&size.formula.minuend, &size.formula.subtrahend]);
        control_figures.chain(formula_figures).try_for_each(|figure| {
            check_grammar("metric", &figure.metric, &ID_GRAMMAR)?;
            check_case(&figure.case)
        })
    })
}

fn check_prediction(prediction: &Prediction) -> CheckResult {
    for (field, value) in [("value", prediction.value), ("low", prediction.low), ("high", prediction.high)] {
        check_finite(&format!("prediction.{field}"), value)?;
    }
    require(prediction.low <= prediction.high, "prediction.low", "it is above `high`")?;
    check_inputs("prediction.inputs", &prediction.inputs)
}

fn check_inputs(field: &str, inputs: &[Input]) -> CheckResult {
    check_each(field, inputs, |input| check_finite("value", input.value))
}

/// Checks a metric of the run at a case.
fn check_metric_at(metric: Name, case: &Case, defined: &HashSet<Name>) -> CheckResult {
    check_defined("metric", metric, defined)?;
    check_case(case)
}

/// Refuses a value that JSON cannot hold.
pub(crate) fn check_finite(field: &str, value: f64) -> CheckResult {
    require(value.is_finite(), field, format_args!("{value} is not a finite number"))
}

/// Refuses a value below 0, or one that JSON cannot hold.
pub(crate) fn check_not_negative(field: &str, value: f64) -> CheckResult {
    check_finite(field, value)?;
    require(value >= 0.0, field, format_args!("{value} is below 0"))
}

fn check_positive(field: &str, value: f64) -> CheckResult {
    check_finite(field, value)?;
    require(value > 0.0, field, format_args!("{value} is not above 0"))
}

fn check_all_finite(field: &str, values: &[f64]) -> CheckResult {
    check_each(field, values, |&value| check_finite("", value))
}

fn check_defined(field: &str, metric: Name, defined: &HashSet<Name>) -> CheckResult {
    check_grammar(field, &metric, &ID_GRAMMAR)?;
    require(defined.contains(&metric), field, format_args!("{metric} is not among the metrics of the run"))
}

fn check_same_length((column, length): (&str, usize), (reference, expected): (&str, usize)) -> CheckResult {
    require(length == expected, column, format_args!("{length} values, but `{reference}` has {expected}"))
}

/// Checks labels that somebody else wrote.
fn check_labels(labels: &Labels) -> CheckResult {
    for (name, value) in &labels.tags {
        let tag = format!("{name}={value}").parse::<Tag>();
        if let Err(problem) = tag.and_then(|tag| if tag.name() == name { Ok(()) } else { Err(TagError::Name) }) {
            return invalid_field("tags", format!("{:?}: {problem}", format!("{name}={value}")));
        }
    }
    match labels.note.as_deref().map(checked_note) {
        Some(Err(problem)) => invalid_field("note", problem),
        _ => Ok(()),
    }
}

/// Refuses a field of which something does not hold.
fn require(condition: bool, field: &str, problem: impl Display) -> CheckResult {
    if condition { Ok(()) } else { invalid_field(field, problem.to_string()) }
}

fn invalid_field(field: &str, problem: impl Into<String>) -> CheckResult {
    Err(InvalidField { field: field.into(), problem: problem.into() })
}
