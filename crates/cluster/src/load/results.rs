//! What the generators of a load measured.

use std::collections::BTreeMap;

use serde_json::Value;

use super::event::{LoadEvent, LoadPlan};
use crate::results::Measured;

/// What was measured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoadResults {
    /// What was asked for.
    pub plan: LoadPlan,
    /// When it began, in seconds since 1970 by the clock of rank 0, if it came so far.
    pub start_s: Option<f64>,
    /// What each generator printed, by rank, with its times on the clock of rank 0.
    pub documents: BTreeMap<usize, Value>,
    /// Generators that measured nothing, with the reason.
    pub failures: BTreeMap<usize, String>,
}

impl Measured for LoadResults {
    const COMMAND: &'static str = "load";
    type Plan = LoadPlan;
    type Event = LoadEvent;

    fn new(plan: LoadPlan) -> Self {
        Self { plan, ..Self::default() }
    }

    fn add(&mut self, event: LoadEvent, _ranks: usize) {
        match event {
            LoadEvent::Schedule { start_s } => self.start_s = Some(start_s),
            LoadEvent::Generator { rank, document } => drop(self.documents.insert(rank, document)),
            LoadEvent::GeneratorFailed { rank, reason } => drop(self.failures.insert(rank, reason)),
            LoadEvent::Merged { .. } => {}
        }
    }
}
