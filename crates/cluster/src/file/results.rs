//! What was measured of a file system.

use std::collections::BTreeMap;

use super::event::{FileEvent, FilePlan, Step};
use super::task::Activity;
use crate::results::Measured;

/// What was measured.
#[derive(Clone, Debug, PartialEq)]
pub struct FileResults {
    /// What is measured.
    pub plan: FilePlan,
    /// The memory of the host of each rank, in bytes.
    pub memory_bytes: Vec<u64>,
    /// All passes of each activity by so many ranks.
    pub steps: BTreeMap<Activity, BTreeMap<usize, Vec<Step>>>,
    /// How often data was compared with what was written, and how long that took, in seconds.
    pub verified: (usize, f64),
}

impl Measured for FileResults {
    const COMMAND: &'static str = "file";
    type Plan = FilePlan;
    type Event = FileEvent;

    fn new(plan: FilePlan) -> Self {
        Self { plan, memory_bytes: Vec::new(), steps: BTreeMap::new(), verified: (0, 0.0) }
    }

    fn add(&mut self, event: FileEvent, _: usize) {
        match event {
            FileEvent::Memory { bytes } => self.memory_bytes = bytes,
            FileEvent::Step(step) => {
                self.steps.entry(step.activity).or_default().entry(step.parts.len()).or_default().push(step);
            }
            FileEvent::Verified { seconds, .. } => self.verified = (self.verified.0 + 1, self.verified.1 + seconds),
            // The job ends by it, and says so.
            FileEvent::WrongBlock { .. } => {}
        }
    }
}
