//! The files whose rows are metrics of kelvin: their shape, and how a row becomes reference values.

use kelvin_model::{Name, Reference, ReferenceValue, Unit};
use serde::Deserialize;

use super::places::{Place, place};

/// A file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    machine: Machine,
    metric: Vec<Row>,
    #[serde(default)]
    finding: Vec<Finding>,
    #[serde(default)]
    hypothesis: Vec<Hypothesis>,
    #[serde(default)]
    answer: Vec<Answer>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Machine {
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
}

/// One metric, at one point or along an axis.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    id: String,
    /// What `x` is, in words.
    by: Option<String>,
    /// The points on the axis.
    x: Option<Vec<u64>>,
    value: Option<Figures>,
    cycles: Option<Figures>,
    /// Lowest and highest, where no single value was published.
    cycles_range: Option<[f64; 2]>,
    /// In the unit of `value`, or in cycles where there is no `value`.
    std: Option<Figures>,
    std_cycles: Option<f64>,
    predicted: Option<Figures>,
    predicted_cycles: Option<Figures>,
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
enum Figures {
    One(f64),
    Each(Vec<f64>),
}

impl Figures {
    fn at(&self, point: usize) -> f64 {
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
pub(super) struct Finding {
    pub(super) text: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Hypothesis {
    text: String,
    outcome: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Answer {
    file: String,
    digest: String,
    note: String,
}

impl File {
    /// The reference machine that the file describes.
    pub(super) fn reference(self) -> Reference {
        let study = self.machine.id.clone();
        let frequency_hz = self.machine.frequency_ghz.map(|ghz| ghz * 1e9);
        let cycle = frequency_hz.map(|hertz| 1e9 / hertz);
        let findings = self.finding.into_iter().map(|finding| finding.text);
        let hypotheses =
            self.hypothesis.into_iter().map(|h| format!("Hypothesis: {}. Outcome: {}.", h.text, h.outcome));
        let answers = self.answer.into_iter().map(|a| format!("XOR of {}: {}; {}", a.file, a.digest, a.note));
        Reference {
            id: Name::intern(&study),
            title: self.machine.title.clone(),
            machine: self.machine.lines(),
            frequency_hz,
            values: self.metric.into_iter().flat_map(|row| row.values(&study, cycle)).collect(),
            findings: findings.chain(hypotheses).chain(answers).collect(),
        }
    }
}

impl Machine {
    /// What is known of it, for people.
    fn lines(self) -> Vec<(String, String)> {
        let kib = |bytes: u64| format!("{} KiB", bytes / 1024);
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
        ];
        lines.into_iter().filter_map(|(label, text)| Some((label.to_owned(), text?))).collect()
    }
}

impl Row {
    /// One value for each point of the row; `cycle` is the length of a core cycle in nanoseconds.
    fn values(&self, study: &str, cycle: Option<f64>) -> Vec<ReferenceValue> {
        let place =
            place(study, &self.id).unwrap_or_else(|| panic!("no metric is known for the published {}", self.id));
        let points = self.x.as_ref().map_or(1, Vec::len);
        (0..points).map(|point| self.one(place, point, cycle)).collect()
    }

    fn one(&self, place: &Place, point: usize, cycle: Option<f64>) -> ReferenceValue {
        let in_time = |cycles: f64| cycles * cycle.expect("cycles are published with the frequency of the core");
        let at = |figures: &Option<Figures>| figures.as_ref().map(|figures| figures.at(point));
        let cycles = at(&self.cycles);
        let midpoint = self.cycles_range.map(|[low, high]| (low + high) / 2.0);
        let value = at(&self.value).or_else(|| cycles.or(midpoint).map(in_time));
        let std = at(&self.std).map(|std| if self.value.is_some() { std } else { in_time(std) });
        ReferenceValue {
            metric: Name::new(place.metric),
            case: place.case(self.x.as_ref().map(|x| x[point]), self.block_bytes),
            value: value.unwrap_or_else(|| panic!("{} was published without a value", self.id)),
            cycles,
            std: std.or_else(|| self.std_cycles.map(in_time)),
            n: self.n,
            predicted: at(&self.predicted).or_else(|| at(&self.predicted_cycles).map(in_time)),
            unit: self.unit(),
            spans: self.spans(place),
            note: self.note(),
            also: self.also(point),
        }
    }

    /// Times are in nanoseconds unless the row says otherwise.
    fn unit(&self) -> Unit {
        match self.unit {
            None => Unit::Nanoseconds,
            Some(PublishedUnit::Bytes) => Unit::Bytes,
            Some(PublishedUnit::BytesPerSecond) => Unit::BytesPerSecond,
            Some(PublishedUnit::PerSecond) => Unit::PerSecond,
        }
    }

    /// What the publication says that a value spans, and what its place says.
    fn spans(&self, place: &Place) -> Option<String> {
        joined([self.spans.as_deref(), place.spans])
    }

    fn note(&self) -> Option<String> {
        let by = self.by.as_ref().map(|by| format!("by {by}"));
        joined([by.as_deref(), self.note.as_deref()])
    }

    /// Published figures that have no field of their own.
    fn also(&self, point: usize) -> Vec<(String, f64)> {
        let std_in_cycles = self.value.is_none().then_some(self.std.as_ref()).flatten().map(|std| std.at(point));
        let figures = [
            ("peak, bytes per second", self.peak),
            ("lowest, cycles", self.cycles_range.map(|[low, _]| low)),
            ("highest, cycles", self.cycles_range.map(|[_, high]| high)),
            ("standard deviation, cycles", self.std_cycles.or(std_in_cycles)),
            ("predicted, cycles", self.predicted_cycles.as_ref().map(|predicted| predicted.at(point))),
            ("blocks", self.blocks),
            ("bytes", self.bytes),
            ("seconds", self.seconds),
        ];
        figures.into_iter().filter_map(|(label, figure)| Some((label.to_owned(), figure?))).collect()
    }
}

fn joined(parts: [Option<&str>; 2]) -> Option<String> {
    let parts: Vec<&str> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}
