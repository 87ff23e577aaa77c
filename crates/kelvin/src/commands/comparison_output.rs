//! How a comparison is judged by `--fail-on` or `--policy`, and shown.

use std::io::{self, Read, Write};
use std::path::Path;

use kelvin_analysis::Gate;
use kelvin_analysis::wording::compare::{gate_finding, gate_resolved_issue, gate_undetectable};
use kelvin_core::{ComparedRung, Comparison, GateResult, is_dotted_prefix, json};
use kelvin_harness::UnknownName;
use kelvin_report::compare::{CompareTerminal, write_junit, write_markdown, write_page};
use kelvin_sys::fs::open_to_read;

use crate::cli::{CompareFormat, CompareOutputArgs};
use crate::cli_error::{CliError, Context};
use crate::output::{self, Outlet};
use crate::redact::without_private;

/// Largest policy that is read.
const MAX_POLICY_BYTES: u64 = 1 << 20;

/// How a comparison is shown, checked before anything is compared.
pub struct ComparisonOutput<'a> {
    args: &'a CompareOutputArgs,
    gate: Option<Gate>,
    outlet: Outlet,
}

impl<'a> ComparisonOutput<'a> {
    /// Reads the gate, checks that the flags go together, and finds where it goes.
    ///
    /// # Errors
    /// An invalid policy, flags that conflict, or a file that cannot be written.
    pub fn new(args: &'a CompareOutputArgs) -> Result<Self, CliError> {
        let gate = read_gate(args)?;
        let format = args.output.format();
        if args.full && format != CompareFormat::Terminal {
            bail!("--full: every format but that of the terminal is in full: leave it out");
        }
        if format == CompareFormat::Junit && gate.is_none() {
            bail!(
                "--format junit: needs a gate, whose misses are its failures: give --fail-on, as in worse:5%, or --policy"
            );
        }
        Ok(Self { args, gate, outlet: Outlet::find(args.output.path())? })
    }

    /// Whether it goes to a file or another program, and not to this terminal.
    pub fn is_redirected(&self) -> bool {
        self.args.output.path().is_some() || self.args.output.format() != CompareFormat::Terminal
    }

    /// Judges a comparison and shows it, with its ladder in a page and in JSON, without what is private unless that is kept.
    /// `full_command` is the command that shows all of it. Returns it as it was judged.
    ///
    /// # Errors
    /// What keeps it from being written.
    pub fn show(
        self,
        mut comparison: Comparison,
        ladder: impl Fn(&Comparison) -> Vec<ComparedRung>,
        (full_command, keeps_private): (&str, bool),
    ) -> Result<Comparison, CliError> {
        let format = self.args.output.format();
        if matches!(format, CompareFormat::Html | CompareFormat::Json) {
            comparison.ladder = ladder(&comparison);
        }
        let today = jiff::Timestamp::now().strftime("%Y-%m-%d").to_string();
        comparison.gate = self.gate.map(|gate| gate.judge(&comparison, &today));
        if !keeps_private {
            // A reason may quote a path of the user's.
            comparison = without_private(&comparison)?;
        }
        self.outlet.write_output(format == CompareFormat::Terminal, |out: &mut dyn Write| match format {
            CompareFormat::Terminal => {
                CompareTerminal { width: output::width(), show_all: self.args.full, full_command }
                    .render(&comparison, out)
            }
            CompareFormat::Html => write_page(&comparison, out),
            CompareFormat::Md => write_markdown(&comparison, out),
            CompareFormat::Junit => write_junit(&comparison, out),
            CompareFormat::Json => writeln!(out, "{}", json::to_string_pretty(&comparison)?),
        })?;
        Ok(comparison)
    }
}

/// Reports what misses the gate, what is known, and what could not have missed it; returns whether nothing misses it.
pub fn report_gate(args: &CompareOutputArgs, comparison: &Comparison) -> bool {
    let Some(result @ GateResult { failures, known: known_issues, resolved, .. }) = &comparison.gate else {
        return true;
    };
    let flag = if args.policy.is_some() { "--policy" } else { "--fail-on" };
    let report = |text: &str| notice!("{flag}: {text}");
    failures.iter().for_each(|finding| report(&gate_finding(finding)));
    known_issues.iter().for_each(|finding| report(&format!("not counted: {}", gate_finding(finding))));
    resolved.iter().for_each(|issue| report(&gate_resolved_issue(issue)));
    gate_undetectable(result, comparison).iter().for_each(|text| report(text));
    failures.is_empty()
}

/// The gate that was asked for, if one was.
fn read_gate(args: &CompareOutputArgs) -> Result<Option<Gate>, CliError> {
    let Some(path) = &args.policy else { return Ok(args.fail_on.map(Gate::from_share)) };
    let option = format!("--policy {}", path.display());
    let text = read_policy(path).context(&option)?;
    let gate = Gate::from_policy(&text).context(&option)?;
    let probes = kelvin_probes::all();
    for name in gate.names() {
        if !probes.iter().flat_map(|probe| probe.metrics).any(|metric| is_dotted_prefix(name, &metric.id)) {
            return Err(CliError::new(&option, UnknownName::new(name, &probes)));
        }
    }
    Ok(Some(gate))
}

fn read_policy(policy: &Path) -> io::Result<String> {
    let mut text = String::new();
    if open_to_read(policy)?.take(MAX_POLICY_BYTES + 1).read_to_string(&mut text)? as u64 > MAX_POLICY_BYTES {
        return Err(io::Error::other("more than 1 MiB is no policy"));
    }
    Ok(text)
}
