//! Studies that published tables instead of rows: what they ran on and what they found.

use kelvin_core::{Name, Reference};
use serde::Deserialize;

use super::rows::PublishedFinding;

/// The parts of a file that a report shows.
#[derive(Deserialize)]
pub(super) struct TableFile {
    machine: TableMachine,
    finding: Vec<PublishedFinding>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TableMachine {
    id: String,
    title: String,
    timing: Option<String>,
    page_bytes: Option<u64>,
    buffer_bytes: Option<u64>,
    trials: Option<u64>,
    server: Option<String>,
    client: Option<String>,
    files: Option<u64>,
    file_bytes: Option<u64>,
}

impl TableFile {
    /// The machines and the findings.
    pub(super) fn into_reference(self) -> Reference {
        Reference {
            id: Name::intern(&self.machine.id),
            title: self.machine.title.clone(),
            machine: self.machine.fact_lines(),
            frequency_hz: None,
            values: Vec::new(),
            findings: self.finding.into_iter().map(|finding| finding.text).collect(),
        }
    }
}

impl TableMachine {
    fn fact_lines(self) -> Vec<(String, String)> {
        let bytes = |bytes: u64| format!("{bytes} B");
        let files = self.files.zip(self.file_bytes).map(|(files, each)| format!("{files} of {each} B"));
        let lines = [
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
