//! The stores that keep a run while it is measured, and that its plan learns from.

use kelvin_core::{Labels, Run, StoredHeadline};
use kelvin_store::{AppendError, Recorder, Store, StoreLock};

use crate::cli::{Kept, StoreArgs};
use crate::cli_error::{CliError, Context};
use crate::stores::{open_local_store, open_store};

/// A store that keeps a run.
pub struct RunWriter {
    /// The store that the run is for, from which its plan learns.
    pub store: Store,
    /// Where the run of a server is kept until it has ended.
    spool: Option<Spool>,
}

/// A local file in which a run waits for its server, and what shows that it is being recorded.
struct Spool {
    file: Store,
    server: String,
    _recording: StoreLock,
}

impl RunWriter {
    /// Keeps a run in the store that the command line names: in that of a server by way of a local one, since nothing
    /// may travel between the rounds of a run, and a server may be lost.
    ///
    /// # Errors
    /// A store that cannot be opened or written to.
    pub fn open(args: &StoreArgs) -> Result<Self, CliError> {
        const CANNOT_WAIT: &str = "the run waits in a local file until its server has it, which cannot be";
        let store = open_store(args)?;
        store.check_space()?;
        let Some(server) = store.key().map(str::to_owned) else { return Ok(Self { store, spool: None }) };
        let file = open_local_store().context(CANNOT_WAIT)?;
        file.check_space().context(CANNOT_WAIT)?;
        let recording = file.lock_recording().context(CANNOT_WAIT)?;
        Ok(Self { store, spool: Some(Spool { file, server, _recording: recording }) })
    }

    /// The local file in which the run waits for its server, if that is where it goes.
    pub fn spool_file(&self) -> Option<&str> {
        self.spool.as_ref().map(|spool| spool.file.name())
    }

    /// Stores the run with these labels event by event, or, if it is kept by its headlines, without its samples.
    pub fn recorder(&self, labels: &Labels, kept: Kept) -> Recorder<'_> {
        let recorder = match &self.spool {
            Some(Spool { file, server, .. }) => file.recorder().for_server(server),
            None => self.store.recorder(),
        };
        let recorder = recorder.with_labels(labels.clone());
        if kept == Kept::Samples { recorder } else { recorder.without_samples() }
    }

    /// Stores what is known only at the end of the run.
    ///
    /// # Errors
    /// As of [`Store::store_results`].
    pub fn store_results(&self, run: &Run, headlines: &[StoredHeadline]) -> Result<(), AppendError> {
        self.spool.as_ref().map_or(&self.store, |spool| &spool.file).store_results(run, headlines)
    }
}
