//! The text of Go's benchmarks, one line a round, for benchstat and its kin.
//!
//! benchstat makes a table of its own for each set of configuration lines, so these name only what a comparison is usually made at: no
//! id, time or kernel. What it should know of a unit, its direction, is a `Unit` line.
//!
//! Source: golang.org/design/14313-benchmark-format, pkg.go.dev/golang.org/x/perf/benchfmt and benchunit.

use std::collections::BTreeMap;
use std::io;

use kelvin_core::text::escape_invisible;
use kelvin_core::{Better, Metric};

use super::{ExportedFigure, direction, exported_figures, unit_names};
use crate::{Render, Report};

/// The rounds of a run as benchmark lines of Go.
#[derive(Clone, Copy, Debug, Default)]
pub struct Benchstat;

impl Render for Benchstat {
    fn render(&self, report: &Report<'_>, out: &mut dyn io::Write) -> io::Result<()> {
        let machine = &report.run.header.machine;
        writeln!(out, "goos: linux")?;
        writeln!(out, "goarch: {}", go_architecture(&machine.architecture))?;
        writeln!(out, "pkg: kelvin")?;
        if let Some(cpu) = machine.cpu.model_name.get() {
            writeln!(out, "cpu: {}", escape_invisible(cpu))?;
        }
        let (figures, _) = exported_figures(report);
        let units: BTreeMap<String, Better> =
            figures.iter().map(|figure| (unit_name(&figure.result.metric), figure.result.metric.better)).collect();
        for (unit, better) in units {
            match better {
                Better::Lower => writeln!(out, "Unit {unit} better=lower")?,
                Better::Higher => writeln!(out, "Unit {unit} better=higher")?,
                Better::Neither => {}
            }
        }
        for figure in &figures {
            let (name, unit) = (benchmark_name(figure), unit_name(&figure.result.metric));
            // A line for each round.
            figure.summary.round_headlines.iter().try_for_each(|value| writeln!(out, "{name} 1 {value:?} {unit}"))?;
        }
        Ok(())
    }
}

/// `BenchmarkOs.syscall.null/call=getppid`. A name goes on with a capital letter or a digit, and its last `-1` would be taken for the
/// number of CPUs that the benchmark ran on.
fn benchmark_name(figure: &ExportedFigure<'_>) -> String {
    let mut name = "Benchmark".to_owned();
    let mut id = figure.result.metric.id.chars();
    name.extend(id.next().map(|first| first.to_ascii_uppercase()));
    name.extend(id);
    for (axis, value) in figure.result.case.iter() {
        name.push_str(&format!("/{axis}={value}"));
    }
    // Fields of a line are divided by any white space.
    name = escape_invisible(&name).replace(char::is_whitespace, "_");
    if let Some((start, end)) = name.rsplit_once('-').filter(|(_, end)| is_number(end)) {
        name = format!("{start}_{end}");
    }
    name
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// The unit: benchstat shows nanoseconds in what suits them, and writes bytes with binary prefixes.
fn unit_name(metric: &Metric) -> String {
    format!("{}{}", unit_names(metric.unit).go, direction(metric))
}

/// As Go calls it.
fn go_architecture(machine: &str) -> &str {
    match machine {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        architecture => architecture,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn architectures_have_go_names() {
        assert_eq!(["x86_64", "aarch64", "riscv64"].map(go_architecture), ["amd64", "arm64", "riscv64"]);
    }

    #[test]
    fn trailing_number_is_not_a_cpu_count() {
        assert!(is_number("256") && !is_number("") && !is_number("2b"));
    }
}
