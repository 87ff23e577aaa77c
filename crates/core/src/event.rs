//! Events of the harness: the interface between measuring and everything that shows or stores.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Case, Measurement, Name, PlannedMeasurement, Round, Run, RunHeader, RunStatus, SkipReason};

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
        reason: SkipReason,
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

impl Run {
    /// The run of a sequence of events; `None` without a start. A sequence without an end is a partial run.
    pub fn from_events(events: impl IntoIterator<Item = Event>) -> Option<Self> {
        let mut run: Option<Self> = None;
        for event in events {
            match event {
                Event::Started(header) => run = Some(Self::from_header(*header)),
                event => run.as_mut()?.apply(event),
            }
        }
        run
    }

    /// Applies an event.
    pub fn apply(&mut self, event: Event) {
        match event {
            Event::Started(_) | Event::RoundStarted { .. } | Event::Extended { .. } => {}
            Event::RoundFinished { probe, case, round } => {
                self.seconds = self.seconds.max(round.start_seconds + round.seconds);
                self.measurement(probe, case).rounds.push(*round);
            }
            Event::CaseSkipped { probe, case, reason } => self.measurement(probe, case).skipped = Some(reason),
            Event::Finished { status, seconds, notes } => {
                self.status = status;
                self.seconds = seconds;
                self.notes.extend(notes);
            }
        }
    }

    /// The measurement of a planned case; events of an unplanned case add one, so that
    /// no reading is lost.
    fn measurement(&mut self, probe: Name, case: Case) -> &mut Measurement {
        let position = self.measurements.iter().position(|m| m.planned.probe == probe && m.planned.case == case);
        let index = position.unwrap_or_else(|| {
            let planned = PlannedMeasurement { probe, metrics: Vec::new(), case, only_input: false };
            self.measurements.push(Measurement::from_plan(planned));
            self.measurements.len() - 1
        });
        &mut self.measurements[index]
    }
}
