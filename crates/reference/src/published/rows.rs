//! The files whose rows are metrics of kelvin: their shape, and how a row becomes reference values.

use kelvin_core::{Case, Name, Reference, ReferenceValue, Unit};
use serde::Deserialize;

use super::row_mapping::{RowMapping, row_mapping, unmatched_row};

/// A file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RowFile {
    machine: PublishedMachine,
    metric: Vec<PublishedRow>,
    #[serde(default)]
    finding: Vec<PublishedFinding>,
    #[serde(default)]
    hypothesis: Vec<Hypothesis>,
    #[serde(default)]
    answer: Vec<PublishedAnswer>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PublishedMachine {
    id: String,
    title: String,
    cpu: Option<String>,
    frequency_ghz: Option<f64>,
    cores: Option<u32>,
    l1d_bytes: Option<u64>,
    l2_bytes: Option<u64>,
    l3_bytes: Option<u64>,
    memory: Option<String>,
    disk: Option<String>,
    nic: Option<String>,
    peer: Option<String>,
    os: Option<String>,
    timing: Option<String>,
    page_bytes: Option<u64>,
    buffer_bytes: Option<u64>,
    trials: Option<u64>,
    server: Option<String>,
    client: Option<String>,
    files: Option<u64>,
    file_bytes: Option<u64>,
}

/// One metric, at one point or along an axis.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PublishedRow {
    id: String,
    /// What `x` is, in words.
    by: Option<String>,
    /// The points on the axis.
    x: Option<Vec<u64>>,
    value: Option<RowFigures>,
    cycles: Option<RowFigures>,
    /// Lowest and highest, where no single value was published.
    cycles_range: Option<[f64; 2]>,
    /// In the unit of `value`, or in cycles where there is no `value`.
    std: Option<RowFigures>,
    std_cycles: Option<f64>,
    predicted: Option<RowFigures>,
    predicted_cycles: Option<RowFigures>,
    peak: Option<f64>,
    n: Option<u64>,
    unit: Option<PublishedUnit>,
    block_bytes: Option<u64>,
    blocks: Option<f64>,
    bytes: Option<f64>,
    seconds: Option<f64>,
    spans: Option<String>,
    note: Option<String>,
}

/// A figure, or one for each point of the axis.
#[derive(Deserialize)]
#[serde(untagged)]
enum RowFigures {
    One(f64),
    Each(Vec<f64>),
}

impl RowFigures {
    fn figure_at(&self, point: usize) -> f64 {
        match self {
            Self::One(figure) => *figure,
            Self::Each(figures) => figures[point],
        }
    }
}

