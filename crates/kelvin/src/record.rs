//! Where the events of a run go: memory, the store, the progress line.

use std::collections::HashMap;

use kelvin_analysis::{Standings, steady_core};
use kelvin_harness::{Judge, Sink};
use kelvin_model::{Case, Event, Name, Run, Standing, SteadyCore};
use kelvin_store::{AppendError, Recorder};

use crate::private::Told;
use crate::progress::Progress;

/// Keeps the run in memory, and stores it round by round while the store accepts it.
pub struct Record<'a> {
    run: Option<Run>,
    standings: Standings,
    store: Option<Recorder<'a>>,
    /// Why the store no longer accepts rounds.
    trouble: Option<AppendError>,
    /// The end of the run, held back until everything else is stored.
    end: Option<Event>,
    progress: Progress,
    told: Told,
}

/// A finished record.
pub struct Recorded<'a> {
    /// The run.
    pub run: Option<Run>,
    /// Why not all of it could be stored.
    pub trouble: Option<AppendError>,
    /// The store and the end still to be stored.
    pub open: Option<(Recorder<'a>, Event)>,
}

impl<'a> Record<'a> {
    /// A record without a run yet.
    pub fn new(store: Option<Recorder<'a>>, progress: Progress, told: Told) -> Self {
        Self { run: None, standings: Standings::default(), store, trouble: None, end: None, progress, told }
    }

    /// The finished record. The end of the run is not stored yet: a run with a stored end is complete.
    pub fn finish(self) -> Recorded<'a> {
        Recorded { run: self.run, trouble: self.trouble, open: self.store.zip(self.end) }
    }
}

impl Sink for Record<'_> {
    fn event(&mut self, event: &Event) {
        self.progress.event(event);
        let event = &self.told.event(event);
        match event {
            Event::Started(outline) => self.run = Some(Run::begin((**outline).clone())),
            event => {
                if let Some(run) = &mut self.run {
                    run.apply(event.clone());
                }
            }
        }
        if matches!(event, Event::Finished { .. }) {
            self.end = Some(event.clone());
            return;
        }
        if let Some(store) = &mut self.store
            && let Err(error) = store.event(event)
        {
            self.trouble = Some(error);
            self.store = None;
        }
    }
}

impl Judge for Record<'_> {
    fn standings(&mut self) -> HashMap<(Name, Case), Standing> {
        self.run.as_ref().map_or_else(HashMap::new, |run| self.standings.of(run))
    }

    fn core(&self) -> Option<SteadyCore> {
        self.run.as_ref().and_then(steady_core)
    }
}
