//! The study of a file server: its capacities and cases, as they were published.

use serde::Deserialize;

/// The file.
#[derive(Deserialize)]
pub(crate) struct ServerStudyFile {
    pub(crate) machine: ServerStudyMachine,
    pub(crate) capacity: PublishedCapacity,
    pub(crate) case: Vec<PublishedServerCase>,
}

#[derive(Deserialize)]
pub(crate) struct ServerStudyMachine {
    pub(crate) title: String,
    pub(crate) file_bytes: f64,
}

/// What disk and network gave alone.
#[derive(Deserialize)]
pub(crate) struct PublishedCapacity {
    pub(crate) disk_requests_per_s: f64,
    pub(crate) network_requests_per_s: f64,
}

/// One case.
#[derive(Deserialize)]
pub(crate) struct PublishedServerCase {
    pub(crate) name: String,
    pub(crate) think_seconds: f64,
    pattern: String,
    pub(crate) knee_clients: u64,
    pub(crate) saturation_requests_per_s: Option<f64>,
    pub(crate) bottleneck: String,
    /// The mean of what the disk read at the knee.
    pub(crate) disk_read_bytes_per_s: Option<f64>,
}

impl PublishedServerCase {
    /// Whether all requests are for one file.
    pub(crate) fn is_fixed(&self) -> bool {
        self.pattern == "fixed"
    }

    /// The throughput at saturation; of a case without one that of the others, whose link is the same.
    pub(crate) fn saturation(&self, file: &ServerStudyFile) -> Option<f64> {
        self.saturation_requests_per_s.or_else(|| file.case.iter().find_map(|case| case.saturation_requests_per_s))
    }
}
