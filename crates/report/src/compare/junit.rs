//! A comparison as JUnit's XML, which services that run tests show: a case for each figure, and a failure where it misses the gate.

use std::collections::HashMap;
use std::io;

use kelvin_analysis::wording::compare::{
    ComparisonRow, change_word, comparison_row, figure_name, gate_finding, not_compared_by_reason,
};
use kelvin_core::{ChangeVerdict, ComparedFigure, Comparison, GateFinding, GateResult};

use crate::escape::{Markup, html};
use crate::junit::{TestStatus, failed, skipped, test_case, write_suite};

/// Writes a comparison as JUnit's XML. Without a gate nothing fails.
///
/// # Errors
/// Those of the writer.
pub fn write_junit(comparison: &Comparison, out: &mut dyn io::Write) -> io::Result<()> {
    let gate = GateFindings::from_gated(comparison.gate.as_ref());
    let cases = comparison.figures.iter().map(|figure| gate.case(figure, comparison));
    let cases: Vec<(TestStatus, Markup)> = cases.chain(gate.not_compared(comparison)).collect();
    let name = format!("kelvin compare {} {}", comparison.base.name, comparison.other.name);
    write_suite(&name, cases, out)
}

/// What the gate has found, by the names of figures.
struct GateFindings<'a> {
    failures: HashMap<&'a str, &'a GateFinding>,
    known_failures: HashMap<&'a str, &'a GateFinding>,
}

impl<'a> GateFindings<'a> {
    fn from_gated(gated: Option<&'a GateResult>) -> Self {
        let by_name =
            |findings: &'a [GateFinding]| findings.iter().map(|finding| (finding.figure.as_str(), finding)).collect();
        let [failures, known_failures] =
            gated.map_or([&[][..], &[]], |gated| [&gated.failures, &gated.known]).map(by_name);
        Self { failures, known_failures }
    }

    fn case(&self, figure: &ComparedFigure, comparison: &Comparison) -> (TestStatus, Markup) {
        let (row, name) = (comparison_row(figure, comparison), figure_name(figure));
        let cause = if row.cause.is_empty() { String::new() } else { format!("; {}", row.cause) };
        let ComparisonRow { base, other, ratio, interval, needs, .. } = &row;
        let verdict = change_word(&figure.verdict);
        let text = format!("{verdict}: {other} against {base}, ratio {ratio}, 95 % {interval}{cause}");
        let [gate_failure, known_failure] = [&self.failures, &self.known_failures].map(|findings| findings.get(&*name));
        let outcome = match (gate_failure, known_failure, &figure.verdict) {
            (Some(finding), ..) => failure(finding, &text),
            (_, Some(finding), _) => skipped(&gate_finding(finding)),
            (.., ChangeVerdict::NotKnown(_)) => skipped(&format!("not known: {needs}")),
            _ => (TestStatus::Passed, html!("<system-out>{}</system-out>", text)),
        };
        test_case(outcome, (&figure.metric.id, &name))
    }

    fn not_compared(&self, comparison: &Comparison) -> Vec<(TestStatus, Markup)> {
        let case = |figure: &String, reason: &String| {
            let metric = figure.split(' ').next().unwrap_or_default();
            let gate_failure = self.failures.get(figure.as_str());
            let outcome = gate_failure.map_or_else(|| skipped(reason), |finding| failure(finding, reason));
            test_case(outcome, (metric, figure))
        };
        let groups = not_compared_by_reason(comparison);
        groups.iter().flat_map(|(reason, figures)| figures.iter().map(move |figure| case(figure, reason))).collect()
    }
}

fn failure(finding: &GateFinding, text: &str) -> (TestStatus, Markup) {
    failed(&gate_finding(finding), text)
}
