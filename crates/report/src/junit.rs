//! A suite of cases as JUnit's XML, which services that run tests show.

use std::io;

use crate::escape::{Markup, html};

/// What became of a case.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum TestStatus {
    Passed,
    Failed,
    Skipped,
}

/// A case of a class, with its status.
pub(crate) fn test_case((status, content): (TestStatus, Markup), (class, name): (&str, &str)) -> (TestStatus, Markup) {
    (status, html!("<testcase classname=\"{}\" name=\"{}\">{}</testcase>\n", class, name, content))
}

/// A case that was skipped for a reason, without its name.
pub(crate) fn skipped(reason: &str) -> (TestStatus, Markup) {
    (TestStatus::Skipped, html!("<skipped message=\"{}\"/>", reason))
}

/// A case that failed, with a message and further text, without its name.
pub(crate) fn failed(message: &str, text: &str) -> (TestStatus, Markup) {
    (TestStatus::Failed, html!("<failure message=\"{}\">{}</failure>", message, text))
}

/// Writes the suite of this name.
///
/// # Errors
/// Those of the writer.
pub(crate) fn write_suite(name: &str, cases: Vec<(TestStatus, Markup)>, out: &mut dyn io::Write) -> io::Result<()> {
    let count = |status: TestStatus| cases.iter().filter(|case| case.0 == status).count();
    let (failure_count, skipped_count) = (count(TestStatus::Failed), count(TestStatus::Skipped));
    let counts = html!("failures=\"{}\" errors=\"0\" skipped=\"{}\"", failure_count, skipped_count);
    let head = html!("<testsuite name=\"{}\" tests=\"{}\" {}>\n", name, cases.len(), counts);
    let suite = html!("{}{}</testsuite>\n", head, cases.into_iter().map(|case| case.1).collect::<Markup>());
    let page = html!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n{}</testsuites>\n", suite);
    out.write_all(page.as_str().as_bytes())
}
