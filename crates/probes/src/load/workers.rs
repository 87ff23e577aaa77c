//! What the same server gives with twice as many workers: an intervention.
//!
//! It shows whether the number of workers limits a server. It must not be taken for a tuned server: twice as many are enough to tell, not
//! the best number.

use kelvin_core::catalogue::load::MORE_WORKERS_METRICS;

use super::users;
use crate::prelude::*;

pub(super) static PROBE: Probe = Probe {
    summary: "A file server under load: requests a second of the same server with twice as many workers",
    method: Method {
        how: "Where the study starts the server itself, with a pool of workers and fewer of these than of the most users, a second one is \
              started for the same files with twice the workers, on the same CPUs and in the same control groups, and visited three times by \
              the most users before the return to the fewest. The first server has no users meanwhile. The ratio to the visits by as many \
              users before has the errors of all of them together. A server whose memory is limited is not tested so: its page cache is \
              its own.",
        prediction: "None: it depends on what the workers wait for, which is the question.",
        not_for: "The best number of workers. A server that runs already, which the study does not start.",
        pitfalls: &[
            "Workers that all have a connection taken for a full resource: where they wait for a lock, more of them serve no more.",
            "A run with more workers and no more users: each worker of a pool has one connection.",
        ],
        sources: &["N. J. Gunther, Guerrilla Capacity Planning, Springer 2007: what contends does not scale"],
    },
    // With the most users of the published study.
    cases: |machine, effort| (users::PROBE.cases)(machine, effort).pop().into_iter().collect(),
    run: super::refuse_single_round,
    predict: |_, _, _| Err(NoPrediction::new("it depends on what the workers wait for, which is the question")),
    ..Probe::study(MORE_WORKERS_METRICS)
};
