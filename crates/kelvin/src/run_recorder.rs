//! Where the events of a run go: memory, the store, the progress line.

use std::collections::HashMap;

use kelvin_analysis::{RunProgress, steady_core};
use kelvin_core::{Case, CaseStatus, CoreSteadyState, Event, Name, Run};
use kelvin_harness::{EventSink, RunObserver};
use kelvin_store::{AppendError, Recorder};

use crate::progress::RunStatusLine;
use crate::redact::Redaction;

/// Keeps the run in memory, and stores it round by round while the store accepts it.
pub struct RunRecorder<'a> {
    /// The run, once it has begun.
    pub run: Option<Run>,
    run_progress: RunProgress,
    /// The store, while it accepts rounds.
    pub store: Option<Recorder<'a>>,
    /// Why the store no longer accepts rounds.
    pub store_error: Option<AppendError>,
    /// The end of the run, held back until everything else is stored.
    pub end: Option<Event>,
    /// The progress line.
    pub progress: RunStatusLine,
    redaction: Redaction,
}

impl<'a> RunRecorder<'a> {
    /// A record without a run yet.
    pub fn new(store: Option<Recorder<'a>>, redaction: Redaction) -> Self {
        Self {
            run: None,
            run_progress: RunProgress::default(),
            store,
            store_error: None,
            end: None,
            progress: RunStatusLine::new(),
            redaction,
        }
    }
}

impl EventSink for RunRecorder<'_> {
    fn event(&mut self, event: &Event) {
        self.progress.event(event);
        let event = &self.redaction.redact_event(event);
        match event {
            Event::Started(header) => self.run = Some(Run::from_header((**header).clone())),
            event => self.run.iter_mut().for_each(|run| run.apply(event.clone())),
        }
        if matches!(event, Event::Finished { .. }) {
            self.end = Some(event.clone());
            return;
        }
        if let Some(store) = &mut self.store
            && let Err(error) = store.event(event)
        {
            self.store_error = Some(error);
            self.store = None;
        }
    }
}

impl RunObserver for RunRecorder<'_> {
    fn case_status(&mut self) -> HashMap<(Name, Case), CaseStatus> {
        self.run.as_ref().map_or_else(HashMap::new, |run| self.run_progress.update(run))
    }

    fn steady_core(&self) -> Option<CoreSteadyState> {
        self.run.as_ref().and_then(steady_core)
    }
}
