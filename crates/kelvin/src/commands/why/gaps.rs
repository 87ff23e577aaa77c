//! `kelvin why --gaps`: every figure of a stored run that is much worse than predicted, one after the other.

use std::ffi::OsStr;
use std::io::{self, Write};
use std::process::ExitCode;

use kelvin_analysis::words::why::in_all;
use kelvin_model::{Explanation, Run, json, units};
use kelvin_report::why::Why;

use super::explained;
use crate::cli::{WhyArgs, WhyFormat};
use crate::commands::report::run_of;
use crate::fault::{Done, Fault, WITH_FAILURES};
use crate::gaps::gaps_of;
use crate::inquiry::Pace;
use crate::output::{self, Outlet};
use crate::place::Here;

/// The run, unless asked otherwise.
const LAST: &str = "last";

/// Explains each gap of at least so many times.
pub fn why(args: &WhyArgs, times: f64) -> Done {
    let format = args.format();
    if matches!(format, WhyFormat::Html | WhyFormat::Svg) {
        return Err(Fault::new("--format", "html and svg are of one figure: with --gaps, terminal or json is right"));
    }
    let outlet = Outlet::find(args.output.as_deref())?;
    let run = run_of(args.of.as_deref().unwrap_or(OsStr::new(LAST)), &args.store)?;
    let here = Here::read()?;
    if run.outline.machine.identity != here.machine.identity {
        let why = "of another machine or kernel, which cannot be measured here; `kelvin runs list` lists those to name by --of";
        return Err(Fault::new("--gaps", format!("the run {} is {why}", run.outline.id)));
    }
    let mut gaps = gaps_of(&run);
    gaps.retain(|gap| gap.times_worse() >= times);
    let pace = args.pace();
    let pace =
        Pace { seconds: args.measure.budget.map_or(pace.seconds, |_| pace.seconds / gaps.len().max(1) as f64), ..pace };
    output::remark(beginning(&run, times, gaps.len(), &pace));
    let is_shown_at_once = format == WhyFormat::Terminal && args.output.is_none();
    let (mut explanations, mut failed) = (Vec::new(), false);
    for gap in &gaps {
        match explained(args, here.clone(), (gap.probe, gap.metric, &gap.case), pace) {
            Ok((explanation, _)) => {
                if is_shown_at_once {
                    output::print(|out| paragraph(&explanation, explanations.is_empty(), out))?;
                }
                explanations.push(explanation);
            }
            Err(fault) => {
                output::remark(format_args!("kelvin: {fault}"));
                failed = true;
            }
        }
        if kelvin_sys::interrupt::requested().is_some() {
            failed = true;
            break;
        }
    }
    let write = |out: &mut dyn Write| {
        if format == WhyFormat::Json {
            return writeln!(out, "{}", json::pretty(&explanations)?);
        }
        if !is_shown_at_once {
            explanations.iter().enumerate().try_for_each(|(index, one)| paragraph(one, index == 0, out))?;
        }
        in_all(&explanations).map_or(Ok(()), |text| writeln!(out, "\n{text}"))
    };
    outlet.deliver(format == WhyFormat::Terminal, write)?;
    Ok(if failed { ExitCode::from(WITH_FAILURES) } else { ExitCode::SUCCESS })
}

/// One of several explanations.
fn paragraph(explanation: &Explanation, is_first: bool, out: &mut dyn Write) -> io::Result<()> {
    if !is_first {
        writeln!(out)?;
    }
    Why { width: output::width() }.render(explanation, out)
}

/// What is about to be done, and how long it takes.
fn beginning(run: &Run, times: f64, gaps: usize, pace: &Pace) -> String {
    let id = &run.outline.id;
    let worse = format!("{} times worse than predicted or more", units::trimmed(times, 2));
    let figures = match gaps {
        0 => return format!("kelvin: no figure of the run {id} whose causes can be tried is {worse}"),
        1 => format!("one figure of the run {id} is {worse}"),
        more => format!("{more} figures of the run {id} are {worse}"),
    };
    match pace.seconds * gaps as f64 {
        0.0 => format!("kelvin: {figures}"),
        seconds => format!("kelvin: {figures}: about {}", units::seconds(seconds)),
    }
}
