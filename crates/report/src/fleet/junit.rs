//! A report of a fleet as JUnit's XML: a case for each host, and a failure where it is out or not accepted.

use std::io;

use kelvin_fleet::{FleetGroup, FleetReport};

use crate::escape::{Markup, html};

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
        let skipped = html!("<skipped message=\"{}\"/>", group.reason);
        let case = |host: &String| (TestStatus::Skipped, testcase(&group.name, host, &skipped));
        cases.extend(group.hosts.iter().map(case));
    }
    let count = |status: TestStatus| cases.iter().filter(|case| case.0 == status).count();
    let (failures, skipped) = (count(TestStatus::Failed), count(TestStatus::Skipped));
    let counts = html!("tests=\"{}\" failures=\"{}\" errors=\"0\" skipped=\"{}\"", cases.len(), failures, skipped);
    let cases: Markup = cases.into_iter().map(|case| case.1).collect();
    let suite = html!("<testsuite name=\"kelvin fleet\" {}>\n{}</testsuite>\n", counts, cases);
    let page = html!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n{}</testsuites>\n", suite);
    out.write_all(page.as_str().as_bytes())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum TestStatus {
    Passed,
    Failed,
    Skipped,
}

fn host_cases(group: &FleetGroup) -> impl Iterator<Item = (TestStatus, Markup)> {
    group.deviations.hosts.iter().map(|label| {
        let outlier = group.outliers.iter().find(|outlier| outlier.label == *label);
        host_case(&group.name, label, outlier.map(|outlier| outlier.line.as_str()))
    })
}

fn host_case(group: &str, host: &str, failure: Option<&str>) -> (TestStatus, Markup) {
    match failure {
        Some(message) => {
            let content = html!("<failure message=\"{}\"></failure>", message);
            (TestStatus::Failed, testcase(group, host, &content))
        }
        None => (TestStatus::Passed, testcase(group, host, &Markup::new())),
    }
}

fn testcase(group: &str, host: &str, content: &Markup) -> Markup {
    html!("<testcase classname=\"{}\" name=\"{}\">{}</testcase>\n", group, host, content)
}
