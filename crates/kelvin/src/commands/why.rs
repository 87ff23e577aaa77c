//! `kelvin why`: one figure, measured with and without each of its possible causes.

mod gaps;

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::time::Instant;

use kelvin_analysis::explain;
use kelvin_core::units::case_pairs;
use kelvin_core::{Case, Explanation, Machine, Metric, json, units};
use kelvin_harness::{EarlyEnd, Effort, Probe, ProbeKind};
use kelvin_probes::causes::{Cause, CauseText};
use kelvin_report::why::{WhyTerminal, write_drawing, write_page};
use serde::Serialize;

use super::causes_page;
use crate::cause_experiment::{CauseExperiment, DEFAULT_SECONDS, ExperimentLimits, ExperimentResult, find_metric};
use crate::cli::{WhyArgs, WhyFormat};
use crate::cli_error::{CliError, CmdResult};
use crate::output::{self, Outlet, first_names};
use crate::placement::LocalMachine;
use crate::redact::without_private;
use crate::run_plan::RunPlan;
use crate::run_schedule::{MAX_BUDGET_FACTOR, RunSchedule};
use crate::selection::plan_names;

/// Passes that are made in any case, unless asked otherwise: an interval of the median of twelve is not much wider than that of many.
const MIN_PASSES: u32 = 12;

/// `kelvin why`.
pub fn why(args: &WhyArgs) -> CmdResult {
    if let Some(times) = args.gaps {
        return gaps::why_gaps(args, times);
    }
    if args.store.store.is_some() {
        bail!("--store: only --gaps reads a store");
    }
    let outlet = Outlet::find(args.output.path())?;
    let Some(name) = &args.metric else {
        return list_causes(args.output.format(), outlet).map(|()| true);
    };
    let local = LocalMachine::read(None)?;
    let (probe, metric) = find_plain_metric(name, &local)?;
    let case = select_case(probe, metric, &args.case, &local.machine)?;
    let limits = args.limits(local.start);
    let (explanation, early_end) = explain_figure(args, local, (probe, metric, &case), limits)?;
    let format = args.output.format();
    let write = |out: &mut dyn Write| match format {
        WhyFormat::Terminal => WhyTerminal { width: output::width() }.render(&explanation, out),
        WhyFormat::Html => write_page(&explanation, out),
        WhyFormat::Svg => write_drawing(&explanation, out),
        WhyFormat::Json => writeln!(out, "{}", json::to_string_pretty(&explanation)?),
    };
    outlet.write_output(format == WhyFormat::Terminal, write)?;
    if early_end == Some(EarlyEnd::TimedOut) && explanation.passes < limits.min_passes as usize {
        notice!(
            "the time was over after {} of {} passes: with a longer --budget intervals are narrower",
            explanation.passes,
            limits.min_passes
        );
    }
    Ok(early_end != Some(EarlyEnd::Interrupted))
}

/// The explanation of one figure, and why it ended early.
fn explain_figure(
    args: &WhyArgs,
    local: LocalMachine,
    (probe, metric, case): (&'static Probe, &'static Metric, &Case),
    limits: ExperimentLimits,
) -> Result<(Explanation, Option<EarlyEnd>), CliError> {
    let seed = args.options.seed.unwrap_or_else(|| u64::from(std::process::id()));
    let experiment = CauseExperiment::new((probe, metric, case.clone()), &local.machine, limits, seed);
    let schedule = RunSchedule::unlimited(experiment.plan.clone(), "why", limits.min_passes);
    let mut plan = RunPlan::new(local, schedule, &args.options)?;
    let result = experiment.execute(&plan);
    plan.clean_up();
    let explanation = explain(&result.experiment).ok_or_else(|| no_figure_error(&result))?;
    // A reason may quote a path of the user's.
    Ok((without_private(&explanation)?, result.early_end))
}

