//! What a program measures, and which metric of kelvin that is, with the reason.

use kelvin_core::{Case, Machine, Metric};

/// The least part of a device on which its blocks count as places, in bytes.
pub(crate) const MIN_FILE_BYTES: u64 = 16 << 20;

/// One kind of result of a program.
#[derive(Clone, Copy, Debug)]
pub struct MetricMapping {
    /// What the program calls it, or how it was asked for.
    pub theirs: &'static str,
    /// The metric that it is; `None` if it is none.
    pub ours: Option<&'static Metric>,
    /// Why it is, or why it is none.
    pub why: &'static str,
}

impl MetricMapping {
    /// A result that is a metric of kelvin.
    pub(crate) const fn mapped(theirs: &'static str, ours: &'static Metric, why: &'static str) -> Self {
        Self { theirs, ours: Some(ours), why }
    }

    /// A result that is none.
    pub(crate) const fn unmapped(theirs: &'static str, why: &'static str) -> Self {
        Self { theirs, ours: None, why }
    }

    /// That it is not imported, and why.
    pub(crate) fn not_imported_text(&self) -> String {
        format!("not imported: {}: {}", self.theirs, self.why)
    }
}

/// The kinds of results of a program, `ROW = METRIC: theirs, why`, or `ROW = none: theirs, why` for one that is no metric of kelvin; and the
/// list of them all.
macro_rules! mappings {
    ($($row:ident = $ours:ident: $theirs:expr, $why:expr;)*) => {
        $(static $row: MetricMapping = MetricMapping { theirs: $theirs, ours: mappings!(@ $ours), why: $why };)*

        /// All of it.
        pub(crate) static MAPPINGS: &[MetricMapping] = &[$($row),*];
    };
    (@ none) => { None };
    (@ $metric:ident) => { Some(&$metric) };
}
pub(crate) use mappings;

/// A value that is one of a metric.
#[derive(Clone, Debug)]
pub(crate) struct ImportedValue {
    pub metric: &'static Metric,
    pub case: Case,
    /// In the metric's unit.
    pub value: f64,
}

/// What was found in a file.
#[derive(Clone, Debug, Default)]
pub(crate) struct ParsedResults {
    /// As the program says; only what is a version.
    pub version: String,
    /// Milliseconds since 1970.
    pub measured_at_ms: Option<i64>,
    pub machine: Machine,
    pub values: Vec<ImportedValue>,
    /// What is not imported, or not known of what is, each once.
    pub not_imported: Vec<String>,
}

impl ParsedResults {
    /// Keeps a value: the first of a metric and case. One that is no finite number above 0 is none.
    pub fn add_value(&mut self, row: &MetricMapping, case: Case, value: f64) {
        let Some(metric) = row.ours else { return self.add_not_imported(row) };
        if !(value.is_finite() && value > 0.0) {
            return self.push_note(format!("not imported: {}: its value is {value}", row.theirs));
        }
        if self.values.iter().any(|known| known.metric.id == metric.id && known.case == case) {
            return self.push_note(format!("not imported: {}: only the first of several is kept", row.theirs));
        }
        self.values.push(ImportedValue { metric, case, value });
    }

    /// Says that a result is not imported.
    pub fn add_not_imported(&mut self, row: &MetricMapping) {
        self.push_note(row.not_imported_text());
    }

    /// Says that the value of a result cannot be read.
    pub fn add_unreadable(&mut self, row: &MetricMapping) {
        self.push_note(format!("not imported: {}: its value cannot be read", row.theirs));
    }

    /// Says what the file does not say of the values that are kept.
    pub fn add_note(&mut self, words: &str) {
        self.push_note(words.to_owned());
    }

    /// Says that a result is not imported because of an option; a text of a file that is no name of one is not shown.
    pub fn add_unknown_option(&mut self, row: &MetricMapping, option: &str) {
        let is_name =
            option.len() <= 40 && option.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
        let name = if is_name { format!(" ({option})") } else { String::new() };
        self.push_note(format!("not imported: {}{name}: {}", row.theirs, row.why));
    }

    fn push_note(&mut self, words: String) {
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
