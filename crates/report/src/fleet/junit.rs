//! A report of a fleet as JUnit's XML: a case for each host, and a failure where it is out or not accepted.

use std::io;

use kelvin_fleet::{FleetGroup, FleetReport};

use crate::escape::Markup;
use crate::junit::{TestStatus, failed, skipped, test_case, write_suite};

/// Writes a report of a fleet as JUnit's XML.
///
/// # Errors
/// Those of the writer.
pub fn write_junit(report: &FleetReport, out: &mut dyn io::Write) -> io::Result<()> {
    let mut cases: Vec<(TestStatus, Markup)> = Vec::new();
    for group in &report.groups {
        match report.like {
            Some(_) => cases.extend(group.acceptance.iter().map(|host| {
                let reasons = host.reasons.join("; ");
                let failure = (!host.is_accepted).then_some(reasons.as_str());
                host_case(&group.name, &host.label, failure)
            })),
            None => cases.extend(host_cases(group)),
        }
    }
    for group in &report.not_compared {
        let case = |host: &String| test_case(skipped(&group.reason), (&group.name, host));
        cases.extend(group.hosts.iter().map(case));
    }
    write_suite("kelvin fleet", cases, out)
}

fn host_cases(group: &FleetGroup) -> impl Iterator<Item = (TestStatus, Markup)> {
    group.deviations.hosts.iter().map(|label| {
        let outlier = group.outliers.iter().find(|outlier| outlier.label == *label);
        host_case(&group.name, label, outlier.map(|outlier| outlier.line.as_str()))
    })
}

fn host_case(group: &str, host: &str, failure: Option<&str>) -> (TestStatus, Markup) {
    let outcome = failure.map_or_else(|| (TestStatus::Passed, Markup::new()), |message| failed(message, ""));
    test_case(outcome, (group, host))
}