impl WhyArgs {
    /// How long it takes that began then.
    fn limits(&self, start: Instant) -> ExperimentLimits {
        let interval_passes = kelvin_stats::MIN_INTERVAL_ROUNDS as u32;
        ExperimentLimits {
            seconds: self.options.budget.seconds(DEFAULT_SECONDS),
            min_passes: self.options.rounds.unwrap_or(MIN_PASSES).max(interval_passes),
            deadline: self.options.budget.fixed_time().map(|time| start + time.mul_f64(MAX_BUDGET_FACTOR)),
        }
    }
}

/// Why there is no figure.
fn no_figure_error(ExperimentResult { experiment, early_end }: &ExperimentResult) -> CliError {
    let subject = units::metric_at(&experiment.metric, &experiment.case);
    let measurement = experiment.arms.first().map(|arm| &arm.measurement);
    let failed = measurement.and_then(|measurement| measurement.failures().next().map(str::to_owned));
    let skipped = measurement.and_then(|measurement| measurement.skip_reason().map(|reason| reason.0.clone()));
    let ended = early_end.map(|end| match end {
        EarlyEnd::Interrupted => "interrupted before it had four rounds".to_owned(),
        EarlyEnd::TimedOut => format!(
            "the time was over after {}, before it had four rounds: give a longer --budget",
            units::seconds(experiment.seconds)
        ),
    });
    let reason = ended.or(skipped).or(failed).unwrap_or_else(|| "its rounds gave no sample of it".into());
    CliError::new(subject, reason)
}

/// The metric of a plain run with this id, and its probe.
fn find_plain_metric(name: &str, local: &LocalMachine) -> Result<(&'static Probe, &'static Metric), CliError> {
    if let Some((probe, metric)) = find_metric(name) {
        return match probe.kind {
            ProbeKind::Measure => Ok((probe, metric)),
            _ => bail!("'{name}' is of a study; why explains a metric of `kelvin run`"),
        };
    }
    // Refuses what selects nothing, and names what is near.
    let plan = plan_names(ProbeKind::Measure, &[name.to_owned()], local, Effort::Quick)?;
    let metrics = plan.units.iter().filter(|unit| !unit.only_input).flat_map(|unit| unit.probe.metrics);
    let has_prefix = |id: &str| id.strip_prefix(name).is_some_and(|rest| rest.starts_with('.'));
    let ids: BTreeSet<&str> = metrics.map(|metric| metric.id.as_str()).filter(|id| has_prefix(id)).collect();
    Err(CliError::msg(format!("'{name}' is several metrics; name one: {}", first_names(ids.into_iter()))))
}

/// The case of a metric that these values of axes select: of several the one that a quick run measures, if that is one.
fn select_case(
    probe: &Probe,
    metric: &Metric,
    axis_values: &[(String, String)],
    machine: &Machine,
) -> Result<Case, CliError> {
    let cases = |effort| -> Vec<Case> {
        (probe.cases)(machine, effort).into_iter().filter(|case| metric.is_measured_at(case)).collect()
    };
    let mut selected = cases(Effort::Thorough);
    for (axis, value) in axis_values {
        let matching_cases: Vec<Case> = selected.iter().filter(|case| case.get(axis).is_some()).cloned().collect();
        let values = values_of_axis(metric, &matching_cases, axis);
        if values.is_empty() {
            let axes: BTreeSet<&str> = selected.iter().flat_map(Case::iter).map(|(name, _)| name.as_str()).collect();
            let axis_list = if axes.is_empty() { "none".into() } else { first_names(axes.into_iter()) };
            bail!("{axis}={value}: {} has no axis of that name; it has {axis_list}", metric.id);
        }
        selected.retain(|case| has_axis_value(metric, case, (axis, value)));
        if selected.is_empty() {
            let value_list = first_names(values.iter().map(String::as_str));
            bail!("{axis}={value}: {} is not measured there; {axis} is {value_list}", metric.id);
        }
    }
    let quick_cases: Vec<Case> = cases(Effort::Quick).into_iter().filter(|case| selected.contains(case)).collect();
    match (selected.as_slice(), quick_cases.as_slice()) {
        ([case], _) | (_, [case]) => Ok(case.clone()),
        ([], _) => bail!("{} has no case on this machine", metric.id),
        _ => {
            let varying_axes = metric.axes().filter_map(|axis| {
                let values = values_of_axis(metric, &selected, &axis.name);
                (values.len() > 1).then(|| format!("{}={}", axis.name, first_names(values.iter().map(String::as_str))))
            });
            let list = varying_axes.collect::<Vec<String>>().join("; by ");
            bail!("{} has {} such cases; name one by {list}", metric.id, selected.len())
        }
    }
}

