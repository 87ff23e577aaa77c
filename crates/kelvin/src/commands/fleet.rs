//! `kelvin fleet`: the runs of many hosts.

mod builder;
mod files;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::Write;

use kelvin_core::json;
use kelvin_fleet::{FleetReport, FleetRequest, compare_fleet};
use kelvin_report::fleet::{FleetTerminal, write_csv, write_junit, write_markdown, write_openmetrics, write_page};

use self::builder::FleetBuilder;
use crate::cli::{FleetArgs, FleetCommand, FleetFormat, FleetReportArgs, StoreArgs};
use crate::cli_error::{CliError, CmdResult};
use crate::output::{self, Outlet};
use crate::redact::without_private;

/// `kelvin fleet`.
pub fn fleet(args: &FleetArgs) -> CmdResult {
    match &args.command {
        FleetCommand::Report(report) => fleet_report(report, &args.store),
    }
}

fn fleet_report(args: &FleetReportArgs, store: &StoreArgs) -> CmdResult {
    let format = args.output.format();
    if args.full && format != FleetFormat::Terminal {
        bail!("--full: every format but that of the terminal is in full: leave it out");
    }
    let outlet = Outlet::find(args.output.path())?;
    let page = args.html.as_deref().map(|path| Outlet::find(Some(path))).transpose()?;
    let report = compare(args, store)?;
    if let Some(page) = page {
        page.write_output(false, |out| write_page(&report, out))?;
    }
    outlet.write_output(format == FleetFormat::Terminal, |out: &mut dyn Write| match format {
        FleetFormat::Terminal => {
            let words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
            let full_command = format!("kelvin {} --full", words.collect::<Vec<String>>().join(" "));
            FleetTerminal { width: output::width(), show_all: args.full, full_command: &full_command }
                .render(&report, out)
        }
        FleetFormat::Html => write_page(&report, out),
        FleetFormat::Md => write_markdown(&report, out),
        FleetFormat::Json => writeln!(out, "{}", json::to_string_pretty(&report)?),
        FleetFormat::Csv => write_csv(&report, out),
        FleetFormat::Junit => write_junit(&report, out),
        FleetFormat::Openmetrics => write_openmetrics(&report, out),
    })?;
    Ok(args.fail_on.is_none() || !misses_gate(&report))
}

/// Whether a host is out, or was to be accepted and is not.
fn misses_gate(report: &FleetReport) -> bool {
    match report.like {
        Some(_) => {
            let is_rejected = report.groups.iter().flat_map(|group| &group.acceptance).any(|host| !host.is_accepted);
            is_rejected || !report.not_compared.is_empty()
        }
        None => report.groups.iter().any(|group| !group.outliers.is_empty()),
    }
}

/// Reads the runs and compares their hosts.
fn compare(args: &FleetReportArgs, store: &StoreArgs) -> Result<FleetReport, CliError> {
    let mut builder = FleetBuilder::new(store, args.with_private);
    let tested = builder.read(&args.selections)?;
    let reference = if args.like.is_empty() { BTreeSet::new() } else { builder.read(&args.like)? };
    let fleet = builder.build((&tested, &reference), args.mode.as_deref())?;
    let request = FleetRequest {
        by: args.by.clone(),
        threshold: args.threshold,
        reference: (!args.like.is_empty()).then_some(fleet.is_reference),
    };
    if let Some(tag) = &args.by
        && fleet.input.hosts.iter().all(|host| !host.tags.contains_key(tag))
    {
        bail!("--by {tag}: no run has this tag: `kelvin runs tag` adds it");
    }
    let mut report = compare_fleet(&fleet.input, &request);
    let names = |names: &[OsString]| names.iter().map(|name| name.to_string_lossy().into_owned()).collect();
    report.selection = names(&args.selections);
    report.like = (!args.like.is_empty()).then(|| names(&args.like));
    report.mode = fleet.mode;
    report.notes = fleet.notes;
    if args.with_private {
        return Ok(report);
    }
    // What it draws is not in JSON, and has labels and numbers only.
    let deviations: Vec<_> = report.groups.iter_mut().map(|group| std::mem::take(&mut group.deviations)).collect();
    let mut report = without_private(&report)?;
    report.groups.iter_mut().zip(deviations).for_each(|(group, deviations)| group.deviations = deviations);
    Ok(report)
}
