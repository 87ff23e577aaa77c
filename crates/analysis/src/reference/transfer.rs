//! The study of file transfer between two endpoints, 2020: its data sets and all its cells.

use std::collections::BTreeMap;

use kelvin_model::{Name, Reference};
use serde::{Deserialize, Deserializer, Serialize, de::Error};

use super::rows::Finding;

/// What the study published.
#[derive(Clone, Debug, PartialEq)]
pub struct TransferTables {
    /// What its times cover, and how the methods moved data.
    pub timing: String,
    /// Size of a page in bytes.
    pub page_bytes: u64,
    /// Bytes that read/write moved in one call.
    pub buffer_bytes: u64,
    /// Trials behind each mean and deviation.
    pub trials: u64,
    /// The data sets, smallest first.
    pub data_sets: Vec<DataSet>,
    /// Every published cell.
    pub cells: Vec<TransferCell>,
    /// What its authors found, and what their tables tell.
    pub findings: Vec<String>,
    /// What the page tables said of the mapped pages.
    pub page_descriptors: PageDescriptors,
}

/// A set of files that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataSet {
    /// Which.
    pub size: DataSetSize,
    /// Number of files.
    pub files: u64,
    /// Bytes of all files together.
    pub bytes: u64,
}

/// Names of the data sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DataSetSize {
    /// Ten small files.
    Small,
    /// One file of 12 MB.
    One,
    /// Two files of 364 MB together.
    Large,
}

/// One cell of a published table: a design and its outcome over the trials.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TransferCell {
    /// One connection for each file, or one for all.
    pub connection: Connection,
    /// Pages of the mapped window.
    pub window_pages: u64,
    /// How sockets wait.
    pub mode: TransferMode,
    /// What was sent.
    pub data_set: DataSetSize,
    /// The sender's method.
    pub sender: Method,
    /// The receiver's method.
    pub receiver: Method,
    /// Mean time in milliseconds.
    pub mean_ms: f64,
    /// Standard deviation of one trial in milliseconds.
    pub std_ms: f64,
    /// Published rate in KiB per millisecond.
    pub kib_per_ms: f64,
}

impl TransferCell {
    /// The published rate in bytes per second.
    pub fn bytes_per_second(&self) -> f64 {
        self.kib_per_ms * 1024.0 * 1000.0
    }
}

/// How files share connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Connection {
    /// A connection for each file.
    PerFile,
    /// One connection for all.
    Persistent,
}

/// How sockets wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TransferMode {
    /// Calls wait.
    Blocking,
    /// Calls return at once, and a signal tells when to go on.
    Asynchronous,
}

/// How an endpoint moves data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Method {
    /// read and write with a buffer.
    #[serde(rename = "rw")]
    ReadWrite,
    /// A mapped window.
    #[serde(rename = "mmap")]
    Map,
}

/// Page-table entries that were printed for mapped pages: the flag bits, without the frame number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PageDescriptors {
    /// Of a sender's page: mapped read-only, never written.
    #[serde(deserialize_with = "hexadecimal")]
    pub sender_flags: u64,
    /// Of a receiver's page: writable, and written.
    #[serde(deserialize_with = "hexadecimal")]
    pub receiver_flags: u64,
}

fn hexadecimal<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let text = String::deserialize(deserializer)?;
    let digits = text.strip_prefix("0x").ok_or_else(|| D::Error::custom("a hexadecimal number begins with 0x"))?;
    u64::from_str_radix(digits, 16).map_err(D::Error::custom)
}

/// The file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    machine: Machine,
    datasets: BTreeMap<DataSetSize, Files>,
    table: Vec<Table>,
    finding: Vec<Finding>,
    page_descriptor: PageDescriptors,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Machine {
    id: String,
    title: String,
    timing: String,
    page_bytes: u64,
    buffer_bytes: u64,
    trials: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Files {
    files: u64,
    bytes: u64,
}

/// Sender and receiver to mean, standard deviation and rate.
type Outcomes = BTreeMap<Pair, [f64; 3]>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    connection: Connection,
    window_pages: u64,
    mode: TransferMode,
    small: Outcomes,
    one: Outcomes,
    large: Outcomes,
}

/// Methods of sender and receiver.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
enum Pair {
    #[serde(rename = "rw/rw")]
    BothReadWrite,
    #[serde(rename = "rw/mmap")]
    ReceiverMaps,
    #[serde(rename = "mmap/rw")]
    SenderMaps,
    #[serde(rename = "mmap/mmap")]
    BothMap,
}

impl Pair {
    fn sender_and_receiver(self) -> (Method, Method) {
        match self {
            Self::BothReadWrite => (Method::ReadWrite, Method::ReadWrite),
            Self::ReceiverMaps => (Method::ReadWrite, Method::Map),
            Self::SenderMaps => (Method::Map, Method::ReadWrite),
            Self::BothMap => (Method::Map, Method::Map),
        }
    }
}

impl File {
    /// The machine and the findings; none of the figures is a metric of kelvin.
    pub(super) fn reference(self) -> Reference {
        let machine = self.machine;
        let lines = [
            ("Timing", machine.timing),
            ("Page", format!("{} B", machine.page_bytes)),
            ("Buffer of read/write", format!("{} B", machine.buffer_bytes)),
            ("Trials", machine.trials.to_string()),
        ];
        Reference {
            id: Name::intern(&machine.id),
            title: machine.title,
            machine: lines.map(|(label, text)| (label.to_owned(), text)).into(),
            frequency_hz: None,
            values: Vec::new(),
            findings: self.finding.into_iter().map(|finding| finding.text).collect(),
        }
    }

    /// Everything else.
    pub(super) fn into_tables(self) -> TransferTables {
        let data_set = |(size, set): (DataSetSize, Files)| DataSet { size, files: set.files, bytes: set.bytes };
        TransferTables {
            timing: self.machine.timing,
            page_bytes: self.machine.page_bytes,
            buffer_bytes: self.machine.buffer_bytes,
            trials: self.machine.trials,
            data_sets: self.datasets.into_iter().map(data_set).collect(),
            cells: self.table.iter().flat_map(Table::cells).collect(),
            findings: self.finding.into_iter().map(|finding| finding.text).collect(),
            page_descriptors: self.page_descriptor,
        }
    }
}

impl Table {
    fn cells(&self) -> Vec<TransferCell> {
        let sets =
            [(DataSetSize::Small, &self.small), (DataSetSize::One, &self.one), (DataSetSize::Large, &self.large)];
        let mut cells = Vec::new();
        for (data_set, outcomes) in sets {
            for (pair, &[mean_ms, std_ms, kib_per_ms]) in outcomes {
                let (sender, receiver) = pair.sender_and_receiver();
                let &Self { connection, window_pages, mode, .. } = self;
                cells.push(TransferCell {
                    connection,
                    window_pages,
                    mode,
                    data_set,
                    sender,
                    receiver,
                    mean_ms,
                    std_ms,
                    kib_per_ms,
                });
            }
        }
        cells
    }
}
