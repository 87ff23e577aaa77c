//! The line protocol of InfluxDB, which Telegraf reads too: one line for each metric and case, at the time when its run began.
//!
//! A metric is a measurement, because its unit and its axes are its own. Whatever distinguishes series is a tag; every tag has an index, so the
//! id of the run is a field.
//!
//! Sources: docs.influxdata.com/influxdb/v2/reference/syntax/line-protocol; the decoder of github.com/influxdata/line-protocol.

use std::collections::BTreeMap;
use std::io;

use jiff::Timestamp;
use kelvin_core::text::escape_invisible;

use super::{ExportedFigure, exported_figures};
use crate::text::data_name;
use crate::{Render, Report};

/// The figures of a run as points of InfluxDB.
#[derive(Clone, Copy, Debug, Default)]
pub struct Influx;

impl Render for Influx {
    fn render(&self, report: &Report<'_>, out: &mut dyn io::Write) -> io::Result<()> {
        let started = nanoseconds_since_1970(&report.run.header.started)?;
        for figure in exported_figures(report).0 {
            let measurement = escape(&format!("kelvin.{}", figure.result.metric.id), &MEASUREMENT_ENDS);
            let pairs = tags(report, &figure).into_iter().filter(|(_, value)| !value.is_empty());
            let tags: String = pairs
                .map(|(key, value)| format!(",{}={}", escape(&key, &TAG_ENDS), escape(&value, &TAG_ENDS)))
                .collect();
            writeln!(out, "{measurement}{tags} {} {started}", fields(report, &figure).join(","))?;
        }
        Ok(())
    }
}

/// The time of all points. Without one a server would take the time at which it got them.
fn nanoseconds_since_1970(started: &str) -> io::Result<i64> {
    let time = started.parse::<Timestamp>().ok();
    time.and_then(|time| i64::try_from(time.as_nanosecond()).ok()).ok_or_else(|| {
        let started = escape_invisible(started);
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("the run began at {started}, a time that InfluxDB cannot hold"),
        )
    })
}

/// The tags of a point, by name: InfluxDB asks for this order.
fn tags(report: &Report<'_>, figure: &ExportedFigure<'_>) -> BTreeMap<String, String> {
    let axes = figure.result.case.iter().map(|(axis, value)| (axis_tag(&axis), value.to_string()));
    let of_run = report.run.labels.tags.iter().map(|(name, value)| (format!("{RUN_TAG}{name}"), value.clone()));
    let own = [
        ("machine", report.run.header.machine.identity.as_str()),
        ("unit", figure.result.metric.unit.name()),
        ("better", figure.result.metric.better.name()),
    ];
    axes.chain(of_run).chain(own.map(|(key, value)| (key.to_owned(), value.to_owned()))).collect()
}

/// Names that an axis cannot have as a tag: other tags and all fields, which share one name space from InfluxDB 3 on; `time`, the column of
/// the timestamp; and `host`, by which Telegraf names its own host.
const RESERVED_NAMES: [&str; 12] = [
    "machine",
    "unit",
    "better",
    "headline",
    "lower",
    "upper",
    "interval",
    "predicted",
    "rounds",
    "run",
    "time",
    "host",
];
/// The beginning of the tags that a user gave to the run, and that of an axis with a name that is taken.
const RUN_TAG: &str = "tag_";
const AXIS_TAG: &str = "axis_";

/// The tag of an axis. Names that begin with an underscore are InfluxDB's own.
fn axis_tag(axis: &str) -> String {
    let is_taken =
        RESERVED_NAMES.contains(&axis) || ["_", RUN_TAG, AXIS_TAG].iter().any(|start| axis.starts_with(start));
    if is_taken { format!("{AXIS_TAG}{axis}") } else { axis.to_owned() }
}

/// The fields of a point. A number that is not finite has no form in this protocol, and no field.
fn fields(report: &Report<'_>, figure: &ExportedFigure<'_>) -> Vec<String> {
    let interval = figure.summary.interval;
    let numbers = [
        ("headline", Some(figure.summary.headline)),
        ("lower", interval.map(|interval| interval.lower)),
        ("upper", interval.map(|interval| interval.upper)),
        ("predicted", figure.result.prediction.as_ref().map(|prediction| prediction.value)),
    ];
    let numbers = numbers.into_iter().filter_map(|(key, value)| Some((key, value.filter(|value| value.is_finite())?)));
    let numbers = numbers.map(|(key, value)| format!("{key}={value:?}"));
    let kind = interval.map(|interval| format!("interval={}", quoted(&data_name(&interval.kind))));
    let rounds = format!("rounds={}i", figure.summary.rounds);
    numbers.chain(kind).chain([rounds, format!("run={}", quoted(&report.run.header.id))]).collect()
}

/// What ends a measurement, and what ends the key of a tag or its value. Before anything else a backslash is one.
const MEASUREMENT_ENDS: [char; 2] = [',', ' '];
const TAG_ENDS: [char; 3] = [',', ' ', '='];

/// A text outside of quotation marks, such as the value of a tag. A backslash escapes what follows, and readers differ about one that follows
/// another or comes last: it is written as a slash.
fn escape(text: &str, special: &[char]) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in escape_invisible(text).replace('\\', "/").chars() {
        escaped.extend(special.contains(&c).then_some('\\'));
        escaped.push(c);
    }
    escaped
}

/// The value of a field that is a text.
fn quoted(text: &str) -> String {
    format!("\"{}\"", escape_invisible(text).replace('\\', r"\\").replace('"', r#"\""#))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_characters_are_escaped() {
        assert_eq!(escape("64 KiB, a=b\\", &TAG_ENDS), r"64\ KiB\,\ a\=b/");
        assert_eq!(escape("64 KiB, a=b\\", &MEASUREMENT_ENDS), r"64\ KiB\,\ a=b/");
        assert_eq!(escape("a\nb\t\"c\"'#", &TAG_ENDS), "a/nb/t\"c\"'#");
        assert_eq!(quoted("a\"b\\c\nd e,f=g"), r#""a\"b\\c\\nd e,f=g""#);
    }

    #[test]
    fn axes_have_distinct_tags() {
        assert_eq!(["call", "bytes", "tags"].map(axis_tag), ["call", "bytes", "tags"]);
        let taken = ["host", "time", "rounds", "_field", "tag_by", "axis_host"];
        let tags = ["axis_host", "axis_time", "axis_rounds", "axis__field", "axis_tag_by", "axis_axis_host"];
        assert_eq!(taken.map(axis_tag), tags);
    }

    #[test]
    fn times_are_whole_nanoseconds() {
        let time = |started| nanoseconds_since_1970(started).map_err(|error| error.to_string());
        assert_eq!(time("2026-11-25T10:00:00.123456789Z"), Ok(1_795_600_800_123_456_789));
        assert_eq!(time("1969-12-31T23:59:59Z"), Ok(-1_000_000_000));
        let refused = |started| Err(format!("the run began at {started}, a time that InfluxDB cannot hold"));
        assert_eq!(time("yesterday"), refused("yesterday"));
        assert_eq!(time("9999-01-01T00:00:00Z"), refused("9999-01-01T00:00:00Z"));
    }
}
