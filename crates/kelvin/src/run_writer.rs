//! Who keeps a run while it is measured, and what its plan learns from.

use kelvin_core::{Labels, Run, StoredHeadline};
use kelvin_store::{AppendError, Recorder, RecordingLock, Store};

use crate::cli_error::CliError;

/// A store that keeps a run.
pub struct RunWriter {
    store: Store,
    labels: Labels,
    /// Where the run of a server is kept until it has ended.
    spool: Option<Spool>,
}

/// A local file in which a run waits for its server, and what shows that it is being recorded.
struct Spool {
    file: Store,
    server: String,
    _recording: RecordingLock,
}

impl RunWriter {
    /// Keeps a run with these labels in a store: in that of a server by way of a local one, since nothing may travel between the
    /// rounds of a run, and a server may be lost.
    ///
    /// # Errors
    /// If the local one cannot be opened or written to.
    pub fn new(
        store: Store,
        labels: Labels,
        local: impl FnOnce() -> Result<Store, CliError>,
    ) -> Result<Self, CliError> {
        store.check_space().map_err(CliError::msg)?;
        let Some(server) = store.key().map(str::to_owned) else { return Ok(Self { store, labels, spool: None }) };
        let cannot = |error: &dyn std::fmt::Display| {
            CliError::new("the run waits in a local file until its server has it, which cannot be", error)
        };
        let file = local().map_err(|error| cannot(&error))?;
        file.check_space().map_err(|error| cannot(&error))?;
        let recording = file.lock_recording().map_err(|error| cannot(&error))?;
        Ok(Self { store, labels, spool: Some(Spool { file, server, _recording: recording }) })
    }

    /// The store that the run is for, from which its plan learns.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The local file in which the run waits for its server, if that is where it goes.
    pub fn spool_file(&self) -> Option<&str> {
        self.spool.as_ref().map(|waiting| waiting.file.name())
    }

    /// Stores the run event by event.
    pub fn recorder(&self) -> Recorder<'_> {
        let recorder = match &self.spool {
            Some(Spool { file, server, .. }) => file.recorder().for_server(server),
            None => self.store.recorder(),
        };
        recorder.with_labels(self.labels.clone())
    }

    /// Stores what is known only at the end of the run.
    ///
    /// # Errors
    /// As of [`Store::store_results`].
    pub fn store_results(&self, run: &Run, headlines: &[StoredHeadline]) -> Result<(), AppendError> {
        self.spool.as_ref().map_or(&self.store, |waiting| &waiting.file).store_results(run, headlines)
    }
}
