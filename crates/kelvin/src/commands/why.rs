//! `kelvin why`: one figure, measured with and without each of its possible causes.

mod gaps;

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use kelvin_analysis::explain;
use kelvin_causes::Cause;
use kelvin_harness::{Effort, Probe, ProbeKind};
use kelvin_model::units::case_pairs;
use kelvin_model::{Case, Explanation, Machine, Metric, json, units};
use kelvin_report::text::wrap;
use kelvin_report::why::{Page, Picture, Why};

use crate::cli::{WhyArgs, WhyFormat};
use crate::fault::{Done, Fault, WITH_FAILURES};
use crate::inquiry::{Inquired, Inquiry, Pace, Stopped, measured_by};
use crate::output::{self, Outlet};
use crate::place::Here;
use crate::prepare::Prepared;
use crate::private::without_private;
use crate::selection::plan_of;

/// Seconds, unless asked otherwise.
const USUAL: Duration = Duration::from_secs(20);
/// Passes that are made in any case, unless asked otherwise: an interval of the median of twelve is not much wider than that of many.
const PASSES: u32 = 12;

/// `kelvin why`.
pub fn why(args: &WhyArgs) -> Done {
    if let Some(times) = args.gaps {
        return gaps::why(args, times);
    }
    if args.store.store.is_some() {
        return Err(Fault::new("--store", "only --gaps reads a store"));
    }
    let Some(name) = &args.metric else {
        output::print(list_causes)?;
        return Ok(ExitCode::SUCCESS);
    };
    let outlet = Outlet::find(args.output.as_deref())?;
    let here = Here::read()?;
    let (probe, metric) = metric_of(name, &here)?;
    let case = case_of(probe, metric, &args.case, &here.machine)?;
    let (explanation, stopped) = explained(args, here, (probe, metric, &case), args.pace())?;
    let format = args.format();
    let write = |out: &mut dyn Write| match format {
        WhyFormat::Terminal => Why { width: output::width() }.render(&explanation, out),
        WhyFormat::Html => Page.render(&explanation, out),
        WhyFormat::Svg => Picture.render(&explanation, out),
        WhyFormat::Json => writeln!(out, "{}", json::pretty(&explanation)?),
    };
    outlet.deliver(format == WhyFormat::Terminal, write)?;
    Ok(stopped.map_or(ExitCode::SUCCESS, |_| ExitCode::from(WITH_FAILURES)))
}

/// What one figure is made of, and why there is not more of it.
fn explained(
    args: &WhyArgs,
    here: Here,
    (probe, metric, case): (&'static Probe, &'static Metric, &Case),
    pace: Pace,
) -> Result<(Explanation, Option<Stopped>), Fault> {
    let seed = args.measure.seed.unwrap_or_else(|| u64::from(std::process::id()));
    let inquiry = Inquiry::of((probe, metric, case.clone()), &here.machine, pace, seed);
    let prepared = Prepared::new(here, inquiry.plan(), &args.measure)?;
    let found = inquiry.carry_out(&prepared);
    prepared.clear_up();
    let explanation = explain(&found.experiment).ok_or_else(|| nothing(&found))?;
    // A reason may quote a path of the user's.
    Ok((without_private(&explanation)?, found.stopped))
}

impl WhyArgs {
    /// How long it takes.
    fn pace(&self) -> Pace {
        let least = kelvin_stats::LEAST_ROUNDS as u32;
        Pace {
            // Of the minimum it is none.
            seconds: self.measure.budget.unwrap_or(USUAL).as_secs_f64(),
            passes: self.measure.rounds.unwrap_or(PASSES).max(least),
            most: f64::INFINITY,
        }
    }
}

/// Why there is no figure.
fn nothing(Inquired { experiment, stopped }: &Inquired) -> Fault {
    let what = units::metric_at(&experiment.metric, &experiment.case);
    let own = experiment.arms.first().map(|arm| &arm.measurement);
    let failed = own.and_then(|own| own.failures().next().map(str::to_owned));
    let skipped = own.and_then(|own| own.skip_reason().map(|reason| reason.0.clone()));
    let interrupted = stopped.map(|_| "interrupted before it had four rounds".to_owned());
    let why = interrupted.or(skipped).or(failed).unwrap_or_else(|| "its rounds gave no sample of it".into());
    Fault::new(what, why)
}

/// The metric of a plain run with this id, and its probe.
fn metric_of(name: &str, here: &Here) -> Result<(&'static Probe, &'static Metric), Fault> {
    if let Some((probe, metric)) = measured_by(name) {
        return match probe.kind {
            ProbeKind::Measure => Ok((probe, metric)),
            _ => Err(Fault::because(format!("'{name}' is of a study; why explains a metric of `kelvin run`"))),
        };
    }
    // Refuses what selects nothing, and names what is near.
    let plan = plan_of(ProbeKind::Measure, &[name.to_owned()], here, Effort::Quick)?;
    let asked = plan.units.iter().filter(|unit| !unit.only_input).flat_map(|unit| unit.probe.metrics);
    let begins = |id: &str| id.strip_prefix(name).is_some_and(|rest| rest.starts_with('.'));
    let ids: BTreeSet<&str> = asked.map(|metric| metric.id.as_str()).filter(|id| begins(id)).collect();
    Err(Fault::because(format!("'{name}' is several metrics; name one: {}", several(ids.into_iter()))))
}