/// The values of an axis in these cases, each once, as they are written for people.
fn values_of_axis(metric: &Metric, cases: &[Case], axis: &str) -> Vec<String> {
    let mut values: Vec<String> = Vec::new();
    for (name, value) in cases.iter().flat_map(|case| case_pairs(metric, case)) {
        let value = value.replace(' ', "");
        if name == axis && !values.contains(&value) {
            values.push(value);
        }
    }
    values
}

/// Whether a case has this value of an axis, as data or as people write it: 65536, 64KiB.
fn has_axis_value(metric: &Metric, case: &Case, (axis, value): (&str, &str)) -> bool {
    let has_text = |(name, text): &(_, String)| *name == axis && text.replace(' ', "").eq_ignore_ascii_case(value);
    case.get(axis).is_some_and(|case_value| case_value.matches_text(value))
        || case_pairs(metric, case).iter().any(has_text)
}

/// A known cause, as JSON.
#[derive(Serialize)]
struct ListedCause {
    id: &'static str,
    summary: &'static str,
    how: String,
    cost: String,
    pitfalls: Vec<String>,
    remedy: String,
    /// None if it can touch all.
    metrics: Option<BTreeSet<&'static str>>,
}

impl ListedCause {
    fn new(cause: &'static Cause) -> Self {
        let CauseText { how, cost, remedy, pitfalls } = cause.text();
        let metrics = Some(causes_page::metric_ids(cause)).filter(|ids| !ids.is_empty());
        Self { id: cause.id, summary: cause.summary, how, cost, pitfalls, remedy, metrics }
    }
}

fn list_causes(format: WhyFormat, outlet: Outlet) -> Result<(), CliError> {
    let causes = kelvin_probes::causes::all();
    match format {
        WhyFormat::Terminal => outlet.write_output(true, |out| {
            causes.iter().enumerate().try_for_each(|(index, cause)| {
                write!(out, "{}", if index > 0 { "\n" } else { "" })?;
                write_cause(out, cause, output::width().min(100))
            })
        }),
        WhyFormat::Json => {
            let listed: Vec<ListedCause> = causes.iter().map(|cause| ListedCause::new(cause)).collect();
            outlet.write_output(false, |out| writeln!(out, "{}", json::to_string_pretty(&listed)?))
        }
        WhyFormat::Html | WhyFormat::Svg => {
            bail!("--causes: the list is text or JSON: leave the format out, or give --json")
        }
    }
}

fn write_cause(out: &mut dyn Write, cause: &Cause, width: usize) -> io::Result<()> {
    output::write_wrapped(out, width, "", &format!("{} ({})", cause.summary, cause.id))?;
    let mut paragraph = |title: &str, text: &str| output::write_wrapped(out, width, "  ", &format!("{title}: {text}"));
    let CauseText { how, cost, remedy, pitfalls } = cause.text();
    paragraph("How", &how)?;
    paragraph("Cost", &cost)?;
    pitfalls.iter().try_for_each(|pitfall| paragraph("Pitfall", pitfall))?;
    paragraph("What helps", &remedy)?;
    paragraph("Metrics", &causes_page::metrics_text(cause, ""))
}
