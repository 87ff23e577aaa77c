//! Where the events of a run go: into memory, into the store, to the progress line.

use kelvin_harness::Sink;
use kelvin_model::{Event, Run};
use kelvin_store::{AppendError, Recorder};

use crate::progress::Progress;

/// Keeps the run in memory, and stores it round by round as long as the store takes it.
pub struct Record<'a> {
    run: Option<Run>,
    store: Option<Recorder<'a>>,
    /// Why the store no longer takes rounds.
    trouble: Option<AppendError>,
    progress: Progress,
}

impl<'a> Record<'a> {
    /// A record without a run as yet.
    pub fn new(store: Option<Recorder<'a>>, progress: Progress) -> Self {
        Self { run: None, store, trouble: None, progress }
    }

    /// The run, and why not all of it could be stored if so.
    pub fn into_parts(self) -> (Option<Run>, Option<AppendError>) {
        (self.run, self.trouble)
    }
}

impl Sink for Record<'_> {
    fn event(&mut self, event: &Event) {
        self.progress.event(event);
        match event {
            Event::Started(outline) => self.run = Some(Run::begin((**outline).clone())),
            event => {
                if let Some(run) = &mut self.run {
                    run.apply(event.clone());
                }
            }
        }
        if let Some(store) = &mut self.store
            && let Err(error) = store.event(event)
        {
            self.trouble = Some(error);
            self.store = None;
        }
    }
}
