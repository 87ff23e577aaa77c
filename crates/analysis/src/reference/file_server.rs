//! The study of a file server on a network of 100 Mb/s under closed-loop clients: capacities and what was seen.

use kelvin_model::{Name, Reference};
use serde::{Deserialize, Serialize};

use super::rows::Finding;

/// What the study published.
#[derive(Clone, Debug, PartialEq)]
pub struct FileServerCase {
    /// The server's hardware.
    pub server: String,
    /// The clients' hardware.
    pub client: String,
    /// Number of files.
    pub files: u64,
    /// Bytes of each file, and so of each request.
    pub file_bytes: u64,
    /// What disk and network can do, measured alone.
    pub capacity: Capacity,
    /// The three cases, 120 s each.
    pub loads: Vec<ServerLoad>,
    /// What the laws of queueing say of these figures.
    pub findings: Vec<String>,
}

/// What the resources can do, measured alone.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Capacity {
    /// Bytes per second that the disk reads, cache dropped.
    pub disk_read_bytes_per_s: f64,
    /// The same as requests per second.
    pub disk_requests_per_s: f64,
    /// Bits per second of one TCP stream.
    pub network_bits_per_s: f64,
    /// The same as requests per second.
    pub network_requests_per_s: f64,
}

/// One case: a pattern of requests, swept over the number of clients.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerLoad {
    /// Its name.
    pub name: String,
    /// Seconds that a client thinks between a response and the next request.
    pub think_seconds: f64,
    /// Which files are asked for.
    pub pattern: Pattern,
    /// Clients at the knee, as it was seen.
    pub knee_clients: u64,
    /// Requests per second beyond the knee, where published.
    pub saturation_requests_per_s: Option<f64>,
    /// The resource that its authors found to be the limit.
    pub bottleneck: String,
    /// Mean of what the disk read at the knee, bytes per second, where published.
    pub disk_read_bytes_per_s: Option<f64>,
    /// Readings of the disk at the knee, in the megabytes per second of the tool that printed them.
    #[serde(default)]
    pub disk_read_readings_mb: Vec<f64>,
    /// What else is to be known of it.
    pub note: Option<String>,
}

/// Which files are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pattern {
    /// Any of them, each as likely.
    Random,
    /// One and the same.
    Fixed,
}

/// The file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    machine: Machine,
    capacity: Capacity,
    case: Vec<ServerLoad>,
    finding: Vec<Finding>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Machine {
    id: String,
    title: String,
    server: String,
    client: String,
    files: u64,
    file_bytes: u64,
}

impl File {
    /// The machines and the findings; none of the figures is a metric of kelvin.
    pub(super) fn reference(self) -> Reference {
        let machine = self.machine;
        let lines = [
            ("Server", machine.server),
            ("Client", machine.client),
            ("Files", format!("{} of {} B", machine.files, machine.file_bytes)),
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
    pub(super) fn into_case(self) -> FileServerCase {
        FileServerCase {
            server: self.machine.server,
            client: self.machine.client,
            files: self.machine.files,
            file_bytes: self.machine.file_bytes,
            capacity: self.capacity,
            loads: self.case,
            findings: self.finding.into_iter().map(|finding| finding.text).collect(),
        }
    }
}