#[derive(Clone, Copy, Deserialize)]
enum PublishedUnit {
    #[serde(rename = "B")]
    Bytes,
    #[serde(rename = "B/s")]
    BytesPerSecond,
    #[serde(rename = "calls/s")]
    PerSecond,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PublishedFinding {
    text: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Hypothesis {
    text: String,
    outcome: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PublishedAnswer {
    file: String,
    digest: String,
    note: String,
}

impl RowFile {
    /// The reference machine that the file describes.
    pub(super) fn into_reference(self) -> Reference {
        let cycle = self.machine.frequency_hz().map(|hertz| 1e9 / hertz);
        let values = self.metric.into_iter().flat_map(|row| row.values(&self.machine.id, cycle)).collect();
        let findings = self.finding.into_iter().map(|finding| finding.text);
        let hypotheses =
            self.hypothesis.into_iter().map(|h| format!("Hypothesis: {}. Outcome: {}.", h.text, h.outcome));
        let answers = self.answer.into_iter().map(|a| format!("XOR of {}: {}; {}", a.file, a.digest, a.note));
        self.machine.into_reference(values, findings.chain(hypotheses).chain(answers).collect())
    }
}

/// A study that published tables instead of rows: the parts that a report shows.
#[derive(Deserialize)]
pub(super) struct TableFile {
    machine: PublishedMachine,
    finding: Vec<PublishedFinding>,
}

impl TableFile {
    /// The reference machine, without values.
    pub(super) fn into_reference(self) -> Reference {
        self.machine.into_reference(Vec::new(), self.finding.into_iter().map(|finding| finding.text).collect())
    }
}

impl PublishedMachine {
    fn frequency_hz(&self) -> Option<f64> {
        self.frequency_ghz.map(|ghz| ghz * 1e9)
    }

    fn into_reference(self, values: Vec<ReferenceValue>, findings: Vec<String>) -> Reference {
        Reference {
            id: Name::intern(&self.id),
            title: self.title.clone(),
            frequency_hz: self.frequency_hz(),
            machine: self.fact_lines(),
            values,
            findings,
        }
    }

    /// Its facts, for people.
    fn fact_lines(self) -> Vec<(String, String)> {
        let kib = |bytes: u64| format!("{} KiB", bytes / 1024);
        let bytes = |bytes: u64| format!("{bytes} B");
        let files = self.files.zip(self.file_bytes).map(|(files, bytes_each)| format!("{files} of {bytes_each} B"));
        let lines = [
            ("Processor", self.cpu),
            ("Frequency", self.frequency_ghz.map(|ghz| format!("{ghz} GHz"))),
            ("Cores", self.cores.map(|cores| cores.to_string())),
            ("L1 data cache", self.l1d_bytes.map(kib)),
            ("L2 cache", self.l2_bytes.map(kib)),
            ("L3 cache", self.l3_bytes.map(kib)),
            ("Memory", self.memory),
            ("Disk", self.disk),
            ("Network interface", self.nic),
            ("Peer", self.peer),
            ("Operating system", self.os),
            ("Timing", self.timing),
            ("Page", self.page_bytes.map(bytes)),
            ("Buffer of read/write", self.buffer_bytes.map(bytes)),
            ("Trials", self.trials.map(|trials| trials.to_string())),
            ("Server", self.server),
            ("Client", self.client),
            ("Files", files),
        ];
        lines.into_iter().filter_map(|(label, text)| Some((label.to_owned(), text?))).collect()
    }
}

impl PublishedRow {
    /// One value for each point of the row; `cycle` is the length of a core cycle in nanoseconds.
    fn values(&self, study: &str, cycle: Option<f64>) -> Vec<ReferenceValue> {
        let points = self.x.as_ref().map_or(1, Vec::len);
        (0..points).map(|point| self.value_at(study, point, cycle)).collect()
    }

    fn value_at(&self, study: &str, point: usize, cycle: Option<f64>) -> ReferenceValue {
        let x = self.x.as_ref().map(|x| x[point]);
        let published = self.published(point, cycle);
        match (unmatched_row(study, &self.id), row_mapping(study, &self.id)) {
            // A value without a counterpart keeps the name of its row.
            (Some(unmatched), _) => {
                let range = join_notes([published.range.as_deref(), Some(unmatched.reason)]);
                ReferenceValue { range, ..published }
            }
            (None, Some(place)) => with_mapping(published, place, x),
            (None, None) => panic!("no place is known for the published {} at {x:?}", self.id),
        }
    }

    /// The published figures, under the name of the row.
    fn published(&self, point: usize, cycle: Option<f64>) -> ReferenceValue {
        let to_time = |cycles: f64| cycles * cycle.expect("cycles are published with the frequency of the core");
        let figure = |figures: &Option<RowFigures>| figures.as_ref().map(|figures| figures.figure_at(point));
        let cycles = figure(&self.cycles);
        let midpoint = self.cycles_range.map(|[low, high]| (low + high) / 2.0);
        let value = figure(&self.value).or_else(|| cycles.or(midpoint).map(to_time));
        let std = figure(&self.std).map(|std| if self.value.is_some() { std } else { to_time(std) });
        ReferenceValue {
            metric: Name::intern(&self.id),
            case: Case::new(),
            value: value.unwrap_or_else(|| panic!("{} was published without a value", self.id)),
            cycles,
            std: std.or_else(|| self.std_cycles.map(to_time)),
            n: self.n,
            predicted: figure(&self.predicted).or_else(|| figure(&self.predicted_cycles).map(to_time)),
            unit: self.unit(),
            range: self.spans.clone(),
            note: self.note(),
            other_values: self.other_figures(point),
        }
    }

    /// Times are in nanoseconds unless the row states otherwise.
    fn unit(&self) -> Unit {
        match self.unit {
            None => Unit::Nanoseconds,
            Some(PublishedUnit::Bytes) => Unit::Bytes,
            Some(PublishedUnit::BytesPerSecond) => Unit::BytesPerSecond,
            Some(PublishedUnit::PerSecond) => Unit::PerSecond,
        }
    }

    fn note(&self) -> Option<String> {
        let axis_note = self.by.as_ref().map(|axis| format!("by {axis}"));
        join_notes([axis_note.as_deref(), self.note.as_deref()])
    }

    /// Published figures without their own field.
    fn other_figures(&self, point: usize) -> Vec<(String, f64)> {
        let std_in_cycles = self.value.is_none().then_some(self.std.as_ref()).flatten().map(|std| std.figure_at(point));
        let figures = [
            ("peak, bytes per second", self.peak),
            ("lowest, cycles", self.cycles_range.map(|[low, _]| low)),
            ("highest, cycles", self.cycles_range.map(|[_, high]| high)),
            ("standard deviation, cycles", self.std_cycles.or(std_in_cycles)),
            ("predicted, cycles", self.predicted_cycles.as_ref().map(|predicted| predicted.figure_at(point))),
            ("at", self.x.as_ref().map(|x| x[point] as f64)),
            ("bytes of a block", self.block_bytes.map(|bytes| bytes as f64)),
            ("blocks", self.blocks),
            ("bytes", self.bytes),
            ("seconds", self.seconds),
        ];
        figures.into_iter().filter_map(|(label, figure)| Some((label.to_owned(), figure?))).collect()
    }
}

/// A published value where kelvin measures the same.
fn with_mapping(mut published: ReferenceValue, place: &RowMapping, x: Option<u64>) -> ReferenceValue {
    if place.is_spanned {
        published.note = join_notes([published.range.take().as_deref(), published.note.as_deref()]);
    }
    if place.is_rate {
        published.other_values.push(("per second".into(), published.value));
        (published.value, published.unit) = (1e9 / published.value, Unit::Nanoseconds);
    }
    ReferenceValue {
        metric: place.metric.id,
        case: place.case(x),
        range: join_notes([published.range.as_deref(), place.spans]),
        ..published
    }
}

fn join_notes(parts: [Option<&str>; 2]) -> Option<String> {
    let parts: Vec<&str> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}
