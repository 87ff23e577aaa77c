//! What a report of a fleet is made from: hosts, their runs, and the headlines of each run.

use std::collections::BTreeMap;

use kelvin_core::{Case, Machine, Metric};

/// A host, with its facts by its newest run.
#[derive(Clone, Debug, Default)]
pub struct HostInput {
    /// What people call it.
    pub label: String,
    /// Its id, as in [`Machine`]; `None` in runs of versions that did not read it, which are told apart by machine identity.
    pub host: Option<String>,
    /// Its facts.
    pub machine: Machine,
    /// Tags of its newest run.
    pub tags: BTreeMap<String, String>,
}

/// The headlines of a metric at a case.
#[derive(Clone, Debug)]
pub struct SeriesInput {
    /// The metric, as the newest run that has it defines it.
    pub metric: Metric,
    /// The case.
    pub case: Case,
    /// One headline for each run of [`FleetInput::run_hosts`], in the metric's unit; not a number where a run has none. Seven digits are
    /// more than any figure has, and halve the memory of ten thousand hosts.
    pub values: Vec<f32>,
}

/// Hosts with the headlines of their runs.
#[derive(Clone, Debug, Default)]
pub struct FleetInput {
    /// The hosts.
    pub hosts: Vec<HostInput>,
    /// For each run the index of its host, in ascending order: the runs of a host follow each other.
    pub run_hosts: Vec<u32>,
    /// The series. Those of one metric follow each other.
    pub series: Vec<SeriesInput>,
}

impl FleetInput {
    /// The range of each host's runs.
    pub(crate) fn run_ranges(&self) -> Vec<std::ops::Range<usize>> {
        let start_of = |host: usize| self.run_hosts.partition_point(|&run_host| (run_host as usize) < host);
        (0..self.hosts.len()).map(|host| start_of(host)..start_of(host + 1)).collect()
    }
}
