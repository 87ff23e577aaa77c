//! The gate of a comparison: `--fail-on` or `--policy`.

use std::io::{self, Read};
use std::path::Path;
use std::process::ExitCode;

use kelvin_analysis::Gate;
use kelvin_analysis::wording::compare::{gate_finding, gate_resolved_issue, gate_undetectable};
use kelvin_core::{Comparison, GateResult, is_dotted_prefix};
use kelvin_harness::UnknownName;
use kelvin_sys::fs::open_to_read;

use crate::cli::{CompareFormat, CompareOutputArgs, GateArgs};
use crate::cli_error::{CliError, Context, exit_code};
use crate::output;

/// Largest policy that is read.
const MAX_POLICY_BYTES: u64 = 1 << 20;

/// The gate that was asked for, if one was.
#[derive(Debug)]
pub struct GateOption {
    /// The flag, as messages begin.
    flag: &'static str,
    gate: Option<Gate>,
}

impl GateOption {
    /// Reads it.
    ///
    /// # Errors
    /// A policy that cannot be read, or is none.
    pub fn from_args(args: &GateArgs) -> Result<Self, CliError> {
        let Some(path) = &args.policy else {
            return Ok(Self { flag: "--fail-on", gate: args.fail_on.map(|worse| Gate::from_share(worse.0)) });
        };
        let at = || format!("--policy {}", path.display());
        let text = read_policy(path).context(at())?;
        let gate = Gate::from_policy(&text).context(at())?;
        for name in gate.names() {
            check_metric_name(name).context(at())?;
        }
        Ok(Self { flag: "--policy", gate: Some(gate) })
    }

    /// Whether a format goes with the other flags.
    ///
    /// # Errors
    /// A flag that says nothing there, or is missing.
    pub fn check_format(&self, shown: &CompareOutputArgs) -> Result<(), CliError> {
        let format = shown.format();
        if shown.full && format != CompareFormat::Terminal {
            return Err(CliError::new("--full", "every format but that of the terminal is in full: leave it out"));
        }
        if format == CompareFormat::Junit && self.gate.is_none() {
            return Err(CliError::new(
                "--format junit",
                "needs a gate, whose misses are its failures: give --fail-on, as in worse:5%, or --policy",
            ));
        }
        Ok(())
    }

    /// Judges a comparison, which then has what was found.
    pub fn judge(&self, comparison: &mut Comparison) {
        let today = jiff::Timestamp::now().strftime("%Y-%m-%d").to_string();
        comparison.gated = self.gate.as_ref().map(|gate| gate.judge(comparison, &today));
    }

    /// Says what misses the gate, what is known, and what could not have missed it.
    pub fn report(&self, comparison: &Comparison) -> ExitCode {
        let Some(gated @ GateResult { missed, known, not_seen, .. }) = &comparison.gated else {
            return ExitCode::SUCCESS;
        };
        let say = |text: &str| output::eprint_line(format_args!("kelvin: {}: {text}", self.flag));
        missed.iter().for_each(|one| say(&gate_finding(one)));
        known.iter().for_each(|one| say(&format!("not counted: {}", gate_finding(one))));
        not_seen.iter().for_each(|issue| say(&gate_resolved_issue(issue)));
        gate_undetectable(gated, comparison).iter().for_each(|text| say(text));
        exit_code(missed.is_empty())
    }
}

fn read_policy(policy: &Path) -> io::Result<String> {
    let mut text = String::new();
    if open_to_read(policy)?.take(MAX_POLICY_BYTES + 1).read_to_string(&mut text)? as u64 > MAX_POLICY_BYTES {
        return Err(io::Error::other("more than 1 MiB is no policy"));
    }
    Ok(text)
}

/// Whether a name leads to a metric of today.
fn check_metric_name(name: &str) -> Result<(), UnknownName> {
    let probes = kelvin_probes::all();
    match probes.iter().flat_map(|probe| probe.metrics).any(|metric| is_dotted_prefix(name, &metric.id)) {
        true => Ok(()),
        false => Err(UnknownName::new(name, &probes)),
    }
}
