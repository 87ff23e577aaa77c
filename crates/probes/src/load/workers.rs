//! What the same server gives with twice as many workers: an intervention.
//!
//! It shows whether the number of workers limits a server. It must not be taken for a tuned server: twice as many show it, and are not
//! the best number.

use kelvin_core::catalogue::load::MORE_WORKERS_METRICS;

use super::users;
use crate::prelude::*;

pub(super) static PROBE: Probe = Probe {
    summary: "A file server under load: requests a second of the same server with twice as many workers",
    method: include_str!("workers.md"),
    // With the most users of the published study.
    cases: |machine, effort| (users::PROBE.cases)(machine, effort).pop().into_iter().collect(),
    run: super::refuse_single_round,
    predict: |_, _, _| Err(NoPrediction::new("it depends on what the workers wait for, which is the question")),
    ..Probe::study(MORE_WORKERS_METRICS)
};
