//! Events of the harness: the interface between measuring and everything that shows or stores.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Case, Name, Round, RunHeader, RunStatus};

/// One event of a run. A stored sequence of events is the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// The run begins: everything that is known before the first measurement.
    Started(Box<RunHeader>),
    /// A probe is about to run one round of one case; nothing may be done until the next event.
    RoundStarted {
        /// Id of the probe.
        probe: Name,
        /// The case.
        case: Case,
        /// Rounds done so far, all cases together.
        done: usize,
        /// Rounds planned at this moment, all cases together.
        planned: usize,
        /// Seconds left by the plan.
        seconds_left: f64,
    },
    /// A round is over, well or not.
    RoundFinished {
        /// Id of the probe.
        probe: Name,
        /// The case.
        case: Case,
        /// The round.
        round: Box<Round>,
    },
    /// A case will not be measured, for a reason.
    CaseSkipped {
        /// Id of the probe.
        probe: Name,
        /// The case.
        case: Case,
        /// The reason.
        reason: crate::SkipReason,
    },
    /// The minimum of rounds takes longer than was said: the run will take this many seconds in all.
    Extended {
        /// The seconds.
        seconds: f64,
    },
    /// The run is over.
    Finished {
        /// How it ended.
        status: RunStatus,
        /// Seconds from start to end.
        seconds: f64,
        /// What the reader should know: targets not reached, points dropped.
        notes: Vec<String>,
    },
}
