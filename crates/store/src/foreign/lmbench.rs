//! lmbench 3: the text of its results, one line for each figure.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use kelvin_core::catalogue::os::NullCall;
use kelvin_core::{Case, Fact, Name};

use crate::foreign::Tool;
use crate::foreign::json::from_line;
use crate::foreign::mapping::{MetricMapping, ParsedResults, version_prefix};

/// That several processes ran at once (`SYNC_MAX`).
const PARALLEL_COPIES_NOTE: &str = "not imported: results of several processes at once (SYNC_MAX): each is disturbed by the others; \
                                    kelvin's is alone";

/// What its results begin with.
pub(crate) const SIGNATURE: &str = "[lmbench3.";

/// Whether it begins as lmbench's results do.
pub(crate) fn is_signed(text: &str) -> bool {
    text.starts_with(SIGNATURE) && has_version(text)
}

fn has_version(text: &str) -> bool {
    text.contains("\n[LMBENCH_VER") || text.contains("\n[LMBENCH VERSION: ")
}

pub(crate) fn read(text: &str) -> Result<ParsedResults, String> {
    let text = from_line(text, SIGNATURE)?;
    if !has_version(text) {
        return Err("the line [LMBENCH_VER: ...] is missing".into());
    }
    let copies = header_value(text, "SYNC_MAX").ok_or("the line [SYNC_MAX: ...] is missing: how many ran at once")?;
    let version = header_value(text, "LMBENCH VERSION").or(header_value(text, "LMBENCH_VER")).unwrap_or_default();
    let mut results = ParsedResults::new(Tool::Lmbench, version);
    results.measured_at_ms = text.lines().find_map(parse_date);
    add_machine(text, &mut results);
    if copies != "1" {
        results.add_note(PARALLEL_COPIES_NOTE);
        return Ok(results);
    }
    for line in text.lines().filter(|line| !line.starts_with('[')) {
        let Some(&MetricMapping { key, metric, .. }) = results.rows.iter().find(|row| line.starts_with(row.key)) else {
            continue;
        };
        if metric.is_none() {
            results.add_not_imported(key);
            continue;
        }
        let number =
            line[key.len()..].strip_prefix(": ").and_then(|rest| rest.trim_end().strip_suffix(" microseconds"));
        let microseconds = number.and_then(|number| number.parse::<f64>().ok());
        let case = if key == "Simple syscall" { Case::new().with_word(NullCall::LibraryGetppid) } else { Case::new() };
        results.add_value(key, case, microseconds.map(|value| value * 1e3));
    }
    Ok(results)
}

/// The value of a line `[NAME: value]`.
fn header_value<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix('[')?.strip_prefix(name)?.strip_prefix(": ")?.strip_suffix(']'))
}

/// Its facts of the machine: architecture, kernel, and the frequency that its own loop shows. No name of the host.
fn add_machine(text: &str, results: &mut ParsedResults) {
    const FACT_SOURCE: &str = "lmbench";
    let header = |name| header_value(text, name).map(version_prefix).filter(|value| !value.is_empty());
    if let Some(architecture) = header("MACHINE").as_deref().and_then(architecture) {
        results.machine.architecture = architecture;
    }
    if let Some(release) = header("RELEASE") {
        results.machine.kernel.release = Fact::known(release, FACT_SOURCE);
    }
    let mhz = header_value(text, "MHZ").and_then(|line| line.split(' ').next()?.parse::<f64>().ok());
    if let Some(hertz) = mhz.map(|mhz| mhz * 1e6).filter(|hertz| hertz.is_finite() && *hertz > 0.0) {
        results.machine.cpu.measured_hz = Fact::known(hertz, FACT_SOURCE);
    }
}

/// The architectures that kelvin knows by name.
pub(crate) fn architecture(text: &str) -> Option<Name> {
    ["x86_64", "aarch64"].into_iter().find(|name| *name == text).map(Name::new)
}

/// Milliseconds since 1970 of a line as date(1) prints it in UTC: `[Wed Nov 25 13:46:40 UTC 2026]`. Other zones have names of several
/// meanings.
fn parse_date(line: &str) -> Option<i64> {
    let (_weekday, date) = line.strip_prefix('[')?.split_once(' ')?;
    let date = DateTime::strptime("%b %e %H:%M:%S UTC %Y]", date).ok()?;
    Some(date.to_zoned(TimeZone::UTC).ok()?.timestamp().as_millisecond())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_utc_dates_are_parsed() {
        assert_eq!(parse_date("[Wed Nov 25 13:46:40 UTC 2026]"), Some(1_795_614_400_000));
        assert_eq!(parse_date("[Wed Nov  5 13:46:40 UTC 2026]"), Some(1_795_614_400_000 - 20 * 86_400_000));
        for line in ["[Wed Nov 25 13:46:40 CET 2026]", "[Wed Nov 25 13:46:40 UTC x]", "[net: lo]", "Wed"] {
            assert_eq!(parse_date(line), None, "{line}");
        }
    }
}
