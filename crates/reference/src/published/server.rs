//! The study of a file server: its capacities and cases, as they were published.

use serde::Deserialize;

/// The file.
#[derive(Debug, Deserialize)]
pub struct ServerStudyFile {
    /// What was served.
    pub machine: ServerStudyMachine,
    /// What disk and network gave alone.
    pub capacity: PublishedCapacity,
    /// The cases, in the order of the study.
    pub case: Vec<PublishedServerCase>,
}

/// What was served.
#[derive(Debug, Deserialize)]
pub struct ServerStudyMachine {
    /// The study in a line.
    pub title: String,
    /// Bytes of a file.
    pub file_bytes: f64,
}

/// What disk and network gave alone.
#[derive(Debug, Deserialize)]
pub struct PublishedCapacity {
    /// Requests per second that the disk gave.
    pub disk_requests_per_s: f64,
    /// Requests per second that the network gave.
    pub network_requests_per_s: f64,
}

/// One case.
#[derive(Debug, Deserialize)]
pub struct PublishedServerCase {
    /// Its name.
    pub name: String,
    /// Think time of a user.
    pub think_seconds: f64,
    pattern: String,
    /// The knee, as a number of users.
    pub knee_clients: u64,
    /// Requests per second at saturation, where they were published.
    pub saturation_requests_per_s: Option<f64>,
    /// What the study named as the limit.
    pub bottleneck: String,
    /// The mean of what the disk read at the knee.
    pub disk_read_bytes_per_s: Option<f64>,
}

impl PublishedServerCase {
    /// Whether all requests are for one file.
    pub fn is_fixed(&self) -> bool {
        self.pattern == "fixed"
    }

    /// The throughput at saturation; of a case without one that of the others, whose link is the same.
    pub fn saturation(&self, file: &ServerStudyFile) -> Option<f64> {
        self.saturation_requests_per_s.or_else(|| file.case.iter().find_map(|case| case.saturation_requests_per_s))
    }
}
