//! What a program measures, and which metric of kelvin that is, with the reason.

use kelvin_core::catalogue::{file, net, os};
use kelvin_core::{Case, Machine, Metric};

use crate::foreign::Tool;

/// The least part of a device on which its blocks count as places, in bytes.
pub(crate) const MIN_FILE_BYTES: u64 = 16 << 20;

/// The results: program, key, what the program calls it, and the reason, by tabs.
const RESULTS: &str = include_str!("../../data/foreign_results.txt");

/// The results that are metrics of kelvin: program, key, and the metric.
static METRICS: [(Tool, &str, &Metric); 13] = [
    (Tool::Lmbench, "Simple syscall", &os::SYSCALL_NULL),
    (Tool::Lmbench, "Simple read", &os::SYSCALL_READ),
    (Tool::Lmbench, "Simple write", &os::SYSCALL_WRITE),
    (Tool::Lmbench, "Signal handler installation", &os::SIGNAL_INSTALL),
    (Tool::Fio, "rate", &file::DEPTH_RATE),
    (Tool::Fio, "latency", &file::DEPTH_LATENCY),
    (Tool::Fio, "depth_1_latency", &file::DEVICE_MEAN_LATENCY),
    (Tool::Fio, "depth_64_rate", &file::DEVICE_REQUESTS),
    (Tool::Fio, "sequential_read", &file::DEVICE_READ),
    (Tool::Fio, "sequential_write", &file::DEVICE_WRITE),
    (Tool::Iperf3, "tcp_stream", &net::PEER_BANDWIDTH),
    (Tool::Iperf3, "maybe_limited", &net::PEER_BANDWIDTH_PERHAPS_LIMITED),
    (Tool::Sysbench, "random_reads", &file::DEPTH_RATE),
];

/// One kind of result of a program.
#[derive(Clone, Copy, Debug)]
pub struct MetricMapping {
    /// How its reader names it; of lmbench, how its line begins.
    pub(crate) key: &'static str,
    /// What the program calls it, or how it was asked for.
    pub foreign_name: &'static str,
    /// The metric that it is; `None` if it is none.
    pub metric: Option<&'static Metric>,
    /// Why it is, or why it is none.
    pub reason: &'static str,
}

impl MetricMapping {
    /// The kinds of results of a program.
    pub(crate) fn of_tool(tool: Tool) -> impl Iterator<Item = Self> {
        let rows = RESULTS.lines().map(|line| line.split('\t').collect::<Vec<_>>());
        rows.filter_map(move |row| {
            let [program, key, foreign_name, reason] = row[..] else { return None };
            (program == tool.name()).then(|| {
                let metric = METRICS.iter().find(|(row_tool, row_key, _)| (*row_tool, *row_key) == (tool, key));
                Self { key, foreign_name, metric: metric.map(|(.., metric)| *metric), reason }
            })
        })
    }

    /// The kind of result of a program with this key, which is in the table.
    #[cfg(test)]
    pub(crate) fn find(tool: Tool, key: &str) -> Self {
        Self::of_tool(tool).find(|row| row.key == key).unwrap_or_else(|| unreachable!("{tool:?} {key} has no row"))
    }

    /// That it is not imported, and why.
    pub(crate) fn not_imported_text(&self) -> String {
        format!("not imported: {}: {}", self.foreign_name, self.reason)
    }
}

/// A value that is one of a metric.
#[derive(Clone, Debug)]
pub(crate) struct ImportedValue {
    pub metric: &'static Metric,
    pub case: Case,
    /// In the metric's unit.
    pub value: f64,
}

/// What was found in a file.
#[derive(Clone, Debug)]
pub(crate) struct ParsedResults {
    pub tool: Tool,
    /// The kinds of results of the program.
    pub rows: Vec<MetricMapping>,
    /// As the program reports it; only what is a version.
    pub version: String,
    /// Milliseconds since 1970.
    pub measured_at_ms: Option<i64>,
    pub machine: Machine,
    pub values: Vec<ImportedValue>,
    /// What is not imported, or not known of what is, each once.
    pub not_imported: Vec<String>,
}

impl ParsedResults {
    /// Nothing yet, by the version of a program that this text begins with.
    pub fn new(tool: Tool, version: &str) -> Self {
        Self {
            tool,
            rows: MetricMapping::of_tool(tool).collect(),
            version: version_prefix(version),
            measured_at_ms: None,
            machine: Machine::default(),
            values: Vec::new(),
            not_imported: Vec::new(),
        }
    }

