//! The gate of a comparison: `--fail-on` or `--policy`.

use std::io::{self, Read};
use std::path::Path;
use std::process::ExitCode;

use kelvin_analysis::Gate;
use kelvin_analysis::words::compare::{found_by_gate, not_seen_by_gate, unseen_by_gate};
use kelvin_harness::UnknownName;
use kelvin_model::{Comparison, Gated, leads};
use kelvin_sys::fs::open_to_read;

use crate::cli::{CompareFormat, GateArgs, ShownArgs};
use crate::fault::{Fault, WITH_FAILURES};
use crate::output;

/// Largest policy that is read.
const MOST_BYTES: u64 = 1 << 20;

/// The gate that was asked for, if one was.
#[derive(Debug)]
pub struct AskedGate {
    /// The flag, as messages begin.
    flag: &'static str,
    gate: Option<Gate>,
}

impl AskedGate {
    /// Reads it.
    ///
    /// # Errors
    /// A policy that cannot be read, or is none.
    pub fn of(args: &GateArgs) -> Result<Self, Fault> {
        let Some(path) = &args.policy else {
            return Ok(Self { flag: "--fail-on", gate: args.fail_on.map(|worse| Gate::worse_by(worse.0)) });
        };
        let at = || format!("--policy {}", path.display());
        let text = read(path).map_err(|error| Fault::new(at(), error))?;
        let gate = Gate::of_policy(&text).map_err(|why| Fault::new(at(), why))?;
        for name in gate.names() {
            check(name).map_err(|unknown| Fault::new(at(), unknown))?;
        }
        Ok(Self { flag: "--policy", gate: Some(gate) })
    }

    /// Whether a format goes with the other flags.
    ///
    /// # Errors
    /// A flag that says nothing there, or is missing.
    pub fn check_format(&self, shown: &ShownArgs) -> Result<(), Fault> {
        let format = shown.format();
        if shown.full && format != CompareFormat::Terminal {
            return Err(Fault::new("--full", "every format but that of the terminal is in full: leave it out"));
        }
        if format == CompareFormat::Junit && self.gate.is_none() {
            return Err(Fault::new(
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
    pub fn tell(&self, comparison: &Comparison) -> ExitCode {
        let Some(gated @ Gated { missed, known, not_seen, .. }) = &comparison.gated else { return ExitCode::SUCCESS };
        let say = |text: &str| output::remark(format_args!("kelvin: {}: {text}", self.flag));
        missed.iter().for_each(|one| say(&found_by_gate(one)));
        known.iter().for_each(|one| say(&format!("not counted: {}", found_by_gate(one))));
        not_seen.iter().for_each(|issue| say(&not_seen_by_gate(issue)));
        unseen_by_gate(gated, comparison).iter().for_each(|text| say(text));
        if missed.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(WITH_FAILURES) }
    }
}

fn read(policy: &Path) -> io::Result<String> {
    let mut text = String::new();
    if open_to_read(policy)?.take(MOST_BYTES + 1).read_to_string(&mut text)? as u64 > MOST_BYTES {
        return Err(io::Error::other("more than 1 MiB is no policy"));
    }
    Ok(text)
}

/// Whether a name leads to a metric of today.
fn check(name: &str) -> Result<(), UnknownName> {
    let probes = kelvin_probes::all();
    match probes.iter().flat_map(|probe| probe.metrics).any(|metric| leads(name, &metric.id)) {
        true => Ok(()),
        false => Err(UnknownName::among(name, &probes)),
    }
}
