//! Where the events of a run go: into memory, into the store, to the progress line.

use kelvin_harness::Sink;
use kelvin_model::{Event, Run};
use kelvin_store::{AppendError, Recorder};

use crate::private::Told;
use crate::progress::Progress;

/// Keeps the run in memory, and stores it round by round as long as the store takes it.
pub struct Record<'a> {
    run: Option<Run>,
    store: Option<Recorder<'a>>,
    /// Why the store no longer takes rounds.
    trouble: Option<AppendError>,
    /// The end of the run, held back from the store until all that belongs to the run is stored.
    end: Option<Event>,
    progress: Progress,
    told: Told,
}

/// What a record ends in.
pub struct Recorded<'a> {
    /// The run.
    pub run: Option<Run>,
    /// Why not all of it could be stored.
    pub trouble: Option<AppendError>,
    /// Where its end is still to be stored, and that end.
    pub open: Option<(Recorder<'a>, Event)>,
}

impl<'a> Record<'a> {
    /// A record without a run as yet.
    pub fn new(store: Option<Recorder<'a>>, progress: Progress, told: Told) -> Self {
        Self { run: None, store, trouble: None, end: None, progress, told }
    }

    /// What came of it. The end of the run is not stored yet: a run whose end is stored lacks nothing.
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
