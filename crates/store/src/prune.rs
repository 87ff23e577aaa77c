//! Old runs removed: all but the newest of each machine and mode.

use std::collections::BTreeMap;

use crate::error::DatabaseError;
use crate::labels::is_unmarked;
use crate::query::run_summaries;
use crate::sql::values;
use crate::{RunFilter, RunSummary, Store, check};

/// How long a run without an end may still be running: no run is longer than a week.
const MAX_RUN_US: i64 = 7 * 24 * 3600 * 1_000_000;

/// What stays when old runs are removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PruneOptions {
    /// This many of the newest runs of each machine and mode stay.
    pub keep: usize,
    /// Whether runs with a note, or a tag that is not of a launcher, go too.
    pub include_labelled: bool,
    /// Now, in microseconds since 1970: a run without an end that began less than a week ago may be running, and stays.
    pub now: i64,
}

impl PruneOptions {
    /// The runs to be removed, of these lines, which are oldest first.
    fn select(self, lines: Vec<RunSummary>) -> Vec<RunSummary> {
        let mut newer_counts: BTreeMap<(String, String), usize> = BTreeMap::new();
        let mut is_old = |line: &RunSummary| {
            let count = newer_counts.entry((line.machine.clone(), line.mode.clone())).or_default();
            *count += 1;
            *count > self.keep
        };
        let may_be_running = |line: &RunSummary| {
            let started_us = check::parse_started(&line.started);
            line.status.is_none()
                && started_us.is_none_or(|started_us| self.now.saturating_sub(started_us) < MAX_RUN_US)
        };
        let is_retained = |line: &RunSummary| {
            may_be_running(line)
                || line.pending_server.is_some()
                || (!self.include_labelled && !is_unmarked(&line.labels))
        };
        let mut old_runs: Vec<RunSummary> =
            lines.into_iter().rev().filter(|line| is_old(line)).filter(|line| !is_retained(line)).collect();
        old_runs.reverse();
        old_runs
    }
}

impl Store {
    /// The runs that [`prune`](Self::prune) would remove at this moment, oldest first.
    ///
    /// # Errors
    /// If the store fails.
    pub fn prunable(&self, prune: PruneOptions) -> Result<Vec<RunSummary>, DatabaseError> {
        self.list(&RunFilter::default()).map(|lines| prune.select(lines))
    }

    /// Removes old runs, all of them or none; returns them, oldest first. Besides the runs that [`PruneOptions`] keeps, those stay that a
    /// server is yet to get. [`reclaim`](Self::reclaim) returns the space to the file system.
    ///
    /// # Errors
    /// If the store fails.
    pub fn prune(&self, prune: PruneOptions) -> Result<Vec<RunSummary>, DatabaseError> {
        self.in_transaction(|engine| {
            let old_runs = prune.select(run_summaries(engine, &RunFilter::default())?);
            let mut ids = old_runs.iter().map(|line| values![&line.id].to_vec());
            engine.execute_each("DELETE FROM run WHERE id = $1", &mut ids)?;
            Ok(old_runs)
        })
    }
}
