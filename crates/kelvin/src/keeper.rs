//! Who keeps a run while it is measured, and what its plan learns from.

use kelvin_model::{Headline, Labels, Run};
use kelvin_store::{AppendError, Recorder, Recording, Store};

use crate::fault::Fault;

/// A store that keeps a run.
pub struct Keeper {
    store: Store,
    labels: Labels,
    /// Where the run of a server is kept until it has ended.
    waiting: Option<Waiting>,
}

/// A local file in which a run waits for its server, and what shows that it is being recorded.
struct Waiting {
    file: Store,
    server: String,
    _recording: Recording,
}

impl Keeper {
    /// Keeps a run with these labels in a store: in that of a server by way of a local one, since nothing may travel between the
    /// rounds of a run, and a server may be lost.
    ///
    /// # Errors
    /// If the local one cannot be opened or written to.
    pub fn new(store: Store, labels: Labels, local: impl FnOnce() -> Result<Store, Fault>) -> Result<Self, Fault> {
        store.has_space().map_err(Fault::because)?;
        let Some(server) = store.key().map(str::to_owned) else { return Ok(Self { store, labels, waiting: None }) };
        let cannot = |error: &dyn std::fmt::Display| {
            Fault::new("the run waits in a local file until its server has it, which cannot be", error)
        };
        let file = local().map_err(|error| cannot(&error))?;
        file.has_space().map_err(|error| cannot(&error))?;
        let recording = file.recording().map_err(|error| cannot(&error))?;
        Ok(Self { store, labels, waiting: Some(Waiting { file, server, _recording: recording }) })
    }

    /// The store that the run is for, from which its plan learns.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The local file in which the run waits for its server, if that is where it goes.
    pub fn waits_in(&self) -> Option<&str> {
        self.waiting.as_ref().map(|waiting| waiting.file.name())
    }

    /// Stores the run event by event.
    pub fn recorder(&self) -> Recorder<'_> {
        let recorder = match &self.waiting {
            Some(Waiting { file, server, .. }) => file.recorder().for_server(server),
            None => self.store.recorder(),
        };
        recorder.labelled(self.labels.clone())
    }

    /// Stores what is known only at the end of the run.
    ///
    /// # Errors
    /// As of [`Store::keep`].
    pub fn keep(&self, run: &Run, headlines: &[Headline]) -> Result<(), AppendError> {
        self.waiting.as_ref().map_or(&self.store, |waiting| &waiting.file).keep(run, headlines)
    }
}