/// The first few of a list, and how many more there are.
fn several<'a>(names: impl ExactSizeIterator<Item = &'a str>) -> String {
    const NAMED: usize = 8;
    let more = names.len().saturating_sub(NAMED);
    let named = names.take(NAMED).collect::<Vec<_>>().join(", ");
    if more == 0 { named } else { format!("{named} and {more} more") }
}

/// The case of a metric that these values of axes select: of several the one that a quick run measures, if that is one.
fn case_of(probe: &Probe, metric: &Metric, wanted: &[(String, String)], machine: &Machine) -> Result<Case, Fault> {
    let cases = |effort| -> Vec<Case> {
        (probe.cases)(machine, effort).into_iter().filter(|case| metric.is_of(case)).collect()
    };
    let mut all = cases(Effort::Thorough);
    for (axis, value) in wanted {
        let known: Vec<Case> = all.iter().filter(|case| case.get(axis).is_some()).cloned().collect();
        let values = values(metric, &known, axis);
        if values.is_empty() {
            let axes: BTreeSet<&str> = all.iter().flat_map(Case::iter).map(|(name, _)| name.as_str()).collect();
            let right =
                if axes.is_empty() { "it has none".into() } else { format!("it has {}", several(axes.into_iter())) };
            return Err(Fault::because(format!("{axis}={value}: {} has no axis of that name; {right}", metric.id)));
        }
        all.retain(|case| is_at(metric, case, (axis, value)));
        if all.is_empty() {
            let right = several(values.iter().map(String::as_str));
            return Err(Fault::because(format!(
                "{axis}={value}: {} is not measured there; {axis} is {right}",
                metric.id
            )));
        }
    }
    let quick: Vec<Case> = cases(Effort::Quick).into_iter().filter(|case| all.contains(case)).collect();
    match (all.as_slice(), quick.as_slice()) {
        ([one], _) | (_, [one]) => Ok(one.clone()),
        ([], _) => Err(Fault::because(format!("{} has no case on this machine", metric.id))),
        _ => Err(ambiguous(metric, &all)),
    }
}

/// Which axes tell cases apart.
fn ambiguous(metric: &Metric, cases: &[Case]) -> Fault {
    let apart = metric.axes().filter_map(|axis| {
        let values = values(metric, cases, &axis.name);
        (values.len() > 1).then(|| format!("{}={}", axis.name, several(values.iter().map(String::as_str))))
    });
    let apart: Vec<String> = apart.collect();
    Fault::because(format!("{} has {} such cases; name one by {}", metric.id, cases.len(), apart.join("; by ")))
}

/// The values of an axis in these cases, each once, as they are written for people.
fn values(metric: &Metric, cases: &[Case], axis: &str) -> Vec<String> {
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
fn is_at(metric: &Metric, case: &Case, (axis, value): (&str, &str)) -> bool {
    let as_data = case.get(axis).is_some_and(|known| known.is_written(value));
    let for_people = || {
        case_pairs(metric, case)
            .iter()
            .any(|(name, known)| *name == axis && known.replace(' ', "").eq_ignore_ascii_case(value))
    };
    as_data || for_people()
}

/// The page of the book on causes.
pub const CAUSES: &str = "causes";

/// Writes it, from the texts of the causes.
pub fn write_page(out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "<!-- Made by `make docs` from the texts of the causes; edit those. -->\n")?;
    kelvin_causes::all().iter().try_for_each(|cause| {
        writeln!(out, "## {} (`{}`)\n\n{}\n", capital(cause.what), cause.id, cause.how)?;
        writeln!(out, "**What it costs.** {}\n", cause.cost)?;
        writeln!(out, "**What helps.** {}.\n", capital(cause.helps))?;
        let metrics = in_words(metrics(cause).into_iter().map(|id| format!("`{id}`")));
        writeln!(out, "**Metrics.** {metrics}\n\n**Pitfalls**\n")?;
        cause.pitfalls.iter().try_for_each(|pitfall| writeln!(out, "- {pitfall}"))?;
        writeln!(out)
    })
}

/// With a capital letter first.
fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// The metrics that a cause can touch; none stands for all.
fn metrics(cause: &Cause) -> BTreeSet<&'static str> {
    cause.touches.these().unwrap_or_default().iter().map(|touch| touch.metric.id.as_str()).collect()
}

/// The same in words.
fn in_words(metrics: impl ExactSizeIterator<Item = String>) -> String {
    if metrics.len() == 0 { "all".into() } else { metrics.collect::<Vec<_>>().join(", ") }
}

fn list_causes(out: &mut dyn Write) -> io::Result<()> {
    let width = output::width().min(100);
    for (index, cause) in kelvin_causes::all().iter().enumerate() {
        if index > 0 {
            writeln!(out)?;
        }
        write_cause(out, cause, width)?;
    }
    Ok(())
}

fn write_cause(out: &mut dyn Write, cause: &Cause, width: usize) -> io::Result<()> {
    writeln!(out, "{} ({})", cause.what, cause.id)?;
    let mut paragraph = |title: &str, text: &str| {
        let lines = wrap(&format!("{title}: {text}"), width.saturating_sub(2));
        lines.into_iter().try_for_each(|line| writeln!(out, "  {line}"))
    };
    paragraph("How", cause.how)?;
    paragraph("Cost", cause.cost)?;
    cause.pitfalls.iter().try_for_each(|pitfall| paragraph("Pitfall", pitfall))?;
    paragraph("What helps", cause.helps)?;
    paragraph("Metrics", &in_words(metrics(cause).into_iter().map(str::to_owned)))
}
