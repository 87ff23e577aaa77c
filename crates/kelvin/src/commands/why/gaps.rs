//! `kelvin why --gaps`: every figure of a stored run that is much worse than predicted, one after the other.

use std::ffi::OsStr;
use std::io::{self, Write};

use kelvin_analysis::wording::explanation::explanations_summary;
use kelvin_core::{Explanation, Run, json, units};
use kelvin_report::why::WhyTerminal;

use super::explain_figure;
use crate::cause_experiment::ExperimentLimits;
use crate::cli::{Budget, WhyArgs, WhyFormat};
use crate::cli_error::CmdResult;
use crate::gaps::find_gaps;
use crate::output::{self, Outlet};
use crate::placement::LocalMachine;
use crate::stores::load_run;

/// The run, unless asked otherwise.
const DEFAULT_RUN: &str = "last";

/// Explains each gap of at least this many times.
pub fn why_gaps(args: &WhyArgs, times: f64) -> CmdResult {
    let format = args.output.format();
    if matches!(format, WhyFormat::Html | WhyFormat::Svg) {
        bail!("--format: html and svg are of one figure: with --gaps, use terminal or json");
    }
    let outlet = Outlet::find(args.output.path())?;
    let run = load_run(args.run.as_deref().unwrap_or(OsStr::new(DEFAULT_RUN)), &args.store)?;
    let local = LocalMachine::read(None)?;
    if run.header.machine.identity != local.machine.identity {
        let reason = "of another machine or kernel, which cannot be measured here; `kelvin runs list` lists those to name by --run";
        bail!("--gaps: the run {} is {reason}", run.header.id);
    }
    let mut gaps = find_gaps(&run);
    gaps.retain(|gap| gap.times_worse() >= times);
    let limits = args.limits(local.start);
    // The default is the time of each figure.
    let seconds_per_gap = match args.options.budget {
        Budget::Default => limits.seconds,
        _ => limits.seconds / gaps.len().max(1) as f64,
    };
    output::eprint_line(start_text(&run, times, gaps.len(), seconds_per_gap));
    let is_streamed = format == WhyFormat::Terminal && args.output.path().is_none();
    let (mut explanations, mut is_failed) = (Vec::new(), false);
    for gap in &gaps {
        let limits = ExperimentLimits { seconds: seconds_per_gap, ..limits };
        match explain_figure(args, local.clone(), (gap.probe, gap.metric, &gap.case), limits) {
            Ok((explanation, _)) => {
                if is_streamed {
                    output::print(|out| write_explanation(&explanation, explanations.is_empty(), out))?;
                }
                explanations.push(explanation);
            }
            Err(fault) => {
                notice!("{fault}");
                is_failed = true;
            }
        }
        if kelvin_sys::stop_signals::stop_signal().is_some() {
            is_failed = true;
            break;
        }
    }
    let write = |out: &mut dyn Write| {
        if format == WhyFormat::Json {
            return writeln!(out, "{}", json::to_string_pretty(&explanations)?);
        }
        if !is_streamed {
            explanations
                .iter()
                .enumerate()
                .try_for_each(|(index, explanation)| write_explanation(explanation, index == 0, out))?;
        }
        explanations_summary(&explanations).map_or(Ok(()), |text| writeln!(out, "\n{text}"))
    };
    outlet.write_output(format == WhyFormat::Terminal, write)?;
    Ok(!is_failed)
}

/// One of several explanations.
fn write_explanation(explanation: &Explanation, is_first: bool, out: &mut dyn Write) -> io::Result<()> {
    if !is_first {
        writeln!(out)?;
    }
    WhyTerminal { width: output::width() }.render(explanation, out)
}

/// What is about to be done, and how long it takes.
fn start_text(run: &Run, times: f64, gaps: usize, seconds_per_gap: f64) -> String {
    let id = &run.header.id;
    let criterion = format!("{} times worse than predicted or more", units::trimmed_decimal(times, 2));
    let figures = match gaps {
        0 => return format!("kelvin: no figure of the run {id} whose causes can be tried is {criterion}"),
        1 => format!("one figure of the run {id} is {criterion}"),
        count => format!("{count} figures of the run {id} are {criterion}"),
    };
    match seconds_per_gap * gaps as f64 {
        0.0 => format!("kelvin: {figures}"),
        seconds => format!("kelvin: {figures}: about {}", units::seconds(seconds)),
    }
}