    /// The kind of result with this key, which is in the table.
    fn row(&self, key: &str) -> MetricMapping {
        let row = self.rows.iter().find(|row| row.key == key);
        *row.unwrap_or_else(|| unreachable!("{:?} {key} has no row", self.tool))
    }

    /// Keeps a value: the first of a metric and case. One that cannot be read, or is no finite number above 0, is none.
    pub fn add_value(&mut self, key: &str, case: Case, value: impl Into<Option<f64>>) {
        let row = self.row(key);
        let problem = match (row.metric, value.into()) {
            (None, _) => row.reason.to_owned(),
            (_, None) => "its value cannot be read".to_owned(),
            (_, Some(value)) if !(value.is_finite() && value > 0.0) => format!("its value is {value}"),
            (Some(metric), Some(value)) => {
                if self.values.iter().all(|other| other.metric.id != metric.id || other.case != case) {
                    return self.values.push(ImportedValue { metric, case, value });
                }
                "only the first of several is kept".to_owned()
            }
        };
        self.add_note(format!("not imported: {}: {problem}", row.foreign_name));
    }

    /// Notes that a result is not imported.
    pub fn add_not_imported(&mut self, key: &str) {
        self.add_note(self.row(key).not_imported_text());
    }

    /// Notes that a result is not imported because of an option; a text of a file that is no name of one is not shown.
    pub fn add_unknown_option(&mut self, key: &str, option: &str) {
        let row = self.row(key);
        let is_name =
            option.len() <= 40 && option.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
        let name = if is_name { format!(" ({option})") } else { String::new() };
        self.add_note(format!("not imported: {}{name}: {}", row.foreign_name, row.reason));
    }

    /// Notes what is not imported, or what the file omits about the values that are kept.
    pub fn add_note(&mut self, words: impl Into<String>) {
        let words = words.into();
        if !self.not_imported.contains(&words) {
            self.not_imported.push(words);
        }
    }
}

/// The beginning of a text that can be a version, at most so long; other texts of a file are not kept.
pub(crate) fn version_prefix(text: &str) -> String {
    const MAX_VERSION_CHARS: usize = 40;
    text.chars().take_while(|c| c.is_ascii_alphanumeric() || ".-_+".contains(*c)).take(MAX_VERSION_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The words of a reader that may be keys: those in lower case, without its tests.
    fn words(source: &str) -> BTreeSet<&str> {
        let (code, _) = source.split_once("#[cfg(test)]").unwrap();
        let code = code.lines().filter(|line| !line.trim_start().starts_with("//"));
        let is_word = |text: &&str| {
            let is_key_byte = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
            !text.is_empty() && text.bytes().all(is_key_byte)
        };
        code.flat_map(|line| line.split('"').skip(1).step_by(2)).filter(is_word).collect()
    }

    #[test]
    fn every_key_of_a_reader_has_a_row() {
        let fio = "randread kmgtp size new_group true read b bs readwrite 0 sync directory i iodepth libaio pvsync2 blocksize direct \
                   io_uring filesize pvsync rw numjobs ioengine write ib filename psync 1 4k";
        for (tool, source, other_words) in [
            (Tool::Fio, include_str!("fio.rs"), fio),
            (Tool::Iperf3, include_str!("iperf3.rs"), "start end iperf3 error"),
            (Tool::Sysbench, include_str!("sysbench.rs"), ""),
        ] {
            let keys = MetricMapping::of_tool(tool).map(|row| row.key);
            let valid_words: BTreeSet<&str> = keys.chain(other_words.split_whitespace()).collect();
            assert_eq!(words(source), valid_words, "{tool:?}");
        }
    }

    #[test]
    fn every_row_and_every_metric_is_of_a_program() {
        let rows = RESULTS.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).count();
        assert_eq!(Tool::ALL.into_iter().flat_map(MetricMapping::of_tool).count(), rows);
        for (tool, key, metric) in METRICS {
            assert_eq!(MetricMapping::find(tool, key).metric.map(|mapped| mapped.id), Some(metric.id));
        }
    }

    #[test]
    fn longer_prefixes_are_matched_first() {
        let rows: Vec<_> = MetricMapping::of_tool(Tool::Lmbench).collect();
        for (index, line) in rows.iter().enumerate() {
            let shadowed = rows[index + 1..].iter().find(|other_row| other_row.key.starts_with(line.key));
            assert!(shadowed.is_none(), "{} hides {shadowed:?}", line.key);
        }
    }
}
